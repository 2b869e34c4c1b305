"""Concurrent programs on one component, some of which are killed."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from servers.process import needs
from support.async_tests import async_test

needs("dapr")


from holdfast.errors import ConflictError, StateStoreError  # noqa: E402
from holdfast.stores.base import Entry, Put  # noqa: E402
from holdfast.stores.dapr import DaprStateStore, records  # noqa: E402
from holdfast.testing.state_store_suite import collect_keys, read_all  # noqa: E402
from servers.dapr_stand_in import DaprStandIn  # noqa: E402


@async_test
async def test_batches_of_concurrent_programs_are_atomic(open_store, component):
    # Money is moved between accounts: the sum must not change.
    stores = [open_store(component) for _ in range(3)]
    accounts = [f"account/{number}" for number in range(4)]
    await stores[0].put_many([Put(key, b"100") for key in accounts])

    async def move(store: DaprStateStore, number: int) -> None:
        for step in range(6):
            source, target = (
                accounts[(number + step) % 4],
                accounts[(number + 2 * step + 1) % 4],
            )
            while source != target:
                found = await store.get_many([source, target])
                values = {key: int(entry.value) for key, entry in found.items()}
                moved = {source: values[source] - 7, target: values[target] + 7}
                puts = [
                    Put(key, b"%d" % value, if_match=found[key].etag)
                    for key, value in moved.items()
                ]
                try:
                    await store.put_many(puts)
                    break
                except ConflictError:
                    await asyncio.sleep(0.001 * number)

    await asyncio.gather(*(move(store, n) for n, store in enumerate([*stores, *stores])))
    assert sum(int(value) for value in (await read_all(stores[0])).values()) == 400
    for store in stores:
        await store.close()


def test_a_batch_whose_owner_died_does_not_block_others(open_store, sidecar, monkeypatch):
    monkeypatch.setattr(records, "CLAIM_SECONDS", 0.1)

    async def work() -> None:
        async with open_store("redisstore", patience=0) as one, open_store("redisstore") as two:
            await one.put_many([Put("a", b"1"), Put("b", b"1")])
            # After two claims the first program loses its sidecar.
            sidecar.fault("SaveState", "lose_request", skip=2, times=1)
            with pytest.raises(StateStoreError, match="may or may not have been applied") as caught:
                await one.put_many([Put("a", b"2"), Put("b", b"2")])
            assert caught.value.unknown
            assert await read_all(two) == {"a": b"1", "b": b"1"}
            start = time.monotonic()
            await two.put("a", b"3")
            assert time.monotonic() - start < 5
            assert await read_all(one) == {"a": b"3", "b": b"1"}
            await one.put("b", b"4")
            assert await read_all(two) == {"a": b"3", "b": b"4"}

    asyncio.run(work())


@async_test
async def test_a_committed_batch_whose_claims_cannot_be_applied_is_visible(open_store, sidecar):
    async with open_store("redisstore") as one, open_store("redisstore") as two:
        await one.put_many([Put("a", b"1"), Put("b", b"1")])
        # The outcome is created but reported as refused; then no claim can be applied.
        text = "possible etag mismatch"
        sidecar.fault("SaveState", "do_and_say", skip=2, code="ABORTED", text=text)
        sidecar.fault("SaveState", "say", skip=3, times=20, code="INTERNAL", text="no")
        etags = await one.put_many([Put("a", b"2"), Put("b", b"2")])
        sidecar.forget_faults()
        assert await two.get_many(["a", "b"]) == {
            "a": Entry(b"2", etags[0]),
            "b": Entry(b"2", etags[1]),
        }
        await two.put("b", b"3", if_match=etags[1])
        assert await read_all(one) == {"a": b"2", "b": b"3"}


@async_test
async def test_a_committed_batch_is_visible_before_its_claims_are_applied(open_store, sidecar):
    async with open_store("redisstore", patience=0) as one, open_store("redisstore") as two:
        await one.put_many([Put("a", b"1"), Put("b", b"1")])
        # After two claims and the outcome the first program loses its sidecar.
        sidecar.fault("SaveState", "lose_request", skip=3, times=2)
        etags = await one.put_many([Put("a", b"2"), Put("b", b"2")])
        assert await read_all(two) == {"a": b"2", "b": b"2"}
        assert await two.get("b") == Entry(b"2", etags[1])
        await two.put("a", b"3", if_match=etags[0])
        assert await two.delete("b", if_match=etags[1])
        assert await read_all(one) == {"a": b"3"}


def test_a_deleted_key_leaves_nothing_in_the_end(open_store, sidecar, namespace, monkeypatch):
    async def work() -> None:
        async with open_store("redisstore") as store:
            await store.put_many([Put(key, b"1") for key in "abc"])
            for key in "abc":
                await store.delete(key)
            monkeypatch.setattr(records, "TOMBSTONE_SECONDS", 0.0)
            await store.put("d", b"1")

    asyncio.run(work())
    names = {
        name.removeprefix(f"{namespace}/")
        for name in sidecar.keys("redisstore")
        if name.startswith(f"{namespace}/")
    }
    assert names == {"index/first", "keys/d"}


def test_nothing_is_lost_when_the_sidecar_is_killed_and_restarted(
    tmp_path: Path, monkeypatch, component
):
    server = DaprStandIn(tmp_path)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    acknowledged: dict[str, tuple[bytes, str]] = {}
    unknown: set[str] = set()
    counted = {"done": 0, "unknown": 0}
    # Set one second after the restart, however long that takes.
    ended = asyncio.Event()

    async def create(store: DaprStateStore, task: int) -> None:
        for number in range(10_000):
            if ended.is_set():
                return
            key = f"made/{task}/{number:04}"
            try:
                # It has no other writer: a conflict would be one with itself.
                etag = await store.put(key, key.encode(), if_absent=True)
                etag = await store.put(key, b"twice", if_match=etag)
                acknowledged[key] = (b"twice", etag)
            except StateStoreError:
                unknown.add(key)

    async def count(store: DaprStateStore) -> None:
        while not ended.is_set():
            try:
                entry = await store.get("counter")
                if entry is None:
                    await store.put("counter", b"1", if_absent=True)
                else:
                    value = b"%d" % (int(entry.value) + 1)
                    await store.put("counter", value, if_match=entry.etag)
                counted["done"] += 1
            except ConflictError:
                await asyncio.sleep(0.01)
            except StateStoreError as error:
                counted["unknown"] += error.unknown

    async def strike() -> None:
        await asyncio.sleep(0.4)
        server.kill()
        await asyncio.to_thread(server.start)
        await asyncio.sleep(1)
        ended.set()

    async def work() -> None:
        store = DaprStateStore(None, store_name=component)
        other = DaprStateStore(None, store_name=component)
        async with store, other:
            await store.put("begin", b"1")
            await other.get("begin")
            await asyncio.gather(
                strike(),
                *(create(one, task) for task, one in enumerate([store, other])),
                *(count(one) for one in (store, other)),
            )
            found = await store.get("counter")
            assert found is not None
            number = int(found.value)
            assert counted["done"] <= number <= counted["done"] + counted["unknown"]
            assert counted["done"] > 3
            entries = await other.get_many(acknowledged)
            assert {key: (e.value, e.etag) for key, e in entries.items()} == acknowledged
            keys = set(await collect_keys(other.list("made/")))
            assert set(acknowledged) <= keys <= set(acknowledged) | unknown
            assert keys == set(await read_all(store)) - {"begin", "counter"}

    with server:
        asyncio.run(work())
