// What changed in a file: its lines, its mode or the target of a link. Contents are loaded when they become visible.

import { decodeText } from "../api/blobs.js";
import { fileReference, modeText } from "../api/file-records.js";
import { diffLines } from "../api/line-diff.js";
import { blobView } from "./blob.js";
import { el, fill, setBusy } from "./dom.js";
import { count, plural } from "./format.js";
import { describeError } from "./notices.js";
import { whenVisible } from "./visible.js";

const MAX_COMPARED = 2_000_000;
const MAX_ROWS = 4000;
const NAMES = { "+": "added", "-": "removed" };

/** Create the view of a file `before` and `after`; one of them is undefined if it was added or removed. */
export function fileDiff(path, before, after, blobs) {
  const only = after ?? before;
  if (before === undefined || after === undefined) return fileContent(path, only, after ? blobs.after : blobs.before);
  const view = el("div", { class: "file-diff" });
  if (before.link !== undefined || after.link !== undefined) {
    fill(view, el("p", {}, linkText(before), " → ", linkText(after)));
    return view;
  }
  const mode = before.mode !== after.mode
    && el("p", { class: "muted" }, `mode ${modeText(before)} → ${modeText(after)}`);
  if (before.digest === after.digest) {
    fill(view, mode || el("p", { class: "muted" }, "not changed"));
    return view;
  }
  const body = el("div", {});
  fill(view, mode, body);
  whenVisible(body, () => compare(body, path, before, after, blobs));
  return view;
}

/** Create the view of one version of a file. */
export const fileContent = (path, record, blobs) => (record.link === undefined
  ? blobView(fileReference(path, record), blobs)
  : el("p", {}, linkText(record)));

const linkText = ({ link }) => (link === undefined ? "file" : `link to ${link}`);

async function compare(body, path, before, after, blobs) {
  setBusy(body, true);
  try {
    fill(body, await comparison(path, before, after, blobs));
  } catch (error) {
    fill(body, el("div", { class: "blob-problem" }, describeError(error)));
  }
  setBusy(body, false);
}

async function comparison(path, before, after, blobs) {
  const [old, now] = [fileReference(path, before), fileReference(path, after)];
  const isSmall = Math.max(old.size, now.size) <= MAX_COMPARED;
  const texts = isSmall && !old.mediaType
    ? (await Promise.all([blobs.before.read(old), blobs.after.read(now)])).map(decodeText)
    : [null];
  const rows = texts.includes(null) ? null : diffLines(...texts);
  if (rows === null) {
    return el("div", { class: "columns" },
      el("div", { class: "column before" }, el("h4", {}, "before"), blobView(old, blobs.before)),
      el("div", { class: "column after" }, el("h4", {}, "after"), blobView(now, blobs.after)));
  }
  return [rowSummary(rows), lineTable(rows.slice(0, MAX_ROWS)),
    rows.length > MAX_ROWS && el("p", { class: "muted" }, `and ${plural(rows.length - MAX_ROWS, "more line")}`)];
}

function rowSummary(rows) {
  const number = (wanted) => rows.filter(({ sign }) => sign === wanted).length;
  return el("p", { class: "kind" }, `+${count(number("+"))} −${count(number("-"))} lines`);
}

function lineTable(rows) {
  return el("pre", { class: "code lines", tabindex: "0", "aria-label": "changed lines" }, rows.map(({ sign, text }) => {
    const name = NAMES[sign];
    if (!name) return el("span", { class: "text-line" }, sign === "…" ? "  …" : `  ${text}`, "\n");
    return el("span", { class: `text-line line-${name}` }, `${sign === "+" ? "+" : "−"} ${text}`, "\n");
  }));
}
