// The notice for an event that is not in the log, because it was pruned or does not exist yet.

import { button, el, fill } from "../components/dom.js";
import { count, truncate } from "../components/format.js";

/** Create the notice; while it is shown it replaces the rest of the page. `onPick(seq)` goes to an event. */
export function createMissingEventNotice(root, page, { onPick }) {
  return {
    show(at, { first_event: first, last_event: last }) {
      page.classList.add("is-missing");
      root.hidden = false;
      const isAllPruned = first > last;
      const ends = isAllPruned || first === last ? [last] : [first, last];
      fill(root,
        el("h2", {}, problem(at, first)),
        el("p", {}, isAllPruned
          ? `All events up to ${count(last)} were pruned. The state after the last one is kept.`
          : `The log of this session has the events ${count(first)} to ${count(last)}.`),
        el("div", { class: "row" }, ends.map((seq) => button(`Go to event ${count(seq)}`, () => onPick(seq)))));
    },
    hide() {
      page.classList.remove("is-missing");
      root.hidden = true;
    },
  };
}

function problem(at, first) {
  if (typeof at !== "number") return `“${truncate(at, 40)}” is not an event number.`;
  if (at > 0 && at < first) return `Event ${count(at)} was pruned.`;
  return `This session has no event ${count(at)}.`;
}
