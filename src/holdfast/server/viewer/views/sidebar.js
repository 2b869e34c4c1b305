// The sidebar: agents, and the sessions of one of them, each with a search. Lists are loaded page by page.

import { button, el, fill, setBusy } from "../components/dom.js";
import { dayAndClock } from "../components/format.js";
import { showError } from "../components/notices.js";
import { formatRoute } from "../route.js";

const PAGE = 50;
const INPUT_DELAY = 200;

/** Create a searchable list. `fetchPage(query, signal)` returns its items and the next cursor; `item` draws one. */
function createPagedList({ fetchPage, item, emptyText, searchLabel }) {
  const list = el("ul", { class: "side-list" });
  const status = el("p", { class: "muted empty", role: "status" });
  const more = button("more", () => loadPage(), { class: "quiet small", hidden: true });
  const search = el("input", { type: "search", placeholder: searchLabel, "aria-label": searchLabel });
  let cursor = null;
  let stop = new AbortController();

  /** Load the first page again. */
  async function load() {
    stop.abort();
    stop = new AbortController();
    cursor = null;
    await loadPage({ replace: true });
  }

  async function loadPage({ replace = false } = {}) {
    const { signal } = stop;
    const items = [];
    setBusy(list, true);
    try {
      do { // a page may be empty without being the last
        const page = await fetchPage({ limit: PAGE, cursor, search: search.value.trim() }, signal);
        items.push(...page.items);
        cursor = page.next_cursor;
      } while (cursor && !items.length);
    } catch (error) {
      if (signal.aborted) return;
      setBusy(list, false);
      showError(error);
      return;
    }
    if (signal.aborted) return;
    setBusy(list, false);
    if (replace) fill(list);
    list.append(...items.map(item));
    more.hidden = !cursor;
    status.textContent = list.children.length ? "" : emptyText(search.value.trim());
  }

  let timer = null;
  search.addEventListener("input", () => {
    clearTimeout(timer);
    setBusy(list, true);
    timer = setTimeout(load, INPUT_DELAY);
  });
  return { nodes: [search, list, status, more], list, load };
}

/** Create the sidebar. It marks the session that is open in the store. */
export function createSidebar(root, { client, store }) {
  let expanded = null; // the agent whose sessions are listed

  const agents = createPagedList({
    searchLabel: "Search agents",
    emptyText: (search) => (search ? `No agent id contains “${search}”.` : "No agents in this store yet."),
    fetchPage: async (query, signal) => {
      const { agents: items, next_cursor } = await client.get("agents", query, signal);
      return { items, next_cursor };
    },
    item: ({ agent_id: agent }) => agentItem(agent),
  });

  function agentItem(agent) {
    const head = button(agent, () => toggle(item, agent), { class: "agent", "aria-expanded": "false" });
    const item = el("li", { "data-agent": agent }, head);
    if (agent === (expanded ?? store.ref.agent)) toggle(item, agent);
    return item;
  }

  function toggle(item, agent) {
    const wasExpanded = item.firstChild.getAttribute("aria-expanded") === "true";
    for (const other of agents.list.querySelectorAll(".agent[aria-expanded=true]")) {
      other.setAttribute("aria-expanded", "false");
      other.parentElement.querySelector(".sessions")?.remove();
    }
    expanded = wasExpanded ? null : agent;
    if (wasExpanded) return;
    item.firstChild.setAttribute("aria-expanded", "true");
    const sessions = createSessionList(agent);
    item.append(el("div", { class: "sessions" }, sessions.nodes));
    sessions.load();
  }

  function createSessionList(agent) {
    return createPagedList({
      searchLabel: "Search sessions",
      emptyText: (search) => (search ? `No session id contains “${search}”.` : "No sessions."),
      fetchPage: async (query, signal) => {
        const path = `agents/${encodeURIComponent(agent)}/sessions`;
        const { sessions: items, next_cursor } = await client.get(path, query, signal);
        return { items, next_cursor };
      },
      item: sessionItem,
    });
  }

  function sessionItem({ agent_id: agent, session_id: session, scope, active_at: at }) {
    const isMultiAgent = scope === "multi_agent";
    const link = el("a", {
      class: "session", href: formatRoute({ agent, session, scope: isMultiAgent ? scope : null }),
      "data-session": keyOf({ agent, session }),
    }, el("span", { class: "session-id" }, session),
    el("span", { class: "muted" }, dayAndClock(at), isMultiAgent && " · multi-agent"));
    markIfCurrent(link);
    return el("li", {}, link);
  }

  const keyOf = ({ agent, session }) => JSON.stringify([agent, session]);

  function markIfCurrent(link) {
    if (link.dataset.session === keyOf(store.ref)) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }

  /** Mark the open session, and list the sessions of its agent. */
  function showCurrent() {
    agents.list.querySelectorAll(".session").forEach(markIfCurrent);
    const { agent } = store.ref;
    if (!agent || expanded === agent) return;
    const item = [...agents.list.children].find((each) => each.dataset.agent === agent);
    if (item) toggle(item, agent);
  }

  const head = el("div", { class: "side-head" }, el("h2", {}, "Agents"),
    button("Refresh", () => agents.load(), { class: "quiet small" }));
  fill(root, head, agents.nodes);
  return { load: agents.load, showCurrent };
}
