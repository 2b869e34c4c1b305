"""`Workspace` for code that is not async."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager

from holdfast.sessions.rebase import OnConflict
from holdfast.sessions.restore import SnapshotRef
from holdfast.sessions.workspace import Workspace
from holdfast.stores.portal import sync
from holdfast.workspaces.compare import WorkspaceDiff
from holdfast.workspaces.reports import CaptureReport, RestoreReport


class BlockingWorkspace:
    """A `Workspace` with blocking methods, as returned by `BlockingSession.workspace`."""

    def __init__(self, workspace: Workspace, guard: AbstractContextManager[object]) -> None:
        self.workspace = workspace
        self._guard = guard

    @property
    def folder(self) -> str:
        """The absolute path of the folder."""
        return self.workspace.folder

    def capture(self, *, on_conflict: OnConflict = "raise") -> CaptureReport:
        """Record the files of the folder in the session's state, and commit.

        See `Workspace.capture`.

        Raises:
            WorkspaceError: A file cannot be read, or changes all the time; the error names it.
            ConflictError: As for `BlockingSession.commit`; nothing was written.
            StateStoreError: The store failed.

        """
        with self._guard:
            return sync(self.workspace.capture(on_conflict=on_conflict))

    def restore(
        self, *, at: SnapshotRef, dry_run: bool = False, force: bool = False
    ) -> RestoreReport:
        """Lead the folder to the files that the session has at a snapshot or event, and commit.

        See `Workspace.restore`.

        Raises:
            WorkspaceChangedError: The folder changed since the last capture, and ``force`` is
                False; nothing was changed.
            WorkspaceError: A file cannot be read or written; the error names it.
            NotFoundError: The session has no such snapshot or event, or it was pruned.
            IntegrityError: The content of a file is missing or damaged; nothing was changed.
            ConflictError: Another writer committed first. Refresh the session and retry.
            StateStoreError: The store failed.

        """
        with self._guard:
            return sync(self.workspace.restore(at=at, dry_run=dry_run, force=force))

    def diff(
        self, a: SnapshotRef | None = None, b: SnapshotRef | None = None, *, text: bool = True
    ) -> WorkspaceDiff:
        """Return the files that differ between two snapshots or events, with text diffs.

        See `Workspace.diff`.

        Raises:
            WorkspaceError: A file of the folder cannot be read.
            NotFoundError: The session has no such snapshot or event, or it was pruned.
            IntegrityError: The content of a file is missing or damaged.
            StateStoreError: The store failed.

        """
        with self._guard:
            return sync(self.workspace.diff(a, b, text=text))

    def export(self, destination: str | os.PathLike[str], *, at: SnapshotRef | None = None) -> int:
        """Write the files at a snapshot or event to a new folder or archive; return their number.

        See `Workspace.export`.

        Raises:
            WorkspaceError: The destination exists, or cannot be written.
            NotFoundError: The session has no such snapshot or event, or it was pruned.
            IntegrityError: The content of a file is missing or damaged.
            StateStoreError: The store failed.

        """
        with self._guard:
            return sync(self.workspace.export(destination, at=at))

    def __repr__(self) -> str:
        return f"<Blocking{repr(self.workspace)[1:]}"
