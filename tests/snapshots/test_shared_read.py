"""Reads that several tasks share."""

from __future__ import annotations

import asyncio

from holdfast import StateStoreError
from holdfast.snapshots import shared_read
from holdfast.snapshots.shared_read import SharedPoll, share_read
from holdfast.stores.wrappers.prefix import PrefixedStateStore
from support.async_tests import async_test
from support.observed_store import ObservedStore


def read_shared(store, *keys):
    return share_read(store, keys, lambda: store.get_many(keys))


@async_test
async def test_tasks_that_ask_at_once_share_a_read():
    async with ObservedStore() as store:
        await store.put("a", b"1")
        store.forget()
        found = await asyncio.gather(*(read_shared(store, "a", "b") for _ in range(50)))
        assert store.calls == ["get_many"]
        assert all(entries["a"].value == b"1" and "b" not in entries for entries in found)
        await asyncio.gather(read_shared(store, "a"), read_shared(store, "b"))
        assert len(store.calls) == 3
        async with ObservedStore() as other:
            await asyncio.gather(read_shared(store, "a"), read_shared(other, "a"))
            assert other.calls == ["get_many"]
        assert not shared_read._not_started


@async_test
async def test_read_that_has_started_is_not_joined():
    async with ObservedStore() as store:
        early = asyncio.create_task(read_shared(store, "a"))
        for _ in range(3):
            await asyncio.sleep(0)
        assert store.calls == ["get_many"]
        await store.put("a", b"1")
        assert "a" in await read_shared(store, "a")
        await early
        assert store.calls.count("get_many") == 2


@async_test
async def test_cancelled_task_does_not_cancel_the_others():
    async with ObservedStore() as store:
        await store.put("a", b"1")
        tasks = [asyncio.create_task(read_shared(store, "a")) for _ in range(2)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        assert (await tasks[1])["a"].value == b"1"
        assert tasks[0].cancelled()


@async_test
async def test_all_get_the_error():
    store = ObservedStore()
    await store.close()
    found = await asyncio.gather(
        *(read_shared(store, "a") for _ in range(3)), return_exceptions=True
    )
    assert [type(each) for each in found] == [StateStoreError] * 3


def test_read_of_a_loop_that_ended_is_forgotten():
    async def start():
        asyncio.create_task(read_shared(ObservedStore(), "a"))  # noqa: RUF006
        await asyncio.sleep(0)

    asyncio.run(start())
    assert not shared_read._not_started


@async_test
async def test_followers_of_a_log_share_what_they_found():
    async with ObservedStore() as store:
        poll = SharedPoll.get(store, "a/")
        assert SharedPoll.get(store, "a/") is poll
        assert SharedPoll.get(store, "b/") is not poll
        assert not poll.is_fresh(5, 10.0, 1.0)
        poll.note_end(5, 10.0)
        assert poll.is_fresh(5, 10.5, 1.0)
        assert not poll.is_fresh(5, 11.5, 1.0)
        assert not poll.is_fresh(6, 10.5, 1.0)
        tenant = PrefixedStateStore(store, "tenant/")
        async with tenant.watch("a/") as first, tenant.watch("a/") as second:
            poll.watches = {first, second}
            poll.wake_others(first, "a/1")
            assert await second.wait(10)
            assert second.take_keys() == {"a/1"}
            assert not await first.wait(0.01)
