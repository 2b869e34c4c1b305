"""Processes that work on a few sessions of one store, each compared with a model.

`ProcessMachine` has no rules: it opens sessions, injects faults, updates the model by their
outcome, and checks after every step that all durable data is present and intact.
"""

from __future__ import annotations

import asyncio
import datetime as dt
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
from holdfast.snapshots import incarnation
from holdfast.stores.memory import MemoryStateStore
from holdfast.stores.wrappers.read_only import ReadOnlyStateStore
from support.faults import RAISED, Fault, FaultyStateStore
from support.session_model import (
    STARTED,
    STATUS,
    Draft,
    Entries,
    SessionModel,
    Step,
    fold_steps,
    get_status,
    is_same,
    list_messages,
    predict_drafts,
)

AGENT = "bot"
FAILED = object()
"""The result of an operation that a fault interrupted."""


@dataclass(slots=True)
class Process:
    """One process: its connection to the store, and an archive that caches what it wrote."""

    store: FaultyStateStore
    archive: SnapshotArchive = field(init=False)

    def __post_init__(self) -> None:
        self.archive = SnapshotArchive(self.store)


@dataclass(slots=True)
class Writer:
    """A session object, and the draft that it must equal."""

    process: Process
    model: SessionModel
    session: Session
    draft: Draft

    @property
    def entries(self) -> Entries:
        return self.draft.entries(self.model)

    def add(self, *steps: Step) -> None:
        self.draft = replace(self.draft, pending=(*self.draft.pending, *steps))


