// Choosing a moment: an event by its number, a snapshot, or now, of this session or any other.

import { button, checkbox, el, field, fill, freshId } from "./dom.js";
import { get, sessionPath } from "../api/client.js";
import { count, dayAndClock, tagLine } from "./format.js";
import { alertOf } from "./notices.js";

/**
 * A fieldset to choose one moment. `here()` is the session that is looked at and the step.
 * `value()` is `{agent, session, scope, moment}`.
 */
export function momentPicker(title, { here, start }) {
  const kind = el("select", {}, ["event", "snapshot", "now"].map((name) =>
    el("option", { value: name }, { event: "Event number", snapshot: "Snapshot", now: "Now" }[name])));
  const number = el("input", { type: "number", min: 0, value: start ?? here().seq });
  const snapshots = el("select");
  const agent = el("input", { list: freshId("agents"), autocomplete: "off" });
  const session = el("input", { list: freshId("sessions"), autocomplete: "off" });
  const agents = el("datalist", { id: agent.getAttribute("list") });
  const sessions = el("datalist", { id: session.getAttribute("list") });
  const { box: elsewhere, row: elsewhereRow } = checkbox("of another session");
  const numberField = field("Event", number);
  const snapshotField = field("Snapshot", snapshots);
  const other = el("div", { class: "other" }, field("Agent", agent), agents, field("Session", session), sessions);
  const use = button("This moment", () => set({ moment: String(here().seq) }), { class: "quiet small" });
  const node = el("fieldset", { class: "picker" }, el("legend", {}, title),
    el("div", { class: "row end" }, field("Moment", kind), numberField, snapshotField, use), elsewhereRow, other);

  const place = () => {
    if (!elsewhere.checked) return here();
    const isHere = agent.value === here().agent && session.value === here().session;
    return { agent: agent.value, session: session.value, scope: isHere ? here().scope : null };
  };

  function arrange() {
    numberField.hidden = kind.value !== "event";
    snapshotField.hidden = kind.value !== "snapshot";
    other.hidden = !elsewhere.checked;
    if (kind.value === "snapshot") return fillSnapshots().catch(alertOf);
    return Promise.resolve();
  }

  async function fillSnapshots() {
    const { scope, ...of } = place();
    if (!of.session) return;
    const wanted = snapshots.dataset.wanted ?? snapshots.value;
    const page = await get(sessionPath(of, "snapshots"), { limit: 500, scope });
    fill(snapshots, page.snapshots.map((info) => el("option", { value: info.snapshot_id },
      `event ${count(info.seq)}, ${dayAndClock(info.created_at)} ${tagLine(info.tags)}`)));
    if (wanted) snapshots.value = wanted;
    delete snapshots.dataset.wanted;
  }

  async function suggestAgents() {
    const page = await get("agents", { limit: 50, search: agent.value });
    fill(agents, page.agents.map((each) => el("option", { value: each.agent_id })));
  }

  async function suggestSessions() {
    const path = `agents/${encodeURIComponent(agent.value)}/sessions`;
    const page = await get(path, { limit: 50, search: session.value });
    fill(sessions, page.sessions.map((each) => el("option", { value: each.session_id })));
  }

  let waiting = null;
  const soon = (act) => () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => act().catch(() => fill(sessions)), 250); // an agent half typed has no sessions
  };
  kind.addEventListener("change", arrange);
  elsewhere.addEventListener("change", () => {
    agent.value ||= here().agent;
    session.value ||= here().session;
    arrange();
  });
  agent.addEventListener("input", soon(suggestAgents));
  agent.addEventListener("change", arrange);
  session.addEventListener("focus", soon(suggestSessions));
  session.addEventListener("input", soon(suggestSessions));
  session.addEventListener("change", arrange);

  /** Choose a moment from outside. */
  function set({ moment, agent: whose, session: which }) {
    if (whose && (whose !== here().agent || which !== here().session)) {
      elsewhere.checked = true;
      [agent.value, session.value] = [whose, which];
    } else if (whose) elsewhere.checked = false;
    if (moment === "now") kind.value = "now";
    else if (/^\d+$/.test(moment)) [kind.value, number.value] = ["event", moment];
    else [kind.value, snapshots.dataset.wanted] = ["snapshot", moment];
    return arrange();
  }

  function value() {
    const moment = { event: number.value || "0", snapshot: snapshots.dataset.wanted ?? snapshots.value, now: "now" }[kind.value];
    const { agent: whose, session: which, scope } = place();
    return { agent: whose, session: which, scope, moment };
  }

  arrange();
  return { node, set, value };
}
