"""The operations of the trial: those of the tests, and those that involve a second store.

An operation knows how to prepare a store, what a process does first, what may be found after a
failure, and what it may find when it is repeated.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from holdfast import (
    Catalog,
    ConflictError,
    Document,
    IntegrityError,
    Session,
    SnapshotArchive,
    SnapshotLocation,
    SnapshotManager,
    StateStore,
)
from holdfast.stores.memory import MemoryStateStore
from holdfast.testing import FaultyStateStore
from holdfast.transfer.compare import compare_stores
from holdfast.transfer.copy import copy_sessions
from trials.faults.stored_state import World, is_prefix, open_session, without_snapshots

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support import session_operations as operations  # type: ignore[import-not-found]

MAIN: SnapshotLocation = operations.MAIN
LOCATIONS: tuple[SnapshotLocation, ...] = operations.LOCATIONS


class Process:
    """A process: its connection to the store, and its session."""

    def __init__(self, store: FaultyStateStore) -> None:
        self.store = store
        self.archive = SnapshotArchive(store)
        self.session: Session | None = None

    async def open(self, location: SnapshotLocation = MAIN) -> Session:
        """Open a session and keep it."""
        self.session = await open_session(self.store, location)
        return self.session


class Operation:
    """An operation of this trial, with the interface of those of the tests."""

    limits: dict[str, int] = {}  # noqa: RUF012 - as in the tests

    async def prepare(self, process: Process) -> None:
        """Prepare the store."""
        await operations.Operation.prepare(self, process)

    async def begin(self, process: Process) -> None:
        """Do what the process does before the operation."""

    async def do(self, process: Process) -> None:
        """Run the operation."""
        raise NotImplementedError

    def may_be_seen(self, before: World, after: World) -> Sequence[World]:  # noqa: ARG002
        """Return other worlds that may be found after a failure."""
        return []

    def may_be_seen_repeated(self, after: World) -> Sequence[World]:  # noqa: ARG002
        """Return other worlds that may be found if it was done, not acknowledged, and repeated."""
        return []


class OpenAndCommit(Operation):
    """A turn of an agent: resume, add a message, commit."""

    async def do(self, process: Process) -> None:
        """Run the operation."""
        session = await process.open()
        if not any(each["content"] == "a turn" for each in session.messages):
            session.add_message("assistant", "a turn")
            session.record("step.turn", 1)
        await session.commit()


class Reading(Operation):
    """Everything that only reads: list, load, export, verify."""

    async def do(self, process: Process) -> None:
        """Run the operation."""
        entry = await Catalog(process.store).latest_session(operations.AGENT)
        if entry is None or entry.location != MAIN:
            raise ConflictError(f"the latest session is {entry}")
        page = await process.archive.list_snapshots(location=MAIN)
        for info in page.snapshots:
            await process.archive.load_snapshot(location=MAIN, snapshot_id=info.snapshot_id)
        document = await SnapshotManager(process.store).export_session(operations.AGENT)
        session = await process.open()
        damage = (await session.verify()).damage
        if damage:
            raise IntegrityError(f"verify says {damage}")
        if (len(page.snapshots), document.digest) != (3, session.snapshot().digest):
            raise ConflictError(f"{len(page.snapshots)} snapshots, {document.digest}")


class Import(Operation):
    """Import a document as a new session, or into an existing one."""

    def __init__(self, document: Document, *, onto: bool) -> None:
        self.document = document
        self.onto = onto
        pruned = "a pruned document" if document.base is not None else "a document"
        self.name = f"Import of {pruned}{' onto a session' if onto else ''}"

    async def prepare(self, process: Process) -> None:
        """Prepare the store."""
        if self.onto:
            await super().prepare(process)

    async def do(self, process: Process) -> None:
        """Run the operation."""
        await SnapshotManager(process.store).import_session(
            self.document, agent_id=MAIN.scope_id, session_id=MAIN.session_id
        )

    def alike(self, found: World, after: World) -> bool:
        """Return whether it is done: each repetition keeps a snapshot of what was there before."""
        return without_snapshots(found) == without_snapshots(after)

    def may_be_seen(self, before: World, after: World) -> Sequence[World]:
        """Return other worlds that may be found: the undo snapshot is written first."""
        return [operations.replace_snapshots(before, after[MAIN]["snapshots"])]


class Copy(Operation):
    """Copy sessions from an intact store to the faulty one, and compare both."""

    def __init__(self, source: StateStore, begun: StateStore | None = None) -> None:
        self.source = source
        self.begun = begun
        self.name = "Backup, and verify" if begun is None else "Backup again, and verify"

    async def prepare(self, process: Process) -> None:
        """Prepare the store."""
        if self.begun is not None:
            await copy_sessions(self.begun, process.store)

    async def do(self, process: Process) -> None:
        """Run the operation."""
        await copy_and_compare(self.source, process.store)

    def partly(self, found: World, after: World) -> bool:
        """Return whether a part of the copy is there."""
        return all(is_prefix(found[place], after[place]) for place in LOCATIONS)


class CopyFrom(Operation):
    """Copy from the faulty store to an intact one."""

    name = "Copy from, and verify"

    def __init__(self) -> None:
        self.target: StateStore = MemoryStateStore()

    async def prepare(self, process: Process) -> None:
        """Prepare the store."""
        await operations.Prune().prepare(process)
        self.target = MemoryStateStore()

    async def do(self, process: Process) -> None:
        """Run the operation."""
        await copy_and_compare(process.store, self.target)

    partly = Copy.partly


class CaptureFiles(Operation):
    """Capture a folder in which files changed."""

    name = "Capture of a folder"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.first = 0
        """The event that captured the folder before the change."""

    async def prepare(self, process: Process) -> None:
        """Prepare the store and the folder."""
        await super().prepare(process)
        write_folder(self.folder, {"same": 1, "changed": 10, "large": LARGE, "old": 5})
        files = (await process.open()).workspace(self.folder)
        self.first = (await files.capture()).seq
        write_folder(self.folder, {"same": 1, "changed": 11, "large": LARGE + 1, "new": 6})

    async def begin(self, process: Process) -> None:
        """Open the session."""
        await process.open()

    async def do(self, process: Process) -> None:
        """Run the operation."""
        session = process.session or await process.open()
        await session.workspace(self.folder).capture()


class RestoreFiles(CaptureFiles):
    """Restore a folder to what it was before a change."""

    name = "Restore of a folder"

    async def prepare(self, process: Process) -> None:
        """Prepare the store and the folder."""
        await super().prepare(process)
        await (await process.open()).workspace(self.folder).capture()

    async def do(self, process: Process) -> None:
        """Run the operation; it is not forced, even if it is repeated."""
        session = process.session or await process.open()
        await session.workspace(self.folder).restore(at=self.first)
        if read_sizes(self.folder) != {"same": 1, "changed": 10, "large": LARGE, "old": 5}:
            raise ConflictError(f"the folder has {read_sizes(self.folder)}")


LARGE = 600_000
"""More than one chunk of a blob."""


def write_folder(folder: Path, sizes: dict[str, int]) -> None:
    """Replace the files of a folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, size in sizes.items():
        (folder / name).write_bytes(b"x" * size)


