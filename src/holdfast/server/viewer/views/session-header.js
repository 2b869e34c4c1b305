// The head of the page: which session it is, how it is doing, and what can be done with it.

import { byId, el, fill } from "../components/dom.js";
import { count, dayAndClock, plural, size } from "../components/format.js";

export function sessionHead({ agent, session }, summary, buttons) {
  byId("of-agent").textContent = `${agent} /`;
  byId("session-title").textContent = session;
  document.title = `${session} · Holdfast`;
  const open = summary.unfinished ?? [];
  fill(byId("facts"),
    el("span", { class: `status status-${summary.status}` }, summary.status),
    el("span", {}, plural(summary.last_event, "event")),
    el("span", {}, plural(summary.message_count, "message")),
    el("span", {}, size(summary.size_bytes)),
    el("span", {}, `last event ${dayAndClock(summary.updated_at)}`),
    summary.first_event > 1 && el("span", {}, `pruned before event ${count(summary.first_event)}`),
    open.length > 0 && el("span", { class: "tag warn" },
      `${plural(open.length, "tool call")} without a result: ${open.map(({ name }) => name).join(", ")}`));
  fill(byId("acts"), buttons);
}
