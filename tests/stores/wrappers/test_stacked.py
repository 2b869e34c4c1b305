"""Stacked wrappers."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from itertools import permutations

import pytest

from holdfast import Entry, IntegrityError, Put
from holdfast.stores.files.store import FileStateStore
from holdfast.stores.memory import MemoryStateStore
from holdfast.stores.sqlite import SqliteStateStore
from holdfast.stores.wrappers.base import WrappedStateStore
from holdfast.stores.wrappers.compression import CompressedStateStore
from holdfast.stores.wrappers.encryption import EncryptedStateStore, EncryptionKeys
from holdfast.stores.wrappers.prefix import PrefixedStateStore
from holdfast.stores.wrappers.retry import RetryingStateStore
from holdfast.testing import StateStoreSuite
from holdfast.testing.state_store_suite import STRANGE_KEYS
from support.async_tests import run_async

KEYS = EncryptionKeys({"k1": b"1" * 32})
PREFIX = "p/"
VALUE = b"not in the stored bytes, " * 40

WRAPS = {
    "compressed": CompressedStateStore,
    "encrypted": lambda store: EncryptedStateStore(store, KEYS),
    "prefixed": lambda store: PrefixedStateStore(store, PREFIX),
    "retrying": RetryingStateStore,
}


def wrap_store(store, *names):
    """Return the store with wrappers around it, innermost first."""
    for name in names:
        store = WRAPS[name](store)
    return store


class Suite(StateStoreSuite):
    """The suite, with keys that fit with the prefix."""

    increments = 10

    keys = tuple(key for key in STRANGE_KEYS if len(key.encode()) <= 8192 - len(PREFIX))


class TestCompressedEncryptedPrefixedSqlite(Suite):
    @pytest.fixture
    def new_store(self, tmp_path):
        def open_store():
            store = SqliteStateStore(tmp_path / "state.db")
            return wrap_store(store, "prefixed", "encrypted", "compressed")

        return open_store


class TestPrefixedCompressedEncryptedRetryingFiles(Suite):
    many = 300

    @pytest.fixture
    def new_store(self, tmp_path):
        def open_store():
            store = FileStateStore(tmp_path / "state")
            return wrap_store(store, "retrying", "encrypted", "compressed", "prefixed")

        return open_store


class TestEncryptedCompressedMemory(StateStoreSuite):
    @pytest.fixture
    def new_store(self):
        return lambda: wrap_store(MemoryStateStore(), "compressed", "encrypted")


class TestPlainWrapper(StateStoreSuite):
    @pytest.fixture
    def new_store(self):
        return lambda: WrappedStateStore(MemoryStateStore())


@pytest.mark.parametrize("names", list(permutations(WRAPS)), ids="-".join)
def test_values_round_trip_through_wrappers_in_any_order(names):
    inner = MemoryStateStore()
    store = wrap_store(inner, *names)

    async def use():
        etag = await store.put("a", VALUE, if_absent=True)
        etags = await store.put_many([Put("a", VALUE * 400, if_match=etag), Put("b", b"")])
        assert await store.get("a") == Entry(VALUE * 400, etags[0])
        assert await store.get_many(list("abc")) == {
            "a": Entry(VALUE * 400, etags[0]),
            "b": Entry(b"", etags[1]),
        }
        assert [key async for key in store.list()] == ["a", "b"]
        return [(await inner.get(f"p/{key}")).value for key in "ab"]

    stored = run_async(use())
    assert not any(b"stored bytes" in value for value in stored)


def test_compression_works_outside_encryption_only():
    sizes = {}
    for order in (("encrypted", "compressed"), ("compressed", "encrypted")):
        inner = MemoryStateStore()
        run_async(wrap_store(inner, *order).put("a", VALUE))
        sizes[order[0]] = len(run_async(inner.get("a")).value)
    assert sizes["encrypted"] < 120 < len(VALUE) < sizes["compressed"]


def test_the_file_contains_no_plain_text(tmp_path):
    async def write():
        store = SqliteStateStore(tmp_path / "state.db")
        async with wrap_store(store, "encrypted", "prefixed") as outer:
            await outer.put("a", b"the plain text")

    run_async(write())
    everything = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"plain text" not in everything
    assert b"p/a" in everything


def test_a_value_changed_in_the_file_is_detected(tmp_path):
    path = tmp_path / "state.db"

    def open_store():
        return wrap_store(SqliteStateStore(path), "encrypted", "compressed")

    async def write():
        async with open_store() as store:
            await store.put("a", VALUE)

    async def read():
        async with open_store() as store:
            return await store.get("a")

    run_async(write())
    with closing(sqlite3.connect(path)) as database, database:
        (value,) = database.execute("SELECT value FROM entries").fetchone()
        database.execute("UPDATE entries SET value = ?", (value[:-1] + bytes([value[-1] ^ 1]),))
    with pytest.raises(IntegrityError, match="'a'"):
        run_async(read())


def test_a_stack_has_the_capabilities_of_the_inner_store():
    inner = MemoryStateStore()
    store = wrap_store(inner, *WRAPS)
    for ability in ("atomic_put_many", "durable", "shared", "writable"):
        assert getattr(store, ability) is getattr(inner, ability)
    assert repr(store) == (
        "<RetryingStateStore around <PrefixedStateStore 'p/' of <EncryptedStateStore "
        "EncryptionKeys(k1) around <CompressedStateStore level 3 around "
        "<MemoryStateStore memory:>>>>>"
    )
