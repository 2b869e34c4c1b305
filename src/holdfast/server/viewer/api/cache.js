// A least-recently-used cache, bounded by the number of its entries and by their total size.

export class LruCache {
  #entries = new Map();
  #size = 0;

  constructor(maxEntries, maxSize) {
    this.maxEntries = maxEntries;
    this.maxSize = maxSize;
  }

  get(key) {
    const entry = this.#entries.get(key);
    if (entry === undefined) return undefined;
    this.#entries.delete(key);
    this.#entries.set(key, entry);
    return entry.value;
  }

  put(key, value, size) {
    if (size > this.maxSize / 4) return;
    this.#drop(key);
    this.#entries.set(key, { value, size });
    this.#size += size;
    for (const oldest of this.#entries.keys()) {
      if (this.#entries.size <= this.maxEntries && this.#size <= this.maxSize) break;
      this.#drop(oldest);
    }
  }

  clear() {
    this.#entries.clear();
    this.#size = 0;
  }

  #drop(key) {
    this.#size -= this.#entries.get(key)?.size ?? 0;
    this.#entries.delete(key);
  }
}
