"""The files that a session has at its snapshots and events, and their contents."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, Protocol

from holdfast.blobs.keys import CHUNK_SIZE
from holdfast.blobs.reader import BlobReader
from holdfast.blobs.source import BlobSource
from holdfast.errors import IntegrityError, NotFoundError
from holdfast.sessions.commit import Committer
from holdfast.sessions.rebase import OnConflict
from holdfast.sessions.restore import SnapshotRef, load_ref
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.state.diff import Changes
from holdfast.state.snapshot import Snapshot
from holdfast.stores.base import StateStore
from holdfast.stores.wrappers.base import WrappedStateStore
from holdfast.workspaces.compare import MAX_TEXT_SIZE
from holdfast.workspaces.entries import (
    FILES,
    FileEntries,
    FileEntry,
    decode_entry,
    read_entries,
)
from holdfast.workspaces.errors import format_names
from holdfast.workspaces.folder import Folder
from holdfast.workspaces.ignore import GITIGNORE, HOLDFASTIGNORE, IgnoreRules, IgnoreTree
from holdfast.workspaces.paths import validate_path, validate_tree
from holdfast.workspaces.scan import ScanOptions
from holdfast.workspaces.threads import run_to_end


class WorkspaceSession(Protocol):
    """The part of a `Session` that a workspace needs."""

    state_store: StateStore
    location: SnapshotLocation
    archive: SnapshotArchive

    @property
    def committer(self) -> Committer:
        """Return the committer, which a reload replaces."""

    @property
    def blobs(self) -> BlobReader:
        """Return the stored blobs."""

    def snapshot(self) -> Snapshot:
        """Return the state with the pending events."""

    def record_with_blobs(
        self,
        type: str,  # noqa: A002
        data: Any = None,
        *,
        changes: Changes | None = None,
        blobs: Sequence[BlobSource],
    ) -> None:
        """Record an event that refers to blobs."""

    async def commit(self, *, on_conflict: OnConflict = "raise") -> None:
        """Commit the pending events."""


class SessionFiles:
    """The files in the state of a session, decoded once."""

    def __init__(self, session: WorkspaceSession) -> None:
        self._session = session
        self._state: Snapshot | None = None
        self._entries: FileEntries = {}

    def read_current(self) -> FileEntries:
        """Return the files of the current state; what did not change is not decoded again.

        Raises:
            IntegrityError: An entry is invalid, or its path is unsafe.

        """
        state = self._session.snapshot()
        if self._state is None:
            self.set_current(state, read_entries(state))
            return self._entries
        diff = state.diff(self._state)
        set_ = [
            key
            for kind in (diff["added"], diff["changed"])
            for space, key in kind
            if space == FILES
        ]
        removed = [key for space, key in diff["removed"] if space == FILES]
        if set_ or removed:
            entries = dict(self._entries)
            for path in removed:
                del entries[path]
            for path in set_:
                entries[validate_path(path)] = decode_entry(path, state.get(FILES, path))
            validate_tree(entries)
            self._entries = entries
        self._state = state
        return self._entries

    def set_current(self, state: Snapshot, entries: FileEntries) -> None:
        """Note the files of a state."""
        self._state, self._entries = state, entries


def find_snapshot_id(ref: SnapshotRef) -> str | None:
    """Return the id of the snapshot that a reference names, if it has one."""
    return ref if isinstance(ref, str) else getattr(ref, "snapshot_id", None)


async def load_files(session: WorkspaceSession, ref: SnapshotRef) -> FileEntries:
    """Return the files at a snapshot or event.

    Raises:
        NotFoundError: The session has no such snapshot or event, or it was pruned.
        IntegrityError: An entry is invalid, or its path is unsafe.

    """
    state, _ = await load_ref(session.archive, session.location, ref)
    return read_entries(state)


def compute_changes(files: FileEntries, before: FileEntries) -> Changes:
    """Return the changes to the state that lead from some files to others."""
    set_ = [
        (FILES, path, entry.to_value())
        for path, entry in sorted(files.items())
        if before.get(path) is not entry and before.get(path) != entry
    ]
    delete = [(FILES, path) for path in sorted(before) if path not in files]
    return {"set": set_, "delete": delete}


async def check_contents(blobs: BlobReader, files: FileEntries, paths: Iterable[str]) -> None:
    """Check that the contents of some files are stored.

    Raises:
        IntegrityError: One is missing; the error names its file.

    """
    wanted = [path for path in paths if files[path].link is None]
    missing = await blobs.find_missing(files[path].digest for path in wanted)
    lost = [path for path in wanted if files[path].digest in missing]
    if lost:
        raise IntegrityError(
            f"the content of {format_names(lost)} is not stored: the blob "
            f"{files[lost[0]].digest} is missing; restore it from a backup, or import a document "
            "that embeds it"
        )


async def stream_content(blobs: BlobReader, path: str, entry: FileEntry) -> AsyncIterator[bytes]:
    """Yield the content of a file in chunks; the last one only if the digest matches.

    Raises:
        IntegrityError: The content is missing or damaged; the error names the file.

    """
    try:
        if entry.size <= CHUNK_SIZE:
            yield await blobs.read(entry.digest, entry.size)
            return
        async for chunk in blobs.stream(entry.digest):
            yield chunk
    except (NotFoundError, IntegrityError) as error:
        raise IntegrityError(f"cannot read the content of file {path!r}: {error}") from error


async def read_content(blobs: BlobReader, path: str, entry: FileEntry) -> bytes:
    """Return the content of a file. See `stream_content`."""
    return b"".join([chunk async for chunk in stream_content(blobs, path, entry)])


async def read_from_folder(folder: Folder, path: str, entry: FileEntry) -> bytes:  # noqa: ARG001
    """Return the content of a file as it is in a folder, as far as it is compared."""
    return await run_to_end(folder.read_file, path, MAX_TEXT_SIZE)


async def load_ignore_tree(
    blobs: BlobReader, files: FileEntries, options: ScanOptions
) -> IgnoreTree:
    """Return the ignore rules that some files of a session contain.

    Raises:
        IntegrityError: The content of an ignore file is missing or damaged.

    """
    names = (GITIGNORE, HOLDFASTIGNORE) if options.respect_gitignore else (HOLDFASTIGNORE,)
    texts = {}
    for path, entry in files.items():
        if path.rpartition("/")[2] in names and entry.link is None:
            data = await read_content(blobs, path, entry)
            texts[path] = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")
    return IgnoreTree(IgnoreRules.create(options.ignore), texts)


def find_store_paths(state_store: StateStore) -> frozenset[str]:
    """Return the path of a local store, which must not be captured into itself."""
    while isinstance(state_store, WrappedStateStore):
        state_store = state_store.inner
    url = getattr(state_store, "display_url", "")
    for scheme in ("sqlite:///", "file://"):
        if isinstance(url, str) and url.startswith(scheme):
            return frozenset([os.path.realpath(url.removeprefix(scheme))])
    return frozenset()
