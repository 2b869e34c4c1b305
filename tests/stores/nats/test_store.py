"""The NATS store, on a real server."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from nats.js.errors import NoKeysError

import holdfast
from holdfast.errors import ConflictError, StateStoreError
from holdfast.stores.base import Entry
from holdfast.testing import StateStoreSuite
from holdfast.testing.state_store_suite import collect_keys, read_all
from support.async_tests import async_test


class TestNats(StateStoreSuite):
    increments = 6
    examples = 6
    many = 300  # the store lists without pages

    @pytest.fixture
    def new_store(self, nats_server, bucket):
        return lambda: holdfast.open_state_store(nats_server.url(bucket))


@async_test
async def test_the_bucket_is_created_with_safe_settings(new_store, behind):
    async with new_store() as store, behind:
        await store.put("a/b", b"1")
        config = (await behind.js.stream_info(behind.stream)).config
        assert (config.storage, config.discard, config.max_age) == ("file", "new", 0)
        assert (config.max_msgs_per_subject, config.num_replicas) == (1, 1)
        assert not config.allow_direct
        assert await behind.subjects() == {"a.b"}


@async_test
async def test_the_default_bucket_is_holdfast(nats_server):
    async with (
        holdfast.open_state_store(nats_server.url()) as store,
        holdfast.open_state_store(nats_server.url("holdfast")) as same,
    ):
        await store.put("default", b"1")
        assert await same.delete("default")


async def read_history(kv, key):
    """Return all values of a key.

    Repeated, because on a busy machine nats-py's watcher may end before the first value arrives.
    """
    for _ in range(20):
        with contextlib.suppress(NoKeysError):
            return [entry.value for entry in await kv.history(key)]
        await asyncio.sleep(0.1)
    return []


@async_test
async def test_the_bucket_can_be_used_with_nats_tools(new_store, behind):
    async with new_store() as store, behind:
        await behind.js.create_key_value(
            bucket=behind.bucket, history=5, storage="file", direct=True
        )
        kv = await behind.js.key_value(behind.bucket)
        await kv.put("seen.by", b"both")
        await kv.put("not/ours", b"alone")
        found = await store.get("seen/by")
        assert found == Entry(b"both", str((await kv.get("seen.by")).revision))
        etag = await store.put("seen/by", b"two", if_match=found.etag)
        assert (await kv.get("seen.by")).value == b"two"
        assert await collect_keys(store.list()) == ["seen/by"]
        await kv.delete("seen.by")
        assert await store.get("seen/by") is None
        assert not await store.delete("seen/by")
        with pytest.raises(ConflictError):
            await store.put("seen/by", b"3", if_match=etag)
        await store.put("seen/by", b"3", if_absent=True)
        assert await store.delete("seen/by")
        # Without earlier values, so that none reappears when the delete marker expires.
        assert await read_history(kv, "seen.by") == [b""]


@async_test
async def test_a_delete_marker_expires_after_an_hour(new_store, behind):
    async with new_store() as store, behind:
        await store.put("a", b"1")
        await store.delete("a")
        assert (await behind.last("a")).headers["Nats-TTL"] == "3600"


@async_test
async def test_an_expired_delete_marker_is_gone(new_store, behind, monkeypatch):
    monkeypatch.setattr("holdfast.stores.nats.connection.DELETE_MARKER_SECONDS", 1)
    async with new_store() as store, behind:
        await store.put("a", b"1")
        await store.delete("a")
        assert await behind.subjects() == {"a"}
        for _ in range(100):
            if not await behind.subjects():
                break
            await asyncio.sleep(0.05)
        assert await behind.subjects() == set()
        assert not await store.delete("a")
        await store.put("a", b"2", if_absent=True)
        assert await read_all(store) == {"a": b"2"}


@pytest.mark.parametrize(
    ("config", "fault"),
    [
        ({"storage": "memory", "max_msgs_per_subject": 1}, "memory"),
        ({"max_age": 60, "max_msgs_per_subject": 1}, "expire"),
        ({"max_msgs": 10, "discard": "old", "max_msgs_per_subject": 1}, "drops entries"),
        ({}, "plain stream"),
    ],
)
@async_test
async def test_an_unsafe_bucket_is_rejected(new_store, behind, config, fault):
    async with new_store() as store, behind:
        await behind.js.add_stream(
            name=behind.stream, subjects=[f"$KV.{behind.bucket}.>"], **{"storage": "file", **config}
        )
        with pytest.raises(StateStoreError, match=fault):
            await store.put("a", b"1")


@async_test
async def test_concurrent_stores_can_create_the_same_bucket(new_store, behind):
    from holdfast.stores.nats.connection import NatsConnection

    async with behind:
        await behind.js.create_key_value(bucket=behind.bucket, storage="file", direct=True)
        connection = NatsConnection(behind.bucket, 5)
        await connection.open(behind.url)
        await connection._create_bucket(1)
        await connection.close()
    stores = [new_store() for _ in range(5)]
    await asyncio.gather(*(store.put("a", b"1") for store in stores))
    await asyncio.gather(*(store.close() for store in stores))


@async_test
async def test_a_bucket_that_cannot_be_created_is_reported(new_store, behind):
    async with new_store() as store, behind:
        await behind.js.add_stream(
            name=f"other-{behind.bucket}", subjects=[f"$KV.{behind.bucket}.>"]
        )
        with pytest.raises(StateStoreError, match="subjects overlap with an existing stream"):
            await store.get("a")


@async_test
async def test_a_bucket_deleted_while_in_use_is_reported(new_store, behind):
    async with new_store(patience=0) as store, behind:
        await store.put("a", b"1")
        await behind.js.delete_key_value(behind.bucket)
        with pytest.raises(StateStoreError, match="was deleted: stream not found"):
            await store.get("a")
        with pytest.raises(StateStoreError, match="the bucket was deleted") as caught:
            await store.put("b", b"1", if_absent=True)
        assert not caught.value.unknown
