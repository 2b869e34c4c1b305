"""The kinds of operation, by name."""

from __future__ import annotations

from trials.kills.blobs import Blobs, Sweeps
from trials.kills.commits import Commit, Prune, Save, SaveMany
from trials.kills.tasks import Kind
from trials.kills.threads import Threads
from trials.kills.transfers import Backup, Copy, Import
from trials.kills.workspaces import Capture, Restore

KINDS: dict[str, type[Kind]] = {
    kind.name: kind
    for kind in (
        Commit,
        Save,
        SaveMany,
        Threads,
        Prune,
        Import,
        Copy,
        Backup,
        Capture,
        Restore,
        Blobs,
        Sweeps,
    )
}
