// The event of the shown position, and the list of events around it.

import { isFileEntry, recordText } from "../api/file-records.js";
import { previewValue } from "../api/json-values.js";
import { SIGNS, changeMark } from "../components/changes.js";
import { append, button, el, fill } from "../components/dom.js";
import { clock, count, dayAndClock, plural } from "../components/format.js";
import { valueTree } from "../components/tree.js";

const MAX_CHANGES = 20;
const MAX_KEYS = 2;

/** Create the card of one event: its type, data and changes; `blobs()` downloads large values. */
export function createEventCard(root, { blobs }) {
  const expanded = new Set();
  return {
    show({ event, entries }) {
      const more = entries.length - MAX_CHANGES;
      fill(root,
        el("header", { class: "card-head" },
          el("h2", { id: "event-title", "data-seq": event.seq }, `Event ${count(event.seq)}`),
          el("p", {}, el("code", { class: "type" }, event.type))),
        el("p", { class: "muted" }, el("time", { datetime: event.at, title: event.at }, dayAndClock(event.at))),
        el("h3", {}, "Changes"),
        entries.length
          ? el("ul", { class: "changes" }, entries.slice(0, MAX_CHANGES).map(changeItem))
          : el("p", { class: "muted" }, "none"),
        more > 0 && el("p", { class: "muted" }, `and ${plural(more, "more change")}: see Compare`),
        event.data !== null && event.data !== undefined
          && [el("h3", {}, "Data"), valueTree("data of the event", event.data, { expanded, blobs: blobs() })],
        el("details", { class: "hashes" }, el("summary", {}, "id and hash"), el("dl", { class: "pairs" },
          pair("id", event.id), pair("hash", event.hash), pair("previous", event.prev))));
    },
  };
}

const pair = (name, value) => [el("dt", {}, name), el("dd", {}, el("code", {}, value))];

function changeItem(entry) {
  const { namespace, key, kind, before, after } = entry;
  const value = kind === "removed" ? before : after;
  const text = value !== undefined && (isFileEntry(entry) ? recordText(value) : previewValue(value, 80));
  return el("li", {}, changeMark(kind), " ", el("code", {}, `${namespace}/${key}`), " ",
    text && el("span", { class: "preview" }, text));
}

/** Create the list of events around the shown one. `onPick(seq)` goes to an event. */
export function createEventList(root, { onPick }) {
  const list = el("ol", { class: "events" });
  const style = { class: "quiet small", hidden: true };
  const earlier = button("earlier events", () => onPick(Number(earlier.dataset.seq)), style);
  const later = button("later events", () => onPick(Number(later.dataset.seq)), style);
  let shown = null;
  fill(root, earlier, list, later);

  function row({ seq, type, at, set = [], added = [], delete: deleted = [] }) {
    const addedKeys = new Set(added.map((pair) => JSON.stringify(pair)));
    const sign = (pair) => (addedKeys.has(JSON.stringify(pair)) ? SIGNS.added : SIGNS.changed);
    const keys = [...set.map((pair) => `${sign(pair)} ${pair.join("/")}`),
      ...deleted.map((pair) => `${SIGNS.removed} ${pair.join("/")}`)];
    const more = keys.length > MAX_KEYS ? ` and ${keys.length - MAX_KEYS} more` : "";
    const node = button("", () => onPick(seq), { class: "event-row", "data-seq": seq });
    append(node, [
      el("span", { class: "number" }, count(seq)), " ",
      el("span", { class: "type" }, type), " ",
      el("span", { class: "muted changed-keys" }, keys.slice(0, MAX_KEYS).join(", ") + more), " ",
      el("time", { class: "muted", datetime: at }, clock(at)),
    ]);
    return el("li", {}, node);
  }

  function markCurrent(seq) {
    list.querySelector("[aria-current]")?.removeAttribute("aria-current");
    list.querySelector(`[data-seq="${seq}"]`)?.setAttribute("aria-current", "step");
    center();
  }

  /** Scroll the list, not the page as scrollIntoView would, until the current event is in the middle. */
  function center() {
    const current = list.querySelector("[aria-current]")?.getBoundingClientRect();
    if (!current) return;
    const box = list.getBoundingClientRect();
    list.scrollTop += (current.top + current.bottom - box.top - box.bottom) / 2;
  }

  return {
    /** Centre the current event again: a hidden list has no scroll position. */
    center,
    show({ seq, eventsAround: events }, { first_event: first, last_event: last }) {
      const key = `${events[0]?.id} ${events.length}`;
      if (key !== shown) fill(list, events.map(row));
      shown = key;
      markCurrent(seq);
      const from = events[0]?.seq ?? first;
      const to = events.at(-1)?.seq ?? last;
      earlier.hidden = from <= first;
      later.hidden = to >= last;
      earlier.dataset.seq = from - 1;
      later.dataset.seq = to + 1;
    },
  };
}
