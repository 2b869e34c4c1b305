// Dialogs that change a session: restore, fork, save a snapshot, delete. The final request carries the head that the
// preview was made for, so it fails if the session has changed since.

import { createBlobs } from "../api/blobs.js";
import { sessionPath } from "../api/client.js";
import { confirmDialog } from "../components/dialogs.js";
import { diffEntries, diffSummary } from "../components/diff.js";
import { button, el, field, fill } from "../components/dom.js";
import { count, plural, size } from "../components/format.js";
import { showNote } from "../components/notices.js";

/** Return a request to a session as `preview(body)`, a dry run, and `execute(body)`. */
function conditionalRequest(client, ref, path, method) {
  let head = null;
  const send = (body, dryRun) => client.send(path, {
    method, body, query: { dry_run: dryRun || null, scope: ref.scope }, headers: { "If-Match": `"${head}"` },
  });
  return {
    async preview(body) {
      head = (await client.get(sessionPath(ref), { scope: ref.scope })).head;
      return (await send(body, true)).json();
    },
    execute: (body) => send(body, false),
  };
}

/** Restore a session to an event or a snapshot. */
export function restore({ client, ref, at, reload }) {
  const request = conditionalRequest(client, ref, sessionPath(ref, "restore"), "POST");
  const target = /^\d+$/.test(at) ? `event ${count(Number(at))}` : "the snapshot";
  confirmDialog({
    title: `Restore to ${target}?`,
    explanation: "The state becomes what it was then. The log is not truncated: the restore is appended as an event.",
    confirm: "Restore",
    preview: async () => {
      const { changes } = await request.preview({ at });
      const blobs = createBlobs(client, ref);
      return [diffSummary(changes), diffEntries(changes, { before: blobs, after: blobs })];
    },
    execute: async () => {
      const result = await (await request.execute({ at })).json();
      await reload({ toHead: true });
      showNote(`Restored to ${target}. The previous state is at event ${count(result.previous_event)}.`, {
        text: "Undo…", onClick: () => restore({ client, ref, at: String(result.previous_event), reload }),
      });
    },
  });
}

/** Fork a session at an event. */
export function fork({ client, ref, at, open }) {
  const session = el("input", { autocomplete: "off" });
  const agent = el("input", { value: ref.agent, autocomplete: "off" });
  const body = () => ({
    at, ...(session.value.trim() && { session_id: session.value.trim() }),
    ...(agent.value.trim() && { agent_id: agent.value.trim() }),
  });
  const request = conditionalRequest(client, ref, sessionPath(ref, "fork"), "POST");
  confirmDialog({
    title: `Fork from event ${count(Number(at))}?`,
    explanation: "Creates a new session with the state at this event. The open session does not change.",
    fields: [field("New session", session, "Leave empty to generate an id."), field("Agent", agent)],
    confirm: "Fork",
    preview: async () => {
      const result = await request.preview(body());
      return el("p", {}, "A session ", el("code", {}, result.session_id ?? "with a generated id"), " of ",
        el("code", {}, result.agent_id),
        ` with ${plural(result.message_count, "message")}, status ${result.status}.`);
    },
    execute: async () => {
      const created = await (await request.execute(body())).json();
      open({ agent: created.agent_id, session: created.session_id, scope: ref.scope });
      showNote(`This is the new session, forked from event ${at} of ${ref.session}.`);
    },
  });
}

/** Save a snapshot of a session at its head. */
export function saveSnapshot({ client, ref, reload }) {
  const rows = el("div", { class: "tag-rows" });
  const tagRow = () => {
    const key = el("input", { "aria-label": "Tag", placeholder: "env", autocomplete: "off" });
    const value = el("input", { "aria-label": "Tag value", placeholder: "production", autocomplete: "off" });
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
  const request = conditionalRequest(client, ref, sessionPath(ref, "snapshots"), "POST");
  confirmDialog({
    title: "Save a snapshot?",
    explanation: "Saves the session at its head, with the tags you enter.",
    fields: [el("fieldset", { class: "tags" }, el("legend", {}, "Tags"), rows,
      button("Add tag", addRow, { class: "quiet small" }))],
    confirm: "Save",
    preview: async () => {
      const info = await request.preview({ tags: tags() });
      return el("p", {}, `A snapshot at event ${count(info.seq)}: ${plural(info.message_count, "message")}, `
        + `${size(info.size_bytes)}, status ${info.status}.`);
    },
    execute: async () => {
      const info = await (await request.execute({ tags: tags() })).json();
      await reload({});
      showNote(`Saved a snapshot at event ${count(info.seq)}.`);
    },
  });
}

export function deleteSnapshot({ client, ref, info, reload }) {
  const request = conditionalRequest(client, ref, sessionPath(ref, "snapshots", info.snapshot_id), "DELETE");
  confirmDialog({
    title: `Delete the snapshot at event ${count(info.seq)}?`,
    explanation: "The events are kept, so you can still go to this position. This cannot be undone.",
    confirm: "Delete snapshot",
    isDangerous: true,
    preview: async () => {
      await request.preview();
      return el("p", {}, el("code", {}, info.snapshot_id), " ",
        Object.entries(info.tags).map(([key, value]) => el("span", { class: "tag" }, `${key}=${value}`)));
    },
    execute: async () => {
      await request.execute();
      await reload({});
      showNote("Snapshot deleted.");
    },
  });
}

export function deleteSession({ client, ref, leave }) {
  const request = conditionalRequest(client, ref, sessionPath(ref), "DELETE");
  confirmDialog({
    title: "Delete this session?",
    explanation: "Deletes its events, snapshots and state. This cannot be undone: to keep a copy, export it first.",
    confirm: "Delete session",
    isDangerous: true,
    preview: async () => {
      const result = await request.preview();
      const agents = result.agents.map((each) => el("code", {}, typeof each === "string" ? each : each.agent_id));
      return el("p", {}, "The session ", el("code", {}, result.session_id), " with ",
        `${plural(result.events, "event")} and ${plural(result.snapshots, "snapshot")}`, " of ",
        agents.flatMap((each, i) => (i ? [", ", each] : [each])), ".");
    },
    execute: async () => {
      await request.execute();
      client.clearCache();
      leave();
      showNote(`Session ${ref.session} deleted.`);
    },
  });
}
