"""The hub that wakes the watches of a process."""

from __future__ import annotations

import asyncio
import gc
import os
import threading

import pytest

from holdfast import StateStoreError, open_state_store
from holdfast.errors import ConflictError
from holdfast.stores.memory import MemoryStateStore
from holdfast.stores.sqlite.store import SqliteStateStore
from holdfast.stores.watch import HUB, MAX_KEYS, StoreWatch, report_writes
from holdfast.stores.wrappers.prefix import PrefixedStateStore
from holdfast.stores.wrappers.read_only import ReadOnlyStateStore
from support.async_tests import async_test

LONG = 10.0


@async_test
async def test_store_objects_on_one_file_wake_each_other(tmp_path):
    first, second = (SqliteStateStore(tmp_path / "state.db") for _ in range(2))
    async with first, second, ReadOnlyStateStore(first).watch("a/") as watch:
        await second.put("a/1", b"1")
        assert await watch.wait(LONG)
        assert watch.take_keys() == {"a/1"}
        assert watch.take_keys() == frozenset()
        assert not await watch.wait(0.01)


@async_test
async def test_only_writes_below_the_prefix_wake():
    async with MemoryStateStore() as store, store.watch("a/") as watch:
        for key in ("a", "b", "ab/1", "A/1"):
            await store.put(key, b"1")
        assert not await watch.wait(0.01)
        await store.put("a/", b"1")
        assert await watch.wait(LONG)


@async_test
async def test_several_writes_wake_once():
    async with MemoryStateStore() as store, store.watch("") as watch:
        for number in range(10):
            await store.put(f"{number}", b"1")
        assert await watch.wait(LONG)
        assert not await watch.wait(0.01)
        assert watch.take_keys() == {f"{number}" for number in range(10)}


@async_test
async def test_too_many_keys_are_an_unknown_number():
    async with MemoryStateStore() as store, store.watch("") as watch:
        report_writes(f"{number}" for number in range(MAX_KEYS))
        assert len(watch.take_keys()) == MAX_KEYS
        report_writes(f"{number}" for number in range(MAX_KEYS + 1))
        assert watch.take_keys() is None
        assert watch.take_keys() == frozenset()
        watch.notify(None)
        watch.notify(["a"])
        assert watch.take_keys() is None
        assert await watch.wait(LONG)


@async_test
async def test_prefix_wrapper_maps_prefix_and_keys():
    async with MemoryStateStore() as inner:
        store = PrefixedStateStore(inner, "tenant/")
        async with store.watch("a/") as watch:
            await inner.put("a/1", b"1")
            assert not await watch.wait(0.01)
            await store.put("a/1", b"1")
            assert await watch.wait(LONG)
            assert watch.take_keys() == {"a/1"}
            watch.notify(["a/2"])
            assert await watch.wait(LONG)
            assert watch.take_keys() == {"a/2"}
            watch.notify(None)
            assert watch.take_keys() is None


@async_test
async def test_failed_writes_may_wake():
    async with MemoryStateStore() as store:
        await store.put("a", b"1")
        async with store.watch("") as watch:
            with pytest.raises(ConflictError):
                await store.put("a", b"1", if_absent=True)
            assert await watch.wait(LONG)


@async_test
async def test_closed_store_is_not_watched():
    store = open_state_store("memory:")
    await store.close()
    with pytest.raises(StateStoreError):
        store.watch("a")


@pytest.mark.parametrize(("prefix", "error"), [(5, TypeError), ("\ud800", ValueError)])
@async_test
async def test_invalid_prefix(prefix, error):
    for store in (MemoryStateStore(), PrefixedStateStore(MemoryStateStore(), "p/")):
        with pytest.raises((error, TypeError)):
            async with store.watch(prefix):
                pass


def test_hub_is_empty_after_watches_end():
    async def watch(store):
        async with store.watch("a/"), store.watch("a/"), store.watch("long/prefix/"):
            assert set(HUB.watches) >= {"a/", "long/prefix/"}
            raise ZeroDivisionError

    gc.collect()  # watches of other tests that were abandoned
    before = set(HUB.watches)
    with pytest.raises(ZeroDivisionError):
        asyncio.run(watch(MemoryStateStore()))
    assert set(HUB.watches) == before


def test_writes_of_threads_and_other_loops_wake():
    store = MemoryStateStore()
    ready, woken = threading.Barrier(4), []

    async def receive():
        async with store.watch("a/") as watch:
            await asyncio.to_thread(ready.wait)
            woken.append(await watch.wait(LONG))

    receivers = [threading.Thread(target=lambda: asyncio.run(receive())) for _ in range(3)]
    for each in receivers:
        each.start()
    ready.wait()
    asyncio.run(store.put("a/1", b"1"))
    for each in receivers:
        each.join()
    assert woken == [True] * 3


def test_watch_of_a_closed_loop_is_harmless():
    async def create():
        return StoreWatch()

    watch = asyncio.run(create())
    watch.notify(["a"])
    watch.notify(["b"])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@async_test
async def test_forked_child_has_no_watches():
    async with MemoryStateStore() as store, store.watch("a/") as watch:
        child = os.fork()
        if not child:
            os._exit(bool(HUB.watches))
        _, status = os.waitpid(child, 0)  # noqa: ASYNC222 - it exits at once
        assert os.waitstatus_to_exitcode(status) == 0
        await store.put("a/1", b"1")
        assert await watch.wait(LONG)
