"""Sweeps: removing the tombstones of deleted keys."""

from __future__ import annotations

import asyncio
import re

import pytest
from obstore.store import MemoryStore

from holdfast.errors import StateStoreError
from holdfast.stores import Put, open_state_store
from holdfast.stores.objectstore import ObjectStateStore
from holdfast.stores.objectstore.bodies import parse_header
from holdfast.stores.urls import StoreURL
from servers.seaweed import KEEPER
from stores.listing import list_keys
from support.async_tests import async_test

NOW = -60  # even if the server's clock is ahead


async def leave_tombstone(store, key="a"):
    await store.put(key, b"1")
    assert await store.delete(key)


def is_expiring(bucket, path):
    return parse_header(bytes(bucket.get(path).bytes())).expiring


def test_a_sweep_removes_old_tombstones_and_nothing_else(s3_server, prefix):
    keys = [f"swept/{number:02}" for number in range(20)]

    async def check():
        async with open_state_store(s3_server.url(prefix)) as store:
            await store.put_many([Put(key, key.encode()) for key in keys])
            for key in keys[5:]:
                await store.delete(key)
            assert await store.sweep() == 0  # all of them are new
            assert await store.sweep(older_than=NOW) == 15
            assert await store.sweep(older_than=NOW) == 0
            assert await list_keys(store) == keys[:5]
            objects = s3_server.bucket().list(prefix).collect()
            assert len(objects) == 5
            await store.put(keys[7], b"again", if_absent=True)
        with pytest.raises(StateStoreError, match="closed"):
            await store.sweep()

    asyncio.run(check())


class Interrupted(ObjectStateStore):
    """A store in which something happens before a step of a sweep."""

    before_marking = None
    before_removing = None

    async def _write(self, bucket, path, body, mode):
        if self.before_marking is not None and parse_header(body).expiring:
            await self.before_marking()
        return await super()._write(bucket, path, body, mode)

    async def _remove(self, path, expiring):
        if self.before_removing is not None:
            await self.before_removing()
        return await super()._remove(path, expiring)


@pytest.fixture
def memory():
    return MemoryStore()


@pytest.fixture
def two_stores(memory):
    kinds = (Interrupted, ObjectStateStore)
    return [kind(StoreURL("s3://bucket"), lambda: memory, patience=5) for kind in kinds]


@async_test
async def test_a_key_written_before_its_tombstone_expires_is_kept(two_stores):
    store, other = two_stores
    await leave_tombstone(store)
    store.before_marking = lambda: other.put("a", b"2", if_absent=True)
    assert await store.sweep(older_than=NOW) == 0
    assert (await store.get("a")).value == b"2"
    assert not await store._sweep_one("a")
    assert not await store._sweep_one("nothing")


@pytest.mark.parametrize("if_absent", [True, False])
def test_a_write_waits_until_an_expiring_tombstone_is_removed(two_stores, if_absent):
    async def check():
        store, other = two_stores
        await leave_tombstone(store)
        write = None

        async def begin_to_write():
            nonlocal write
            assert await other.get("a") is None
            assert not await other.delete("a")
            write = asyncio.create_task(other.put("a", b"2", if_absent=if_absent))
            await asyncio.sleep(0.2)
            assert not write.done()
            assert await other.sweep(older_than=NOW) == 0  # the first sweep removes it

        store.before_removing = begin_to_write
        assert await store.sweep(older_than=NOW) == 1
        await write
        assert (await store.get("a")).value == b"2"

    asyncio.run(check())


def test_a_sweep_reads_all_pages_of_a_listing(two_stores, memory, monkeypatch):
    monkeypatch.setattr("holdfast.stores.objectstore.objects.PAGE_SIZE", 4)

    async def check():
        store, _ = two_stores
        for number in range(10):
            await leave_tombstone(store, f"{number}")
        await store.put("stays", b"1")
        assert await list_keys(store) == ["stays"]
        assert await store.sweep(older_than=NOW) == 10
        assert [one["path"] for one in memory.list().collect()] == ["stays"]

    asyncio.run(check())


@async_test
async def test_concurrent_sweeps_remove_each_tombstone_once(s3_server, prefix):
    async with (
        open_state_store(s3_server.url(prefix)) as one,
        open_state_store(s3_server.url(prefix)) as two,
    ):
        for number in range(20):
            await leave_tombstone(one, f"{number}")
        counts = await asyncio.gather(*(s.sweep(older_than=NOW) for s in (one, two)))
        assert sum(counts) == 20
        assert s3_server.bucket().list(prefix).collect() == []


@async_test
async def test_an_expiring_tombstone_is_not_overwritten_while_its_delete_may_arrive(
    s3_server, prefix, proxy, monkeypatch
):
    url = s3_server.url(prefix, port=proxy.port, patience=0.3)
    async with open_state_store(url) as store:
        await leave_tombstone(store)
        proxy.lose_next_request(at=b"<Delete")
        assert await store.sweep(older_than=NOW) == 0
        assert proxy.lost == 1
        assert is_expiring(s3_server.bucket(), f"{prefix}/a")
        with pytest.raises(StateStoreError, match="half an hour") as caught:
            await store.put("a", b"2")
        assert caught.value.transient
        assert not caught.value.unknown
        assert await store.sweep(older_than=NOW) == 0
        monkeypatch.setattr("holdfast.stores.objectstore.sweep.EXPIRY_SECONDS", NOW)
        await store.put("a", b"2", if_absent=True)
        assert (await store.get("a")).value == b"2"


@async_test
async def test_an_interrupted_sweep_is_finished_by_a_later_one(two_stores, memory, monkeypatch):
    store, other = two_stores
    await leave_tombstone(store)

    async def die():
        raise asyncio.CancelledError

    store.before_removing = die
    with pytest.raises(asyncio.CancelledError):
        await store.sweep(older_than=NOW)
    assert is_expiring(memory, "a")
    assert await other.sweep(older_than=NOW) == 0
    monkeypatch.setattr("holdfast.stores.objectstore.sweep.EXPIRY_SECONDS", NOW)
    assert await other.sweep(older_than=NOW) == 1
    assert memory.list().collect() == []


@async_test
async def test_a_step_of_a_sweep_whose_response_is_lost_is_applied_once(s3_server, prefix, proxy):
    async with open_state_store(s3_server.url(prefix, port=proxy.port)) as store:
        for mark in (b"holdfast 1 going", b"<Delete"):
            await leave_tombstone(store)
            proxy.lose_next_response(after=mark)
            assert await store.sweep(older_than=NOW) == 1
            assert s3_server.bucket().list(prefix).collect() == []
        assert proxy.lost == 2


@async_test
async def test_a_sweep_without_permission_fails_and_leaves_keys_writable(s3_server, prefix):
    async with open_state_store(s3_server.url(prefix, **KEEPER)) as store:
        await leave_tombstone(store)
        await leave_tombstone(store, "b")
        with pytest.raises(StateStoreError, match=re.escape("denied access")) as caught:
            await store.sweep(older_than=NOW)
        assert not caught.value.transient
        assert not is_expiring(s3_server.bucket(), f"{prefix}/a")
        await store.put("a", b"2", if_absent=True)
        await store.put("b", b"2")
        assert await list_keys(store) == ["a", "b"]
