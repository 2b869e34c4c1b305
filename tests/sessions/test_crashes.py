"""Every operation, interrupted at each of its writes in every way that a write can fail.

An operation runs once to count its writes, and then once per write and kind of failure. Afterwards
the next process finds the operation done or not done, never half done; nothing that was
acknowledged is lost; all stored data verifies; and the operation can be repeated, by the process
that it failed in and by a new one.
"""

from __future__ import annotations

from itertools import product
from typing import ClassVar

import pytest

from holdfast import Catalog, ConflictError, Session, SnapshotArchive, Store
from holdfast.log import timeline
from holdfast.log.changes import fold_changes
from holdfast.stores.memory import MemoryStateStore
from holdfast.stores.wrappers.read_only import ReadOnlyStateStore
from support.async_tests import async_test
from support.faults import RAISED, WAYS, Crash, Fault
from support.session_operations import LOCATIONS, OPERATIONS, Fork, ForkOfSnapshot, Process

# -------------------------------------------------------------------------------- stored data


def copy_disk(disk):
    """Return a store with the same entries."""
    copy = MemoryStateStore()
    copy._entries, copy._keys = dict(disk._entries), list(disk._keys)
    return copy


async def read_disk(disk):
    """Return all sessions as a read-only process finds them, after verifying them."""
    store = ReadOnlyStateStore(disk)
    listed = [
        entry.location
        for agent in await Catalog(store).agents()
        for entry in (await Catalog(store).sessions(agent)).sessions
    ]
    found = {
        location: await read_session(store, location) | {"listed": listed.count(location)}
        for location in LOCATIONS
        if location in listed or any(key.startswith(location.prefix) for key in disk._keys)
    }
    return {location: each for location, each in found.items() if any(each.values())}


async def read_session(store, location):
    session = await Session.open(
        store, agent_id=location.scope_id, session_id=location.session_id, scope=location.scope
    )
    assert (await session.verify()).damage == []
    archive = SnapshotArchive(store)
    snapshots = [
        await archive.load_snapshot(location=location, snapshot_id=each)
        for each in await archive.list_snapshot_ids(location=location)
    ]
    latest = None
    if await store.get(location.latest_key) is not None:
        latest = describe(await archive.load_snapshot(location=location))
    return {
        "state": None if session.is_dirty else list(session.snapshot().items()),
        "steps": await read_steps(session),
        "snapshots": [describe(each) for each in snapshots],
        "latest": latest,
    }


async def read_steps(session):
    """Return the events that a test recorded, after checking that all events lead to the state."""
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


def describe(snapshot):
    return snapshot.tags, snapshot.state.status, list(snapshot.snapshot.items())


async def open_and_read_disk(disk, *, atomic):
    """Return all sessions after the next process has opened each of them."""
    process = Process(disk, atomic=atomic)
    for location in LOCATIONS:
        await process.open(location)
    return await read_disk(disk)


# -------------------------------------------------------------------------------------- tests


class Case:
    """One operation over one kind of store."""

    prepared: ClassVar = {}
    """What was stored before each operation, which takes long to write."""

    def __init__(self, operation, *, atomic):
        self.operation = operation
        self.atomic = atomic

    def process(self, disk):
        return Process(disk, atomic=self.atomic)

    async def prepare(self):
        key = type(self.operation), self.atomic
        if key not in self.prepared:
            self.prepared[key] = MemoryStateStore()
            await self.operation.prepare(self.process(self.prepared[key]))
        disk = copy_disk(self.prepared[key])
        process = self.process(disk)
        await self.operation.begin(process)
        return disk, process

    async def run(self):
        """Return what is stored before and after the operation, and the number of its writes."""
        disk, process = await self.prepare()
        before = await read_disk(disk)
        process.store.plan(None)
        await self.operation.do(process)
        return before, await read_disk(disk), process.store.writes

    async def attempt(self, fault):
        """Run the operation with a fault; return whether it was acknowledged all the same."""
        disk, process = await self.prepare()
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
        """Run the operation again; only a fork reports that it was done already."""
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


# Failures before a write is done look the same; the state machine tests all of them.
TRIED = [way for way in WAYS if way not in (("unknown", False), ("cancelled", False))]


@async_test
async def test_an_interrupted_operation_is_done_or_not_done_and_can_be_repeated(case):
    before, after, writes = await case.run()
    assert writes > 0
    allowed = [before, after, *case.operation.may_be_seen(before, after)]
    for number, way in product(range(1, writes + 1), TRIED):
        fault = Fault(number, *way)
        disk, process, acknowledged = await case.attempt(fault)

        next_disk = copy_disk(disk)
        found = await open_and_read_disk(next_disk, atomic=case.atomic)
        assert found in ([after] if acknowledged else allowed), str(fault)
        if found == before:
            next_process = case.process(next_disk)
            await case.operation.begin(next_process)
            await case.operation.do(next_process)
            assert await read_disk(next_disk) == after, str(fault)

        if fault.kind != "crash":
            if not acknowledged:
                await case.repeat(process)
            repeated = [after, *case.operation.may_be_seen_repeated(after)]
            assert await read_disk(disk) in repeated, str(fault)


@async_test
async def test_a_process_that_crashes_while_it_recovers_from_a_crash_does_no_harm(case):
    before, after, writes = await case.run()
    allowed = [before, after, *case.operation.may_be_seen(before, after)]
    for write in range(1, writes + 1):
        fault = Fault(write, "crash")
        disk, _, _ = await case.attempt(fault)
        for number in range(1, 100):
            process = case.process(disk)
            process.store.plan(Fault(number, "crash"))
            try:
                for location in LOCATIONS:
                    await process.open(location)
                break
            except Crash:
                continue
        assert await open_and_read_disk(disk, atomic=case.atomic) in allowed, str(fault)