class ProcessMachine(RuleBasedStateMachine):
    atomic = True
    limits: ClassVar[dict[str, int]] = {}
    """When keyframes are due: small numbers, so that there are many."""
    days_pass = False
    """Whether two days pass before every prune, and some time before every commit."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.disk = MemoryStateStore()
        self.archive = SnapshotArchive(self.disk)
        self.patches = pytest.MonkeyPatch()
        for name, value in self.limits.items():
            self.patches.setattr(timeline, name, value)
        # Every commit moves the index entry, or none does however slow the machine is.
        resolution = dt.timedelta(days=0 if self.days_pass else 1)
        self.patches.setattr(incarnation, "ACTIVITY_RESOLUTION", resolution)
        self.models: list[SessionModel] = []
        self.writers: list[Writer] = []

    def teardown(self) -> None:
        self.patches.undo()
        self.runner.close()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    # ---------------------------------------------------------------------- processes, writers

    @initialize()
    def begin(self) -> None:
        self.open(self.new_model(), self.new_process())

    def new_model(self) -> SessionModel:
        model = SessionModel(SnapshotLocation(f"ses{len(self.models)}", "agent", AGENT))
        self.models.append(model)
        return model

    def new_process(self) -> Process:
        return Process(FaultyStateStore(self.disk, atomic=self.atomic))

    def open(self, model: SessionModel, process: Process) -> Writer:
        """Open a session, which starts at the durable state."""
        session = self.run(open_session(process.store, model))
        writer = Writer(process, model, session, start_draft(model))
        self.writers.append(writer)
        return writer

    def reader(self, model: SessionModel) -> Session:
        """Open a session read-only, so that nothing is repaired."""
        return self.run(open_session(ReadOnlyStateStore(self.disk), model))

    def writer(self, number: int) -> Writer:
        if not self.writers:
            self.open(self.model(number), self.new_process())
        return self.writers[number % len(self.writers)]

    def model(self, number: int) -> SessionModel:
        return self.models[number % len(self.models)]

    def current(self, model: SessionModel) -> SessionModel:
        """Return the model of the session that has this location now."""
        return next(each for each in self.models if each.location == model.location)

    def process(self, number: int) -> Process:
        """Return the process of a writer, or a new one."""
        if number < len(self.writers):
            return self.writers[number].process
        return self.new_process()

    def end(self, process: Process) -> None:
        """End a process and all its writers."""
        self.writers = [writer for writer in self.writers if writer.process is not process]

    # ---------------------------------------------------------------------------------- faults

    def attempt(self, process: Process, fault: Fault | None, work: Coroutine[Any, Any, Any]) -> Any:
        """Run an operation with a fault, and return its result or `FAILED`."""
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
        """Run an operation that commits, and update the model by its outcome."""
        dirty = bool(writer.draft.pending)
        pruned_through = self.pruned_through(writer.model)
        drafts = list(
            predict_drafts(
                writer.model, writer.draft, on_conflict, fully=False, pruned_through=pruned_through
            )
        )
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
            writer.model.acknowledged |= dirty
        return result

    def pruned_through(self, model: SessionModel) -> int:
        """Return the last event that is pruned, or about to be."""
        return self.run(self.archive.load_manifest(location=model.location)).pruned_through

    def follow(self, writer: Writer, drafts: list[Draft | None]) -> None:
        """Update the model by the end of the log and the head of the writer."""
        model, last = writer.model, drafts[-1]
        known = writer.session.log.head.seq
        if self.count_new_events(model):
            assert last is not None
            assert self.count_new_events(model) == len(last.pending)
            model.append(last.pending)
            if known == model.seq:
                writer.draft = Draft(known)
                return
        (writer.draft,) = (draft for draft in drafts if draft is not None and draft.known == known)
        if writer.draft is last and known < model.seq:
            writer.draft = replace(last, written=len(last.pending))

    def count_new_events(self, model: SessionModel) -> int:
        """Return by how many events the log is longer than the model's."""
        return self.reader(model).log.head.seq - self.current(model).seq

    def keys(self, prefix: str) -> list[str]:
        async def collect_keys() -> list[str]:
            return [key async for key in self.disk.list(prefix)]

        return self.run(collect_keys())

    def pruned_seqs(self, model: SessionModel) -> set[int]:
        """Return the first seqs of the commits that are tombstones, or deleted."""
        log = self.run(self.archive.timeline(location=model.location)).log
        firsts = [end + 1 for end in model.states if end < model.seq]
        found = self.run(self.disk.get_many([log.key(seq) for seq in firsts]))
        whole = {
            key for key, entry in found.items() if not decode_segment(key, entry.value).is_pruned
        }
        return {seq for seq in firsts if log.key(seq) not in whole}

    def load_snapshot(self, model: SessionModel, snapshot_id: str | None) -> SessionSnapshot:
        work = self.archive.load_snapshot(location=model.location, snapshot_id=snapshot_id)
        found = self.run(work)
        assert found is not None
        return found

    # ------------------------------------------------------------------------------ invariants

    @invariant()
    def check_writers(self) -> None:
        for writer in self.writers:
            session, entries = writer.session, writer.entries
            values = {key: value for (space, key), value in entries.items() if space == "state"}
            assert is_same(read_entries(session.snapshot()), entries)
            assert session.log.head.seq == writer.draft.known
            assert session.is_dirty == bool(writer.draft.pending)
            assert session.messages == list_messages(entries)
            assert session.message_count == len(list_messages(entries))
            assert session.status == get_status(entries)
            assert session.state == values

    @invariant()
    def check_durable_sessions(self) -> None:
        page = self.run(Catalog(self.disk).sessions(AGENT))
        listed = [entry.session_id for entry in page.sessions]
        for model in self.models:
            count = listed.count(model.location.session_id)
            assert count == 1 if model.acknowledged else count <= 1
            reader = self.reader(model)
            damage = self.run(reader.verify()).damage
            assert damage == []
            if model.seq:
                assert is_same(read_entries(reader.snapshot()), model.entries)
                self.check_events(model, reader)
                self.check_snapshots(model)
            else:
                assert reader.is_dirty

    def check_events(self, model: SessionModel, reader: Session) -> None:
        events = self.run(collect_events(reader))
        assert [event.seq for event in events] == list(range(model.log_start + 1, model.seq + 1))
        assert [event.type for event in events] == [
            step.type for step in model.log[model.log_start :]
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
        assert is_same(fold_steps(model.states[model.log_start], steps), model.entries)
        contents = [message["content"] for message in list_messages(model.entries)]
        assert len(set(contents)) == len(contents)

    def check_snapshots(self, model: SessionModel) -> None:
        page = self.run(self.archive.list_snapshots(location=model.location))
        infos = {info.snapshot_id: info for info in page.snapshots}
        assert infos.keys() == model.kept.keys()
        for snapshot_id, kept in model.kept.items():
            info, found = infos[snapshot_id], self.load_snapshot(model, snapshot_id)
            assert info.tags == found.tags == kept.tags
            assert info.message_count == len(list_messages(kept.entries))
            assert info.status == get_status(kept.entries)
            assert is_same(read_entries(found.snapshot), kept.entries)
        if model.latest is not None and not model.kept:
            assert is_same(
                read_entries(self.load_snapshot(model, None).snapshot), model.latest.entries
            )


async def open_session(state_store: StateStore, model: SessionModel) -> Session:
    return await Session.open(state_store, agent_id=AGENT, session_id=model.location.session_id)


async def collect_events(session: Session) -> list[Any]:
    return [event async for event in session.events]


def start_draft(model: SessionModel) -> Draft:
    """Return the draft of a writer that just opened a session; a new one has a pending start."""
    if model.seq:
        return Draft(model.seq)
    return Draft(0, (Step(STARTED, ((STATUS, "pending"),)),))


def read_entries(snapshot: Snapshot) -> Entries:
    return {(space, key): value for space, key, value in snapshot.items()}
