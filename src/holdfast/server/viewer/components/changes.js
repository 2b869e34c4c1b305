// What changed at a step, by the place in the tree where it is seen: each entry that was added,
// changed or removed, and each field inside of it. Signs and words say it, not colour alone.

import { at, segment } from "../api/json-values.js";

export const SIGNS = { added: "+", changed: "~", removed: "−" };
const KINDS = { add: "added", replace: "changed", remove: "removed", move: "changed", copy: "added" };

/** The place of an entry in the tree. */
const entryPath = (namespace, key) => `/${segment(namespace)}/${segment(key)}`;

export class Marks {
  #kinds = new Map();
  #gone = new Map();
  #inside = new Set();

  /** Of the entries of a diff. */
  constructor(entries = []) {
    for (const entry of entries) this.#take(entry);
  }

  #take({ namespace, key, kind, before, fields }) {
    const path = entryPath(namespace, key);
    this.#mark(path, kind, `/${segment(namespace)}`, key, before);
    if (kind !== "changed") return;
    for (const { op, path: pointer } of fields ?? []) {
      if (!pointer || !KINDS[op]) continue;
      const cutAt = pointer.lastIndexOf("/");
      const last = pointer.slice(cutAt + 1).replaceAll("~1", "/").replaceAll("~0", "~");
      this.#mark(path + pointer, KINDS[op], path + pointer.slice(0, cutAt), last, at(before, pointer));
    }
  }

  #mark(path, kind, parent, key, before) {
    if (kind === "removed") {
      this.#gone.set(parent, [...(this.#gone.get(parent) ?? []), { key, before, path }]);
    } else this.#kinds.set(path, kind);
    for (let up = parent; up; up = up.slice(0, up.lastIndexOf("/"))) this.#inside.add(up);
  }

  /** What happened to the thing at a path: added, changed, or nothing. */
  kindOf = (path) => this.#kinds.get(path) ?? null;

  /** What is no more, of what was directly below a path. */
  goneBelow = (path) => this.#gone.get(path) ?? [];

  /** Whether something below a path changed. */
  hasInside = (path) => this.#inside.has(path);
}
