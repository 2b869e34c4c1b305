"""Events of tasks for subscribers in any replica."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("a2a")

from a2a.server.cluster.event_stream import VersionedEvent
from a2a.server.cluster.version import TaskVersion

from adapters.a2a.tasks import (
    ANYONE,
    COMPLETED,
    MISSING,
    add_chunk,
    caller,
    collect,
    make_task,
    texts_of,
    update,
)
from holdfast import (
    NotFoundError,
    RetentionPolicy,
    Session,
    SnapshotArchive,
    SnapshotManager,
    StateStoreError,
)
from holdfast.adapters.a2a import HoldfastTaskEventStream, HoldfastTaskStore
from holdfast.stores.memory import MemoryStateStore
from holdfast.stores.watch import StoreWatch
from holdfast.stores.wrappers.base import WrappedStateStore
from support.async_tests import async_test
from support.backends import SharedMemory
from support.observed_store import ObservedStore


class FailingStore(WrappedStateStore):
    """Fails with an error as often as it is told to."""

    failures = 0
    is_transient = True

    async def get_many(self, keys):
        if self.failures:
            self.failures -= 1
            raise StateStoreError("connection lost", transient=self.is_transient)
        return await super().get_many(keys)


async def create(store, task_id="t1", context=ANYONE):
    task = make_task(task_id)
    await store.save(task, event=task, prev_version=MISSING, context=context)
    return await store.get(task_id, context)


async def add_chunks(store, texts, context=ANYONE):
    """Append parts to the task, and return their versions."""
    return [await add_chunk(store, await store.get("t1", context), text, context) for text in texts]


@async_test
async def test_a_subscriber_continues_at_another_replica_after_its_version():
    content = MemoryStateStore()
    one, two, three = (HoldfastTaskStore(SharedMemory(content)) for _ in range(3))
    await create(one)
    versions = await add_chunks(one, "abc")
    first = await collect(HoldfastTaskEventStream(two), "t1", MISSING, 3)
    assert texts_of(first) == ["working", "a", "b"]
    reading = asyncio.create_task(
        collect(HoldfastTaskEventStream(three, poll_interval=0.01), "t1", first[-1].version, 4)
    )
    await asyncio.sleep(0)
    versions += await add_chunks(one, "def")
    rest = await reading
    assert texts_of(rest) == ["c", "d", "e", "f"]
    assert [each.version for each in first[1:] + rest] == versions


@async_test
async def test_a_save_in_the_same_process_wakes_a_subscriber():
    store = HoldfastTaskStore(MemoryStateStore())
    stored = await create(store)
    stream = HoldfastTaskEventStream(store, poll_interval=1000, max_poll_interval=1000)
    reading = asyncio.create_task(collect(stream, "t1", stored.version, 2))
    await asyncio.sleep(0.05)
    (version,) = await add_chunks(store, "a")
    await asyncio.sleep(0.05)
    await add_chunks(store, "b")
    await stream.publish("t1", VersionedEvent(event=update(COMPLETED), version=version))
    assert texts_of(await reading) == ["a", "b"]


@async_test
async def test_a_save_of_another_replica_wakes_a_subscriber_if_the_store_does(monkeypatch):
    monkeypatch.setattr(StoreWatch, "hears_others", True)
    content = MemoryStateStore()
    store, other = (HoldfastTaskStore(SharedMemory(content)) for _ in range(2))
    stored = await create(store)
    stream = HoldfastTaskEventStream(other, poll_interval=0.01, max_poll_interval=1000)
    reading = asyncio.create_task(collect(stream, "t1", stored.version, 1))
    await asyncio.sleep(0.05)
    await add_chunks(store, "a")
    assert texts_of(await reading) == ["a"]


@async_test
async def test_many_events_are_read_in_pages():
    content = MemoryStateStore()
    store = HoldfastTaskStore(content)
    await create(store)
    texts = [f"chunk {number}" for number in range(260)]
    await add_chunks(store, texts)
    observed = ObservedStore()
    observed._entries, observed._keys = content._entries, content._keys
    found = await collect(HoldfastTaskEventStream(HoldfastTaskStore(observed)), "t1", MISSING, 261)
    assert texts_of(found) == ["working", *texts]
    assert len(observed.calls) < 15


@async_test
async def test_waiting_for_events_reads_two_keys_at_a_time():
    content = MemoryStateStore()
    store = HoldfastTaskStore(content)
    await create(store)
    (version,) = await add_chunks(store, "a")
    observed = ObservedStore()
    observed._entries, observed._keys = content._entries, content._keys
    other = HoldfastTaskStore(observed)
    stream = HoldfastTaskEventStream(other, poll_interval=0.001, max_poll_interval=0.004)
    reading = asyncio.create_task(collect(stream, "t1", version, 1))
    await asyncio.sleep(0.05)
    observed.forget()
    await asyncio.sleep(0.05)
    assert set(observed.calls) == {"get_many"}
    assert len(observed.read) == 2 * len(observed.calls)
    await add_chunks(store, "b")
    assert texts_of(await reading) == ["b"]


@async_test
async def test_transient_errors_of_the_store_are_retried():
    content = MemoryStateStore()
    store = HoldfastTaskStore(SharedMemory(content))
    stored = await create(store)
    failing = FailingStore(SharedMemory(content))
    other = HoldfastTaskStore(failing)
    stream = HoldfastTaskEventStream(other, poll_interval=0.001, max_poll_interval=0.002)
    failing.failures = 3
    reading = asyncio.create_task(collect(stream, "t1", stored.version, 3))
    await asyncio.sleep(0.02)
    await add_chunks(store, "a")
    failing.failures = 2
    await add_chunks(store, "bc")
    assert texts_of(await reading) == ["a", "b", "c"]
    failing.failures, failing.is_transient = 1, False
    with pytest.raises(StateStoreError, match="connection lost"):
        await collect(stream, "t1", stored.version, 1)


@async_test
async def test_a_subscriber_waits_for_a_task_and_ends_when_it_is_deleted():
    content = MemoryStateStore()
    store, other = (HoldfastTaskStore(SharedMemory(content)) for _ in range(2))
    stream = HoldfastTaskEventStream(other, poll_interval=0.001, max_poll_interval=0.002)
    reading = asyncio.create_task(collect(stream, "t1", MISSING, 5))
    await asyncio.sleep(0.01)
    await create(store)
    await asyncio.sleep(0.05)
    await store.delete("t1", ANYONE)
    assert texts_of(await reading) == ["working"]


@async_test
async def test_destroy_ends_subscriptions_after_the_last_event():
    store = HoldfastTaskStore(MemoryStateStore())
    stored = await create(store)
    stream = HoldfastTaskEventStream(store)
    reading = asyncio.create_task(collect(stream, "t1", stored.version, 5))
    await asyncio.sleep(0)
    await add_chunks(store, "ab")
    await stream.destroy("t1")
    assert texts_of(await reading) == ["a", "b"]
    await stream.destroy("t1")
    assert texts_of(await collect(stream, "t1", stored.version, 2)) == ["a", "b"]


@async_test
async def test_owners_do_not_get_the_events_of_each_other():
    content = MemoryStateStore()
    store = HoldfastTaskStore(SharedMemory(content))

    async def act(name, text):
        context = caller(name)
        await create(store, context=context)
        await add_chunks(store, [text], context)

    async def subscribe(name):
        other = HoldfastTaskStore(SharedMemory(content))
        if name is not None:
            await other.get("t1", caller(name))
        return texts_of(await collect(HoldfastTaskEventStream(other), "t1", MISSING, 2))

    await asyncio.create_task(act("alice", "for alice"))
    assert await asyncio.create_task(subscribe(None)) == ["working", "for alice"]
    await asyncio.create_task(act("bob", "for bob"))
    await asyncio.create_task(act("", "for anyone"))
    assert await asyncio.create_task(subscribe("alice")) == ["working", "for alice"]
    assert await asyncio.create_task(subscribe("bob")) == ["working", "for bob"]
    with pytest.raises(ValueError, match="3 owners have a task 't1'; call get"):
        await asyncio.create_task(subscribe(None))


@async_test
async def test_other_commits_are_passed_over():
    store = HoldfastTaskStore(MemoryStateStore())
    stored = await create(store)
    async with Session.open(store.state_store, agent_id="a2a", session_id="t1") as session:
        session.set("guests", 2)
        await session.save()
        session.set("guests", 3)
    await store.as_task_store.save(make_task(), ANYONE)
    await add_chunks(store, "a")
    found = await collect(HoldfastTaskEventStream(store), "t1", stored.version, 1)
    assert texts_of(found) == ["a"]


@async_test
async def test_a_version_inside_the_only_segment_of_a_copy():
    store = HoldfastTaskStore(MemoryStateStore())
    stored = await create(store)
    await add_chunks(store, "ab")
    document = await (
        await Session.open(store.state_store, agent_id="a2a", session_id="t1")
    ).export()
    copy = HoldfastTaskStore(MemoryStateStore())
    await SnapshotManager(copy.state_store).import_session(document)
    found = await collect(HoldfastTaskEventStream(copy), "t1", stored.version, 2)
    assert texts_of(found) == ["a", "b"]


@async_test
async def test_events_that_were_pruned_are_reported():
    store = HoldfastTaskStore(MemoryStateStore())
    await create(store)
    versions = []
    for text in "abc":
        versions += await add_chunks(store, text)
        await (await Session.open(store.state_store, agent_id="a2a", session_id="t1")).save()
    archive = SnapshotArchive(store.state_store)
    await archive.prune(location=store.location("t1"), policy=RetentionPolicy(last=1))
    stream = HoldfastTaskEventStream(store)
    with pytest.raises(NotFoundError, match="pruned"):
        await collect(stream, "t1", versions[0], 1)
    stored = await store.get("t1", ANYONE)
    await add_chunks(store, "d")
    assert texts_of(await collect(stream, "t1", stored.version, 1)) == ["d"]


def test_bad_arguments():
    store = HoldfastTaskStore(MemoryStateStore())
    with pytest.raises(TypeError, match="task_store must be a HoldfastTaskStore"):
        HoldfastTaskEventStream(store.state_store)
    with pytest.raises(ValueError, match="poll_interval must be positive"):
        HoldfastTaskEventStream(store, poll_interval=0)


@async_test
async def test_a_version_of_another_kind_of_store_is_refused():
    stream = HoldfastTaskEventStream(HoldfastTaskStore(MemoryStateStore()))
    with pytest.raises(TypeError, match="version must be one of this task store"):
        await collect(stream, "t1", TaskVersion("abc"), 1)
