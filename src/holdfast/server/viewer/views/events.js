// The event of the current step in full, and the list of those around it.

import { add, button, el, fill } from "../components/dom.js";
import { clock, count, dayAndClock, plural } from "../components/format.js";
import { short } from "../api/json-values.js";
import { SIGNS } from "../components/changes.js";
import { treeOf } from "../components/tree.js";

/** The event of a step: its type, its data, what it changed. */
export function eventCard(root) {
  const opened = new Set();
  return {
    show({ event, entries }) {
      const changes = entries.slice(0, 20).map(changeLine);
      const more = entries.length - changes.length;
      fill(root,
        el("header", { class: "card-head" },
          el("h2", { id: "event-title", "data-seq": event.seq }, `Event ${count(event.seq)}`),
          el("p", {}, el("code", { class: "type" }, event.type))),
        el("p", { class: "muted" }, el("time", { datetime: event.at, title: event.at }, dayAndClock(event.at))),
        el("h3", {}, "Changes"),
        changes.length ? el("ul", { class: "changes" }, changes) : el("p", { class: "muted" }, "none"),
        more > 0 && el("p", { class: "muted" }, `and ${plural(more, "more change")}: see Compare`),
        event.data !== null && event.data !== undefined
          && [el("h3", {}, "Data"), treeOf("data of the event", event.data, { opened })],
        el("details", { class: "proof" }, el("summary", {}, "id and hash"), el("dl", { class: "pairs" },
          pair("id", event.id), pair("hash", event.hash), pair("previous", event.prev))));
    },
  };
}

const pair = (name, value) => [el("dt", {}, name), el("dd", {}, el("code", {}, value))];

function changeLine({ namespace, key, kind, before, after }) {
  const values = kind === "removed" ? before : after;
  return el("li", {},
    el("span", { class: `mark ${kind}` }, `${SIGNS[kind]} ${kind}`), " ",
    el("code", {}, `${namespace}/${key}`), " ",
    values !== undefined && el("span", { class: "preview" }, short(values, 80)));
}

/** The events around the current one. `onPick(seq)` goes to one of them. */
export function eventList(root, { onPick }) {
  const list = el("ol", { class: "events" });
  const earlier = button("earlier events", () => onPick(Number(earlier.dataset.seq)), { class: "quiet small" });
  const later = button("later events", () => onPick(Number(later.dataset.seq)), { class: "quiet small" });
  let shown = null;

  function row({ seq, type, at, set = [], added = [], delete: gone = [] }) {
    const isNew = new Set(added.map((pair) => JSON.stringify(pair)));
    const sign = (pair) => (isNew.has(JSON.stringify(pair)) ? SIGNS.added : SIGNS.changed);
    const touched = [...set.map((pair) => `${sign(pair)} ${pair.join("/")}`),
      ...gone.map((pair) => `${SIGNS.removed} ${pair.join("/")}`)];
    const rest = touched.length > 2 ? ` and ${touched.length - 2} more` : "";
    const made = button("", () => onPick(seq), { class: "event-row", "data-seq": seq });
    add(made, [
      el("span", { class: "number" }, count(seq)), " ",
      el("span", { class: "type" }, type), " ",
      el("span", { class: "muted touched" }, touched.slice(0, 2).join(", ") + rest), " ",
      el("time", { class: "muted", datetime: at }, clock(at)),
    ]);
    return el("li", {}, made);
  }

  function mark(seq) {
    list.querySelector("[aria-current]")?.removeAttribute("aria-current");
    const current = list.querySelector(`[data-seq="${seq}"]`);
    if (!current) return;
    current.setAttribute("aria-current", "step");
    center();
  }

  /** Scroll the list, and not the page as scrollIntoView would, so that the current row is in its middle. */
  function center() {
    const current = list.querySelector("[aria-current]")?.getBoundingClientRect();
    if (!current) return;
    const box = list.getBoundingClientRect();
    list.scrollTop += (current.top + current.bottom - box.top - box.bottom) / 2;
  }

  return {
    /** Scroll to the current event again: a list that is not displayed has no scroll position. */
    center,
    show({ seq, around }, { first_event: first, last_event: last }) {
      if (!root.firstChild) fill(root, earlier, list, later);
      const key = `${around[0]?.id} ${around.length}`;
      if (key !== shown) fill(list, around.map(row));
      shown = key;
      mark(seq);
      const begin = around[0]?.seq ?? first;
      const end = around.at(-1)?.seq ?? last;
      earlier.hidden = begin <= first;
      later.hidden = end >= last;
      earlier.dataset.seq = begin - 1;
      later.dataset.seq = end + 1;
    },
  };
}
