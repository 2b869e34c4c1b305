// The buttons of a session, each of which opens a dialog for the shown position.

import { button } from "../components/dom.js";
import { count } from "../components/format.js";
import { deleteSession, deleteSnapshot, fork, restore, saveSnapshot } from "./actions.js";
import { openExportDialog, openImportDialog } from "./transfer.js";

/**
 * Create the buttons. `current()` returns the shown position; `open(ref)` opens a session, `reload(how)` updates the
 * open one, `leave()` leaves it after its deletion.
 */
export function createActions({ client, store, access, current, open, reload, leave }) {
  const at = () => String(current().seq);
  const restoreButton = button("Restore…", () => restore({ client, ref: store.ref, at: at(), reload }));
  const forkButton = button("Fork…", () => fork({ client, ref: store.ref, at: at(), open }));

  const openExport = (chosen) => openExportDialog({ client, ref: store.ref, snapshots: store.snapshots, chosen });
  const shownSnapshot = () => store.snapshots.findLast(({ seq }) => seq === current().seq)?.snapshot_id;

  return {
    /** Return the buttons that the user may use. */
    buttons() {
      const canWrite = access.canWrite();
      return [
        canWrite && restoreButton,
        canWrite && forkButton,
        canWrite && button("Save snapshot…", () => saveSnapshot({ client, ref: store.ref, reload })),
        button("Export…", () => openExport(shownSnapshot())),
        access.canDelete()
          && button("Delete…", () => deleteSession({ client, ref: store.ref, leave }), { class: "danger" }),
      ];
    },
    setPosition(seq) {
      restoreButton.title = `Restore to event ${count(seq)}`;
      forkButton.title = `Fork from event ${count(seq)}`;
    },
    exportSnapshot: (info) => openExport(info.snapshot_id),
    deleteSnapshot: (info) => deleteSnapshot({ client, ref: store.ref, info, reload }),
    importFile: () => openImportDialog({
      client, open, undo: (ref, snapshotId) => restore({ client, ref, at: snapshotId, reload }),
    }),
  };
}
