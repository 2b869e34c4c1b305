"""Blobs are written before the events that refer to them, once, in bounded batches."""

from __future__ import annotations

import hashlib
import tracemalloc

import pytest

from holdfast import NotFoundError, SnapshotLocation
from holdfast.blobs.keys import CHUNK_SIZE
from holdfast.blobs.reader import BlobReader
from holdfast.blobs.source import BytesSource, FileSource, SpooledSource, read_file
from holdfast.blobs.writer import BATCH_COUNT, BATCH_SIZE, BlobWriter
from holdfast.log.encoded_event import new_event
from holdfast.stores.memory import MemoryStateStore
from holdfast.values.references import Attachment
from support.async_tests import async_test
from support.observed_store import HERE, ObservedStore, collect

LARGE = b"x" * 100_000
THERE = SnapshotLocation("other", scope_id="research-bot")


class BatchStore(ObservedStore):
    """Notes the number and the size of what each call writes."""

    def __init__(self):
        super().__init__()
        self.batches = []

    async def _put_many(self, puts, conditions=()):
        self.batches.append((len(puts), sum(len(put.value) for put in puts)))
        return await super()._put_many(puts, conditions)


def make_event(*values):
    """Return an event that sets values."""
    sets = [("state", f"k{at}", value) for at, value in enumerate(values)]
    return new_event("state.set", None, {"set": sets, "delete": []})


def refer(content, **fields):
    """Return an attachment of a content."""
    return Attachment(hashlib.sha256(content).hexdigest(), len(content), **fields)


@async_test
async def test_contents_in_memory_are_written_in_batches():
    state_store = BatchStore()
    await BlobWriter(state_store, HERE.prefix).write(
        [BytesSource(bytes([n]) * 100_000) for n in range(50)]
    )
    assert sum(size for _, size in state_store.batches) == 50 * 100_000
    assert max(size for _, size in state_store.batches) <= BATCH_SIZE
    assert len(state_store.batches) == -(-50 // (BATCH_SIZE // 100_000))


@async_test
async def test_many_small_contents_are_written_in_batches():
    state_store = BatchStore()
    await BlobWriter(state_store, HERE.prefix).write(
        [BytesSource(n.to_bytes(4, "big")) for n in range(BATCH_COUNT + 1)]
    )
    assert [count for count, _ in state_store.batches] == [BATCH_COUNT, 1]


@async_test
async def test_files_are_written_one_chunk_at_a_time(tmp_path):
    state_store = BatchStore()
    path = tmp_path / "large"
    path.write_bytes(bytes(3 * CHUNK_SIZE + 5))
    small = tmp_path / "small"
    small.write_bytes(b"small")
    await BlobWriter(state_store, HERE.prefix).write(
        [BytesSource(b"y" * 1000), FileSource.hash_file(path), FileSource.hash_file(small)]
    )
    assert max(size for _, size in state_store.batches) <= CHUNK_SIZE
    reader = BlobReader(state_store, HERE.prefix)
    assert await reader.read(FileSource.hash_file(path).digest) == path.read_bytes()
    assert await reader.read(FileSource.hash_file(small).digest) == b"small"


@async_test
async def test_a_large_file_is_written_with_bounded_memory(tmp_path):
    from holdfast import open_state_store

    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(40 * CHUNK_SIZE)
    async with open_state_store(f"sqlite:///{tmp_path}/state.db") as state_store:
        await state_store.put("warm", b"up")
        tracemalloc.start()
        source = await SpooledSource.spool(read_file(path))
        await BlobWriter(state_store, HERE.prefix).write([source])
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 10 * CHUNK_SIZE


@async_test
async def test_a_blob_is_written_once_until_the_next_sweep():
    state_store = ObservedStore()
    writer = BlobWriter(state_store, HERE.prefix)
    event = make_event({"image": LARGE}, [LARGE])
    await writer.store([event], 0)
    assert len(state_store.written) == 1
    await writer.store([event, make_event(LARGE)], 0)
    assert len(state_store.written) == 1
    await writer.store([event], 1)
    assert len(state_store.written) == 2


@async_test
async def test_known_blobs_are_not_written_unless_they_were_swept():
    state_store = ObservedStore()
    writer = BlobWriter(state_store, HERE.prefix)
    writer.add_known([refer(LARGE).digest], 3)
    await writer.store([make_event(LARGE)], 3)
    assert state_store.written == []
    writer.add_known([refer(LARGE).digest], 2)
    await writer.store([make_event(LARGE)], 4)
    assert len(state_store.written) == 1


@async_test
async def test_what_was_known_at_another_count_is_ignored():
    state_store = ObservedStore()
    writer = BlobWriter(state_store, HERE.prefix)
    await writer.store([], 5)
    writer.add_known([refer(LARGE).digest], 4)
    await writer.store([make_event(LARGE)], 5)
    assert len(state_store.written) == 1


@async_test
async def test_offered_attachments_are_written_with_the_event_that_refers_to_them():
    state_store = ObservedStore()
    writer = BlobWriter(state_store, HERE.prefix)
    for content in (b"one", b"two"):
        writer.offered[refer(content).digest] = BytesSource(content)
    events = [make_event([refer(b"one", name="1.txt")], "small")]
    await writer.store(events, 0)
    assert await collect(writer.reader.list()) == [refer(b"one").digest]
    assert len(writer.offered) == 2  # until the commit succeeded
    writer.release(events)
    assert list(writer.offered) == [refer(b"two").digest]


@async_test
async def test_an_unknown_attachment_is_an_error_and_the_others_are_harmless():
    state_store = ObservedStore()
    writer = BlobWriter(state_store, HERE.prefix)
    with pytest.raises(NotFoundError, match=refer(b"gone").digest):
        await writer.store([make_event(LARGE, refer(b"gone"))], 0)
    await state_store.put(f"{HERE.prefix}blobs/{refer(b'gone').digest}/000000", b"gone")
    await writer.store([make_event(LARGE, refer(b"gone"))], 0)
    assert await writer.reader.find_missing([refer(LARGE).digest, refer(b"gone").digest]) == set()


@async_test
async def test_blobs_of_the_origin_of_a_fork_are_copied_also_for_digests_in_text():
    state_store = MemoryStateStore()
    origin = BlobWriter(state_store, HERE.prefix)
    await origin.write([BytesSource(b"one"), BytesSource(b"two"), BytesSource(b"three")])
    writer = BlobWriter(state_store, THERE.prefix)
    writer.origin = origin.reader
    event = make_event(refer(b"one"), {"digest": refer(b"two").digest, "size": 3})
    event.mark_digests()
    await writer.store([event], 0)
    assert await collect(writer.reader.list()) == sorted(
        [refer(b"one").digest, refer(b"two").digest]
    )
