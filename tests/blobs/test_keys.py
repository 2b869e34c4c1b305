"""The keys of blobs: one folder per digest, one entry per chunk."""

from __future__ import annotations

import hashlib

import pytest

from holdfast.blobs.keys import (
    CHUNK_SIZE,
    chunk_key,
    chunk_keys,
    count_chunks,
    list_blobs,
    parse_chunk_key,
)
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test
from support.observed_store import HERE, collect

DIGEST = hashlib.sha256(b"x").hexdigest()


@pytest.mark.parametrize(
    ("size", "chunks"),
    [(0, 1), (1, 1), (CHUNK_SIZE, 1), (CHUNK_SIZE + 1, 2), (10 * CHUNK_SIZE, 10)],
)
def test_a_blob_has_a_key_per_chunk_and_at_least_one(size, chunks):
    assert count_chunks(size) == chunks
    keys = chunk_keys(HERE.prefix, DIGEST, size)
    assert keys == [f"{HERE.prefix}blobs/{DIGEST}/{number:06}" for number in range(chunks)]
    assert [parse_chunk_key(HERE.prefix, key) for key in keys] == [
        (DIGEST, number) for number in range(chunks)
    ]


@pytest.mark.parametrize(
    "rest",
    [
        "",
        "note",
        f"{DIGEST}",
        f"{DIGEST}/",
        f"{DIGEST}/1",
        f"{DIGEST}/0000001",
        f"{DIGEST}/00000x",
        f"{DIGEST.upper()}/000000",
        f"{DIGEST[1:]}/000000",
        f"{DIGEST}/000000.tmp",
    ],
)
def test_keys_of_another_form_are_not_chunks(rest):
    assert parse_chunk_key(HERE.prefix, f"{HERE.prefix}blobs/{rest}") is None


@async_test
async def test_blobs_are_listed_once_and_in_order_beside_other_entries():
    state_store = MemoryStateStore()
    digests = sorted(hashlib.sha256(bytes([n])).hexdigest() for n in range(5))
    for digest in reversed(digests):
        for number in (0, 1):
            await state_store.put(chunk_key(HERE.prefix, digest, number), b"x")
    await state_store.put(f"{HERE.prefix}blobs/note.txt", b"x")
    await state_store.put(chunk_key("sessions/other/", DIGEST, 0), b"x")
    assert await collect(list_blobs(state_store, HERE.prefix)) == digests
