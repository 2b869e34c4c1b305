// The values at the shown position as one tree: the session's own and those of every other namespace. What the event
// changed is marked and expanded.

import { isFileEntry } from "../api/file-records.js";
import { escapeSegment } from "../api/json-values.js";
import { ChangeIndex, entryPath } from "../components/changes.js";
import { byId, fill } from "../components/dom.js";
import { plural } from "../components/format.js";
import { createTree } from "../components/tree.js";

const MAX_EXPANDED = 20;

/** Return the namespaces of a state as roots of the tree. */
function rootsOf({ state }) {
  const root = (namespace, key, value) => ({ key, value, path: `/${escapeSegment(namespace)}` });
  return [
    root("state", "values", state.values ?? {}),
    ...Object.entries(state.namespaces ?? {}).map(([name, value]) => root(name, name, value)),
    root("session", "session", { status: state.status, ...state.session }),
  ];
}

/** Create the view; `blobs()` downloads large values. */
export function createValuesView(root, { blobs }) {
  const expanded = new Set();

  /** Focus an item again after the tree was redrawn. */
  function focusItem(path) {
    const items = [...root.querySelectorAll("[role=treeitem]")];
    const item = items.find(({ dataset }) => dataset.path === path) ?? items[0];
    items[0]?.setAttribute("tabindex", "-1");
    item?.setAttribute("tabindex", "0");
    item?.focus({ preventScroll: true });
  }

  function expandTo(entry, pointer) {
    let path = entry;
    for (const part of pointer.split("/").slice(1)) {
      expanded.add(path);
      path += `/${part}`;
    }
  }

  return {
    /** Collapse everything but the session's own values. */
    reset() {
      expanded.clear();
      expanded.add("/state");
    },
    show({ state, entries }) {
      const changes = new ChangeIndex(entries);
      const roots = rootsOf(state);
      for (const { path } of roots) if (changes.hasChangesBelow(path)) expanded.add(path);
      const valueEntries = entries.filter((entry) => entry.namespace !== "messages" && !isFileEntry(entry));
      for (const { namespace, key, fields } of valueEntries.slice(0, MAX_EXPANDED)) {
        for (const { path } of (fields ?? []).slice(0, MAX_EXPANDED)) expandTo(entryPath(namespace, key), path);
      }
      const { scrollTop } = root;
      const focusedPath = root.contains(document.activeElement) && document.activeElement.dataset.path;
      fill(root, createTree("values at this event", roots, { expanded, changes, blobs: blobs() }));
      root.scrollTop = scrollTop;
      if (focusedPath) focusItem(focusedPath);
      byId("values-count").textContent = valueEntries.length
        ? `${plural(valueEntries.length, "change")} by this event`
        : "not changed by this event";
    },
  };
}
