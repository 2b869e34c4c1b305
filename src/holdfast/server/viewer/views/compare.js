// Two moments beside each other: of this session, of two sessions, of two agents. The address holds
// what is compared, so that a comparison can be sent to somebody.

import { button, el, fill, setBusy } from "../components/dom.js";
import { get, sessionPath } from "../api/client.js";
import { entriesView, summary } from "../components/diff.js";
import { errorText } from "../components/notices.js";
import { momentPicker } from "../components/position-picker.js";

export function compareView(root, { here, onCompared }) {
  let stop = new AbortController();
  let drawnFor = null;
  let compared = null;
  let a = null;
  let b = null;
  const result = el("div", { class: "compared" });

  function draw() {
    const { agent, session, seq, first } = here();
    drawnFor = JSON.stringify([agent, session]);
    a = momentPicker("A, before", { here, start: Math.max(first - 1, seq - 1) });
    b = momentPicker("B, after", { here, start: seq });
    const go = el("form", { class: "card compare", on: { submit: (event) => { event.preventDefault(); run(); } } },
      el("h2", {}, "Compare two moments"),
      el("div", { class: "pickers" }, a.node, b.node),
      el("div", { class: "row" }, el("button", { class: "main" }, "Compare"), button("Swap", swap)));
    compared = null;
    fill(result);
    fill(root, go, result);
  }

  async function swap() {
    const [first, second] = [a.value(), b.value()];
    await Promise.all([a.set(second), b.set(first)]);
  }

  async function run() {
    stop.abort();
    stop = new AbortController();
    const { signal } = stop;
    const [from, to] = [a.value(), b.value()];
    compared = keyOf(options(from, to));
    onCompared(options(from, to));
    fill(result, el("p", { class: "muted", role: "status" }, "Comparing…"));
    setBusy(result, true);
    try {
      const diff = await fetched(from, to, signal);
      const title = el("h3", { tabindex: "-1" }, `${named(diff.from)} compared with ${named(diff.to)}`);
      fill(result, el("section", { class: "card", "aria-label": "What differs" }, title, summary(diff), entriesView(diff)));
      title.focus({ preventScroll: true });
    } catch (error) {
      if (!signal.aborted) fill(result, el("div", { class: "notice bad", role: "alert" }, errorText(error)));
    }
    if (!signal.aborted) setBusy(result, false);
  }

  function fetched(from, to, signal) {
    const isOne = from.agent === to.agent && from.session === to.session;
    const moments = { from: from.moment, to: to.moment, patch: false };
    if (isOne) return get(sessionPath(from, "diff"), { ...moments, scope: from.scope }, signal);
    return get("diff", { ...moments, from_agent: from.agent, from_session: from.session,
      to_agent: to.agent, to_session: to.session }, signal);
  }

  function named({ agent_id: agent, session_id: session, seq, snapshot_id: id }) {
    const isHere = agent === here().agent && session === here().session;
    const whose = isHere ? "" : ` of ${agent} / ${session}`;
    return `${id ? "the snapshot at " : ""}event ${seq}${whose}`;
  }

  /** What the address keeps of a comparison. */
  function options(from, to) {
    const is = (place) => place.agent === here().agent && place.session === here().session;
    return {
      from: from.moment, to: to.moment,
      from_agent: is(from) ? null : from.agent, from_session: is(from) ? null : from.session,
      to_agent: is(to) ? null : to.agent, to_session: is(to) ? null : to.session,
    };
  }

  return {
    forget() { drawnFor = null; },
    /** Show the view; with a comparison in the address that is not on show yet, do it. */
    async show(place) {
      const { agent, session } = here();
      if (drawnFor !== JSON.stringify([agent, session])) draw();
      if (!place.from || !place.to || compared === keyOf(place)) return;
      await Promise.all([
        a.set({ moment: place.from, agent: place.from_agent ?? agent, session: place.from_session ?? session }),
        b.set({ moment: place.to, agent: place.to_agent ?? agent, session: place.to_session ?? session }),
      ]);
      await run();
    },
  };
}

const NAMES = ["from", "to", "from_agent", "from_session", "to_agent", "to_session"];
const keyOf = (place) => JSON.stringify(NAMES.map((name) => place[name] ?? null));

/** The part of an address that says what is compared. */
export const comparison = (place) => Object.fromEntries(NAMES.map((name) => [name, place[name] ?? null]));
