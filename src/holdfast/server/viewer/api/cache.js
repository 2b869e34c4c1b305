// A small memory of what was used last, bounded by how many things it holds and how large they are.

export class Recent {
  #entries = new Map();
  #weight = 0;

  constructor(most, heaviest) {
    this.most = most;
    this.heaviest = heaviest;
  }

  get(key) {
    const entry = this.#entries.get(key);
    if (entry === undefined) return undefined;
    this.#entries.delete(key);
    this.#entries.set(key, entry);
    return entry.value;
  }

  put(key, value, weight) {
    if (weight > this.heaviest / 4) return;
    this.#drop(key);
    this.#entries.set(key, { value, weight });
    this.#weight += weight;
    for (const oldest of this.#entries.keys()) {
      if (this.#entries.size <= this.most && this.#weight <= this.heaviest) break;
      this.#drop(oldest);
    }
  }

  clear() {
    this.#entries.clear();
    this.#weight = 0;
  }

  #drop(key) {
    this.#weight -= this.#entries.get(key)?.weight ?? 0;
    this.#entries.delete(key);
  }
}
