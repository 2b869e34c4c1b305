// A diff of two states, entry by entry: the values before and after side by side, and the fields inside that differ.

import { isFileEntry } from "../api/file-records.js";
import { isCollection, pointerKeys, previewValue, valueAt } from "../api/json-values.js";
import { parseReference } from "../api/references.js";
import { blobView } from "./blob.js";
import { SIGNS, changeMark, kindOfOperation } from "./changes.js";
import { button, el } from "./dom.js";
import { fileDiff } from "./file-diff.js";
import { count, plural, truncate } from "./format.js";
import { valueTree } from "./tree.js";

const PAGE = 50;
const MAX_FIELDS = 100;

/** Return the numbers of added, removed and changed entries. */
export function diffSummary({ added, removed, changed, truncated }) {
  if (!added && !removed && !changed) return el("p", { class: "summary" }, "No differences.");
  const part = (kind, number) =>
    number > 0 && el("span", { class: `mark ${kind}` }, `${SIGNS[kind]} ${count(number)} ${kind}`);
  return el("p", { class: "summary" },
    part("added", added), " ", part("removed", removed), " ", part("changed", changed),
    truncated && el("span", { class: "muted" }, " (not all are listed)"));
}

/**
 * Return the list of entries, and the button that shows more of them. `blobs` are those of both sides: what downloads
 * the large values `before` and `after`.
 */
export function diffEntries({ entries }, blobs) {
  const list = el("ol", { class: "diff" });
  const more = button("", showPage, { class: "quiet" });
  let next = 0;
  function showPage() {
    list.append(...entries.slice(next, next + PAGE).map((entry) => entryItem(entry, blobs)));
    next += PAGE;
    more.hidden = next >= entries.length;
    more.textContent = `show more (${plural(entries.length - next, "entry", "entries")} left)`;
  }
  showPage();
  return [list, more];
}

function entryItem(entry, blobs) {
  const { namespace, key, kind, before, after, fields } = entry;
  if (isFileEntry(entry)) {
    return el("li", { class: `diff-entry is-${kind}` },
      el("div", { class: "diff-head" }, changeMark(kind), el("code", {}, key), el("span", { class: "kind" }, "file")),
      fileDiff(key, before, after, blobs));
  }
  const head = el("div", { class: "diff-head" }, changeMark(kind), el("code", {}, `${namespace}/${key}`));
  const hasFields = kind === "changed" && fields?.length && isCollection(before) && isCollection(after);
  const more = hasFields ? fields.length - MAX_FIELDS : 0;
  return el("li", { class: `diff-entry is-${kind}` }, head,
    hasFields && el("ul", { class: "fields" }, fields.slice(0, MAX_FIELDS).map((each) => fieldRow(each, before))),
    more > 0 && el("p", { class: "muted" }, `and ${plural(more, "more field")}`),
    hasFields ? fullValues(before, after, blobs) : columns(before, after, blobs));
}

function columns(before, after, blobs) {
  return el("div", { class: "columns" },
    column("before", before, blobs.before), column("after", after, blobs.after));
}

function column(name, value, blobs) {
  return el("div", { class: `column ${name}` },
    el("h4", {}, name),
    value === undefined ? el("p", { class: "muted" }, "absent") : columnValue(name, value, blobs));
}

function columnValue(name, value, blobs) {
  const reference = parseReference(value);
  if (reference) return blobView(reference, blobs);
  if (typeof value === "string") return el("pre", { class: "prose" }, truncate(value, 4000));
  if (isCollection(value)) return valueTree(name, value, { blobs });
  return el("p", {}, el("code", {}, previewValue(value, 400)));
}

/** Return the full values in a disclosure; they are drawn when it is opened, since they may be large. */
function fullValues(before, after, blobs) {
  const details = el("details", {}, el("summary", {}, "full values before and after"));
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) details.append(columns(before, after, blobs));
  });
  return details;
}

function fieldRow({ op, path, value, from }, before) {
  const kind = kindOfOperation(op);
  const name = pointerKeys(path).join(" › ") || "(value)";
  const old = op === "add" ? undefined : valueAt(before, from ?? path);
  return el("li", { class: `field-row is-${kind}` },
    el("span", { class: `mark ${kind}` }, SIGNS[kind], el("span", { class: "visually-hidden" }, kind)),
    el("code", { class: "field-name" }, name),
    el("span", { class: "field-before" }, old === undefined ? "—" : previewValue(old, 300)),
    el("span", { class: "field-arrow", "aria-label": "becomes" }, "→"),
    el("span", { class: "field-after" }, op === "remove" ? "—" : previewValue(value, 300)));
}
