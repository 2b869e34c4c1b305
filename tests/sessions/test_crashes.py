"""Every operation, ended at every one of its writes, in every way.

Each is run once to count its writes, and then once for each write and each way in which that can
fail. Whoever opens the session next finds the operation wholly done or not at all; nothing that was
acknowledged before is lost; all that is stored checks out; and the operation can be repeated, by
the process that it failed in and by a new one.
"""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Catalog, ConflictError, Session, SnapshotArchive, Store
from holdfast.log import timeline
from holdfast.log.changes import fold_changes
from holdfast.stores.memory import MemoryStateStore
from holdfast.stores.wrappers.read_only import ReadOnlyStateStore
from support.faults import RAISED, WAYS, Crash, Fault
from support.session_operations import OPERATIONS, PLACES, Fork, ForkOfSnapshot, Process

# ------------------------------------------------------------------------------- what is stored


async def seen(disk):
    """All that is stored, as one who only reads finds it, after checking that it is sound."""
    store = ReadOnlyStateStore(disk)
    listed = [
        entry.location
        for agent in await Catalog(store).agents()
        for entry in (await Catalog(store).sessions(agent)).sessions
    ]
    found = {}
    for location in PLACES:
        session = await Session.open(
            store,
            agent_id=location.scope_id,
            session_id=location.session_id,
            scope=location.scope,
        )
        assert (await session.verify()).damage == []
        steps = await sound_events(session)
        archive = SnapshotArchive(store)
        ids = await archive.list_snapshot_ids(location=location)
        found[location] = {
            "state": None if session.is_dirty else list(session.snapshot().items()),
            "steps": steps,
            "snapshots": [
                shown(await archive.load_snapshot(location=location, snapshot_id=each))
                for each in ids
            ],
            "latest": await shown_latest(disk, archive, location),
            "listed": listed.count(location),
        }
    return found


async def sound_events(session):
    """What a test recorded itself, after checking that the events add up to the state."""
    if session.is_dirty:
        return []
    log_start = (await session.archive.load_manifest(location=session.location)).log_start
    events = [event async for event in session.events]
    first = log_start.seq + 1
    assert [event.seq for event in events] == list(range(first, first + len(events)))
    assert len({event.id for event in events}) == len(events)
    if not log_start.seq:
        store = Store()
        fold_changes(store, (event.changes for event in events))
        assert list(store.snapshot().items()) == list(session.snapshot().items())
    return [(event.type, event.data) for event in events if event.type.startswith("step.")]


def shown(snapshot):
    return snapshot.tags, snapshot.state.status, list(snapshot.snapshot.items())


async def shown_latest(disk, archive, location):
    if await disk.get(location.latest_key) is None:
        return None
    return shown(await archive.load_snapshot(location=location))


async def seen_by_next(disk, *, atomic):
    """All that is stored after the next process has opened every session."""
    process = Process(disk, atomic=atomic)
    for location in PLACES:
        await process.open(location)
    return await seen(disk)


# ----------------------------------------------------------------------------------- the tests


class Case:
    """One operation over one kind of store."""

    def __init__(self, operation, *, atomic):
        self.operation = operation
        self.atomic = atomic

    def process(self, disk):
        return Process(disk, atomic=self.atomic)

    async def prepared(self):
        disk = MemoryStateStore()
        await self.operation.prepare(self.process(disk))
        process = self.process(disk)
        await self.operation.begin(process)
        return disk, process

    async def run(self):
        """What there is before and after where nothing fails, and how many writes it takes."""
        disk, process = await self.prepared()
        before = await seen(disk)
        process.store.plan(None)
        await self.operation.do(process)
        return before, await seen(disk), process.store.writes

    async def attempt(self, fault):
        """Do it with a fault; whether it was acknowledged all the same."""
        disk, process = await self.prepared()
        process.store.plan(fault)
        try:
            await self.operation.do(process)
        except RAISED:
            acknowledged = False
        else:
            acknowledged = True
        assert process.store.happened == fault
        process.store.plan(None)
        return disk, process, acknowledged

    async def repeat(self, process):
        """Do it again; where it turns out to be done already, that is said."""
        try:
            await self.operation.do(process)
        except ConflictError:
            if not isinstance(self.operation, Fork | ForkOfSnapshot):
                raise


@pytest.fixture(params=OPERATIONS, ids=lambda operation: operation.__name__)
def operation(request, monkeypatch):
    for name, value in request.param.limits.items():
        monkeypatch.setattr(timeline, name, value)
    return request.param()


@pytest.fixture(params=[True, False], ids=["atomic", "one by one"])
def case(request, operation):
    return Case(operation, atomic=request.param)


# What fails without being done looks the same however it fails: the machine tries all of them.
TRIED = [way for way in WAYS if way not in (("unknown", False), ("cancelled", False))]


@pytest.fixture(params=TRIED, ids=lambda way: f"{way[0]} {'after' if way[1] else 'before'}")
def way(request):
    return request.param


async def each_fault(case, way):
    """Every write's fault, with what was before and what comes of it when nothing fails."""
    before, after, writes = await case.run()
    assert writes > 0
    for number in range(1, writes + 1):
        yield Fault(number, *way), before, after


def test_what_fails_at_any_write_is_done_or_not_at_all_and_a_new_process_repeats_it(case, way):
    async def check():
        async for fault, before, after in each_fault(case, way):
            disk, _, acknowledged = await case.attempt(fault)
            found = await seen_by_next(disk, atomic=case.atomic)
            allowed = [before, after, *case.operation.may_be_seen(before, after)]
            assert found in ([after] if acknowledged else allowed), str(fault)
            if found == before:
                process = case.process(disk)
                await case.operation.begin(process)
                await case.operation.do(process)
                assert await seen(disk) == after, str(fault)

    asyncio.run(check())


def test_what_failed_at_any_write_is_done_once_when_the_same_process_repeats_it(case, way):
    async def check():
        async for fault, _, after in each_fault(case, way):
            if fault.kind == "crash":
                continue
            disk, process, acknowledged = await case.attempt(fault)
            if not acknowledged:
                await case.repeat(process)
            allowed = [after, *case.operation.may_be_seen_repeated(after)]
            assert await seen(disk) in allowed, str(fault)

    asyncio.run(check())


def test_a_process_that_ends_while_it_mends_what_another_left_does_no_harm(case):
    async def check():
        async for fault, before, after in each_fault(case, ("crash", False)):
            disk, _, _ = await case.attempt(fault)
            allowed = [before, after, *case.operation.may_be_seen(before, after)]
            for number in range(1, 100):
                process = case.process(disk)
                process.store.plan(Fault(number, "crash"))
                try:
                    for location in PLACES:
                        await process.open(location)
                    break
                except Crash:
                    continue
            assert await seen_by_next(disk, atomic=case.atomic) in allowed, str(fault)

    asyncio.run(check())
