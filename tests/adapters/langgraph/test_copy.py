"""A thread is copied completely or not at all, also while other processes use the target."""

from __future__ import annotations

import functools

import pytest

from adapters.langgraph.graphs import at, build_steps
from holdfast import Catalog, ConflictError, NotFoundError, Session, StateStoreError
from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test
from support.backends import SharedMemory
from support.faults import Fault, FaultyStateStore
from support.observed_store import InterruptedStore

STORES = pytest.mark.parametrize("atomic", [True, False], ids=["atomic", "one by one"])
STEPS = 6


async def prepare():
    """A store with a thread of some checkpoints."""
    disk = MemoryStateStore()
    graph = build_steps(HoldfastSaver(disk))
    for number in range(STEPS):
        await graph.aupdate_state(at("thread"), {"log": [number]}, as_node="one")
    return disk


async def clone(disk):
    """Another store with the same entries."""
    other = MemoryStateStore()
    for key in [key async for key in disk.list()]:
        await other.put(key, (await disk.get(key)).value)
    return other


def store_on(disk, atomic, number=0, visit=None):
    """A store that calls ``visit`` before a call, and a counter of its calls."""
    calls = InterruptedStore(disk, number, visit)
    return FaultyStateStore(calls, atomic=atomic), calls


async def copy_visited(atomic, visit):
    """Copy a thread repeatedly, with a visit before each call of the store in turn.

    Yields the store, whether the copy succeeded, and the number of the call.
    """
    prepared = await prepare()
    store, counting = store_on(await clone(prepared), atomic)
    await HoldfastSaver(store).acopy_thread("thread", "copy")
    assert counting.calls > (8 if atomic else 8 + 2 * STEPS)
    for number in range(1, counting.calls + 1):
        disk = await clone(prepared)
        store, _ = store_on(disk, atomic, number, functools.partial(visit, disk))
        is_copied = True
        try:
            await HoldfastSaver(store).acopy_thread("thread", "copy")
        except ConflictError:
            is_copied = False
        yield disk, is_copied, number


async def log(saver, thread):
    found = await build_steps(saver).aget_state(at(thread))
    return found.values.get("log")


async def check_copy(disk, number):
    """Check that the copy is complete and verifies, and that a writer continues it."""
    saver = HoldfastSaver(disk)
    assert await log(saver, "copy") == list(range(STEPS)), number
    assert len([found async for found in saver.alist(at("copy"))]) == STEPS, number
    session = await opened(disk)
    assert (await session.verify()).ok, number
    page = await session.archive.list_snapshots(location=session.location)
    assert len(page.snapshots) == STEPS, number
    await build_steps(saver).aupdate_state(at("copy"), {"log": ["on"]}, as_node="one")
    assert await log(HoldfastSaver(disk), "copy") == [*range(STEPS), "on"], number


async def check_absent(disk, number):
    """Check that nothing was copied, and that another attempt succeeds."""
    saver = HoldfastSaver(disk)
    assert await saver.aget_tuple(at("copy")) is None, number
    listed = await Catalog(disk).sessions("langgraph")
    assert [each.session_id for each in listed.sessions] == ["thread"], number
    await saver.acopy_thread("thread", "copy")
    await check_copy(disk, number)


async def opened(disk):
    return await Session.open(disk, agent_id="langgraph", session_id="copy")


@STORES
@async_test
async def test_a_target_that_is_opened_during_the_copy_is_absent_or_complete(atomic):
    async def visit(disk):
        found = await log(HoldfastSaver(disk), "copy")
        assert found in (None, list(range(STEPS)))
        session = await opened(disk)
        assert session.get("log") in (None, list(range(STEPS)))

    async for disk, is_copied, number in copy_visited(atomic, visit):
        assert is_copied, number
        await check_copy(disk, number)


@STORES
@async_test
async def test_a_copy_conflicts_with_a_concurrently_created_session(atomic):
    kept = []

    async def visit(disk):
        session = await opened(disk)
        if session.get("log") is None:
            session.set("mine", True)
            await session.commit()
            kept.append(session)

    outcomes = set()
    async for disk, is_copied, number in copy_visited(atomic, visit):
        outcomes.add(is_copied)
        if is_copied:
            assert not kept, number
            await check_copy(disk, number)
        else:
            assert kept, number
            session = await opened(disk)
            assert (session.get("mine"), session.get("log")) == (True, None), number
            assert (await session.verify()).ok, number
        kept.clear()
    # Only a store that writes entries one by one has calls after the copy is visible.
    assert outcomes == ({False} if atomic else {False, True})


@STORES
@async_test
async def test_a_target_that_is_deleted_during_the_copy_is_complete_or_reported(atomic):
    gone = []

    async def visit(disk):
        saver = HoldfastSaver(disk)
        gone.append(await saver.aget_tuple(at("copy")) is not None)
        await saver.adelete_thread("copy")

    async for disk, is_copied, number in copy_visited(atomic, visit):
        is_deleted = gone.pop()
        if is_copied and not is_deleted:
            await check_copy(disk, number)
        else:
            await check_absent(disk, number)


@async_test
async def test_a_target_that_was_read_before_the_copy_is_found_after_it():
    disk = await prepare()
    saver, other = HoldfastSaver(disk), HoldfastSaver(SharedMemory(disk))
    for each in (saver, other):
        assert await each.aget_tuple(at("copy")) is None
    await saver.acopy_thread("thread", "copy")
    for each in (saver, other):
        assert await log(each, "copy") == list(range(STEPS))


@async_test
async def test_a_thread_is_not_copied_onto_one_that_exists():
    disk = await prepare()
    saver = HoldfastSaver(disk)
    await saver.acopy_thread("thread", "copy")
    with pytest.raises(ConflictError, match="thread 'copy' exists; copy to another id"):
        await saver.acopy_thread("thread", "copy")
    await check_copy(disk, 0)


@async_test
async def test_a_failed_copy_can_be_repeated():
    content = MemoryStateStore()
    store = FaultyStateStore(content)
    saver = HoldfastSaver(store)
    graph = build_steps(saver)
    await graph.aupdate_state(at("thread"), {"log": ["x"]}, as_node="one")
    for number in range(1, 20):
        store.plan(Fault(number, "unknown", True))
        try:
            await saver.acopy_thread("thread", f"copy {number}")
        except StateStoreError:
            store.plan(None)
            if await log(HoldfastSaver(content), f"copy {number}") is None:
                await saver.acopy_thread("thread", f"copy {number}")
        assert await log(HoldfastSaver(content), f"copy {number}") == ["x"]
        if store.happened is None:
            return
    raise AssertionError("the copy took more operations than expected")


@async_test
async def test_copying_a_missing_thread_fails():
    saver = HoldfastSaver(await prepare())
    with pytest.raises(NotFoundError, match="thread 'none' not found"):
        await saver.acopy_thread("none", "copy")
