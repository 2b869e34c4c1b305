"""Concurrent use of a store, and its lifecycle."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.errors import ConflictError, HoldfastError, StateStoreError
from holdfast.stores.entries import Entry, Put
from holdfast.testing.checks import (
    NewStore,
    async_test,
    collect_keys,
    increment,
    read_all,
    write_and_read,
)
from holdfast.testing.state_machine import compare_with_memory


class ConcurrencySuite:
    """Concurrent writers, stores that share data, several event loops."""

    increments = 20
    """Increments per writer; there are 16 writers."""

    examples = 15
    """Number of random runs of the comparison with the memory store."""

    @async_test
    async def test_no_conditional_increment_is_lost(self, new_store: NewStore) -> None:
        async with new_store() as store:

            async def count(times: int) -> None:
                for _ in range(times):
                    await increment(store, "counter")

            await asyncio.gather(*(count(self.increments) for _ in range(16)))
            assert await read_all(store) == {"counter": b"%d" % (16 * self.increments)}

    @async_test
    async def test_only_one_concurrent_if_absent_succeeds(self, new_store: NewStore) -> None:
        async with new_store() as store:
            for round_ in range(5):
                answers = await asyncio.gather(
                    *(store.put(f"race/{round_}", b"%d" % n, if_absent=True) for n in range(16)),
                    return_exceptions=True,
                )
                won = [n for n, answer in enumerate(answers) if isinstance(answer, str)]
                assert len(won) == 1
                assert all(isinstance(a, str | ConflictError) for a in answers)
                found = await store.get(f"race/{round_}")
                assert found == Entry(b"%d" % won[0], str(answers[won[0]]))

    @async_test
    async def test_concurrent_writes_to_different_keys_all_succeed(
        self, new_store: NewStore
    ) -> None:
        async with new_store() as store:
            keys = [f"side by side/{number:03}" for number in range(100)]
            await asyncio.gather(*(store.put(key, key.encode(), if_absent=True) for key in keys))
            assert await read_all(store) == {key: key.encode() for key in keys}
            await asyncio.gather(*(store.delete(key) for key in keys))
            assert await read_all(store) == {}

    @async_test
    async def test_overlapping_batches_do_not_deadlock(self, new_store: NewStore) -> None:
        async with new_store() as store:
            keys = [f"overlap/{number}" for number in range(8)]

            async def write(turn: int) -> None:
                order = keys[turn:] + keys[:turn]
                await store.put_many([Put(key, b"%d" % turn) for key in order])

            await asyncio.gather(*(write(turn) for turn in range(8)))
            values = set((await read_all(store)).values())
            assert len(values) == 1 if store.atomic_put_many else values

    @async_test
    async def test_data_survives_reopening(self, new_store: NewStore) -> None:
        async with new_store() as store:
            if not store.durable:
                pytest.skip("the store is not durable")
            etag = await store.put("a", b"1")
            await store.put("b", b"2")
            await store.delete("b")
        async with new_store() as store:
            assert await store.get("a") == Entry(b"1", etag)
            await store.put("a", b"2", if_match=etag)
            assert await read_all(store) == {"a": b"2"}

    @async_test
    async def test_two_stores_share_their_data(self, new_store: NewStore) -> None:
        async with new_store() as one, new_store() as two:
            if not one.shared:
                pytest.skip("the store is not shared")
            etag = await one.put("a", b"1", if_absent=True)
            with pytest.raises(ConflictError):
                await two.put("a", b"2", if_absent=True)
            newer = await two.put("a", b"2", if_match=etag)
            with pytest.raises(ConflictError):
                await one.put("a", b"3", if_match=etag)
            assert await one.get("a") == Entry(b"2", newer)
            assert await two.delete("a", if_match=newer)
            assert await one.get("a") is None
            assert await collect_keys(one.list()) == []

    @async_test
    async def test_closed_store_refuses_every_call(self, new_store: NewStore) -> None:
        store = new_store()
        await store.put("a", b"1")
        await store.close()
        await store.close()
        for call in (
            lambda: store.get("a"),
            lambda: store.get_many(["a"]),
            lambda: store.put("a", b"2"),
            lambda: store.put_many([Put("a", b"2")]),
            lambda: store.delete("a"),
            lambda: collect_keys(store.list()),
        ):
            with pytest.raises(StateStoreError, match="closed"):
                await call()
        await new_store().close()  # never used

    def test_store_works_in_several_event_loops(self, new_store: NewStore) -> None:
        store = new_store()
        asyncio.run(write_and_read(store, b"1"))
        asyncio.run(write_and_read(store, b"2"))
        asyncio.run(store.close())

    @async_test
    async def test_capabilities_are_declared(self, new_store: NewStore) -> None:
        async with new_store() as store:
            for ability in (
                "atomic_put_many",
                "conditional_put_many",
                "atomic_get_many",
                "durable",
                "shared",
                "writable",
            ):
                assert isinstance(getattr(store, ability), bool)
            assert store.atomic_put_many or not store.conditional_put_many
            assert type(store).__name__ in repr(store)
            assert issubclass(StateStoreError, HoldfastError)

    def test_store_matches_the_memory_store(self, new_store: NewStore) -> None:
        compare_with_memory(new_store, examples=self.examples)
