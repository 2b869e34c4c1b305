// A choice of a position: an event by its number, a snapshot, or the head, of the open session or another one.

import { sessionPath } from "../api/client.js";
import { button, checkbox, el, field, fill, freshId } from "./dom.js";
import { count, dayAndClock, tagLine } from "./format.js";
import { showError } from "./notices.js";

const INPUT_DELAY = 250;

/**
 * Create a fieldset to choose a position, at first the event `start` of the open session. `current()` returns the
 * shown position as `{agent, session, scope, seq}`; `value()` the chosen one as `{agent, session, scope, at}`, where
 * `at` is an event number, a snapshot id or "now".
 */
export function createPositionPicker(title, { client, current, start }) {
  const kind = el("select", {},
    el("option", { value: "event" }, "Event number"),
    el("option", { value: "snapshot" }, "Snapshot"),
    el("option", { value: "now" }, "Head"));
  const number = el("input", { type: "number", min: 0, value: start });
  const snapshots = el("select");
  const agent = el("input", { list: freshId("agents"), autocomplete: "off" });
  const session = el("input", { list: freshId("sessions"), autocomplete: "off" });
  const agents = el("datalist", { id: agent.getAttribute("list") });
  const sessions = el("datalist", { id: session.getAttribute("list") });
  const { box: isOther, row: isOtherRow } = checkbox("in another session");
  const numberField = field("Event", number);
  const snapshotField = field("Snapshot", snapshots);
  const other = el("div", { class: "other-session" },
    field("Agent", agent), agents, field("Session", session), sessions);
  const useCurrent = button("Use current", () => set({ at: String(current().seq) }), { class: "quiet small" });
  const node = el("fieldset", { class: "picker" }, el("legend", {}, title),
    el("div", { class: "row end" }, field("Position", kind), numberField, snapshotField, useCurrent),
    isOtherRow, other);

  function chosenSession() {
    const open = current();
    if (!isOther.checked) return open;
    const isOpen = agent.value === open.agent && session.value === open.session;
    return { agent: agent.value, session: session.value, scope: isOpen ? open.scope : null };
  }

  async function update() {
    numberField.hidden = kind.value !== "event";
    snapshotField.hidden = kind.value !== "snapshot";
    other.hidden = !isOther.checked;
    if (kind.value === "snapshot") await fillSnapshots().catch(showError);
  }

  async function fillSnapshots() {
    const ref = chosenSession();
    if (!ref.session) return;
    const wanted = snapshots.dataset.wanted ?? snapshots.value;
    const page = await client.get(sessionPath(ref, "snapshots"), { limit: 500, scope: ref.scope });
    fill(snapshots, page.snapshots.map((info) => el("option", { value: info.snapshot_id },
      `event ${count(info.seq)}, ${dayAndClock(info.created_at)} ${tagLine(info.tags)}`)));
    if (wanted) snapshots.value = wanted;
    delete snapshots.dataset.wanted;
  }

  async function suggestAgents() {
    const page = await client.get("agents", { limit: 50, search: agent.value });
    fill(agents, page.agents.map((each) => el("option", { value: each.agent_id })));
  }

  async function suggestSessions() {
    const path = `agents/${encodeURIComponent(agent.value)}/sessions`;
    const page = await client.get(path, { limit: 50, search: session.value });
    fill(sessions, page.sessions.map((each) => el("option", { value: each.session_id })));
  }

  let timer = null;
  const delayed = (suggest) => () => {
    clearTimeout(timer);
    // A request for the sessions of a half-typed agent fails.
    timer = setTimeout(() => suggest().catch(() => fill(sessions)), INPUT_DELAY);
  };
  kind.addEventListener("change", update);
  isOther.addEventListener("change", () => {
    agent.value ||= current().agent;
    session.value ||= current().session;
    update();
  });
  agent.addEventListener("input", delayed(suggestAgents));
  agent.addEventListener("change", update);
  session.addEventListener("focus", delayed(suggestSessions));
  session.addEventListener("input", delayed(suggestSessions));
  session.addEventListener("change", update);

  /** Choose a position; without an agent, of the session that is chosen already. */
  function set({ at, agent: agentId, session: sessionId }) {
    if (agentId) {
      isOther.checked = agentId !== current().agent || sessionId !== current().session;
      if (isOther.checked) [agent.value, session.value] = [agentId, sessionId];
    }
    if (at === "now") kind.value = "now";
    else if (/^\d+$/.test(at)) [kind.value, number.value] = ["event", at];
    else [kind.value, snapshots.dataset.wanted] = ["snapshot", at];
    return update();
  }

  function value() {
    const at = {
      event: number.value || "0", snapshot: snapshots.dataset.wanted ?? snapshots.value, now: "now",
    }[kind.value];
    const { agent: agentId, session: sessionId, scope } = chosenSession();
    return { agent: agentId, session: sessionId, scope, at };
  }

  update();
  return { node, set, value };
}
