"""The object store, against a real S3-compatible server."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
from obstore.store import MemoryStore

from holdfast.errors import ConflictError
from holdfast.stores import Put, open_state_store
from holdfast.stores.base import Entry
from holdfast.stores.objectstore import ObjectStateStore
from holdfast.stores.objectstore.bodies import TOMBSTONE_SIZE
from holdfast.stores.urls import StoreURL
from holdfast.testing import StateStoreSuite
from stores.listing import list_keys
from support.async_tests import async_test


class TestObjectStateStore(StateStoreSuite):
    increments = 4
    examples = 6
    many = 250

    @pytest.fixture
    def new_store(self, s3_server, prefix, monkeypatch):
        # So that a listing has several pages without thousands of objects.
        monkeypatch.setattr("holdfast.stores.backend.PAGE_SIZE", 100)
        monkeypatch.setattr("holdfast.stores.objectstore.objects.PAGE_SIZE", 100)
        return lambda: open_state_store(s3_server.url(prefix))


@async_test
async def test_two_writes_of_the_same_value_have_different_etags(s3_server, prefix):
    async with (
        open_state_store(s3_server.url(prefix)) as one,
        open_state_store(s3_server.url(prefix)) as two,
    ):
        first = await one.put("a", b"same")
        assert await one.put("a", b"same") != first
        etag = await two.put("a", b"same")
        answers = await asyncio.gather(
            one.put("a", b"same", if_match=etag),
            two.put("a", b"same", if_match=etag),
            return_exceptions=True,
        )
        assert {type(answer) for answer in answers} == {ConflictError, str}


@pytest.mark.parametrize("star", ["*", "", '"a", "b"', ' "a"'])
@async_test
async def test_an_etag_that_no_service_returned_matches_nothing(s3_server, prefix, star):
    async with open_state_store(s3_server.url(prefix)) as store:
        etag = await store.put("a", b"1")
        for wrong in (star, etag.strip('"'), f'{etag}, "x"'):
            with pytest.raises(ConflictError, match="it has"):
                await store.put("a", b"2", if_match=wrong)
            with pytest.raises(ConflictError, match="it does not exist"):
                await store.put("b", b"2", if_match=wrong)
        assert await store.get("a") == Entry(b"1", etag)


@asynccontextmanager
async def open_stores(server, prefix, count=3):
    """Open several stores on the same data, each with its own connections."""
    stores = [open_state_store(server.url(prefix)) for _ in range(count)]
    try:
        yield stores
    finally:
        for store in stores:
            await store.close()


@async_test
async def test_one_of_several_concurrent_deletes_succeeds(s3_server, prefix):
    async with open_stores(s3_server, prefix) as stores:
        await stores[0].put("a", b"1")
        answers = await asyncio.gather(*(store.delete("a") for store in stores))
        assert sorted(answers) == [False, False, True]
        assert await stores[0].get("a") is None


def test_one_of_several_writers_creates_a_deleted_key_again(s3_server, prefix):
    async def check():
        async with open_stores(s3_server, prefix) as stores:
            await stores[0].put("a", b"0")
            await stores[0].delete("a")
            answers = await asyncio.gather(
                *(store.put("a", store_name(store), if_absent=True) for store in stores),
                return_exceptions=True,
            )
            won = [s for s, a in zip(stores, answers, strict=True) if isinstance(a, str)]
            assert len(won) == 1
            assert (await stores[0].get("a")).value == store_name(won[0])

    def store_name(store):
        return b"%d" % id(store)

    asyncio.run(check())


def test_a_key_that_is_deleted_and_written_repeatedly_is_never_lost(s3_server, prefix):
    async def check():
        async with open_stores(s3_server, prefix, 2) as (one, two):
            created = deleted = 0

            async def create():
                nonlocal created
                for number in range(20):
                    try:
                        await one.put("a", b"%d" % number, if_absent=True)
                        created += 1
                    except ConflictError:
                        await asyncio.sleep(0.002)

            async def delete():
                nonlocal deleted
                for _ in range(20):
                    deleted += await two.delete("a")
                    await asyncio.sleep(0.001)

            await asyncio.gather(create(), delete())
            left = await one.get("a") is not None
            assert created == deleted + left

    asyncio.run(check())


class Overtaken(ObjectStateStore):
    """A store that another one overtakes during a write."""

    overtake = None

    async def _write(self, bucket, path, body, mode):
        if mode != "create" and self.overtake is not None:
            overtake, self.overtake = self.overtake, None
            await overtake()
        return await super()._write(bucket, path, body, mode)

    async def _read_keys(self, names):
        if self.overtake is not None:
            await self.overtake()
        return await super()._read_keys(names)


@pytest.fixture
def two_stores():
    """One store that is overtaken and one that overtakes it, on the same data."""
    memory = MemoryStore()
    return [kind(StoreURL("s3://bucket"), lambda: memory) for kind in (Overtaken, ObjectStateStore)]


@async_test
async def test_a_delete_that_is_overtaken_deletes_the_newer_value(two_stores):
    store, other = two_stores
    await store.put("a", b"1")
    store.overtake = lambda: other.put("a", b"2")
    assert await store.delete("a")
    assert await other.get("a") is None
    await store.put("a", b"3")
    store.overtake = lambda: other.delete("a")
    assert not await store.delete("a")
    etag = await store.put("a", b"4")
    store.overtake = lambda: other.put("a", b"5")
    with pytest.raises(ConflictError):
        await store.delete("a", if_match=etag)
    assert (await other.get("a")).value == b"5"


@async_test
async def test_an_unconditional_write_that_is_overtaken_is_applied_last(two_stores):
    store, other = two_stores
    await store.put("a", b"1")
    store.overtake = lambda: other.put("a", b"2")
    etag = await store.put("a", b"3")
    assert await other.get("a") == Entry(b"3", etag)


@async_test
async def test_concurrent_unconditional_writes_all_succeed(s3_server, prefix):
    async with open_stores(s3_server, prefix) as stores:
        etags = await asyncio.gather(
            *(store.put("a", b"%d" % number) for store in stores for number in range(20))
        )
        assert len(set(etags)) == 60
        assert (await stores[0].get("a")).etag in etags


@async_test
async def test_creating_over_a_tombstone_conflicts_if_another_writer_was_first(two_stores):
    store, other = two_stores
    await store.put("a", b"1")
    await store.delete("a")
    store.overtake = lambda: other.put("a", b"2", if_absent=True)
    with pytest.raises(ConflictError):
        await store.put("a", b"3", if_absent=True)
    assert (await other.get("a")).value == b"2"


@async_test
async def test_creating_over_a_tombstone_succeeds_if_it_is_swept(two_stores):
    store, other = two_stores
    await store.put("a", b"1")
    await store.delete("a")
    store.overtake = lambda: other.sweep(older_than=-60)
    await store.put("a", b"2", if_absent=True)
    assert (await other.get("a")).value == b"2"


@async_test
async def test_a_long_key_that_is_deleted_while_it_is_listed_is_not_listed(two_stores):
    store, other = two_stores
    keys = ["k" * count for count in range(800, 803)]
    await store.put_many([Put(key, b"1") for key in keys])
    store.overtake = lambda: other.delete(keys[1])
    assert await list_keys(store) == [keys[0], keys[2]]


@async_test
async def test_a_deleted_key_leaves_an_invisible_tombstone(s3_server, prefix):
    async with open_state_store(s3_server.url(prefix)) as store:
        await store.put("a", b"1" * 1000)
        await store.put("k" * 800, b"1" * 1000)
        assert await store.delete("a")
        assert await store.delete("k" * 800)
        objects = s3_server.bucket().list(prefix).collect()
        assert [one["size"] for one in objects] == [TOMBSTONE_SIZE, TOMBSTONE_SIZE]
        assert await list_keys(store) == []
        assert await store.get_many(["a", "k" * 800]) == {}
        await store.put("a", b"2", if_absent=True)
        assert (await store.get("a")).value == b"2"
        assert await list_keys(store) == ["a"]
