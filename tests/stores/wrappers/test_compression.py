"""Compression: the stored form, damage and limits."""

from __future__ import annotations

import asyncio
import os
import random
import threading

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from holdfast import ConflictError, IntegrityError, Put, StateStoreError
from holdfast.stores.memory import MemoryStateStore
from holdfast.stores.wrappers.compression import CompressedStateStore
from holdfast.testing import StateStoreSuite
from stores.wrappers.thread_recorder import ThreadRecorder
from support.async_tests import async_test, run_async

TEXT = b'{"role": "assistant", "content": "of course"}' * 50


@pytest.fixture
def inner():
    return MemoryStateStore()


@pytest.fixture
def store(inner):
    return CompressedStateStore(inner)


def read_stored(inner, key):
    return run_async(inner.get(key)).value


class TestOverMemory(StateStoreSuite):
    @pytest.fixture
    def new_store(self):
        return lambda: CompressedStateStore(MemoryStateStore())


# ---- stored form ---------------------------------------------------------------------------------


def test_a_repetitive_value_is_stored_as_one_zstd_frame(inner, store):
    etag = run_async(store.put("a", TEXT))
    stored = read_stored(inner, "a")
    assert stored[:1] == b"\xfe"
    assert zstandard.ZstdDecompressor().decompress(stored[1:]) == TEXT
    assert len(stored) < len(TEXT) / 10
    assert run_async(store.get("a")).etag == etag == run_async(inner.get("a")).etag


@pytest.mark.parametrize("value", [b"", b"x", os.urandom(1000)], ids=["empty", "one", "random"])
def test_a_value_that_does_not_get_smaller_is_stored_uncompressed(inner, store, value):
    run_async(store.put("a", value))
    assert read_stored(inner, "a") == b"\xc1" + value
    assert run_async(store.get("a")).value == value


def test_a_higher_level_takes_fewer_bytes(inner):
    words = random.Random(7).choices([b"alpha ", b"beta ", b"gamma ", b"delta "], k=50_000)
    sizes = []
    for level in (1, 19):
        run_async(CompressedStateStore(inner, level=level).put("a", b"".join(words)))
        sizes.append(len(read_stored(inner, "a")))
    assert sizes[1] < sizes[0]


@given(st.binary(max_size=400), st.integers(1, 30))
def test_any_value_round_trips(piece, times):
    store = CompressedStateStore(MemoryStateStore())
    run_async(store.put("a", piece * times))
    assert run_async(store.get("a")).value == piece * times


# ---- damage and limits ---------------------------------------------------------------------------


@pytest.mark.parametrize("stored", [b"", b"{}", b'{"a": 1}', b"\x00", b"\xfaHFE\x01", b"\xf8\xc1"])
def test_a_value_written_without_compression_is_rejected(inner, store, stored):
    run_async(inner.put("a", stored))
    with pytest.raises(IntegrityError, match="'a' was not written with compression.*without"):
        run_async(store.get("a"))


def test_a_change_of_any_byte_never_yields_another_value(inner, store):
    async def read_value_or_error(stored):
        await inner.put("a", stored)
        try:
            return (await store.get("a")).value
        except IntegrityError as error:
            return str(error)

    async def change_each_byte():
        await store.put("a", TEXT)
        whole = (await inner.get("a")).value
        assert whole[:1] == b"\xfe"
        answers = []
        for at in range(len(whole)):
            for flip in (0x01, 0x80, 0xFF):
                changed = bytearray(whole)
                changed[at] ^= flip
                answers.append(await read_value_or_error(bytes(changed)))
        return answers

    answers = run_async(change_each_byte())
    refusals = [answer for answer in answers if answer != TEXT]
    assert all("'a'" in refusal for refusal in refusals)
    assert len(answers) - len(refusals) < 5  # zstd ignores a few bits


@async_test
async def test_a_truncated_or_extended_frame_is_detected(inner, store):
    await store.put("a", TEXT)
    whole = (await inner.get("a")).value
    for wrong in (
        *(whole[:size] for size in range(len(whole))),
        whole + b"\0",
        whole + whole[1:],
    ):
        await inner.put("a", wrong)
        with pytest.raises(IntegrityError, match="'a'"):
            await store.get("a")


def make_bomb(size):
    """Return a small frame with this many zeros."""
    compressor = zstandard.ZstdCompressor(level=19).compressobj(size=size)
    piece = bytes(1 << 20)
    frame = b"".join(compressor.compress(piece) for _ in range(size >> 20))
    return frame + compressor.flush()


