"""Keep the files of a folder in a session: capture them, restore them, compare them.

A capture compares the folder with the namespace ``files`` of the session's state and records the
difference as one event, ``files.captured``; the contents are blobs. So the files belong to every
snapshot and event of the session, as the messages do.

A restore leads the folder to the files of any of them:

    1. scan the folder and plan the changes          errors and a dry run end here
    2. capture what is there, and commit             so that the restore can be undone
    3. change the folder                             after a crash, a second restore completes it
    4. record ``files.restored``, and commit         folder and state agree
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from holdfast.blobs.source import BlobSource
from holdfast.errors import NotFoundError, StateStoreError, short_repr
from holdfast.sessions.commit import validate_on_conflict
from holdfast.sessions.rebase import OnConflict
from holdfast.sessions.restore import SnapshotRef
from holdfast.sessions.workspace_export import export_files
from holdfast.sessions.workspace_state import (
    SessionFiles,
    WorkspaceSession,
    check_contents,
    compute_changes,
    find_snapshot_id,
    find_store_paths,
    load_files,
    load_ignore_tree,
    read_content,
    read_from_folder,
    stream_content,
)
from holdfast.workspaces.apply import apply_plan, lock_folder
from holdfast.workspaces.compare import ReadContent, WorkspaceDiff, diff_files
from holdfast.workspaces.entries import FileEntries
from holdfast.workspaces.errors import WorkspaceChangedError, WorkspaceError, format_names
from holdfast.workspaces.folder import Folder
from holdfast.workspaces.paths import is_case_insensitive
from holdfast.workspaces.plan import RestorePlan, compare_files, find_changed, plan_restore
from holdfast.workspaces.reports import CaptureReport, RestoreReport
from holdfast.workspaces.scan import (
    MAX_FILE_SIZE,
    MAX_TOTAL_SIZE,
    Scan,
    ScanOptions,
    scan_folder,
)
from holdfast.workspaces.sources import ChangedFileError, open_sources
from holdfast.workspaces.stat_cache import StatCache, load_cache, save_cache, save_seq
from holdfast.workspaces.threads import run_to_end

T = TypeVar("T")

CAPTURED = "files.captured"
RESTORED = "files.restored"
MAX_ATTEMPTS = 3
MAX_RECORDED_SKIPS = 100
UNSAVED_PART = 0.05
"""Which part of the files may be missing in the cache on disk."""

Finish = Callable[[FileEntries, Sequence[BlobSource]], Awaitable[None]]
"""Records and commits a restore, given the restored files and their contents."""


class Workspace:
    """A folder whose files belong to a session, as returned by `Session.workspace`."""

    def __init__(self, session: WorkspaceSession, folder: str, options: ScanOptions) -> None:
        self.session = session
        self.folder = folder
        """The absolute path of the folder."""
        self.options = options
        self._files = SessionFiles(session)
        self._lock = asyncio.Lock()
        self._cache: StatCache | None = None
        self._unsaved = 0
        self._recorded: set[str] = set()
        """The events of captures that may still be pending."""

    # ------------------------------------------------------------------------------- capture

    async def capture(self, *, on_conflict: OnConflict = "raise") -> CaptureReport:
        """Record the files of the folder in the session's state, and commit.

        Pending events are committed with it. An unchanged file costs a ``stat``; if no file
        changed, nothing is recorded. Files that are too large, and special files, are skipped and
        reported.

        Raises:
            WorkspaceError: A file cannot be read, or changes all the time; the error names it.
                Nothing was written.
            ConflictError: As for `Session.commit`; nothing was written.
            StateStoreError: The store failed. The capture stays pending: `Session.commit` completes
                it, or another capture replaces it.

        """
        validate_on_conflict(on_conflict)
        report, _ = await self.capture_with(lambda: self.session.commit(on_conflict=on_conflict))
        return report

    async def capture_with(self, commit: Callable[[], Awaitable[T]]) -> tuple[CaptureReport, T]:
        """Capture the folder with another way to commit; return its result, too.

        Raises:
            WorkspaceError: A file cannot be read, or changes all the time; the error names it.

        """
        async with self._lock:
            with Folder(self.folder) as folder:
                lock_folder(folder, exclusive=False)
                for attempt in range(1, MAX_ATTEMPTS + 1):
                    scan = await self._scan(folder)
                    try:
                        report, result = await self._commit_scan(folder, scan, commit)
                    except ChangedFileError:
                        if attempt == MAX_ATTEMPTS:
                            raise
                        continue
                    break
            await self._keep_cache(scan)
        return report, result

    async def _scan(self, folder: Folder, include: Sequence[str] = ()) -> Scan:
        """Scan the folder with what is known from the last time."""
        if self._cache is None:
            self._cache = await run_to_end(load_cache, self._cache_owner())
        return await run_to_end(scan_folder, folder, self.options, self._cache, include)

    async def _commit_scan(
        self, folder: Folder, scan: Scan, commit: Callable[[], Awaitable[T]]
    ) -> tuple[CaptureReport, T]:
        """Record what a scan found, and commit; an error of a file leaves nothing pending."""
        before = self._files.read_current()
        added, changed, removed = compare_files(scan.files, before)
        paths = sorted((*added, *changed, *removed))
        if paths:
            sources = open_sources(folder.root, scan.files, (*added, *changed), scan.hashed)
            data: dict[str, Any] = {
                "added": len(added),
                "changed": len(changed),
                "removed": len(removed),
                "files": len(scan.files),
                "size": scan.size,
            }
            if scan.skipped:
                data["skipped"] = [
                    {"path": each.path, "reason": each.reason}
                    for each in scan.skipped[:MAX_RECORDED_SKIPS]
                ]
            changes = compute_changes(
                {path: scan.files[path] for path in (*added, *changed)},
                {path: before[path] for path in (*changed, *removed)},
            )
            self._recorded.add(self._record(CAPTURED, data, changes, sources))
            self._files.set_current(self.session.snapshot(), scan.files)
        try:
            result = await commit()
        except StateStoreError:
            raise  # its outcome may be unknown: the event stays pending
        except Exception:
            # Also those of earlier captures: their files may have changed since.
            self.session.committer.working.discard(self._recorded)
            self._recorded.clear()
            raise
        self._recorded.clear()
        report = CaptureReport(
            added=len(added),
            changed=len(changed),
            removed=len(removed),
            unchanged=len(scan.files) - len(added) - len(changed),
            size=scan.size,
            paths=paths,
            skipped=scan.skipped,
            seq=self._head_seq(),
        )
        return report, result

    def _record(self, type_: str, data: Any, changes: Any, sources: Sequence[BlobSource]) -> str:
        """Record an event and return its id."""
        self.session.record_with_blobs(type_, data, changes=changes, blobs=sources)
        return self.session.committer.working.pending[-1].id

    def _head_seq(self) -> int:
        return self.session.committer.working.head.seq

    # ------------------------------------------------------------------------------- restore

    async def restore(
        self, *, at: SnapshotRef, dry_run: bool = False, force: bool = False
    ) -> RestoreReport:
        """Lead the folder to the files that the session has at a snapshot or event, and commit.

        Files that are not in it are removed, except those that the ignore rules of the folder or of
        the restored state ignore. What is there is captured and committed first; ``undo`` of the
        report is the event to restore to get it back. A dry run only reports what would change.

        The conversation and the values are not restored: use `Session.restore` with
        ``workspace=`` for both.

        Raises:
            WorkspaceChangedError: The folder changed since the last capture, and ``force`` is
                False; nothing was changed.
            WorkspaceError: A file cannot be read or written; the error names it. Unless it says
                that the folder was changed in part, nothing was changed.
            NotFoundError: The session has no such snapshot or event, or it was pruned.
            IntegrityError: The content of a file is missing or damaged; nothing was changed.
            ConflictError: Another writer committed first. Refresh the session and retry.
            StateStoreError: The store failed.

        """
        return await self.restore_with(at, self._finish(at), dry_run=dry_run, force=force)

    async def restore_with(
        self, at: SnapshotRef, finish: Finish, *, dry_run: bool = False, force: bool = False
    ) -> RestoreReport:
        """Restore the folder with another way to record it.

        Raises:
            WorkspaceError: A file cannot be read or written; the error names it.

        """
        async with self._lock:
            # Read before the state: what it refers to was stored when the log was swept so often.
            session = self.session
            manifest = await session.archive.load_manifest(location=session.location)
            target = await load_files(session, at)
            with Folder(self.folder) as folder:
                lock_folder(folder, exclusive=True)
                scan = await self._scan(folder, list(target))
                plan = await self._plan(scan, target)
                changed = await self._find_changed(plan, scan.files)
                report = RestoreReport(
                    plan.write,
                    plan.remove,
                    plan.chmod,
                    plan.kept,
                    len(target) - len(plan.write) - len(plan.chmod),
                    dry_run,
                    changed,
                )
                if dry_run:
                    return report
                if not target and scan.files and not force:
                    raise WorkspaceError(
                        f"session {session.location.session_id} has no files at {short_repr(at)}: "
                        f"a restore would empty {self.folder} ({len(scan.files):,} files); "
                        "choose a later state, or force the restore"
                    )
                if changed and not force:
                    raise WorkspaceChangedError(
                        f"folder {self.folder} changed since its last capture: "
                        f"{format_names(changed)}; capture it first, or force the restore",
                        changed,
                    )
                await check_contents(session.blobs, target, plan.write)
                before, _ = await self._commit_scan(folder, scan, session.commit)
                await self._keep_cache(scan)
                await apply_plan(folder, plan, partial(stream_content, session.blobs))
                digests = {entry.digest for entry in target.values() if entry.link is None}
                session.committer.blobs.add_known(digests, manifest.blob_sweeps)
                # Written again only if a prune deleted them in the meantime.
                await finish(target, open_sources(folder.root, target, target, {}))
            self._cache = replace(scan.cache, seq=self._head_seq())
            save_seq(self._cache_owner(), self._head_seq())
            return replace(report, undo=before.seq)

    def _finish(self, at: SnapshotRef) -> Finish:
        """Return the function that records the restored files alone."""

        async def finish(target: FileEntries, sources: Sequence[BlobSource]) -> None:
            before = self._files.read_current()
            changes = compute_changes(target, before)
            if changes["set"] or changes["delete"]:
                data = {"seq": at} if isinstance(at, int) else {"snapshot_id": find_snapshot_id(at)}
                self._record(RESTORED, data, changes, sources)
                self._files.set_current(self.session.snapshot(), target)
            # The folder is changed already, and the event concerns nothing but files.
            await self.session.commit(on_conflict="rebase")

        return finish

    async def _plan(self, scan: Scan, target: FileEntries) -> RestorePlan:
        """Return what leads the scanned folder to the target."""
        rules = await load_ignore_tree(self.session.blobs, target, self.options)
        return plan_restore(
            scan,
            target,
            is_kept=rules.is_ignored,
            case_insensitive=await run_to_end(is_case_insensitive, self.folder),
        )

    async def _find_changed(self, plan: RestorePlan, files: FileEntries) -> list[str]:
        """Return the files that changed since the last capture, and that a restore would change.

        After `Session.restore` without the folder, the last capture is not the current state.
        """
        changed = find_changed(plan, files, self._files.read_current())
        seq = 0 if self._cache is None else self._cache.seq
        if changed and 0 < seq <= self._head_seq():
            try:
                last = await load_files(self.session, seq)
            except NotFoundError:
                return changed  # pruned
            return min(changed, find_changed(plan, files, last), key=len)
        return changed

    # ------------------------------------------------------------------------ diff, export

    async def diff(
        self, a: SnapshotRef | None = None, b: SnapshotRef | None = None, *, text: bool = True
    ) -> WorkspaceDiff:
        """Return the files that differ between two snapshots or events, with text diffs.

        None stands for the folder as it is; if both are None, the last capture is compared with it.
        Binary files and files of more than 256 KiB have no text diff.

        Raises:
            WorkspaceError: A file of the folder cannot be read.
            NotFoundError: The session has no such snapshot or event, or it was pruned.
            IntegrityError: The content of a file is missing or damaged.
            StateStoreError: The store failed.

        """
        async with self._lock:
            with ExitStack() as stack:
                read_stored = partial(read_content, self.session.blobs)
                sides: list[tuple[FileEntries, ReadContent]] = []
                if a is None and b is None:
                    sides.append((self._files.read_current(), read_stored))
                for ref in (a, b)[len(sides) :]:
                    if ref is not None:
                        sides.append((await load_files(self.session, ref), read_stored))
                        continue
                    folder = stack.enter_context(Folder(self.folder))
                    scan = await self._scan(folder)
                    sides.append((scan.files, partial(read_from_folder, folder)))
                (before, read_before), (after, read_after) = sides
                return await diff_files(before, after, read_before, read_after, text=text)

    async def export(
        self, destination: str | os.PathLike[str], *, at: SnapshotRef | None = None
    ) -> int:
        """Write the files at a snapshot or event to a new folder or archive; return their number.

        The name of an archive ends with ``.tar``, ``.tar.gz`` or ``.zip``. Without ``at``, the
        files of the current state are written. The folder of the workspace is not used.

        Raises:
            WorkspaceError: The destination exists, or cannot be written.
            NotFoundError: The session has no such snapshot or event, or it was pruned.
            IntegrityError: The content of a file is missing or damaged.
            StateStoreError: The store failed.

        """
        files = self._files.read_current() if at is None else await load_files(self.session, at)
        await export_files(self.session.blobs, files, os.fspath(destination))
        return len(files)

    # --------------------------------------------------------------------------------- cache

    def _cache_owner(self) -> str:
        """Return what the cache belongs to: the folder, and the session with its incarnation."""
        incarnation = self.session.committer.incarnation.id
        return f"{self.folder}\0{self.session.location.prefix}\0{incarnation}"

    async def _keep_cache(self, scan: Scan) -> None:
        """Keep what a scan found for the next one; on disk only if much of it is new.

        What the cache on disk does not know costs hashing a few files in the next process.
        """
        scan.cache.seq = self._head_seq()
        self._cache = scan.cache
        self._unsaved += sum(path in scan.cache.files for path in scan.hashed)
        if self._unsaved > UNSAVED_PART * len(scan.files):
            self._unsaved = 0
            await run_to_end(save_cache, self._cache_owner(), scan.cache)
        save_seq(self._cache_owner(), scan.cache.seq)

    def __repr__(self) -> str:
        return f"<Workspace {self.folder} of session {self.session.location.session_id}>"


def open_workspace(
    session: WorkspaceSession,
    folder: str | os.PathLike[str],
    *,
    max_file_size: int = MAX_FILE_SIZE,
    max_total_size: int = MAX_TOTAL_SIZE,
    ignore: Sequence[str] = (),
    respect_gitignore: bool = True,
) -> Workspace:
    """Return the workspace of a session, after validating its options. See `Session.workspace`."""
    options = ScanOptions(
        max_file_size=max_file_size,
        max_total_size=max_total_size,
        ignore=ignore,
        respect_gitignore=respect_gitignore,
        excluded=find_store_paths(session.state_store),
    )
    return Workspace(session, os.path.realpath(os.fsdecode(folder)), options)


def validate_workspace(workspace: object, session: WorkspaceSession) -> None:
    """Raise unless a value is a workspace of the session."""
    if not isinstance(workspace, Workspace):
        raise TypeError(
            "workspace must be what session.workspace(folder) returned, "
            f"got {short_repr(workspace)}"
        )
    if workspace.session is not session:
        raise ValueError(f"{workspace!r} belongs to another session; call workspace() of this one")
