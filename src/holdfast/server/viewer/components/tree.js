// A value as a tree, by the ARIA pattern: one tab stop, arrow keys inside. Collapsed items are not in the page, and
// large collections are shown a hundred items at a time, so the size of a value does not matter.

import { describeValue, previewValue } from "../api/json-values.js";
import { mediaTypeOf } from "../api/references.js";
import { blobView } from "./blob.js";
import { ChangeIndex, changeMark } from "./changes.js";
import { append, el, freshId } from "./dom.js";
import { count, plural, truncate } from "./format.js";
import { addTreeKeys } from "./tree-keys.js";

const PAGE = 100;
const MAX_TEXT = 200;
const nodes = new WeakMap();

/**
 * Create a tree of roots `{key, value, path}`. `expanded` is the set of expanded paths. It is updated, so that the
 * next tree with the same set looks alike. `blobs` downloads the contents of references. Nodes that are not values
 * have a function `describe`, and `onPick(node)` is called for the leaves.
 */
export function createTree(label, roots, given = {}) {
  const { expanded = new Set(), changes = new ChangeIndex(), blobs = null } = given;
  const tree = el("ul", { role: "tree", "aria-label": label, class: "tree" });
  const options = { expanded, changes, blobs, describe: given.describe ?? describeValue, onPick: given.onPick };
  roots.forEach((root, i) => tree.append(treeItem(root, 1, i + 1, roots.length, options)));
  tree.querySelector("[role=treeitem]")?.setAttribute("tabindex", "0");
  addTreeKeys(tree, { collapse, expand });
  return tree;
}

/** Create the tree of one value; its children are the roots. */
export function valueTree(label, value, options = {}) {
  const described = describeValue(value);
  if (!described.children) return createTree(label, [{ key: null, value, path: "/" }], options);
  if (described.children > PAGE) {
    const expanded = options.expanded ?? new Set();
    expanded.add("/");
    return createTree(label, [{ key: described.type, value, path: "/" }], { ...options, expanded });
  }
  const roots = Array.from({ length: described.children }, (_, i) => {
    const child = described.child(i);
    return { key: child.key, value: child.value, path: child.pointer, mediaType: mediaTypeOf(value) };
  });
  return createTree(label, roots, options);
}

function treeItem(node, level, position, size, options) {
  const described = options.describe(node.value);
  const removed = options.changes.removedBelow(node.path);
  const isLongText = described.type === "string" && described.text.length > MAX_TEXT;
  const hasContent = described.reference !== undefined && options.blobs !== null;
  const canExpand = described.children > 0 || isLongText || hasContent || removed.length > 0;
  const row = el("div", { class: "tree-row", id: freshId("node") });
  const item = el("li", {
    role: "treeitem", tabindex: "-1", "aria-level": level, "aria-posinset": position,
    "aria-setsize": size, "aria-labelledby": row.id, "aria-expanded": canExpand ? "false" : null,
    "data-path": node.path,
  }, row);
  nodes.set(item, { node, described, removed, isLongText, hasContent, level, options });
  append(row, [
    el("span", { class: "toggle", "aria-hidden": "true" }),
    node.key !== null && el("span", { class: "tree-key" }, String(node.key)),
    node.key !== null && el("span", { class: "punct" }, described.separator ?? ": "),
    rowValue(described, node.value, isLongText),
    rowMark(node, options.changes),
  ]);
  const pick = () => options.onPick?.(node);
  item.addEventListener("activate", pick);
  row.addEventListener("click", () => {
    if (!canExpand) pick();
    else if (item.getAttribute("aria-expanded") === "true") collapse(item);
    else expand(item);
  });
  if (canExpand && options.expanded.has(node.path)) expand(item);
  return item;
}

function rowValue(described, value, isLongText) {
  if (described.children === undefined) {
    const text = described.type === "string" ? JSON.stringify(truncate(described.text, MAX_TEXT)) : described.text;
    const isTagged = !["string", "number", "boolean", "none"].includes(described.type);
    const note = described.note ?? (isTagged && described.type);
    return [
      el("span", { class: `leaf leaf-${isTagged ? "tagged" : described.type}` }, text),
      note && el("span", { class: "kind" }, ` ${note}`),
      isLongText && el("span", { class: "kind" }, ` ${count(described.text.length)} characters`),
    ];
  }
  return [
    el("span", { class: "preview" }, described.preview ?? previewValue(value, 48)),
    described.children > 0
      && el("span", { class: "kind" }, ` ${described.type}, ${plural(described.children, "item")}`),
  ];
}

function rowMark(node, changes) {
  const kind = node.isRemoved ? "removed" : changes.kindAt(node.path);
  if (kind) return changeMark(kind);
  return changes.hasChangesBelow(node.path) && el("span", { class: "mark inside" }, "• changed inside");
}

function expand(item) {
  if (item.getAttribute("aria-expanded") !== "false") return;
  const { node, described, removed, isLongText, hasContent, level, options } = nodes.get(item);
  item.setAttribute("aria-expanded", "true");
  options.expanded.add(node.path);
  const group = el("ul", { role: "group" });
  item.append(group);
  if (isLongText) group.append(textItem(described.text, level + 1));
  if (hasContent) group.append(contentItem(described.reference, level + 1, node.mediaType, options));
  const size = (described.children ?? 0) + removed.length;
  removed.forEach((each, i) => {
    const path = `${each.path}\u0000removed`; // a new value may have the path itself
    const removedNode = { key: each.key, value: each.before ?? null, path, isRemoved: true };
    group.append(treeItem(removedNode, level + 1, i + 1, size, options));
  });
  addPage(group, item, 0);
}

function collapse(item) {
  if (item.getAttribute("aria-expanded") !== "true") return;
  item.setAttribute("aria-expanded", "false");
  nodes.get(item).options.expanded.delete(nodes.get(item).node.path);
  item.querySelector(":scope > [role=group]")?.remove();
}

function addPage(group, item, from) {
  const { node, described, removed, level, options } = nodes.get(item);
  const total = described.children ?? 0;
  const to = Math.min(from + PAGE, total);
  for (let i = from; i < to; i += 1) {
    const { key, value, pointer } = described.child(i);
    const child = { key, value, path: node.path + pointer, mediaType: mediaTypeOf(node.value) };
    group.append(treeItem(child, level + 1, removed.length + i + 1, total + removed.length, options));
  }
  if (to < total) group.append(moreItem(group, item, to, total));
}

function moreItem(group, item, from, total) {
  const row = el("div", { class: "tree-row more", id: freshId("node") },
    `show ${count(Math.min(PAGE, total - from))} more of ${count(total - from)}`);
  const last = el("li", {
    role: "treeitem", tabindex: "-1", "aria-level": nodes.get(item).level + 1, "aria-labelledby": row.id,
  }, row);
  const showMore = () => {
    const hadFocus = document.activeElement === last;
    last.remove();
    addPage(group, item, from);
    if (hadFocus) group.children[group.children.length - 1]?.focus();
  };
  row.addEventListener("click", showMore);
  last.addEventListener("activate", showMore);
  return last;
}

function textItem(text, level) {
  const row = el("div", { class: "tree-row full-text", id: freshId("node") }, text);
  return el("li", {
    role: "treeitem", tabindex: "-1", "aria-level": level, "aria-labelledby": row.id,
  }, row);
}

function contentItem(reference, level, mediaType, { blobs }) {
  const row = el("div", { class: "tree-row tree-blob", id: freshId("node") }, blobView(reference, blobs, mediaType));
  return el("li", {
    role: "treeitem", tabindex: "-1", "aria-level": level, "aria-label": "content",
  }, row);
}