def read_sizes(folder: Path) -> dict[str, int]:
    """Return the sizes of the files of a folder."""
    return {path.name: path.stat().st_size for path in folder.iterdir()}


async def copy_and_compare(source: StateStore, target: StateStore) -> None:
    """Copy and compare, as a backup and its verification do."""
    result = await copy_sessions(source, target)
    if result.failed:
        raise ConflictError(str(result.failed))
    problems = await compare_stores(source, target)
    if problems:
        raise ConflictError(f"the copy is another: {problems}")


@asynccontextmanager
async def prepare_operations(only: str = "") -> AsyncIterator[list[Any]]:
    """Yield every operation, with the stores and documents they need."""
    pruned, early = MemoryStateStore(), MemoryStateStore()
    await operations.PruneOldTombstones().prepare(Process(FaultyStateStore(pruned)))
    process = Process(FaultyStateStore(early))
    await operations.Delete().prepare(process)
    whole = MemoryStateStore()
    await copy_sessions(early, whole)
    session = await start_process(whole).open()
    session.record("step.after", 1)
    session.add_message("user", "after the first backup")
    await session.save(tags={"after": "yes"})
    documents = [
        await SnapshotManager(each).export_session(operations.AGENT, "ses")
        for each in (whole, pruned)
    ]
    imports = [Import(each, onto=onto) for each in documents for onto in (False, True)]
    copies = [
        Copy(whole),
        # A log that does not start at 1 cannot collide with another writer's first commit.
        Copy(pruned),
        Copy(whole, begun=early),
        CopyFrom(),
    ]
    with tempfile.TemporaryDirectory(prefix="holdfast-faults-") as folder:
        os.environ["HOLDFAST_CACHE"] = f"{folder}/cache"
        found = [
            *(each() for each in operations.OPERATIONS),
            OpenAndCommit(),
            Reading(),
            *imports,
            *copies,
            CaptureFiles(Path(folder, "captured")),
            RestoreFiles(Path(folder, "restored")),
        ]
        yield [each for each in found if only.lower() in name_of(each).lower()]
    for store in (pruned, early, whole):
        await store.close()


def start_process(disk: StateStore) -> Process:
    """Return a process without faults."""
    return Process(FaultyStateStore(disk))


def name_of(work: Any) -> str:
    """Return the name of an operation."""
    return str(getattr(work, "name", type(work).__name__))
