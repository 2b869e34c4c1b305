// The buttons at the head of a session, each of which opens its dialog with what is looked at now.

import { button } from "../components/dom.js";
import { deleteSession, deleteSnapshot, fork, restore, saveSnapshot } from "./actions.js";
import { count } from "../components/format.js";
import { exportDialog, importDialog } from "./transfer.js";

export function sessionActs({ here, snapshots, open, reload, leave }) {
  const place = () => {
    const { agent, session, scope } = here();
    return { agent, session, scope };
  };
  const at = () => String(here().seq);
  const restoreButton = button("Restore…", () => restore({ place: place(), at: at(), reload }));
  const forkButton = button("Fork…", () => fork({ place: place(), at: at(), open }));

  const exported = (chosen) => exportDialog({ place: place(), snapshots: snapshots(), chosen });

  /** The snapshot that is looked at, where the step has one. */
  const lookedAt = () => snapshots().findLast(({ seq }) => seq === here().seq)?.snapshot_id;

  return {
    buttons({ canWrite, canDelete }) {
      return [
        canWrite && restoreButton,
        canWrite && forkButton,
        canWrite && button("Save a snapshot…", () => saveSnapshot({ place: place(), reload })),
        button("Export…", () => exported(lookedAt())),
        canDelete && button("Delete…", () => deleteSession({ place: place(), leave }), { class: "danger" }),
      ];
    },
    /** Say which step the buttons are about. */
    at(seq) {
      restoreButton.title = `Restore to event ${count(seq)}`;
      forkButton.title = `Fork from event ${count(seq)}`;
    },
    ofSnapshot: {
      export: (info) => exported(info.snapshot_id),
      delete: (info) => deleteSnapshot({ place: place(), info, reload }),
    },
    importFile() {
      importDialog({
        open,
        undo: (where, id) => restore({ place: where, at: id, reload }),
      });
    },
  };
}
