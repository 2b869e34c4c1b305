"""Several who use a store at once, and a store from its first use to its end."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.errors import ConflictError, HoldfastError, StateStoreError
from holdfast.stores.entries import Entry, Put
from holdfast.testing.checks import NewStore, content, in_loop, increment, listed, use
from holdfast.testing.state_machine import compare_with_memory


class SharingSuite:
    """Writers that meet, stores that share a place, event loops that follow each other."""

    increments = 20
    """How often each of 16 writers adds one to the same number."""

    examples = 15
    """How many random runs the comparison with the store in memory makes."""

    @in_loop
    async def test_no_conditional_increment_is_lost(self, new_store: NewStore) -> None:
        async with new_store() as store:

            async def count(times: int) -> None:
                for _ in range(times):
                    await increment(store, "counter")

            await asyncio.gather(*(count(self.increments) for _ in range(16)))
            assert await content(store) == {"counter": b"%d" % (16 * self.increments)}

    @in_loop
    async def test_of_many_who_want_a_key_absent_one_wins(self, new_store: NewStore) -> None:
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

    @in_loop
    async def test_writes_to_different_keys_do_not_meet(self, new_store: NewStore) -> None:
        async with new_store() as store:
            keys = [f"side by side/{number:03}" for number in range(100)]
            await asyncio.gather(*(store.put(key, key.encode(), if_absent=True) for key in keys))
            assert await content(store) == {key: key.encode() for key in keys}
            await asyncio.gather(*(store.delete(key) for key in keys))
            assert await content(store) == {}

    @in_loop
    async def test_batches_that_overlap_do_not_lock_each_other_out(
        self, new_store: NewStore
    ) -> None:
        async with new_store() as store:
            keys = [f"overlap/{number}" for number in range(8)]

            async def write(turn: int) -> None:
                order = keys[turn:] + keys[:turn]
                await store.put_many([Put(key, b"%d" % turn) for key in order])

            await asyncio.gather(*(write(turn) for turn in range(8)))
            values = set((await content(store)).values())
            assert len(values) == 1 if store.atomic_put_many else values

    @in_loop
    async def test_what_was_written_is_there_when_opened_again(self, new_store: NewStore) -> None:
        async with new_store() as store:
            if not store.durable:
                pytest.skip("not durable, and says so")
            etag = await store.put("a", b"1")
            await store.put("b", b"2")
            await store.delete("b")
        async with new_store() as store:
            assert await store.get("a") == Entry(b"1", etag)
            await store.put("a", b"2", if_match=etag)
            assert await content(store) == {"a": b"2"}

    @in_loop
    async def test_two_stores_on_one_place_see_each_other(self, new_store: NewStore) -> None:
        async with new_store() as one, new_store() as two:
            if not one.shared:
                pytest.skip("not shared, and says so")
            etag = await one.put("a", b"1", if_absent=True)
            with pytest.raises(ConflictError):
                await two.put("a", b"2", if_absent=True)
            newer = await two.put("a", b"2", if_match=etag)
            with pytest.raises(ConflictError):
                await one.put("a", b"3", if_match=etag)
            assert await one.get("a") == Entry(b"2", newer)
            assert await two.delete("a", if_match=newer)
            assert await one.get("a") is None
            assert await listed(one.list()) == []

    @in_loop
    async def test_a_closed_store_refuses_everything(self, new_store: NewStore) -> None:
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
            lambda: listed(store.list()),
        ):
            with pytest.raises(StateStoreError, match="closed"):
                await call()
        await new_store().close()  # never used

    def test_one_store_serves_one_event_loop_after_another(self, new_store: NewStore) -> None:
        store = new_store()
        asyncio.run(use(store, b"1"))
        asyncio.run(use(store, b"2"))
        asyncio.run(store.close())

    @in_loop
    async def test_it_says_what_it_can_do(self, new_store: NewStore) -> None:
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

    def test_it_behaves_as_the_store_in_memory(self, new_store: NewStore) -> None:
        compare_with_memory(new_store, examples=self.examples)
