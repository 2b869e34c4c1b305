"""Prefixes: separate stores in one store."""

from __future__ import annotations

import pytest

from holdfast import ConflictError, Put
from holdfast.stores.memory import MemoryStateStore
from holdfast.stores.wrappers.prefix import PrefixedStateStore
from holdfast.testing import StateStoreSuite
from holdfast.testing.state_store_suite import STRANGE_KEYS
from stores.listing import list_keys
from support.async_tests import run_async

PREFIX = "team %_é/"
MAX_KEY = 8192 - len(PREFIX.encode())


class Suite(StateStoreSuite):
    """The suite, with keys that fit with the prefix."""

    increments = 10

    keys = (*(key for key in STRANGE_KEYS if len(key.encode()) <= MAX_KEY), "k" * MAX_KEY)


class TestOverMemory(Suite):
    @pytest.fixture
    def new_store(self):
        return lambda: PrefixedStateStore(MemoryStateStore(), PREFIX)


@pytest.fixture
def inner():
    return MemoryStateStore()


def test_keys_are_stored_with_the_prefix(inner):
    store = PrefixedStateStore(inner, "red/")
    etag = run_async(store.put("a", b"1"))
    assert run_async(inner.get("red/a")).etag == etag
    run_async(store.put_many([Put("b", b"2")]))
    assert run_async(list_keys(inner)) == ["red/a", "red/b"]
    assert run_async(store.delete("a"))
    assert run_async(list_keys(inner)) == ["red/b"]


def test_stores_with_different_prefixes_are_separate(inner):
    stores = [PrefixedStateStore(inner, prefix) for prefix in ("a", "ab", "a/", "b", "\U0010ffff")]
    for number, store in enumerate(stores):
        run_async(store.put("key", b"%d" % number))
    for number, store in enumerate(stores):
        assert run_async(store.get("key")).value == b"%d" % number
    assert run_async(list_keys(stores[2])) == ["key"]
    assert run_async(list_keys(stores[4])) == ["key"]


def test_the_prefix_itself_is_not_a_key_of_the_store(inner):
    run_async(inner.put("red/", b"not of the team"))
    store = PrefixedStateStore(inner, "red/")
    run_async(store.put_many([Put(key, b"1") for key in "abc"]))
    assert run_async(list_keys(store)) == ["a", "b", "c"]
    assert run_async(list_keys(store, limit=2)) == ["a", "b"]
    assert run_async(list_keys(store, "a", limit=1)) == ["a"]
    assert run_async(list_keys(store, start_after="a", limit=1)) == ["b"]


def test_a_conflict_names_the_key_without_the_prefix(inner):
    store = PrefixedStateStore(PrefixedStateStore(inner, "teams/"), "red/")
    etag = run_async(store.put("a", b"1"))
    for call in (
        lambda: store.put("a", b"2", if_absent=True),
        lambda: store.put("a", b"2", if_match="stale"),
        lambda: store.put_many([Put("z", b"2"), Put("a", b"2", if_absent=True)]),
        lambda: store.delete("a", if_match="stale"),
    ):
        with pytest.raises(ConflictError, match="key 'a'") as caught:
            run_async(call())
        assert caught.value.key == "a"
        assert "red/" not in str(caught.value)
    assert run_async(store.get("a")).etag == etag


class KeylessConflicts(MemoryStateStore):
    """A store whose conflicts have no key."""

    async def _put(self, put):
        raise ConflictError("another writer was first")


def test_a_conflict_without_a_key_is_unchanged():
    with pytest.raises(ConflictError, match="another writer was first") as caught:
        run_async(PrefixedStateStore(KeylessConflicts(), "red/").put("a", b"1", if_absent=True))
    assert caught.value.key is None


def test_a_key_too_long_with_its_prefix_is_rejected_with_the_limit(inner):
    store = PrefixedStateStore(inner, "é" * 100)
    run_async(store.put("k" * 7992, b"1"))
    with pytest.raises(ValueError, match="with prefix .* at most 7,992 bytes.* got 7,993"):
        run_async(store.put("k" * 7993, b"1"))
    with pytest.raises(ValueError, match="no room"):
        PrefixedStateStore(inner, "k" * 8192)


@pytest.mark.parametrize("prefix", ["", None, b"a", "\ud800", "k" * 8193])
def test_a_prefix_must_be_a_valid_key(inner, prefix):
    with pytest.raises((TypeError, ValueError)):
        PrefixedStateStore(inner, prefix)


def test_its_repr_names_prefix_and_store(inner):
    assert repr(PrefixedStateStore(inner, "red/")) == (
        "<PrefixedStateStore 'red/' of <MemoryStateStore memory:>>"
    )