def test_a_frame_larger_than_the_limit_is_not_decompressed(inner):
    store = CompressedStateStore(inner, max_value_bytes=8 << 20)
    run_async(inner.put("ok", b"\xfe" + make_bomb(8 << 20)))
    run_async(inner.put("bomb", b"\xfe" + make_bomb(9 << 20)))
    assert run_async(store.get("ok")).value == bytes(8 << 20)
    with pytest.raises(IntegrityError, match=r"'bomb' claims 9,437,184 bytes.*8,388,608"):
        run_async(store.get("bomb"))


def test_the_default_limit_is_one_gigabyte(inner, store):
    # The size is checked before decompression, so the rest may be missing.
    frame = b"\x28\xb5\x2f\xfd\xe0" + ((1 << 30) + 1).to_bytes(8, "little") + bytes(100)
    run_async(inner.put("a", b"\xfe" + frame))
    with pytest.raises(IntegrityError, match="1,073,741,825 bytes"):
        run_async(store.get("a"))


def test_a_frame_without_its_size_is_rejected(inner, store):
    frame = zstandard.ZstdCompressor(write_content_size=False).compress(TEXT)
    run_async(inner.put("a", b"\xfe" + frame))
    with pytest.raises(IntegrityError, match="'a'.*does not state its size"):
        run_async(store.get("a"))


def test_a_frame_that_claims_less_than_it_contains_is_rejected(inner, store):
    frame = bytearray(zstandard.ZstdCompressor().compress(bytes(5000)))
    at = frame.index((5000 - 256).to_bytes(2, "little"))
    frame[at : at + 2] = (300 - 256).to_bytes(2, "little")
    run_async(inner.put("a", b"\xfe" + bytes(frame)))
    with pytest.raises(IntegrityError, match="'a' cannot be decompressed"):
        run_async(store.get("a"))


def test_a_frame_that_claims_to_be_empty_is_rejected(inner, store):
    run_async(inner.put("a", b"\xfe" + zstandard.ZstdCompressor().compress(b"")))
    with pytest.raises(IntegrityError, match="'a'.*claims to be empty"):
        run_async(store.get("a"))


def test_a_value_larger_than_the_limit_is_not_written(inner):
    store = CompressedStateStore(inner, max_value_bytes=100)
    run_async(store.put("a", bytes(100)))
    with pytest.raises(StateStoreError, match="'b' has 101 bytes.*max_value_bytes .100."):
        run_async(store.put_many([Put("a", b"new"), Put("b", bytes(101))]))
    assert run_async(store.get("a")).value == bytes(100)


def test_a_batch_stays_atomic(store):
    run_async(store.put("b", TEXT))
    with pytest.raises(ConflictError) as caught:
        run_async(store.put_many([Put("a", TEXT), Put("b", TEXT, if_absent=True)]))
    assert caught.value.key == "b"
    assert run_async(store.get("a")) is None


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"level": 0}, ValueError),
        ({"level": 23}, ValueError),
        ({"level": "3"}, TypeError),
        ({"level": True}, TypeError),
        ({"max_value_bytes": 0}, ValueError),
        ({"max_value_bytes": 1.5}, TypeError),
    ],
)
def test_invalid_settings_are_rejected(inner, options, error):
    with pytest.raises(error, match=next(iter(options))):
        CompressedStateStore(inner, **options)


def test_its_repr_names_the_inner_store(store):
    assert repr(store) == "<CompressedStateStore level 3 around <MemoryStateStore memory:>>"


# ---- threads -------------------------------------------------------------------------------------


class RecordedStore(ThreadRecorder, CompressedStateStore):
    """Records the threads that compress."""


@pytest.mark.parametrize(
    "make", [bytes, os.urandom], ids=["small when stored", "large when stored"]
)
@pytest.mark.parametrize(("size", "in_loop"), [(1000, True), (300_000, False)])
def test_large_values_are_compressed_outside_the_event_loop(inner, size, in_loop, make):
    watched = RecordedStore(inner)

    async def use():
        await watched.put("a", make(size))
        await watched.get("a")
        await watched.get_many(["a"])

    run_async(use())
    assert len(watched.threads) == 3
    assert {thread is threading.main_thread() for thread in watched.threads} == {in_loop}


def test_concurrent_large_values_round_trip(store):
    values = {f"k{number}": os.urandom(1000) * (300 + number) for number in range(16)}

    async def all_at_once():
        await asyncio.gather(*(store.put(key, value) for key, value in values.items()))
        found = await asyncio.gather(*(store.get(key) for key in values))
        return [entry.value for entry in found]

    assert run_async(all_at_once()) == list(values.values())
