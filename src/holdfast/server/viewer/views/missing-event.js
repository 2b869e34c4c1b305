// What is shown in place of a step that is not in the log: it was pruned, or it has not happened. Which events
// there are, and the way to them.

import { button, el, fill } from "../components/dom.js";
import { count, cut } from "../components/format.js";

/** A notice below the timeline. `onPick(seq)` goes to an event. */
export function outsideNotice(root, page, { onPick }) {
  return {
    show(at, { first_event: first, last_event: last }) {
      page.classList.add("is-outside");
      root.hidden = false;
      const ends = first > last ? [last] : [first, last];
      fill(root,
        el("h2", {}, missing(at, first)),
        el("p", {}, first > last
          ? `All events up to ${count(last)} were pruned. The state after the last one is kept.`
          : `The log of this session has the events ${count(first)} to ${count(last)}.`),
        el("div", { class: "row" }, [...new Set(ends)].map((seq) =>
          button(`Go to event ${count(seq)}`, () => onPick(seq)))));
    },
    hide() {
      page.classList.remove("is-outside");
      root.hidden = true;
    },
  };
}

function missing(at, first) {
  if (typeof at !== "number") return `“${cut(at, 40)}” is not an event number.`;
  if (at > 0 && at < first) return `Event ${count(at)} was pruned.`;
  return `There is no event ${count(at)} in this session.`;
}
