"""Processes that work on a few sessions of one store, each beside the model that it must equal.

`World` has no rules of its own: it opens, lets faults happen, follows what comes of them, and
checks after every step that all that is durable is there and sound.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pytest
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant

from holdfast import (
    Catalog,
    ConflictError,
    Session,
    SessionSnapshot,
    Snapshot,
    SnapshotArchive,
    SnapshotLocation,
    StateStore,
)
from holdfast.log import timeline
from holdfast.log.segment import decode_segment
from holdfast.stores.memory import MemoryStateStore
from holdfast.stores.wrappers.read_only import ReadOnlyStateStore
from support.faults import RAISED, Fault, FaultyStateStore
from support.session_model import (
    STARTED,
    STATUS,
    Draft,
    Entries,
    Place,
    Step,
    course,
    folded,
    messages_of,
    same,
    status_of,
)

AGENT = "bot"
FAILED = object()
"""What an operation gives that a fault ended."""


@dataclass(slots=True)
class Process:
    """One process: its own way to the store, and an archive that remembers what it wrote."""

    store: FaultyStateStore
    archive: SnapshotArchive = field(init=False)

    def __post_init__(self) -> None:
        self.archive = SnapshotArchive(self.store)


@dataclass(slots=True)
class Writer:
    """A session object, and the draft that it must equal."""

    process: Process
    place: Place
    session: Session
    draft: Draft

    @property
    def entries(self) -> Entries:
        return self.draft.entries(self.place)

    def add(self, *steps: Step) -> None:
        self.draft = replace(self.draft, pending=(*self.draft.pending, *steps))


class World(RuleBasedStateMachine):
    atomic = True
    limits: ClassVar[dict[str, int]] = {}
    """When keyframes are due: small numbers, so that they are often."""
    days_pass = False
    """Whether every pruning is two days after what came before it."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.disk = MemoryStateStore()
        self.archive = SnapshotArchive(self.disk)
        self.patches = pytest.MonkeyPatch()
        for name, value in self.limits.items():
            self.patches.setattr(timeline, name, value)
        self.places: list[Place] = []
        self.writers: list[Writer] = []

    def teardown(self) -> None:
        self.patches.undo()
        self.runner.close()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    # ---------------------------------------------------------------------- processes, writers

    @initialize()
    def begin(self) -> None:
        self.open(self.new_place(), self.new_process())

    def new_place(self) -> Place:
        place = Place(SnapshotLocation(f"ses{len(self.places)}", "agent", AGENT))
        self.places.append(place)
        return place

    def new_process(self) -> Process:
        return Process(FaultyStateStore(self.disk, atomic=self.atomic))

    def open(self, place: Place, process: Process) -> Writer:
        """Open a session: it is what is durable."""
        session = self.run(opened(process.store, place))
        writer = Writer(process, place, session, started(place))
        self.writers.append(writer)
        return writer

    def reader(self, place: Place) -> Session:
        """Return the session as a reader finds it, who repairs nothing."""
        return self.run(opened(ReadOnlyStateStore(self.disk), place))

    def writer(self, number: int) -> Writer:
        if not self.writers:
            self.open(self.place(number), self.new_process())
        return self.writers[number % len(self.writers)]

    def place(self, number: int) -> Place:
        return self.places[number % len(self.places)]

    def current(self, place: Place) -> Place:
        """What is there now, if that was deleted."""
        return next(each for each in self.places if each.location == place.location)

    def process(self, number: int) -> Process:
        """That of a writer, or a new one."""
        if number < len(self.writers):
            return self.writers[number].process
        return self.new_process()

    def end(self, process: Process) -> None:
        """A process ends, and all its objects with it."""
        self.writers = [writer for writer in self.writers if writer.process is not process]

    # ---------------------------------------------------------------------------------- faults

    def attempt(self, process: Process, fault: Fault | None, work: Coroutine[Any, Any, Any]) -> Any:
        """What an operation gives; `FAILED` where the fault came through."""
        store = process.store
        store.plan(fault)
        try:
            return self.run(work)
        except RAISED:
            assert store.happened is not None
            return FAILED
        finally:
            if store.happened is not None and store.happened.kind == "crash":
                self.end(process)
            store.plan(None)

    def write(
        self,
        writer: Writer,
        fault: Fault | None,
        on_conflict: str,
        work: Coroutine[Any, Any, Any],
    ) -> Any:
        """Do what commits; whatever comes of it, the model follows or this fails."""
        dirty = bool(writer.draft.pending)
        doomed = self.pruned_through(writer.place)
        drafts = list(course(writer.place, writer.draft, on_conflict, fully=False, doomed=doomed))
        try:
            result = self.attempt(writer.process, fault, work)
        except ConflictError:
            assert drafts[-1] is None
            result = FAILED
        else:
            assert result is FAILED or drafts[-1] is not None
        self.follow(writer, drafts)
        if result is not FAILED:
            assert not writer.draft.pending
            writer.place.acknowledged |= dirty
        return result

    def pruned_through(self, place: Place) -> int:
        """Up to which event the log is pruned, or about to be."""
        return self.run(self.archive.load_manifest(location=place.location)).pruned_through

    def follow(self, writer: Writer, drafts: list[Draft | None]) -> None:
        """Take what is found: where the log ends, and how far the writer came."""
        place, last = writer.place, drafts[-1]
        known = writer.session.log.head.seq
        if self.grown(place):
            assert last is not None
            assert self.grown(place) == len(last.pending)
            place.append(last.pending)
            if known == place.seq:
                writer.draft = Draft(known)
                return
        (writer.draft,) = (draft for draft in drafts if draft is not None and draft.known == known)
        if writer.draft is last and known < place.seq:
            writer.draft = replace(last, written=len(last.pending))

    def grown(self, place: Place) -> int:
        """By how many events the log is longer than the model's."""
        return self.reader(place).log.head.seq - self.current(place).seq

    def keys(self, prefix: str) -> list[str]:
        async def listed() -> list[str]:
            return [key async for key in self.disk.list(prefix)]

        return self.run(listed())

    def pruned_seqs(self, place: Place) -> set[int]:
        """The first seqs of the commits of which a stub is left, or nothing."""
        log = self.run(self.archive.timeline(location=place.location)).log
        firsts = [end + 1 for end in place.states if end < place.seq]
        found = self.run(self.disk.get_many([log.key(seq) for seq in firsts]))
        whole = {
            key for key, entry in found.items() if not decode_segment(key, entry.value).is_pruned
        }
        return {seq for seq in firsts if log.key(seq) not in whole}

    def loaded(self, place: Place, snapshot_id: str | None) -> SessionSnapshot:
        work = self.archive.load_snapshot(location=place.location, snapshot_id=snapshot_id)
        found = self.run(work)
        assert found is not None
        return found

    # ------------------------------------------------------------------------------ invariants

    @invariant()
    def every_writer_has_what_it_did(self) -> None:
        for writer in self.writers:
            session, entries = writer.session, writer.entries
            values = {key: value for (space, key), value in entries.items() if space == "state"}
            assert same(entries_of(session.snapshot()), entries)
            assert session.log.head.seq == writer.draft.known
            assert session.is_dirty == bool(writer.draft.pending)
            assert session.messages == messages_of(entries)
            assert session.message_count == len(messages_of(entries))
            assert session.status == status_of(entries)
            assert session.state == values

    @invariant()
    def everything_that_is_durable_is_there_and_sound(self) -> None:
        page = self.run(Catalog(self.disk).sessions(AGENT))
        listed = [entry.session_id for entry in page.sessions]
        for place in self.places:
            count = listed.count(place.location.session_id)
            assert count == 1 if place.acknowledged else count <= 1
            reader = self.reader(place)
            damage = self.run(reader.verify()).damage
            assert damage == []
            if place.seq:
                assert same(entries_of(reader.snapshot()), place.entries)
                self.events_add_up(place, reader)
                self.snapshots_are_there(place)
            else:
                assert reader.is_dirty

    def events_add_up(self, place: Place, reader: Session) -> None:
        events = self.run(events_of(reader))
        assert [event.seq for event in events] == list(range(place.log_start + 1, place.seq + 1))
        assert [event.type for event in events] == [
            step.type for step in place.log[place.log_start :]
        ]
        assert len({event.id for event in events}) == len(events)
        steps = [
            Step(
                event.type,
                tuple(((space, key), value) for space, key, value in event.changes["set"]),
                tuple(event.changes["delete"]),
            )
            for event in events
        ]
        assert same(folded(place.states[place.log_start], steps), place.entries)
        contents = [message["content"] for message in messages_of(place.entries)]
        assert len(set(contents)) == len(contents)

    def snapshots_are_there(self, place: Place) -> None:
        page = self.run(self.archive.list_snapshots(location=place.location))
        infos = {info.snapshot_id: info for info in page.snapshots}
        assert infos.keys() == place.kept.keys()
        for snapshot_id, kept in place.kept.items():
            info, found = infos[snapshot_id], self.loaded(place, snapshot_id)
            assert info.tags == found.tags == kept.tags
            assert info.message_count == len(messages_of(kept.entries))
            assert info.status == status_of(kept.entries)
            assert same(entries_of(found.snapshot), kept.entries)
        if place.latest is not None and not place.kept:
            assert same(entries_of(self.loaded(place, None).snapshot), place.latest.entries)


async def opened(state_store: StateStore, place: Place) -> Session:
    return await Session.open(state_store, agent_id=AGENT, session_id=place.location.session_id)


async def events_of(session: Session) -> list[Any]:
    return [event async for event in session.events]


def started(place: Place) -> Draft:
    """A session that was opened just now: where nothing is, its beginning waits."""
    if place.seq:
        return Draft(place.seq)
    return Draft(0, (Step(STARTED, ((STATUS, "pending"),)),))


def entries_of(snapshot: Snapshot) -> Entries:
    return {(space, key): value for space, key, value in snapshot.items()}
