// What one can do to a session: restore, fork, save a snapshot, delete. Every request carries the head
// that was seen at the look ahead, so that nothing happens that was not shown.

import { button, el, field, fill } from "../components/dom.js";
import { forget, get, send, sessionPath } from "../api/client.js";
import { ask } from "../components/dialogs.js";
import { entriesView, summary } from "../components/diff.js";
import { count, plural, size } from "../components/format.js";
import { note } from "../components/notices.js";

/** Requests to one session, first for show and then in earnest, with the head of the look ahead. */
function guarded(place, path, method) {
  let head = null;
  const ask_ = (body, dryRun) => send(path, {
    method, body, query: { dry_run: dryRun || null, scope: place.scope }, headers: { "If-Match": `"${head}"` },
  });
  return {
    async ahead(body) {
      head = (await get(sessionPath(place), { scope: place.scope })).head;
      return (await ask_(body, true)).json();
    },
    earnest: (body) => ask_(body, false),
  };
}

export function restore({ place, at, reload }) {
  const requests = guarded(place, sessionPath(place, "restore"), "POST");
  const isEvent = /^\d+$/.test(at);
  const name = isEvent ? `event ${count(Number(at))}` : "the snapshot";
  ask({
    title: `Restore to ${name}?`,
    explain: "The state becomes what it was then. The log is not shortened: an event is added that says so.",
    confirm: "Restore",
    preview: async () => {
      const { changes } = await requests.ahead({ at });
      return [summary(changes), entriesView(changes)];
    },
    act: async () => {
      const done = await (await requests.earnest({ at })).json();
      await reload({ toEnd: true });
      note(`Restored to ${name}. Event ${count(done.previous_event)} is what was there before.`, {
        text: "Undo…", act: () => restore({ place, at: String(done.previous_event), reload }),
      });
    },
  });
}

export function fork({ place, at, open }) {
  const session = el("input", { autocomplete: "off" });
  const agent = el("input", { value: place.agent, autocomplete: "off" });
  const body = () => ({
    at, ...(session.value.trim() && { session_id: session.value.trim() }),
    ...(agent.value.trim() && { agent_id: agent.value.trim() }),
  });
  const requests = guarded(place, sessionPath(place, "fork"), "POST");
  ask({
    title: `Fork from event ${count(Number(at))}?`,
    explain: "A new session begins with the state of that moment. This one is not touched.",
    fields: [field("New session", session, "Left empty, an id is made up."), field("Agent", agent)],
    confirm: "Fork",
    preview: async () => {
      const found = await requests.ahead(body());
      return el("p", {}, "A session ", el("code", {}, found.session_id ?? "with a new id"), " of ",
        el("code", {}, found.agent_id), ` with ${plural(found.message_count, "message")}, status ${found.status}.`);
    },
    act: async () => {
      const made = await (await requests.earnest(body())).json();
      open({ agent: made.agent_id, session: made.session_id, scope: place.scope });
      note(`Forked: this is the new session, from event ${at} of ${place.session}.`);
    },
  });
}

export function saveSnapshot({ place, reload }) {
  const rows = el("div", { class: "tag-rows" });
  const tagRow = () => {
    const key = el("input", { "aria-label": "Tag", placeholder: "env", autocomplete: "off" });
    const value = el("input", { "aria-label": "Value of the tag", placeholder: "production", autocomplete: "off" });
    return el("div", { class: "row tag-row" }, key, "=", value);
  };
  const addRow = () => {
    rows.append(tagRow());
    rows.lastChild.querySelector("input").focus();
  };
  fill(rows, tagRow());
  const tags = () => Object.fromEntries([...rows.querySelectorAll(".tag-row")]
    .map((row) => [...row.querySelectorAll("input")].map((input) => input.value.trim()))
    .filter(([key]) => key));
  const requests = guarded(place, sessionPath(place, "snapshots"), "POST");
  ask({
    title: "Save a snapshot?",
    explain: "It keeps the session as it is now, at its last event, under the tags that you give it.",
    fields: [el("fieldset", { class: "tags" }, el("legend", {}, "Tags"), rows,
      button("Another tag", addRow, { class: "quiet small" }))],
    confirm: "Save",
    preview: async () => {
      const info = await requests.ahead({ tags: tags() });
      return el("p", {}, `A snapshot at event ${count(info.seq)}: ${plural(info.message_count, "message")}, `
        + `${size(info.size_bytes)}, status ${info.status}.`);
    },
    act: async () => {
      const info = await (await requests.earnest({ tags: tags() })).json();
      await reload({});
      note(`Saved a snapshot at event ${count(info.seq)}.`);
    },
  });
}

export function deleteSnapshot({ place, info, reload }) {
  const requests = guarded(place, sessionPath(place, "snapshots", info.snapshot_id), "DELETE");
  ask({
    title: `Delete the snapshot at event ${count(info.seq)}?`,
    explain: "The events stay: one can still go to that step. This cannot be undone.",
    confirm: "Delete the snapshot",
    danger: true,
    preview: async () => {
      await requests.ahead();
      return el("p", {}, el("code", {}, info.snapshot_id), " ",
        Object.entries(info.tags).map(([key, value]) => el("span", { class: "tag" }, `${key}=${value}`)));
    },
    act: async () => {
      await requests.earnest();
      await reload({});
      note("The snapshot is deleted.");
    },
  });
}

export function deleteSession({ place, leave }) {
  const requests = guarded(place, sessionPath(place), "DELETE");
  ask({
    title: "Delete this session?",
    explain: "All of it goes: events, snapshots, state. This cannot be undone. Export it first to keep a copy.",
    confirm: "Delete the session",
    danger: true,
    preview: async () => {
      const found = await requests.ahead();
      const agents = found.agents.map((each) => el("code", {}, typeof each === "string" ? each : each.agent_id));
      return el("p", {}, "The session ", el("code", {}, found.session_id), " with ",
        `${plural(found.events, "event")} and ${plural(found.snapshots, "snapshot")}`, " of ",
        agents.flatMap((each, i) => (i ? [", ", each] : [each])), ".");
    },
    act: async () => {
      await requests.earnest();
      forget();
      leave();
      note(`The session ${place.session} is deleted.`);
    },
  });
}
