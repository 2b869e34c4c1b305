"""Blobs are verified when they are read."""

from __future__ import annotations

import hashlib
import random
import tracemalloc

import pytest

from holdfast import IntegrityError, NotFoundError
from holdfast.blobs.keys import CHUNK_SIZE, chunk_key
from holdfast.blobs.reader import BlobReader, StoredSource
from holdfast.blobs.source import BytesSource
from holdfast.blobs.writer import BlobWriter
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test
from support.observed_store import HERE, ObservedStore, collect

SIZES = [0, 1, CHUNK_SIZE, CHUNK_SIZE + 1, 9 * CHUNK_SIZE + 5]


def make_content(size):
    """Return bytes without a period, so that no two chunks are equal."""
    return random.Random(0).randbytes(size)


async def store_blob(state_store, content):
    """Store a blob, and return its reader and its digest."""
    source = BytesSource(content)
    await BlobWriter(state_store, HERE.prefix).write([source])
    return BlobReader(state_store, HERE.prefix), source.digest


@pytest.mark.parametrize("size", SIZES)
@async_test
async def test_a_blob_is_read_as_a_whole_in_chunks_and_as_a_source(size):
    content = make_content(size)
    reader, digest = await store_blob(MemoryStateStore(), content)
    assert await reader.read(digest) == content
    assert await reader.read(digest, size) == content
    chunks = await collect(reader.stream(digest))
    assert b"".join(chunks) == content
    assert max(map(len, chunks)) <= CHUNK_SIZE
    assert await collect(StoredSource(reader, digest, size).chunks()) == chunks
    assert await collect(reader.list()) == [digest]


@async_test
async def test_a_small_blob_of_known_size_is_read_in_one_call():
    state_store = ObservedStore()
    reader, digest = await store_blob(state_store, make_content(3 * CHUNK_SIZE))
    state_store.forget()
    await reader.read(digest, 3 * CHUNK_SIZE)
    assert state_store.calls == ["get_many"]


@pytest.mark.parametrize("size", [10, 3 * CHUNK_SIZE, 9 * CHUNK_SIZE])
@async_test
async def test_a_missing_blob_is_an_error_that_names_it_and_the_remedy(size):
    state_store = ObservedStore()
    reader, digest = await store_blob(state_store, make_content(size))
    for key in state_store.keys_with("blobs/"):
        await state_store.delete(key)
    for known in (size, None):
        with pytest.raises(NotFoundError, match=f"blob {digest} in .* is not stored.*; attach it"):
            await reader.read(digest, known)


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize(
    "change",
    [
        lambda _: None,
        lambda data: data[:-1],
        lambda data: data + b"!",
        lambda data: bytes(len(data)),
        lambda _: b"",
    ],
    ids=["deleted", "truncated", "extended", "overwritten", "emptied"],
)
@async_test
async def test_a_damaged_chunk_is_an_error_and_the_content_never_complete(number, change):
    state_store = ObservedStore()
    content = make_content(2 * CHUNK_SIZE + 100)
    reader, digest = await store_blob(state_store, content)
    await state_store.damage(chunk_key(HERE.prefix, digest, number), change)
    for known in (len(content), None):
        with pytest.raises((IntegrityError, NotFoundError), match=f"blob {digest}"):
            await reader.read(digest, known)
    seen = b""
    with pytest.raises((IntegrityError, NotFoundError), match="restore it from a backup"):
        async for chunk in reader.stream(digest):
            seen += chunk
    assert len(seen) < len(content)


@async_test
async def test_a_small_damaged_blob_is_an_error_too():
    state_store = ObservedStore()
    reader, digest = await store_blob(state_store, b"x" * 100)
    await state_store.damage(chunk_key(HERE.prefix, digest, 0), lambda data: data[:-1] + b"y")
    for known in (100, None):
        with pytest.raises(IntegrityError, match=f"blob {digest} .* is damaged.*; restore it"):
            await reader.read(digest, known)


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (0, 1),
        (0, CHUNK_SIZE),
        (CHUNK_SIZE - 1, CHUNK_SIZE + 1),
        (CHUNK_SIZE, 2 * CHUNK_SIZE),
        (5, 3 * CHUNK_SIZE + 7),
        (3 * CHUNK_SIZE + 6, 3 * CHUNK_SIZE + 7),
        (7, 7),
    ],
)
@async_test
async def test_a_range_reads_only_its_chunks(start, end):
    state_store = ObservedStore()
    content = make_content(3 * CHUNK_SIZE + 7)
    reader, digest = await store_blob(state_store, content)
    state_store.forget()
    assert b"".join(await collect(reader.read_range(digest, start, end))) == content[start:end]
    assert len(state_store.read) == -(-end // CHUNK_SIZE) - start // CHUNK_SIZE


@async_test
async def test_a_range_of_a_missing_chunk_is_an_error():
    reader, digest = await store_blob(MemoryStateStore(), b"x")
    with pytest.raises(NotFoundError, match=digest):
        await collect(reader.read_range(digest, 0, CHUNK_SIZE + 1))


@async_test
async def test_missing_blobs_are_found():
    state_store = ObservedStore()
    reader, digest = await store_blob(state_store, b"x")
    other = hashlib.sha256(b"other").hexdigest()
    assert await reader.find_missing([digest, other]) == {other}
    state_store.forget()
    assert await reader.find_missing([]) == set()
    assert state_store.calls == []


@async_test
async def test_a_stream_holds_two_chunks_in_memory(tmp_path):
    from holdfast import open_state_store

    async with open_state_store(f"sqlite:///{tmp_path}/state.db") as state_store:
        reader, digest = await store_blob(state_store, bytes(40 * CHUNK_SIZE))
        tracemalloc.start()
        size = 0
        async for chunk in reader.stream(digest):
            size += len(chunk)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert size == 40 * CHUNK_SIZE
    assert peak < 10 * CHUNK_SIZE
