"""Deleting, pruning and cancelling while others write to the same thread."""

from __future__ import annotations

import asyncio

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from adapters.langgraph.graphs import at
from holdfast import Session
from holdfast.adapters.langgraph import HoldfastSaver, history
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test


class BlockingStore(MemoryStateStore):
    """A store in memory whose next write blocks before or after it is done."""

    before: asyncio.Event | None = None
    after: asyncio.Event | None = None

    def __init__(self):
        super().__init__()
        self.is_blocked = asyncio.Event()

    async def put_many(self, items, **conditions):
        before, self.before = self.before, None
        after, self.after = self.after, None
        await self.wait(before)
        etags = await super().put_many(items, **conditions)
        await self.wait(after)
        return etags

    async def wait(self, event):
        if event is not None:
            self.is_blocked.set()
            await event.wait()


def config(name=None):
    return at(checkpoint_ns="", **({} if name is None else {"checkpoint_id": checkpoint_id(name)}))


def checkpoint_id(name):
    return f"1f1e0000-0000-6000-8000-{ord(name):012}"


async def put(saver, name, parent=None, run_id="run"):
    """Put a checkpoint whose one value is its name."""
    versions = {"x": f"{ord(name):08}.0"}
    kept = {
        **empty_checkpoint(),
        "id": checkpoint_id(name),
        "channel_values": {"x": name},
        "channel_versions": versions,
    }
    metadata = {"source": "loop", "step": ord(name), "run_id": run_id}
    await saver.aput(config(parent), kept, metadata, versions)


async def latest(saver):
    """The current checkpoint, and the writes after it."""
    found = await saver.aget_tuple(at())
    return found.checkpoint["channel_values"]["x"], [value for *_, value in found.pending_writes]


async def names(saver):
    return [each.checkpoint["channel_values"]["x"] async for each in saver.alist(at())]


async def cancel_blocked(store, work):
    """Start a write, and cancel it once the store blocks."""
    task = asyncio.create_task(work)
    await store.is_blocked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@async_test
async def test_a_checkpoint_put_while_runs_are_deleted_stays_current(monkeypatch):
    store = MemoryStateStore()
    one, other = HoldfastSaver(store), HoldfastSaver(store)
    await put(one, "a", run_id="first")
    await put(one, "b", "a", run_id="gone")
    find_current = history.find_current

    async def find_then_put(thread, ns):
        monkeypatch.setattr(history, "find_current", find_current)
        found = await find_current(thread, ns)
        await put(one, "c", "b", run_id="third")
        return found

    monkeypatch.setattr(history, "find_current", find_then_put)
    await other.adelete_for_runs(["gone"])
    for saver in (one, other):
        assert await latest(saver) == ("c", [])
        assert await names(saver) == ["c", "a"]


@async_test
async def test_a_checkpoint_put_during_a_prune_is_current(monkeypatch):
    store = MemoryStateStore()
    one, other = HoldfastSaver(store), HoldfastSaver(store)
    await put(one, "a")
    await put(one, "b", "a")
    scan = history.scan_checkpoints

    async def scan_then_put(thread, ns=None):
        monkeypatch.setattr(history, "scan_checkpoints", scan)
        found = await scan(thread, ns)
        await put(one, "c", "b")
        return found

    monkeypatch.setattr(history, "scan_checkpoints", scan_then_put)
    await other.aprune(["t"])
    for saver in (one, other):
        assert await names(saver) == ["c"]


@async_test
async def test_writes_of_a_deleted_thread_do_not_come_back():
    store = MemoryStateStore()
    one, other = HoldfastSaver(store), HoldfastSaver(store)
    for saver, secret in ((one, "old"), (other, "new")):
        await put(saver, "a")
        await put(saver, "b", "a")
        await saver.aput_writes(config("a"), [("x", secret)], "task")
        if saver is one:
            await other.adelete_thread("t")
    for saver in (one, other):
        (write,) = (await saver.aget_tuple(config("a"))).pending_writes
        assert write == ("task", "x", "new")


@async_test
async def test_late_writes_are_found_beyond_the_size_of_their_cache():
    saver = HoldfastSaver(MemoryStateStore())
    await put(saver, "a")
    await put(saver, "b", "a")
    for number in range(80):
        await saver.aput_writes(config("a"), [("x", number)], f"task {number:02}")
    assert len(saver.thread("t")._late) == 64
    found = (await saver.aget_tuple(config("a"))).pending_writes
    assert [value for *_, value in found] == list(range(80))


@async_test
async def test_a_cancelled_put_is_not_written_to_a_recreated_thread():
    store = BlockingStore()
    saver = HoldfastSaver(store)
    await put(saver, "a")
    store.before = asyncio.Event()
    await cancel_blocked(store, put(saver, "b", "a"))
    await saver.adelete_thread("t")
    await put(saver, "c")
    assert await names(saver) == ["c"]


@pytest.mark.parametrize("continues", [False, True])
@async_test
async def test_a_put_that_was_cancelled_after_its_commit_is_not_repeated(continues):
    store = BlockingStore()
    one, other = HoldfastSaver(store), HoldfastSaver(store)
    await put(one, "a")
    store.after = asyncio.Event()
    await cancel_blocked(store, put(one, "b", "a"))
    await other.aput_writes(config("b"), [("x", "theirs")], "task 1")
    if continues:
        await put(other, "c", "b")
        await one.aput_writes(config("c"), [("x", "mine")], "task 2")
        assert await latest(other) == ("c", ["mine"])
    else:
        await one.aput_writes(config("b"), [("x", "mine")], "task 2")
        assert await latest(other) == ("b", ["theirs", "mine"])


@async_test
async def test_a_put_that_shares_the_commit_of_a_cancelled_one_is_written_once():
    store = BlockingStore()
    saver, other = HoldfastSaver(store), HoldfastSaver(store)
    await put(saver, "a")
    store.after = asyncio.Event()
    first = asyncio.create_task(put(saver, "b", "a"))
    second = asyncio.create_task(put(saver, "c", "b"))
    await store.is_blocked.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await second
    assert await names(other) == ["c", "b", "a"]
    session = await Session.open(store, agent_id="langgraph", session_id="t")
    ids = [event.data["checkpoint_id"] async for event in session.events if event.seq > 1]
    assert ids == [checkpoint_id("a"), checkpoint_id("b"), checkpoint_id("c")]


@async_test
async def test_a_thread_deleted_from_another_loop_is_created_again():
    store = MemoryStateStore()
    saver = HoldfastSaver(store)
    await put(saver, "a")
    await put(saver, "b", "a")
    await asyncio.to_thread(saver.delete_thread, "t")
    await put(saver, "c", "b")
    for each in (saver, HoldfastSaver(store)):
        assert await names(each) == ["c"]
    session = await Session.open(store, agent_id="langgraph", session_id="t")
    assert (await session.verify()).ok


def test_an_encrypted_serializer_is_refused():
    with pytest.raises(TypeError, match="encrypt=AGENT_KEYS"):
        HoldfastSaver(MemoryStateStore(), serde=EncryptedSerializer(cipher=None))
