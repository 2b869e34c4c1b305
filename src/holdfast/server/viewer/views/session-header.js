// The header of a session: its name, its summary and its buttons.

import { byId, el, fill } from "../components/dom.js";
import { count, dayAndClock, plural, size } from "../components/format.js";

export function showSessionHeader({ ref, summary }, buttons) {
  byId("agent-name").textContent = `${ref.agent} /`;
  byId("session-title").textContent = ref.session;
  document.title = `${ref.session} · Holdfast`;
  const unfinished = summary.unfinished ?? [];
  fill(byId("facts"),
    el("span", { class: `status status-${summary.status}` }, summary.status),
    el("span", {}, plural(summary.last_event, "event")),
    el("span", {}, plural(summary.message_count, "message")),
    el("span", {}, size(summary.size_bytes)),
    el("span", {}, `last event ${dayAndClock(summary.updated_at)}`),
    summary.first_event > 1 && el("span", {}, `pruned before event ${count(summary.first_event)}`),
    unfinished.length > 0 && el("span", { class: "tag warn" },
      `${plural(unfinished.length, "tool call")} without a result: ${unfinished.map(({ name }) => name).join(", ")}`));
  fill(byId("actions"), buttons);
}
