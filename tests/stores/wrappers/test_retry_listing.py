"""Retries of listings."""

from __future__ import annotations

import pytest

from holdfast import StateStoreError
from holdfast.stores.base import StateStore
from stores.wrappers.faulty_stores import add_retries, read_first_key, refused_error
from support.async_tests import run_async


class FailingListing(StateStore):
    """A store whose listings fail repeatedly."""

    def __init__(self, keys, after=3, attempts_lost=2):
        self.keys, self.after, self.attempts_lost = keys, after, attempts_lost
        self.asked = []
        self.failed = {}

    async def get(self, key):
        return None

    async def put(self, key, value, *, if_match=None, if_absent=False):
        return ""

    async def delete(self, key, *, if_match=None):
        return False

    async def list(self, prefix="", *, start_after="", limit=None):
        self.asked.append((start_after, limit))
        found = [key for key in self.keys if key.startswith(prefix) and key > start_after]
        for number, key in enumerate(found[:limit]):
            if number == self.after:
                raise refused_error()
            failures = self.failed.setdefault(key, 0)
            if failures < self.attempts_lost:
                self.failed[key] += 1
                raise refused_error()
            yield key


KEYS = [f"k/{number:02}" for number in range(20)]


@pytest.mark.parametrize("limit", [None, 0, 1, 4, 19, 20, 21])
def test_a_listing_resumes_after_the_last_key(limit):
    inner = FailingListing([*KEYS, "other"])
    store = add_retries(inner, attempts=4)

    async def list_keys():
        return [key async for key in store.list("k/", limit=limit)]

    assert run_async(list_keys()) == KEYS[:limit]
    if limit == 4:
        assert ("k/02", 1) in inner.asked
    if limit == 0:
        assert inner.asked == []


def test_a_listing_starts_after_the_given_key():
    async def list_keys():
        store = add_retries(FailingListing(KEYS), attempts=4)
        return [key async for key in store.list("k/", start_after="k/15")]

    assert run_async(list_keys()) == KEYS[16:]


def test_a_listing_without_progress_raises_the_error():
    inner = FailingListing(KEYS, attempts_lost=10**6)
    store = add_retries(inner, attempts=4)
    with pytest.raises(StateStoreError, match="busy"):
        run_async(read_first_key(store.list("k/")))
    assert len(inner.asked) == 4


def test_a_listing_can_be_abandoned():
    async def first(count):
        found = []
        async for key in add_retries(FailingListing(KEYS)).list():
            found.append(key)
            if len(found) == count:
                break
        return found

    assert run_async(first(2)) == KEYS[:2]
