// Sessions as files: export downloads a document, import uploads one after a preview of what it would change.

import { sessionPath } from "../api/client.js";
import { changeMark } from "../components/changes.js";
import { confirmDialog, openDialog } from "../components/dialogs.js";
import { button, checkbox, el, field } from "../components/dom.js";
import { download } from "../components/download.js";
import { count, dayAndClock, plural, tagLine } from "../components/format.js";
import { showError, showNote } from "../components/notices.js";

const MAX_SNAPSHOTS = 500;
const MAX_CHANGES = 50;

/** Offer the head and the snapshots of a session for download; `chosen` is the snapshot to select at first. */
export function openExportDialog({ client, ref, snapshots, chosen }) {
  const title = (info) =>
    `snapshot at event ${count(info.seq)}, ${dayAndClock(info.created_at)} ${tagLine(info.tags)}`;
  const position = el("select", {}, el("option", { value: "now" }, "head"),
    [...snapshots].reverse().slice(0, MAX_SNAPSHOTS).map((info) =>
      el("option", { value: info.snapshot_id, selected: info.snapshot_id === chosen }, title(info))));
  const { box: redact, row } = checkbox("Redact secrets and personal data");
  const { box: omit, row: omitRow } = checkbox("Leave out large values and attachments");
  const link = el("a", { class: "button main", download: true }, "Download");
  const query = () => ({ at: position.value, redact: redact.checked || null, attachments: omit.checked ? "omit" : null,
    scope: ref.scope });
  const path = sessionPath(ref, "document");
  const updateLink = () => { link.href = client.url(path, query()).href; };
  link.addEventListener("click", (event) => {
    if (client.token) {
      event.preventDefault(); // a link cannot carry the token
      download(client, path, query()).catch(showError);
    }
    setTimeout(() => dialog.close(), 0);
  });
  const dialog = openDialog("Export this session",
    el("p", {}, "Downloads one JSON file with the state and the events, which can be imported into any store."),
    field("Position", position), row, omitRow,
    el("div", { class: "row dialog-end" }, button("Cancel", () => dialog.close()), link));
  dialog.addEventListener("input", updateLink);
  updateLink();
}

/** Import a document. `open(ref)` opens the session; `undo(ref, snapshotId)` restores what it was before. */
export function openImportDialog({ client, open, undo }) {
  const file = el("input", { type: "file", accept: ".json,.gz,.zst,application/json" });
  const agent = el("input", { autocomplete: "off" });
  const session = el("input", { autocomplete: "off" });
  const { box: allowModified, row } = checkbox("Import even if the file was modified after its export");
  let head = null;

  const upload = async (dryRun) => (await client.send("agents/snapshot/restore", {
    method: "POST",
    body: file.files[0],
    headers: { "Content-Type": contentType(file.files[0].name), ...(head && { "If-Match": `"${head}"` }) },
    query: { dry_run: dryRun || null, agent_id: agent.value.trim(), session_id: session.value.trim(),
      allow_modified: allowModified.checked || null },
  })).json();

  confirmDialog({
    title: "Import a session",
    explanation: "Choose a document that was exported by the viewer, the command line or the API.",
    fields: [field("File", file), field("Agent", agent, "Leave empty to use the file's."),
      field("Session", session, "Leave empty to use the file's."), row],
    confirm: "Import",
    preview: async () => {
      if (!file.files.length) return null;
      head = null;
      const result = await upload(true);
      if (!result.created) head = (await client.get(sessionPath(refOf(result)))).head;
      return importPreview(result);
    },
    execute: async () => {
      const result = await upload(false);
      client.clearCache();
      open(refOf(result));
      const snapshotId = result.undo_snapshot_id;
      showNote(`Imported ${plural(result.messages_restored, "message")} into ${result.session_id}.`,
        snapshotId ? { text: "Undo…", onClick: () => undo(refOf(result), snapshotId) } : null);
    },
  });
}

const refOf = ({ agent_id: agent, session_id: session }) => ({ agent, session, scope: null });

function contentType(name) {
  if (name.endsWith(".gz")) return "application/gzip";
  return name.endsWith(".zst") ? "application/zstd" : "application/json";
}

function importPreview({ created, agent_id: agent, session_id: session, messages_restored: messages, changes }) {
  const lines = ["added", "removed", "changed"].flatMap((kind) => (changes?.[kind] ?? []).map(([namespace, key]) =>
    el("li", {}, changeMark(kind), " ", el("code", {}, `${namespace}/${key}`))));
  const more = lines.length - MAX_CHANGES;
  return [
    el("p", {}, created ? "Creates the session " : "Replaces the state of the existing session ",
      el("code", {}, session), " of ", el("code", {}, agent), `, with ${plural(messages, "message")}.`),
    lines.length > 0 && el("ul", { class: "changes" }, lines.slice(0, MAX_CHANGES)),
    more > 0 && el("p", { class: "muted" }, `and ${plural(more, "more change")}`),
    !created && !lines.length && el("p", {}, "No changes."),
  ];
}
