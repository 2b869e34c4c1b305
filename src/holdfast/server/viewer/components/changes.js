// The changes of an event, as signs and by their paths in a tree of values. Signs and words, not colour alone, tell
// what changed.

import { escapeSegment, pointerKeys, valueAt } from "../api/json-values.js";
import { el } from "./dom.js";

export const SIGNS = { added: "+", changed: "~", removed: "−" };
const KINDS = { add: "added", replace: "changed", remove: "removed", move: "changed", copy: "added" };

/** Return the kind of change that an operation of a JSON patch is. */
export const kindOfOperation = (op) => KINDS[op] ?? "changed";

/** Create the mark "+ added", "~ changed" or "− removed". */
export const changeMark = (kind) => el("span", { class: `mark ${kind}` }, `${SIGNS[kind]} ${kind}`);

/** Return the path of an entry in the tree of values. */
export const entryPath = (namespace, key) => `/${escapeSegment(namespace)}/${escapeSegment(key)}`;

/** The changed paths of a tree: entries of a diff, and the fields inside them. */
export class ChangeIndex {
  #kinds = new Map();
  #removed = new Map();
  #ancestors = new Set();

  constructor(entries = []) {
    for (const entry of entries) this.#addEntry(entry);
  }

  /** Return the index of changes at paths, given as `{path, kind, key, before}`. */
  static atPaths(changes) {
    const index = new ChangeIndex();
    for (const { path, kind, key, before } of changes) {
      index.#add(path, kind, path.slice(0, path.lastIndexOf("/")), key, before);
    }
    return index;
  }

  #addEntry({ namespace, key, kind, before, fields }) {
    const path = entryPath(namespace, key);
    this.#add(path, kind, `/${escapeSegment(namespace)}`, key, before);
    if (kind !== "changed") return;
    for (const { op, path: pointer } of fields ?? []) {
      if (!pointer || !KINDS[op]) continue;
      const parent = path + pointer.slice(0, pointer.lastIndexOf("/"));
      this.#add(path + pointer, KINDS[op], parent, pointerKeys(pointer).at(-1), valueAt(before, pointer));
    }
  }

  #add(path, kind, parent, key, before) {
    if (kind === "removed") {
      this.#removed.set(parent, [...(this.#removed.get(parent) ?? []), { key, before, path }]);
    } else this.#kinds.set(path, kind);
    for (let up = parent; up; up = up.slice(0, up.lastIndexOf("/"))) this.#ancestors.add(up);
  }

  /** Return "added" or "changed", or null if the value at the path did not change. */
  kindAt = (path) => this.#kinds.get(path) ?? null;

  /** Return the removed children of a path as `{key, before, path}`. */
  removedBelow = (path) => this.#removed.get(path) ?? [];

  /** Whether something below the path changed. */
  hasChangesBelow = (path) => this.#ancestors.has(path);
}
