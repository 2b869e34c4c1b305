// A value as a tree, by the ARIA pattern: one stop of the Tab key, arrows inside. What is folded is
// not in the page, and large collections come by the hundred, so that size does not matter.

import { add, el, freshId } from "./dom.js";
import { count, cut, plural } from "./format.js";
import { described, short } from "../api/json-values.js";
import { Marks, SIGNS } from "./changes.js";
import { treeKeys } from "./tree-keys.js";

const PAGE = 100;
const LONG = 200;
const nodes = new WeakMap();

/**
 * A tree of roots `{key, value, path}`. `opened` is a set of paths that are unfolded; it is kept up
 * to date, so that the next tree of the same place looks alike.
 */
export function tree(label, roots, { opened = new Set(), marks = new Marks() } = {}) {
  const top = el("ul", { role: "tree", "aria-label": label, class: "tree" });
  const look = { opened, marks };
  roots.forEach((root, i) => top.append(item(root, 1, i + 1, roots.length, look)));
  top.querySelector("[role=treeitem]")?.setAttribute("tabindex", "0");
  treeKeys(top, { fold, unfold });
  return top;
}

/** The tree of one value alone: its children are the roots. */
export function treeOf(label, value, options = {}) {
  const found = described(value);
  if (!found.children) return tree(label, [{ key: null, value, path: "/" }], options);
  if (found.children > PAGE) {
    const opened = options.opened ?? new Set();
    opened.add("/");
    return tree(label, [{ key: found.type, value, path: "/" }], { ...options, opened });
  }
  const roots = Array.from({ length: found.children }, (_, i) => {
    const child = found.child(i);
    return { key: child.key, value: child.value, path: child.pointer };
  });
  return tree(label, roots, options);
}

function item(node, level, position, size, look) {
  const found = described(node.value);
  const gone = look.marks.goneBelow(node.path);
  const isLong = found.type === "string" && found.text.length > LONG;
  const canOpen = found.children > 0 || isLong || gone.length > 0;
  const row = el("div", { class: "tree-row", id: freshId("node") });
  const li = el("li", {
    role: "treeitem", tabindex: "-1", "aria-level": level, "aria-posinset": position,
    "aria-setsize": size, "aria-labelledby": row.id, "aria-expanded": canOpen ? "false" : null,
    "data-path": node.path,
  }, row);
  nodes.set(li, { node, found, gone, isLong, level, look });
  add(row, [
    el("span", { class: "twist", "aria-hidden": "true" }),
    node.key !== null && el("span", { class: "tree-key" }, String(node.key)),
    node.key !== null && el("span", { class: "punct" }, ": "),
    shownValue(found, node.value, canOpen),
    mark(node, look.marks),
  ]);
  row.addEventListener("click", () => {
    if (!canOpen) return;
    if (li.getAttribute("aria-expanded") === "true") fold(li);
    else unfold(li);
  });
  if (canOpen && look.opened.has(node.path)) unfold(li);
  return li;
}

function shownValue(found, value, canOpen) {
  if (found.children === undefined) {
    const text = found.type === "string" ? JSON.stringify(cut(found.text, LONG)) : found.text;
    const isTagged = !["string", "number", "boolean", "none"].includes(found.type);
    return [
      el("span", { class: `leaf leaf-${isTagged ? "tagged" : found.type}` }, text),
      isTagged && el("span", { class: "kind" }, ` ${found.type}`),
      canOpen && el("span", { class: "kind" }, ` ${count(found.text.length)} characters`),
    ];
  }
  const what = `${found.type}, ${plural(found.children, "item")}`;
  return [
    el("span", { class: "preview" }, short(value, 48)),
    found.children > 0 && el("span", { class: "kind" }, ` ${what}`),
  ];
}

function mark(node, marks) {
  const kind = node.gone ? "removed" : marks.kindOf(node.path);
  if (kind) return el("span", { class: `mark ${kind}` }, `${SIGNS[kind]} ${kind}`);
  return marks.hasInside(node.path) && el("span", { class: "mark inside" }, "• changed inside");
}

/** Show what is below an item. */
export function unfold(li) {
  if (li.getAttribute("aria-expanded") !== "false") return;
  const { node, found, gone, isLong, level, look } = nodes.get(li);
  li.setAttribute("aria-expanded", "true");
  look.opened.add(node.path);
  const group = el("ul", { role: "group" });
  li.append(group);
  if (isLong) group.append(wholeText(found.text, level + 1));
  const size = (found.children ?? 0) + gone.length;
  gone.forEach((each, i) => {
    const lost = { key: each.key, value: each.before ?? null, path: `${each.path}\u0000gone`, gone: true };
    group.append(item(lost, level + 1, i + 1, size, look));
  });
  page(group, li, 0);
}

/** Hide it again. */
export function fold(li) {
  if (li.getAttribute("aria-expanded") !== "true") return;
  li.setAttribute("aria-expanded", "false");
  nodes.get(li).look.opened.delete(nodes.get(li).node.path);
  li.querySelector(":scope > [role=group]")?.remove();
}

function page(group, li, from) {
  const { node, found, gone, level, look } = nodes.get(li);
  const all = found.children ?? 0;
  const to = Math.min(from + PAGE, all);
  for (let i = from; i < to; i += 1) {
    const { key, value, pointer } = found.child(i);
    const below = { key, value, path: node.path + pointer };
    group.append(item(below, level + 1, gone.length + i + 1, all + gone.length, look));
  }
  if (to < all) group.append(more(group, li, to, all));
}

function more(group, li, from, all) {
  const row = el("div", { class: "tree-row more", id: freshId("node") },
    `show ${count(Math.min(PAGE, all - from))} more of ${count(all - from)}`);
  const last = el("li", {
    role: "treeitem", tabindex: "-1", "aria-level": nodes.get(li).level + 1, "aria-labelledby": row.id,
  }, row);
  const go = () => {
    const hadFocus = document.activeElement === last;
    last.remove();
    page(group, li, from);
    if (hadFocus) group.children[group.children.length - 1]?.focus();
  };
  row.addEventListener("click", go);
  last.addEventListener("activate", go);
  return last;
}

function wholeText(text, level) {
  const row = el("div", { class: "tree-row whole", id: freshId("node") }, text);
  return el("li", {
    role: "treeitem", tabindex: "-1", "aria-level": level, "aria-labelledby": row.id,
  }, row);
}
