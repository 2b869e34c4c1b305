"""The contents of blobs are read when a value needs them, and kept within a bound."""

from __future__ import annotations

import os
import signal
import threading
import warnings

import pytest

from holdfast import IntegrityError, NotFoundError, StateStoreError
from holdfast.blobs import contents as contents_module
from holdfast.blobs.contents import BlobContents
from holdfast.blobs.keys import chunk_key
from holdfast.blobs.source import BytesSource
from holdfast.blobs.writer import BlobWriter
from holdfast.values.references import BlobReference
from support.async_tests import async_test, run_async
from support.faults import Fault, FaultyStateStore
from support.observed_store import HERE, ObservedStore

SIZE = 1000


async def store_blobs(state_store, count):
    """Store blobs of a thousand bytes, and return their references."""
    sources = [BytesSource(bytes([number]) * SIZE) for number in range(count)]
    await BlobWriter(state_store, HERE.prefix).write(sources)
    return [BlobReference(source.digest, SIZE, "bytes") for source in sources]


@pytest.fixture
def state_store():
    return ObservedStore()


@pytest.fixture
def small_cache(monkeypatch):
    monkeypatch.setattr(contents_module, "CACHE_BYTES", 3 * SIZE)


def test_a_lookup_reads_a_blob_once(state_store):
    references = run_async(store_blobs(state_store, 2))
    contents = BlobContents(state_store, HERE.prefix)
    state_store.forget()
    for _ in range(3):
        assert contents[references[0].digest] == bytes(SIZE)
    assert len(state_store.read) == 1
    assert list(contents) == [references[0].digest]
    assert len(contents) == 1


@async_test
async def test_a_lookup_works_inside_an_event_loop(state_store):
    references = await store_blobs(state_store, 2)
    contents = BlobContents(state_store, HERE.prefix)
    assert contents[references[1].digest] == b"\x01" * SIZE


@async_test
async def test_what_was_loaded_is_not_read_again(state_store):
    references = await store_blobs(state_store, 3)
    contents = BlobContents(state_store, HERE.prefix)
    await contents.load(references)
    state_store.forget()
    await contents.load(references)
    assert [contents[each.digest][:1] for each in references] == [b"\x00", b"\x01", b"\x02"]
    assert state_store.read == []


@async_test
async def test_the_contents_used_last_are_kept(state_store, small_cache):
    references = await store_blobs(state_store, 5)
    contents = BlobContents(state_store, HERE.prefix)
    for at in (0, 1, 2, 0, 3):
        assert contents[references[at].digest] == bytes([at]) * SIZE
    assert set(contents) == {references[at].digest for at in (0, 2, 3)}


@async_test
async def test_no_more_is_loaded_than_fits(state_store, small_cache):
    references = await store_blobs(state_store, 5)
    contents = BlobContents(state_store, HERE.prefix)
    state_store.forget()
    await contents.load(references)
    assert len(state_store.read) == 3
    assert set(contents) == {each.digest for each in references[:3]}


@async_test
async def test_one_content_beyond_the_bound_is_kept_until_the_next(state_store, monkeypatch):
    references = await store_blobs(state_store, 2)
    monkeypatch.setattr(contents_module, "CACHE_BYTES", 10)
    contents = BlobContents(state_store, HERE.prefix)
    await contents.load(references)
    assert len(contents) == 0
    for each in references:
        assert len(contents[each.digest]) == SIZE
        assert list(contents) == [each.digest]


@async_test
async def test_missing_and_damaged_blobs_are_skipped_and_raise_where_they_are_read(state_store):
    references = await store_blobs(state_store, 3)
    gone, damaged, whole = (each.digest for each in references)
    await state_store.delete(chunk_key(HERE.prefix, gone, 0))
    await state_store.damage(chunk_key(HERE.prefix, damaged, 0), lambda data: data[1:])
    contents = BlobContents(state_store, HERE.prefix)
    await contents.load(references)
    assert list(contents) == [whole]
    with pytest.raises(NotFoundError, match=gone):
        contents[gone]
    with pytest.raises(IntegrityError, match=damaged):
        contents[damaged]


@async_test
async def test_a_store_that_fails_is_not_a_missing_blob(state_store):
    references = await store_blobs(state_store, 1)
    faulty = FaultyStateStore(state_store, [Fault(at=1, kind="error", of="reads")])
    with pytest.raises(StateStoreError):
        await BlobContents(faulty, HERE.prefix).load(references)


def test_many_threads_read_the_same_contents(state_store, small_cache):
    references = run_async(store_blobs(state_store, 8))
    contents = BlobContents(state_store, HERE.prefix)
    wrong = []

    def read(offset):
        for number in range(200):
            at = (number + offset) % 8
            if contents[references[at].digest] != bytes([at]) * SIZE:
                wrong.append(at)

    threads = [threading.Thread(target=read, args=(offset,)) for offset in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(contents) == 3
    assert contents._size == sum(len(contents[each]) for each in contents) == 3 * SIZE


def test_contents_are_compared_by_identity(state_store):
    one, other = BlobContents(state_store, "a/"), BlobContents(state_store, "a/")
    assert one == one
    assert one != other
    assert len({one, other}) == 2


def test_a_forked_child_reads_contents_while_a_thread_of_its_parent_does(state_store):
    references = run_async(store_blobs(state_store, 1))
    contents = BlobContents(state_store, HERE.prefix)
    entered, done = threading.Event(), threading.Event()

    def hold():
        with contents_module._lock:
            entered.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    entered.wait()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns about threads
        child = os.fork()
    if child == 0:
        signal.alarm(20)
        os._exit(0 if contents[references[0].digest] == bytes(SIZE) else 1)
    done.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
