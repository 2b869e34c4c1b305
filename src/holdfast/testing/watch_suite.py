"""Watches: what wakes those who wait for writes."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.stores.entries import Put
from holdfast.testing.checks import NewStore, async_test

LONG = 10.0
"""Seconds within which a wake-up must come, and usually comes in milliseconds."""


class WatchSuite:
    """watch."""

    @async_test
    async def test_watch_wakes_for_writes_below_its_prefix(self, new_store: NewStore) -> None:
        async with new_store() as store:
            if not store.reports_writes and not store.wakes_other_processes:
                pytest.skip("the store does not report its writes")
            async with store.watch("a/") as watch:
                etag = await store.put("a/1", b"1")
                assert await watch.wait(LONG)
                await store.put_many([Put("a/2", b"2"), Put("b/2", b"2")])
                assert await watch.wait(LONG)
                assert await store.delete("a/1", if_match=etag)
                assert await watch.wait(LONG)
                keys = watch.take_keys()
                assert keys is None or keys >= {"a/1", "a/2"}
                assert keys is None or all(key.startswith("a/") for key in keys)

    @async_test
    async def test_watch_wakes_while_it_waits(self, new_store: NewStore) -> None:
        async with new_store() as store:
            if not store.reports_writes and not store.wakes_other_processes:
                pytest.skip("the store does not report its writes")
            async with store.watch("") as watch:
                waiting = asyncio.create_task(watch.wait(LONG))
                await asyncio.sleep(0)
                await store.put("a", b"1")
                assert await waiting

    @async_test
    async def test_wait_ends_when_the_time_has_passed(self, new_store: NewStore) -> None:
        async with new_store() as store:
            await store.put("a/1", b"1")
            async with store.watch("b/") as watch:
                while await watch.wait(0.05):
                    pass  # a late notification of a backend that reports more than the prefix
                assert watch.take_keys() in (frozenset(), None)

    @async_test
    async def test_watches_end_independently(self, new_store: NewStore) -> None:
        async with new_store() as store:
            if not store.reports_writes and not store.wakes_other_processes:
                pytest.skip("the store does not report its writes")
            async with store.watch("a/") as first:
                async with store.watch("a/") as second:
                    await store.put("a/1", b"1")
                    assert await first.wait(LONG)
                    assert await second.wait(LONG)
                await store.put("a/1", b"2")
                assert await first.wait(LONG)
