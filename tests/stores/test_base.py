"""The interface as another package would implement it, with four methods."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import ConflictError, Entry, StateStore, StateStoreError
from holdfast.stores.validation import (
    prefix_successor,
    validate_key,
    validate_limit,
    validate_put,
    validate_range,
)
from holdfast.testing import StateStoreSuite


class MinimalStore(StateStore):
    """A store with only the abstract methods."""

    durable = False
    shared = False

    def __init__(self):
        self.entries = {}
        self.writes = 0
        self.closed = False

    def validate(self, *keys):
        if self.closed:
            raise StateStoreError("closed")
        for key in keys:
            validate_key(key)

    async def get(self, key):
        self.validate(key)
        return self.entries.get(key)

    async def put(self, key, value, *, if_match=None, if_absent=False):
        self.validate(key)
        validate_put(key, value, if_match, if_absent)
        self.check_etag(key, if_match)
        if if_absent and key in self.entries:
            raise ConflictError(f"{key!r} exists", key=key)
        self.writes += 1
        self.entries[key] = Entry(value, str(self.writes))
        return str(self.writes)

    async def delete(self, key, *, if_match=None):
        self.validate(key)
        self.check_etag(key, if_match)
        return self.entries.pop(key, None) is not None

    async def list(self, prefix="", *, start_after="", limit=None):
        self.validate()
        key_range = validate_range(prefix, start_after)
        for key in sorted(filter(key_range.contains, list(self.entries)))[: validate_limit(limit)]:
            yield key

    def check_etag(self, key, etag):
        found = self.entries.get(key)
        if etag is not None and (found is None or found.etag != etag):
            raise ConflictError(f"{key!r} has another etag", key=key)

    async def close(self):
        self.closed = True


class TestMinimalStore(StateStoreSuite):
    @pytest.fixture
    def new_store(self):
        return MinimalStore


def test_a_store_must_implement_four_methods():
    with pytest.raises(TypeError, match="abstract"):
        StateStore()


def test_a_store_without_a_close_method_is_a_context_manager():
    class NothingToClose(MinimalStore):
        close = StateStore.close

    async def use():
        async with NothingToClose() as store:
            await store.put("a", b"1")
        assert (await store.get("a")).value == b"1"

    asyncio.run(use())


def test_the_successor_of_a_prefix_follows_all_keys_with_it():
    assert prefix_successor("a") == "b"
    assert prefix_successor("a\U0010ffff") == "b"
    assert prefix_successor("a\ud7ff") == "a\ue000"
    assert prefix_successor("") is None
    assert prefix_successor("\U0010ffff") is None
