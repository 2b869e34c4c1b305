"""What is deleted, pruned, cancelled or begun again while others are at the same thread."""

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


class Gated(MemoryStateStore):
    """A store in memory whose next batch of writes, or its answer, waits."""

    before: asyncio.Event | None = None
    after: asyncio.Event | None = None

    async def put_many(self, items, **conditions):
        before, self.before = self.before, None
        after, self.after = self.after, None
        if before is not None:
            await before.wait()
        answer = await super().put_many(items, **conditions)
        if after is not None:
            await after.wait()
        return answer


def config(name=None):
    return at(checkpoint_ns="", **({} if name is None else {"checkpoint_id": id_of(name)}))


def id_of(name):
    return f"1f1e0000-0000-6000-8000-{ord(name):012}"


async def put(saver, name, parent=None, run_id="run"):
    """Put a checkpoint whose one value is its name."""
    versions = {"x": f"{ord(name):08}.0"}
    kept = {
        **empty_checkpoint(),
        "id": id_of(name),
        "channel_values": {"x": name},
        "channel_versions": versions,
    }
    metadata = {"source": "loop", "step": ord(name), "run_id": run_id}
    await saver.aput(config(parent), kept, metadata, versions)


async def latest(saver):
    """Where the thread stands, and what was written after that."""
    found = await saver.aget_tuple(at())
    return found.checkpoint["channel_values"]["x"], [value for *_, value in found.pending_writes]


async def names(saver):
    return [each.checkpoint["channel_values"]["x"] async for each in saver.alist(at())]


async def cancelled(work):
    """Begin something, and give it up as soon as it waits."""
    task = asyncio.create_task(work)
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@async_test
async def test_what_was_put_while_runs_are_deleted_stays_where_the_thread_stands(monkeypatch):
    store = MemoryStateStore()
    one, other = HoldfastSaver(store), HoldfastSaver(store)
    await put(one, "a", run_id="first")
    await put(one, "b", "a", run_id="gone")
    current = history.find_current

    async def meanwhile(thread, ns):
        monkeypatch.setattr(history, "current", current)
        found = await current(thread, ns)
        await put(one, "c", "b", run_id="third")
        return found

    monkeypatch.setattr(history, "current", meanwhile)
    await other.adelete_for_runs(["gone"])
    for saver in (one, other):
        assert await latest(saver) == ("c", [])
        assert await names(saver) == ["c", "a"]


@async_test
async def test_what_was_put_while_a_thread_is_pruned_is_where_it_stands(monkeypatch):
    store = MemoryStateStore()
    one, other = HoldfastSaver(store), HoldfastSaver(store)
    await put(one, "a")
    await put(one, "b", "a")
    walked = history.scan_checkpoints

    async def meanwhile(thread, ns=None):
        monkeypatch.setattr(history, "walked", walked)
        found = await walked(thread, ns)
        await put(one, "c", "b")
        return found

    monkeypatch.setattr(history, "walked", meanwhile)
    await other.aprune(["t"])
    for saver in (one, other):
        assert await names(saver) == ["c"]


@async_test
async def test_writes_of_a_thread_that_was_deleted_do_not_come_back():
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
async def test_few_late_writes_are_kept_in_memory_and_all_are_found():
    saver = HoldfastSaver(MemoryStateStore())
    await put(saver, "a")
    await put(saver, "b", "a")
    for number in range(80):
        await saver.aput_writes(config("a"), [("x", number)], f"task {number:02}")
    assert len(saver.thread("t")._late) == 64
    found = (await saver.aget_tuple(config("a"))).pending_writes
    assert [value for *_, value in found] == list(range(80))


@async_test
async def test_a_put_that_was_given_up_is_not_done_in_the_thread_that_comes_after():
    store = Gated()
    saver = HoldfastSaver(store)
    await put(saver, "a")
    store.before = asyncio.Event()
    await cancelled(put(saver, "b", "a"))
    await saver.adelete_thread("t")
    await put(saver, "c")
    assert await names(saver) == ["c"]


@pytest.mark.parametrize("goes_on", [False, True])
@async_test
async def test_a_put_whose_answer_was_given_up_is_not_done_again(goes_on):
    store = Gated()
    one, other = HoldfastSaver(store), HoldfastSaver(store)
    await put(one, "a")
    store.after = asyncio.Event()
    await cancelled(put(one, "b", "a"))
    await other.aput_writes(config("b"), [("x", "theirs")], "task 1")
    if goes_on:
        await put(other, "c", "b")
        await one.aput_writes(config("c"), [("x", "mine")], "task 2")
        assert await latest(other) == ("c", ["mine"])
    else:
        await one.aput_writes(config("b"), [("x", "mine")], "task 2")
        assert await latest(other) == ("b", ["theirs", "mine"])


@async_test
async def test_those_who_waited_with_one_that_was_given_up_are_done_once():
    store = Gated()
    saver, other = HoldfastSaver(store), HoldfastSaver(store)
    await put(saver, "a")
    store.after = asyncio.Event()
    first = asyncio.create_task(put(saver, "b", "a"))
    second = asyncio.create_task(put(saver, "c", "b"))
    await asyncio.sleep(0.02)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await second
    assert await names(other) == ["c", "b", "a"]
    session = await Session.open(store, agent_id="langgraph", session_id="t")
    told = [event.data["checkpoint_id"] async for event in session.events if event.seq > 1]
    assert told == [id_of("a"), id_of("b"), id_of("c")]


@async_test
async def test_a_thread_that_is_deleted_from_another_loop_is_begun_anew():
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


def test_a_serializer_that_would_encrypt_only_some_of_it_is_refused():
    with pytest.raises(TypeError, match="encrypt=AGENT_KEYS"):
        HoldfastSaver(MemoryStateStore(), serde=EncryptedSerializer(cipher=None))
