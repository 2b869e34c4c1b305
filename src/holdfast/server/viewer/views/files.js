// The files of a workspace at the shown position: a tree, the content of the chosen file, and what the event changed.

import { buildFolders, isExecutable, isFileEntry, modeText, recordText } from "../api/file-records.js";
import { escapeSegment } from "../api/json-values.js";
import { ChangeIndex } from "../components/changes.js";
import { el, fill, setBusy } from "../components/dom.js";
import { fileContent, fileDiff } from "../components/file-diff.js";
import { plural, size } from "../components/format.js";
import { showError } from "../components/notices.js";
import { createTree } from "../components/tree.js";

const ROOT = "/files";
const MAX_EXPANDED = 50;

const treePath = (path) => `${ROOT}/${path.split("/").map(escapeSegment).join("/")}`;

/** Describe a folder or a file for the tree. */
function describeNode(value) {
  if (value.record) {
    const { link } = value.record;
    const note = link === undefined ? (isExecutable(value.record) ? "executable" : "") : "link";
    return { type: "file", text: recordText(value.record), note, separator: " " };
  }
  const rank = ([name, each]) => `${each.entries ? 0 : 1}${name}`;
  const entries = [...value.entries].sort((a, b) => (rank(a) < rank(b) ? -1 : 1));
  const child = (i) => {
    const [name, inner] = entries[i];
    return { key: inner.entries ? `${name}/` : name, value: inner, pointer: `/${escapeSegment(name)}` };
  };
  return { type: "folder", children: entries.length, child, preview: "", separator: "" };
}

/** Create the view. `fetch(seq, signal)` returns the records of the files at an event; `blobs()` downloads contents. */
export function createFilesView(root, { fetch, blobs }) {
  const expanded = new Set();
  const tree = el("div", { class: "files-tree" });
  const total = el("p", { class: "muted" });
  const content = el("section", { class: "card file-content", "aria-label": "Content of the file" });
  let position = null;
  let files = {};
  let isVisible = false;
  let isDrawn = false;
  let stop = new AbortController();
  let chosen = null;
  let shown = null;
  fill(root, el("div", { class: "files-view" },
    el("section", { class: "card", "aria-labelledby": "files-title" },
      el("header", { class: "card-head" }, el("h2", { id: "files-title" }, "Files"), total), tree),
    content));

  const changed = () => position.entries.filter(isFileEntry);

  /** Fetch and draw the files of the position, if they are visible and not drawn yet. */
  async function load() {
    if (isDrawn || !isVisible || !position) return;
    isDrawn = true;
    stop.abort();
    stop = new AbortController();
    const { signal } = stop;
    setBusy(tree, true);
    try {
      files = await fetch(position.seq, signal);
      if (!signal.aborted) draw();
    } catch (error) {
      if (!signal.aborted) showError(error);
    }
    if (!signal.aborted) setBusy(tree, false);
  }

  function draw() {
    const changes = changed();
    const paths = Object.keys(files);
    const bytes = paths.reduce((sum, path) => sum + (files[path].size ?? 0), 0);
    total.textContent = `${plural(paths.length, "file")}, ${size(bytes)}; `
      + (changes.length ? `${plural(changes.length, "change")} by this event` : "not changed by this event");
    drawTree(changes);
    drawContent(changes);
  }

  function drawTree(changes) {
    const removed = changes.filter(({ kind }) => kind === "removed");
    const folder = buildFolders(files, removed.map(({ key }) => key));
    const index = ChangeIndex.atPaths(changes.map(({ key, kind, before }) => (
      { path: treePath(key), kind, key: key.slice(key.lastIndexOf("/") + 1), before: { path: key, record: before } })));
    for (const { key } of changes.slice(0, MAX_EXPANDED)) expandTo(key);
    const { scrollTop } = tree;
    const { child, children } = describeNode(folder);
    const roots = Array.from({ length: children }, (_, i) => {
      const { key, value, pointer } = child(i);
      return { key, value, path: ROOT + pointer };
    });
    const gone = index.removedBelow(ROOT).map(({ key, before, path }) => (
      { key, value: before, path: `${path}\u0000removed`, isRemoved: true }));
    const all = [...gone, ...roots];
    fill(tree, all.length
      ? createTree("files at this event", all, { expanded, changes: index, describe: describeNode, onPick: pick })
      : el("p", { class: "muted" }, "No files at this event."));
    tree.scrollTop = scrollTop;
    markChosen();
  }

  function expandTo(path) {
    const parts = path.split("/").slice(0, -1);
    parts.forEach((_, i) => expanded.add(treePath(parts.slice(0, i + 1).join("/"))));
  }

  function pick({ value }) {
    chosen = value.path;
    markChosen();
    drawContent(changed());
  }

  function markChosen() {
    for (const item of tree.querySelectorAll("[role=treeitem]")) {
      const isChosen = chosen !== null && item.dataset.path.split("\u0000")[0] === treePath(chosen);
      item.classList.toggle("is-chosen", isChosen);
      if (isChosen) item.setAttribute("aria-selected", "true");
      else item.removeAttribute("aria-selected");
    }
  }

  function drawContent(changes) {
    const change = changes.find(({ key }) => key === chosen);
    const record = chosen === null ? undefined : files[chosen];
    const key = JSON.stringify([chosen, record, change?.kind, change?.before]);
    if (key === shown) return; // stepping keeps the scroll position of a file that did not change
    shown = key;
    if (chosen === null || (record === undefined && !change)) {
      const text = chosen === null ? "Choose a file to see its content." : `${chosen} does not exist at this event.`;
      fill(content, el("p", { class: "muted" }, text));
      return;
    }
    const source = blobs();
    const both = { before: source, after: source };
    fill(content,
      el("header", { class: "card-head" }, el("h2", { class: "file-path" }, chosen),
        el("p", { class: "muted" }, record ? `mode ${modeText(record)}` : "removed by this event")),
      change?.kind === "changed" && [el("h3", {}, "Changed by this event"),
        fileDiff(chosen, change.before, change.after, both), el("h3", {}, "Content")],
      fileContent(chosen, record ?? change.before, source));
  }

  return {
    /** Show the files of a position, if the view is visible. */
    show(next) {
      position = next;
      isDrawn = false;
      return load();
    },
    setVisible(visible) {
      isVisible = visible;
      return load();
    },
    reset() {
      stop.abort();
      expanded.clear();
      [position, chosen, shown] = [null, null, null];
    },
  };
}
