// Two positions compared: of one session, of two sessions, or of two agents. The address names them, so a comparison
// can be shared as a link.

import { createBlobs } from "../api/blobs.js";
import { sessionPath } from "../api/client.js";
import { diffEntries, diffSummary } from "../components/diff.js";
import { button, el, fill, setBusy } from "../components/dom.js";
import { describeError } from "../components/notices.js";
import { createPositionPicker } from "../components/position-picker.js";

const FIELDS = ["from", "to", "from_agent", "from_session", "to_agent", "to_session"];

/** Return the part of a route that names what is compared. */
export const parseComparison = (route) => Object.fromEntries(FIELDS.map((name) => [name, route[name] ?? null]));

const isSame = (a, b) => a !== null && FIELDS.every((name) => (a[name] ?? null) === (b[name] ?? null));

/** Create the view. `current()` returns the shown position; `onCompare(comparison)` is called for each comparison. */
export function createCompareView(root, { client, current, onCompare }) {
  let stop = new AbortController();
  let isDrawn = false;
  let shown = null;
  let before = null;
  let after = null;
  const result = el("div", { class: "comparison" });

  function draw() {
    const { seq, first } = current();
    before = createPositionPicker("A, before", { client, current, start: Math.max(first - 1, seq - 1) });
    after = createPositionPicker("B, after", { client, current, start: seq });
    const onSubmit = (event) => {
      event.preventDefault();
      run();
    };
    isDrawn = true;
    shown = null;
    fill(result);
    fill(root, el("form", { class: "card compare", on: { submit: onSubmit } },
      el("h2", {}, "Compare two positions"),
      el("div", { class: "pickers" }, before.node, after.node),
      el("div", { class: "row" }, el("button", { class: "main" }, "Compare"), button("Swap", swap))), result);
  }

  async function swap() {
    const [a, b] = [before.value(), after.value()];
    await Promise.all([before.set(b), after.set(a)]);
  }

  async function run() {
    stop.abort();
    stop = new AbortController();
    const { signal } = stop;
    const [from, to] = [before.value(), after.value()];
    shown = toComparison(from, to);
    onCompare(shown);
    fill(result, el("p", { class: "muted", role: "status" }, "Comparing…"));
    setBusy(result, true);
    try {
      const diff = await fetchDiff(from, to, signal);
      const title = el("h3", { tabindex: "-1" }, `${describe(diff.from)} compared with ${describe(diff.to)}`);
      const blobs = { before: blobsOf(diff.from, from), after: blobsOf(diff.to, to) };
      fill(result, el("section", { class: "card", "aria-label": "Differences" },
        title, diffSummary(diff), diffEntries(diff, blobs)));
      title.focus({ preventScroll: true });
    } catch (error) {
      if (!signal.aborted) fill(result, el("div", { class: "notice bad", role: "alert" }, describeError(error)));
    }
    if (!signal.aborted) setBusy(result, false);
  }

  function fetchDiff(from, to, signal) {
    const positions = { from: from.at, to: to.at, patch: false };
    if (from.agent === to.agent && from.session === to.session) {
      return client.get(sessionPath(from, "diff"), { ...positions, scope: from.scope }, signal);
    }
    return client.get("diff", { ...positions, from_agent: from.agent, from_session: from.session,
      to_agent: to.agent, to_session: to.session }, signal);
  }

  const blobsOf = ({ agent_id: agent, session_id: session }, { scope = null }) =>
    createBlobs(client, { agent, session, scope });

  const isOpen = (agent, session) => agent === current().agent && session === current().session;

  function describe({ agent_id: agent, session_id: session, seq, snapshot_id: id }) {
    const owner = isOpen(agent, session) ? "" : ` of ${agent} / ${session}`;
    return `${id ? "the snapshot at " : ""}event ${seq}${owner}`;
  }

  /** Return two positions as the address has them: sessions other than the open one are named. */
  function toComparison(from, to) {
    const [isFromOpen, isToOpen] = [from, to].map(({ agent, session }) => isOpen(agent, session));
    return {
      from: from.at, to: to.at,
      from_agent: isFromOpen ? null : from.agent, from_session: isFromOpen ? null : from.session,
      to_agent: isToOpen ? null : to.agent, to_session: isToOpen ? null : to.session,
    };
  }

  return {
    /** Start with empty pickers for the next session. */
    reset() { isDrawn = false; },
    /** Show the view, and the comparison if it names two positions. */
    async show(comparison) {
      if (!isDrawn) draw();
      const { from, to, from_agent, from_session, to_agent, to_session } = comparison;
      if (!from || !to || isSame(shown, comparison)) return;
      const { agent, session } = current();
      await Promise.all([
        before.set({ at: from, agent: from_agent ?? agent, session: from_session ?? session }),
        after.set({ at: to, agent: to_agent ?? agent, session: to_session ?? session }),
      ]);
      await run();
    },
  };
}
