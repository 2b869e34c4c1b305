// The side of the page: agents, and the sessions of the one that is open, each with a search. Lists
// come page by page; a page may be empty and still not be the last.

import { button, el, fill, setBusy } from "../components/dom.js";
import { get } from "../api/client.js";
import { dayAndClock } from "../components/format.js";
import { alertOf } from "../components/notices.js";
import { hashOf } from "../route.js";

const PAGE = 50;

/** A list that grows by pages. `load(query)` gives the items and the next cursor. */
function pagedList({ load, view, nothing, searchLabel }) {
  const list = el("ul", { class: "side-list" });
  const state = el("p", { class: "muted empty", role: "status" });
  const more = button("more", () => next(), { class: "quiet small", hidden: true });
  const search = el("input", { type: "search", placeholder: searchLabel, "aria-label": searchLabel });
  let cursor = null;
  let stop = new AbortController();

  async function start() {
    stop.abort();
    stop = new AbortController();
    cursor = null;
    await next(true);
  }

  async function next(afresh = false) {
    const { signal } = stop;
    const found = [];
    setBusy(list, true);
    try {
      do {
        const page = await load({ limit: PAGE, cursor, search: search.value.trim() }, signal);
        found.push(...page.items);
        cursor = page.next_cursor;
      } while (cursor && !found.length);
    } catch (error) {
      if (signal.aborted) return;
      setBusy(list, false);
      alertOf(error);
      return;
    }
    if (signal.aborted) return;
    setBusy(list, false);
    if (afresh) fill(list);
    list.append(...found.map(view));
    more.hidden = !cursor;
    state.textContent = list.children.length ? "" : nothing(search.value.trim());
  }

  let waiting = null;
  search.addEventListener("input", () => {
    clearTimeout(waiting);
    setBusy(list, true);
    waiting = setTimeout(start, 200);
  });
  return { parts: [search, list, state, more], start, list };
}

/** The list of agents and sessions. `current()` is what is looked at. */
export function sessionList(root, { current }) {
  const agents = pagedList({
    searchLabel: "Search agents",
    nothing: (text) => (text ? `No agent has “${text}” in its id.` : "No agents in this store yet."),
    load: async (query, signal) => {
      const page = await get("agents", query, signal);
      return { items: page.agents, next_cursor: page.next_cursor };
    },
    view: ({ agent_id: agent }) => agentView(agent),
  });
  let open = null;

  function agentView(agent) {
    const head = button(agent, () => toggle(li, agent), { class: "agent", "aria-expanded": "false" });
    const li = el("li", { "data-agent": agent }, head);
    if (agent === (open?.agent ?? current().agent)) toggle(li, agent);
    return li;
  }

  function toggle(li, agent) {
    const isOpen = li.firstChild.getAttribute("aria-expanded") === "true";
    for (const other of agents.list.querySelectorAll(".agent[aria-expanded=true]")) {
      other.setAttribute("aria-expanded", "false");
      other.parentElement.querySelector(".sessions")?.remove();
    }
    open = null;
    if (isOpen) return;
    li.firstChild.setAttribute("aria-expanded", "true");
    const sessions = sessionsOf(agent);
    open = { agent, sessions };
    li.append(el("div", { class: "sessions" }, sessions.parts));
    sessions.start();
  }

  function sessionsOf(agent) {
    return pagedList({
      searchLabel: "Search sessions",
      nothing: (text) => (text ? `No session has “${text}” in its id.` : "No sessions."),
      load: async (query, signal) => {
        const path = `agents/${encodeURIComponent(agent)}/sessions`;
        const page = await get(path, query, signal);
        return { items: page.sessions, next_cursor: page.next_cursor };
      },
      view: sessionView,
    });
  }

  function sessionView({ agent_id: agent, session_id: session, scope, active_at: at }) {
    const several = scope === "multi_agent";
    const place = { agent, session, scope: several ? scope : null };
    return el("li", {}, el("a", {
      class: "session", href: hashOf(place), "data-place": JSON.stringify([agent, session]),
      "aria-current": isCurrent(agent, session) ? "page" : null,
    }, el("span", { class: "session-id" }, session),
    el("span", { class: "muted" }, dayAndClock(at), several && " · several agents")));
  }

  const isCurrent = (agent, session) => current().agent === agent && current().session === session;

  /** Mark what is looked at, and open its agent. */
  function follow() {
    const { agent, session } = current();
    const place = JSON.stringify([agent, session]);
    for (const link of agents.list.querySelectorAll(".session")) {
      if (link.dataset.place === place) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    if (!agent || open?.agent === agent) return;
    const li = [...agents.list.children].find((each) => each.dataset.agent === agent);
    if (li) toggle(li, agent);
  }

  const head = el("div", { class: "side-head" }, el("h2", {}, "Agents"),
    button("Refresh", () => agents.start(), { class: "quiet small" }));
  fill(root, head, agents.parts);
  return { start: agents.start, follow };
}
