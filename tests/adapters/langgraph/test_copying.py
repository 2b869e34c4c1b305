"""A thread is copied whole or not at all, also where others are at the target meanwhile."""

from __future__ import annotations

import pytest

from adapters.langgraph.graphs import at, stepping
from backends import SharedMemory
from faults import Fault, FaultyStateStore
from holdfast import ConflictError, NotFoundError, Session, StateStoreError
from holdfast.adapters.langgraph import HoldfastSaver, copying
from holdfast.stores.memory import MemoryStateStore
from loops import in_loop


class Visited(SharedMemory):
    """A store in memory where something happens before each of some batches is written."""

    visits = ()
    visit = None
    batches = 0

    async def put_many(self, items):
        items = list(items)
        if any("sessions/copy/" in each.key for each in items):
            self.batches += 1
            if self.batches in self.visits:
                await self.visit()
        return await super().put_many(items)


async def prepare(monkeypatch):
    """A store with a thread of 40 checkpoints, and savers on it."""
    monkeypatch.setattr(copying, "AT_ONCE", 10)
    content = MemoryStateStore()
    store = Visited(content)
    saver = HoldfastSaver(store)
    graph = stepping(saver)
    for number in range(40):
        await graph.aupdate_state(at("thread"), {"log": [number]}, as_node="one")
    return store, saver, SharedMemory(content)


async def log(saver, thread):
    found = await stepping(saver).aget_state(at(thread))
    return found.values.get("log")


@pytest.mark.parametrize("visits", [[1], [3], [2, 4], [9], range(1, 20, 3)], ids=str)
@in_loop
async def test_a_target_that_is_opened_while_it_is_written_is_copied_again(monkeypatch, visits):
    store, saver, elsewhere = await prepare(monkeypatch)

    async def visit():
        session = await Session.open(elsewhere, agent_id="langgraph", session_id="copy")
        assert session.get("log") is None

    store.visit, store.visits = visit, visits
    await saver.acopy_thread("thread", "copy")
    for each in (saver, HoldfastSaver(elsewhere)):
        assert await log(each, "copy") == list(range(40))
        assert len([found async for found in each.alist(at("copy"))]) == 40
    session = await Session.open(elsewhere, agent_id="langgraph", session_id="copy")
    assert (await session.verify()).ok


@in_loop
async def test_a_target_that_is_opened_again_and_again_is_not_reported_as_copied(monkeypatch):
    store, saver, elsewhere = await prepare(monkeypatch)

    async def visit():
        await Session.open(elsewhere, agent_id="langgraph", session_id="copy")

    store.visit, store.visits = visit, range(1, 10_000, 2)
    with pytest.raises(ConflictError, match="thread 'copy' was opened by another process"):
        await saver.acopy_thread("thread", "copy")
    store.visits = ()
    assert await HoldfastSaver(elsewhere).aget_tuple(at("copy")) is None
    assert [key async for key in elsewhere.list("sessions/copy/")] == []
    await saver.acopy_thread("thread", "copy")
    assert await log(HoldfastSaver(elsewhere), "copy") == list(range(40))


@in_loop
async def test_a_session_that_begins_in_the_target_meanwhile_stays(monkeypatch):
    store, saver, elsewhere = await prepare(monkeypatch)

    async def visit():
        async with Session.open(elsewhere, agent_id="langgraph", session_id="copy") as session:
            session.set("mine", True)

    store.visit, store.visits = visit, [2]
    with pytest.raises(ConflictError, match="thread 'copy' exists already"):
        await saver.acopy_thread("thread", "copy")
    session = await Session.open(elsewhere, agent_id="langgraph", session_id="copy")
    assert session.get("mine") is True
    assert (await session.verify()).ok


@in_loop
async def test_a_target_that_was_looked_at_before_is_seen_after_the_copy(monkeypatch):
    _, saver, elsewhere = await prepare(monkeypatch)
    other = HoldfastSaver(elsewhere)
    for each in (saver, other):
        assert await each.aget_tuple(at("copy")) is None
    await saver.acopy_thread("thread", "copy")
    for each in (saver, other):
        assert await log(each, "copy") == list(range(40))


@in_loop
async def test_a_copy_that_broke_off_can_be_made_again():
    content = MemoryStateStore()
    store = FaultyStateStore(content)
    saver = HoldfastSaver(store)
    graph = stepping(saver)
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
    raise AssertionError("a copy has fewer operations than that")


@in_loop
async def test_a_thread_that_is_not_there_cannot_be_copied(monkeypatch):
    _, saver, _ = await prepare(monkeypatch)
    with pytest.raises(NotFoundError, match="there is no thread 'none' to copy"):
        await saver.acopy_thread("none", "copy")
