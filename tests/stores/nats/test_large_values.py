"""Values too large for one message, and listings too long for one request."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

import holdfast
from holdfast.errors import ConflictError, IntegrityError, StateStoreError
from holdfast.stores.base import Entry, Put
from holdfast.testing import compare_with_memory
from holdfast.testing.state_store_suite import STRANGE_KEYS, collect_keys, read_all
from support.async_tests import async_test

MEGABYTE = 1024 * 1024


@async_test
async def test_the_chunks_of_a_large_value_are_removed_with_it(new_store, behind):
    first, second = (bytes([n]) * (5 * MEGABYTE) for n in (1, 2))
    async with new_store() as store, behind:
        etag = await store.put("large", first, if_absent=True)
        assert len(await behind.chunks()) == 10
        assert await store.get("large") == Entry(first, etag)
        assert await collect_keys(store.list()) == ["large"]
        await store.put("large", second, if_match=etag)
        assert len(await behind.chunks()) == 10
        await store.put("large", first)
        assert len(await behind.chunks()) == 10
        await store.put_many([Put("large", second)])
        assert len(await behind.chunks()) == 10
        assert (await store.get("large")).value == second
        with pytest.raises(ConflictError):
            await store.put("large", first, if_absent=True)
        with pytest.raises(ConflictError):
            await store.put("large", first, if_match="1")
        assert len(await behind.chunks()) == 10
        etag = await store.put("large", b"small")
        assert await behind.chunks() == set()
        etag = await store.put("large", first, if_match=etag)
        assert await store.delete("large", if_match=etag)
        assert await behind.chunks() == set()
        await store.put("large", first)
        assert await store.delete("large")
        assert await behind.chunks() == set()


@async_test
async def test_a_large_value_is_never_read_in_part(new_store):
    async with new_store() as writer, new_store() as reader:
        await writer.put("large", b"\x00" * MEGABYTE)

        async def write() -> None:
            for number in range(1, 12):
                await writer.put("large", bytes([number]) * MEGABYTE)

        writing = asyncio.create_task(write())
        while not writing.done():
            value = (await reader.get("large")).value
            assert value == value[:1] * MEGABYTE
        await writing


@async_test
async def test_a_value_with_lost_chunks_is_damaged(new_store, behind):
    async with new_store() as store, behind:
        await store.put("large", b"x" * MEGABYTE)
        await behind.js.purge_stream(behind.stream, subject=f"$KV.{behind.bucket}.=chunk.*.1")
        with pytest.raises(IntegrityError, match="lost chunks"):
            await store.get("large")
        with pytest.raises(IntegrityError, match="lost chunks"):
            await store.get_many(["other", "large"])
        assert await store.delete("large")
        assert await behind.chunks() == set()


@async_test
async def test_a_sweep_removes_chunks_of_dead_writers(new_store, behind, monkeypatch):
    async with new_store() as store, behind:
        await store.put("kept", b"k" * MEGABYTE)
        await store.put("small", b"s")
        kept = await behind.chunks()
        writing = asyncio.create_task(store.put("never", b"n" * (40 * MEGABYTE)))
        while await behind.chunks() == kept:
            assert not writing.done()
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        assert await behind.chunks() > kept
        assert await store.sweep() == 0, "its writer may still be running"
        assert await store.sweep(older_than=0) == 1
        assert await behind.chunks() == kept
        assert await read_all(store) == {"kept": b"k" * MEGABYTE, "small": b"s"}


@async_test
async def test_a_writer_that_takes_too_long_fails(new_store, behind, monkeypatch):
    monkeypatch.setattr("holdfast.stores.nats.store.SEND_SECONDS", -1.0)
    async with new_store() as store, behind:
        with pytest.raises(StateStoreError, match="took too long") as caught:
            await store.put("large", b"x" * MEGABYTE)
        assert not caught.value.unknown
        assert await read_all(store) == {}
        assert await behind.chunks() == set()


def test_values_in_chunks_behave_as_in_memory(new_store, monkeypatch):
    monkeypatch.setattr("holdfast.stores.nats.connection.MAX_CHUNK", 8)
    compare_with_memory(new_store, examples=4)


@async_test
async def test_a_server_with_small_messages_accepts_large_values(own_server, bucket):
    server = own_server("max_payload: 4KB")
    async with holdfast.open_state_store(server.url(bucket)) as store:
        value = bytes(range(250)) * 100
        etag = await store.put("a", value)
        assert await store.get("a") == Entry(value, etag)
        await store.put("x" * 2000, b"1")
        with pytest.raises(StateStoreError, match="max_payload") as caught:
            await store.put("x" * 8000, b"1")
        assert not caught.value.unknown
        assert await store.get("x" * 8000) is None
        assert await collect_keys(store.list()) == ["a", "x" * 2000]


@async_test
async def test_a_full_server_is_an_error_and_keeps_existing_values(own_server, bucket):
    server = own_server(limits="max_file_store: 3MB")
    async with holdfast.open_state_store(server.url(bucket)) as store:
        await store.put("a", b"a" * MEGABYTE)
        with pytest.raises(StateStoreError, match="is full") as caught:
            for number in range(4):
                await store.put(f"b/{number}", b"b" * MEGABYTE)
        assert not caught.value.unknown
        assert (await store.get("a")).value == b"a" * MEGABYTE


@async_test
async def test_a_listing_in_many_parts_includes_concurrent_writes(new_store, monkeypatch):
    monkeypatch.setattr("holdfast.stores.nats.connection.BATCH_SIZE", 7)
    monkeypatch.setattr("holdfast.stores.nats.connection.MAX_BATCHES", 2)
    keys = [f"part/{number:03}" for number in range(150)]
    async with new_store() as store, new_store() as other:
        await asyncio.gather(*(store.put(key, b"1") for key in keys))
        await store.put("part/removed", b"1")

        async def write() -> None:
            await other.delete("part/removed")
            for key in keys:
                await other.put(key, b"2")

        writing = asyncio.create_task(write())
        while not writing.done():
            assert [
                k for k in await collect_keys(store.list("part/")) if k != "part/removed"
            ] == keys
        await writing
        assert await collect_keys(store.list("part/")) == keys


@async_test
async def test_a_listing_whose_consumer_is_deleted_starts_again(new_store, behind, monkeypatch):
    from nats.js.errors import NotFoundError

    monkeypatch.setattr("holdfast.stores.nats.connection.BATCH_SIZE", 1)
    monkeypatch.setattr("holdfast.stores.nats.connection.STALL_TIMEOUT", 0.2)
    keys = [f"{number:03}" for number in range(200)]
    async with new_store() as store, behind:
        await asyncio.gather(*(store.put(key, b"1") for key in keys))
        listing = asyncio.create_task(collect_keys(store.list()))
        removed = 0
        while not listing.done() and removed < 3:
            for info in await behind.js.consumers_info(behind.stream):
                with suppress(NotFoundError):
                    removed += await behind.js.delete_consumer(behind.stream, info.name)
        assert removed
        assert await listing == keys


@async_test
async def test_a_batch_is_awaited_while_messages_arrive(monkeypatch):
    from holdfast.stores.nats.connection import ConnectionLostError, wait_for_batch

    monkeypatch.setattr("holdfast.stores.nats.connection.STALL_TIMEOUT", 0.05)
    arrived, found = asyncio.Event(), []
    waiting = asyncio.create_task(wait_for_batch(arrived, found))
    for _ in range(10):
        await asyncio.sleep(0.02)
        found.append(None)
    arrived.set()
    await waiting
    arrived.clear()
    with pytest.raises(ConnectionLostError, match="stalled"):
        await wait_for_batch(arrived, found)


@async_test
async def test_long_keys_are_listed_for_each_of_their_prefixes(new_store):
    long = [key for key in STRANGE_KEYS if len(key) > 200]
    async with new_store() as store:
        await asyncio.gather(*(store.put(key, b"1") for key in long))
        for key in long:
            for size in (1, 5, 10, 300, 600, 999, len(key)):
                prefix = key[:size]
                expected = sorted(k for k in long if k.startswith(prefix))
                assert await collect_keys(store.list(prefix)) == expected
