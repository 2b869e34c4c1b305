"""The operations that are tried: those of the tests, and what reaches beyond one session's store.

An operation has what is there before it, what a process does up to it, and itself. The same object
is asked what may be found where it failed, and whether it may refuse to be done again.
"""

from __future__ import annotations

import sys
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
from trials.faults.seeing import World, begins, opened, without_snapshots

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support import session_operations as operations  # type: ignore[import-not-found]

MAIN: SnapshotLocation = operations.MAIN
PLACES: tuple[SnapshotLocation, ...] = operations.PLACES


class Process:
    """One process: its connection to the store, and the session that it works on."""

    def __init__(self, store: FaultyStateStore) -> None:
        self.store = store
        self.archive = SnapshotArchive(store)
        self.session: Session | None = None

    async def open(self, location: SnapshotLocation = MAIN) -> Session:
        """Open a session, and work on it."""
        self.session = await opened(self.store, location)
        return self.session


class Work:
    """An operation that the trial adds to those of the tests; in the same shape."""

    limits: dict[str, int] = {}  # noqa: RUF012 - as the operations of the tests have it

    async def prepare(self, process: Process) -> None:
        """What there is before."""
        await operations.Operation.prepare(self, process)

    async def begin(self, process: Process) -> None:
        """What the process does up to the operation."""

    async def do(self, process: Process) -> None:
        """The operation."""
        raise NotImplementedError

    def may_be_seen(self, before: World, after: World) -> Sequence[World]:  # noqa: ARG002
        """What may be found after a failure beside the two."""
        return []

    def may_be_seen_repeated(self, after: World) -> Sequence[World]:  # noqa: ARG002
        """What may be found where it was done, not acknowledged, and repeated."""
        return []


class OpenAndCommit(Work):
    """A turn of an agent: resume, say something, commit."""

    async def do(self, process: Process) -> None:
        """The operation."""
        session = await process.open()
        if not any(each["content"] == "a turn" for each in session.messages):
            session.add_message("assistant", "a turn")
            session.record("step.turn", 1)
        await session.commit()


class Reading(Work):
    """All that only reads: lists, loads, exports, verifies. What it gives must be the truth."""

    async def do(self, process: Process) -> None:
        """The operation."""
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


class Import(Work):
    """A document becomes a session, or what one holds."""

    def __init__(self, document: Document, *, onto: bool) -> None:
        self.document = document
        self.onto = onto
        pruned = "a pruned document" if document.base is not None else "a document"
        self.name = f"Import of {pruned}{' onto a session' if onto else ''}"

    async def prepare(self, process: Process) -> None:
        """What there is before."""
        if self.onto:
            await super().prepare(process)

    async def do(self, process: Process) -> None:
        """The operation."""
        await SnapshotManager(process.store).import_session(
            self.document, agent_id=MAIN.scope_id, session_id=MAIN.session_id
        )

    def alike(self, found: World, after: World) -> bool:
        """Whether it is done: each time that it was repeated it kept what was there before it."""
        return without_snapshots(found) == without_snapshots(after)

    def may_be_seen(self, before: World, after: World) -> Sequence[World]:
        """What may be found after a failure: the snapshot that undoes it comes first."""
        return [operations.with_snapshots(before, after[MAIN]["snapshots"])]


class Copy(Work):
    """Sessions go from a store that is whole to the one with faults, and all of it is compared."""

    def __init__(self, source: StateStore, begun: StateStore | None = None) -> None:
        self.source = source
        self.begun = begun
        self.name = "Backup, and verify" if begun is None else "Backup again, and verify"

    async def prepare(self, process: Process) -> None:
        """What there is before."""
        if self.begun is not None:
            await copy_sessions(self.begun, process.store)

    async def do(self, process: Process) -> None:
        """The operation."""
        await copied(self.source, process.store)

    def partly(self, found: World, after: World) -> bool:
        """Whether it is a beginning of what is copied."""
        return all(begins(found[place], after[place]) for place in PLACES)


class CopyFrom(Work):
    """The store with faults is the source; what is looked at is the target, which has none."""

    name = "Copy from, and verify"

    def __init__(self) -> None:
        self.target: StateStore = MemoryStateStore()

    async def prepare(self, process: Process) -> None:
        """What there is before."""
        await operations.Prune().prepare(process)
        self.target = MemoryStateStore()

    async def do(self, process: Process) -> None:
        """The operation."""
        await copied(process.store, self.target)

    partly = Copy.partly


async def copied(source: StateStore, target: StateStore) -> None:
    """Copy and compare, as a backup and its verification do."""
    result = await copy_sessions(source, target)
    if result.failed:
        raise ConflictError(str(result.failed))
    problems = await compare_stores(source, target)
    if problems:
        raise ConflictError(f"the copy is another: {problems}")


@asynccontextmanager
async def works(only: str = "") -> AsyncIterator[list[Any]]:
    """Every operation, the copies and imports with what they are made of."""
    pruned, early = MemoryStateStore(), MemoryStateStore()
    await operations.PruneWhereStubsAreOld().prepare(Process(FaultyStateStore(pruned)))
    process = Process(FaultyStateStore(early))
    await operations.Delete().prepare(process)
    whole = MemoryStateStore()
    await copy_sessions(early, whole)
    session = await process_of(whole).open()
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
        # Where a log does not begin at 1, no write of a copy meets another's first commit.
        Copy(pruned),
        Copy(whole, begun=early),
        CopyFrom(),
    ]
    found = [
        *(each() for each in operations.OPERATIONS),
        OpenAndCommit(),
        Reading(),
        *imports,
        *copies,
    ]
    yield [each for each in found if only.lower() in name_of(each).lower()]
    for store in (pruned, early, whole):
        await store.close()


def process_of(disk: StateStore) -> Process:
    """A process that nothing befalls."""
    return Process(FaultyStateStore(disk))


def name_of(work: Any) -> str:
    """How an operation is called."""
    return str(getattr(work, "name", type(work).__name__))
