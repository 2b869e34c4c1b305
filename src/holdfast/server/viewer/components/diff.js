// Changes between two moments, entry by entry: before and after beside each other, and the fields
// inside that differ. Used by the comparison and by everything that says what it would change.

import { button, el } from "./dom.js";
import { count, cut, plural } from "./format.js";
import { at, described, segments, short } from "../api/json-values.js";
import { SIGNS } from "./changes.js";
import { treeOf } from "./tree.js";

const PAGE = 50;

/** How many of each kind, in words and signs. */
export function summary({ added, removed, changed, truncated }) {
  if (!added && !removed && !changed) return el("p", { class: "summary" }, "Nothing differs.");
  const part = (kind, number) =>
    number > 0 && el("span", { class: `mark ${kind}` }, `${SIGNS[kind]} ${count(number)} ${kind}`);
  return el("p", { class: "summary" },
    part("added", added), " ", part("removed", removed), " ", part("changed", changed),
    truncated && el("span", { class: "muted" }, " (not all are listed)"));
}

/** All entries, by pages. */
export function entriesView({ entries }) {
  const list = el("ol", { class: "diff" });
  const more = button("", () => page(), { class: "quiet" });
  let next = 0;
  function page() {
    list.append(...entries.slice(next, next + PAGE).map(entryView));
    next += PAGE;
    more.hidden = next >= entries.length;
    more.textContent = `show more of ${plural(entries.length - next, "entry", "entries")}`;
  }
  page();
  return [list, more];
}

function entryView({ namespace, key, kind, before, after, fields }) {
  const head = el("div", { class: "diff-head" },
    el("span", { class: `mark ${kind}` }, `${SIGNS[kind]} ${kind}`),
    el("code", {}, `${namespace}/${key}`));
  const inside = kind === "changed" && fields?.length && hasInside(before) && hasInside(after);
  return el("li", { class: `diff-entry is-${kind}` }, head,
    inside && el("ul", { class: "fields" }, fields.slice(0, 100).map((field) => fieldView(field, before))),
    inside && fields.length > 100 && el("p", { class: "muted" }, `and ${plural(fields.length - 100, "more field")}`),
    inside ? wholeLater(before, after) : columns(side("before", before), side("after", after)));
}

const hasInside = (value) => value !== undefined && described(value).children !== undefined;

const columns = (left, right) => el("div", { class: "columns" }, left, right);

function side(name, value) {
  return el("div", { class: `column ${name}` },
    el("h4", {}, name),
    value === undefined ? el("p", { class: "muted" }, "not there") : shown(name, value));
}

function shown(name, value) {
  if (typeof value === "string") return el("pre", { class: "said" }, cut(value, 4000));
  if (hasInside(value)) return treeOf(name, value);
  return el("p", {}, el("code", {}, short(value, 400)));
}

/** The whole of a large value is drawn only when somebody wants it. */
function wholeLater(before, after) {
  const details = el("details", {}, el("summary", {}, "whole value before and after"));
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) details.append(columns(side("before", before), side("after", after)));
  });
  return details;
}

const FIELD_KINDS = { add: "added", remove: "removed", replace: "changed" };

function fieldView({ op, path, value, from }, before) {
  const kind = FIELD_KINDS[op] ?? "changed";
  const name = segments(path).join(" › ") || "the value";
  const old = op === "add" ? undefined : at(before, from ?? path);
  return el("li", { class: `field-row is-${kind}` },
    el("span", { class: `mark ${kind}` }, SIGNS[kind], el("span", { class: "visually-hidden" }, kind)),
    el("code", { class: "field-name" }, name),
    el("span", { class: "field-before" }, old === undefined ? "—" : short(old, 300)),
    el("span", { class: "field-arrow", "aria-label": "becomes" }, "→"),
    el("span", { class: "field-after" }, op === "remove" ? "—" : short(value, 300)));
}
