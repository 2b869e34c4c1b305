// Sessions as files: export downloads the document, import takes one in after showing what it would
// change.

import { button, checkbox, el, field } from "../components/dom.js";
import { forget, get, send, sessionPath, token, url } from "../api/client.js";
import { ask, openDialog } from "../components/dialogs.js";
import { count, dayAndClock, plural, tagLine } from "../components/format.js";
import { SIGNS } from "../components/changes.js";
import { alertOf, note } from "../components/notices.js";

/** Download a session as it is now or one of its snapshots; `chosen` is the snapshot to begin with. */
export function exportDialog({ place, snapshots, chosen }) {
  const named = (info) => `snapshot at event ${count(info.seq)}, ${dayAndClock(info.created_at)} ${tagLine(info.tags)}`;
  const which = el("select", {}, el("option", { value: "now" }, "as it is now"),
    [...snapshots].reverse().slice(0, 500).map((info) =>
      el("option", { value: info.snapshot_id, selected: info.snapshot_id === chosen }, named(info))));
  const { box: redact, row } = checkbox("Redact secrets and personal data");
  const link = el("a", { class: "button main", download: true }, "Download");
  const query = () => ({ at: which.value, redact: redact.checked || null, scope: place.scope });
  const path = sessionPath(place, "document");
  const arrange = () => { link.href = url(path, query()).href; };
  link.addEventListener("click", (event) => {
    if (token()) {
      event.preventDefault(); // a link cannot carry the token
      downloaded(path, query()).catch(alertOf);
    }
    setTimeout(() => dialog.close(), 0);
  });
  const dialog = openDialog("Export this session",
    el("p", {}, "One JSON file that stands alone: state and events, to be imported anywhere."),
    field("What", which), row,
    el("div", { class: "row dialog-end" }, button("Cancel", () => dialog.close()), link));
  dialog.addEventListener("input", arrange);
  arrange();
}

async function downloaded(path, query) {
  const answer = await send(path, { query });
  const name = /filename="([^"]*)"/.exec(answer.headers.get("Content-Disposition") ?? "")?.[1];
  const address = URL.createObjectURL(await answer.blob());
  const link = el("a", { href: address, download: name ?? "session.json" });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

/** Take a document in. `open(place)` shows what came of it; `undo(place, id)` leads back. */
export function importDialog({ open, undo }) {
  const file = el("input", { type: "file", accept: ".json,.gz,.zst,application/json" });
  const agent = el("input", { autocomplete: "off" });
  const session = el("input", { autocomplete: "off" });
  const { box: modified, row } = checkbox("Also if the file was changed after its export");
  let head = null;

  const imported = async (dryRun) => (await send("agents/snapshot/restore", {
    method: "POST",
    body: file.files[0],
    headers: { "Content-Type": typeOf(file.files[0].name), ...(head && { "If-Match": `"${head}"` }) },
    query: { dry_run: dryRun || null, agent_id: agent.value.trim(), session_id: session.value.trim(),
      allow_modified: modified.checked || null },
  })).json();

  ask({
    title: "Import a session",
    explain: "Choose a document that was exported from a viewer, by the command line or by a program.",
    fields: [field("File", file), field("Agent", agent, "Left empty, the one in the file."),
      field("Session", session, "Left empty, the one in the file."), row],
    confirm: "Import",
    preview: async () => {
      if (!file.files.length) return null;
      head = null;
      const found = await imported(true);
      if (!found.created) head = (await get(sessionPath(placeOf(found)))).head;
      return told(found);
    },
    act: async () => {
      const done = await imported(false);
      forget();
      open(placeOf(done));
      const id = done.undo_snapshot_id;
      note(`Imported ${plural(done.messages_restored, "message")} into ${done.session_id}.`,
        id ? { text: "Undo…", act: () => undo(placeOf(done), id) } : null);
    },
  });
}

const placeOf = ({ agent_id: agent, session_id: session }) => ({ agent, session, scope: null });

function typeOf(name) {
  if (name.endsWith(".gz")) return "application/gzip";
  return name.endsWith(".zst") ? "application/zstd" : "application/json";
}

function told({ created, agent_id: agent, session_id: session, messages_restored: messages, changes }) {
  const part = (kind) => (changes?.[kind] ?? []).map(([space, key]) => el("li", {},
    el("span", { class: `mark ${kind}` }, `${SIGNS[kind]} ${kind}`), " ", el("code", {}, `${space}/${key}`)));
  const lines = ["added", "removed", "changed"].flatMap(part);
  const more = lines.length - 50;
  return [
    el("p", {}, created ? "A new session " : "The session ", el("code", {}, session), " of ", el("code", {}, agent),
      created ? " would be made" : " is there already and would become what the file holds",
      `, with ${plural(messages, "message")}.`),
    lines.length > 0 && el("ul", { class: "changes" }, lines.slice(0, 50)),
    more > 0 && el("p", { class: "muted" }, `and ${plural(more, "more change")}`),
    !created && !lines.length && el("p", {}, "Nothing would change."),
  ];
}
