"""Batches that depend on keys they do not write."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.errors import ConflictError, StateStoreError
from holdfast.stores.base import StateStore
from holdfast.stores.entries import Condition, Put
from holdfast.testing.checks import NewStore, content, in_loop

ROUNDS = 8
WRITERS = 4


class ConditionsSuite:
    """``put_many`` with conditions, where the store says that it accepts them."""

    @in_loop
    async def test_conditions_are_refused_where_the_store_does_not_check_them(
        self, new_store: NewStore
    ) -> None:
        async with new_store() as store:
            if store.conditional_put_many:
                pytest.skip("the store checks conditions, and says so")
            etag = await store.put("fence", b"1")
            with pytest.raises(StateStoreError, match="conditions"):
                await store.put_many([Put("a", b"1")], conditions=[Condition("fence", etag)])
            assert await content(store) == {"fence": b"1"}

    @in_loop
    async def test_a_batch_is_written_where_its_conditions_hold(self, new_store: NewStore) -> None:
        async with new_store() as store:
            require_conditions(store)
            one, two = [await store.put(key, b"0") for key in ("one", "two")]
            conditions = [Condition("two", two), Condition("one", one)]
            await store.put_many([Put("a", b"1", if_absent=True)], conditions=conditions)
            etag = (await store.put_many([Put("a", b"2")], conditions=iter(conditions)))[0]
            await store.put_many([Put("a", b"3", if_match=etag)], conditions=conditions)
            await store.put_many([Put("z", b"1"), Put("b", b"1")], conditions=conditions)
            assert await store.put_many([], conditions=conditions) == []
            written = {"a": b"3", "b": b"1", "z": b"1"}
            assert await content(store) == {**written, "one": b"0", "two": b"0"}
            entries = await store.get_many(["one", "two"])
            assert [entry.etag for entry in entries.values()] == [one, two]

    @in_loop
    async def test_a_condition_that_does_not_hold_names_its_key_and_nothing_is_written(
        self, new_store: NewStore
    ) -> None:
        async with new_store() as store:
            require_conditions(store)
            held = await store.put("m-held", b"0")
            stale = await store.put("m-moved", b"0")
            await store.put("m-moved", b"1")
            gone = await store.put("m-gone", b"0")
            await store.delete("m-gone")
            before = await content(store)
            for condition in (
                Condition("m-moved", stale),
                Condition("m-gone", gone),
                Condition("m-never", "no-such-etag"),
                Condition("m-moved", held),  # the etag of another key
                *(Condition("m-held", wrong) for wrong in ("", "é", "\n", "\ud800")),
            ):
                for puts in (
                    [],
                    [Put("a", b"1")],
                    [Put("z", b"1", if_absent=True)],
                    [Put("m-moved/x", b"1"), Put("a", b"1")],
                    # The condition of a put fails as well; the condition of the batch comes first.
                    [Put("a", b"1", if_match="no-such-etag")],
                    [Put("z", b"1"), Put("a", b"1", if_match="no-such-etag")],
                ):
                    with pytest.raises(ConflictError) as caught:
                        await store.put_many(puts, conditions=[condition])
                    assert caught.value.key == condition.key
                    assert repr(condition.key) in str(caught.value)
                    assert await content(store) == before

    @in_loop
    async def test_a_put_that_fails_is_named_where_all_conditions_hold(
        self, new_store: NewStore
    ) -> None:
        async with new_store() as store:
            require_conditions(store)
            conditions = [Condition("fence", await store.put("fence", b"0"))]
            await store.put("held", b"0")
            for bad in (
                Put("held", b"9", if_absent=True),
                Put("held", b"9", if_match="no-such-etag"),
                Put("missing", b"9", if_match="no-such-etag"),
            ):
                for puts in ([bad], [Put("a", b"1"), bad, Put("z", b"1")]):
                    with pytest.raises(ConflictError) as caught:
                        await store.put_many(puts, conditions=conditions)
                    assert caught.value.key == bad.key
                    assert await content(store) == {"fence": b"0", "held": b"0"}

    @in_loop
    async def test_a_batch_concerns_each_key_once(self, new_store: NewStore) -> None:
        async with new_store() as store:
            require_conditions(store)
            etag = await store.put("fence", b"0")
            held = Condition("fence", etag)
            for puts, conditions in (
                ([Put("fence", b"1")], [held]),
                ([Put("a", b"1")], [held, held]),
            ):
                with pytest.raises(ValueError, match="twice"):
                    await store.put_many(puts, conditions=conditions)
            with pytest.raises(TypeError):
                await store.put_many([Put("a", b"1")], conditions=[("fence", etag)])  # type: ignore[list-item]
            assert await content(store) == {"fence": b"0"}

    @in_loop
    async def test_after_a_delete_has_returned_no_batch_on_its_key_is_acknowledged(
        self, new_store: NewStore
    ) -> None:
        async with new_store() as writing, new_store() as other:
            require_conditions(writing)
            deleting = other if writing.shared else writing
            for round_ in range(ROUNDS):
                fence = f"round/{round_}/m-fence"
                held = Condition(fence, await deleting.put(fence, b"0"))
                race = Race()
                writers = [
                    asyncio.create_task(write_while_held(writing, held, f"round/{round_}", n, race))
                    for n in range(WRITERS)
                ]
                await asyncio.wait_for(race.started.wait(), 60)
                assert await deleting.delete(fence)
                race.over = True
                await asyncio.gather(*writers)
                assert race.acknowledged
                assert race.late == 0
                assert race.conflicts == {fence}
                found = [key async for key in deleting.list(f"round/{round_}/")]
                assert found == sorted(race.acknowledged)

    @in_loop
    async def test_batches_that_need_what_others_write_do_not_lock_each_other_out(
        self, new_store: NewStore
    ) -> None:
        async with new_store() as store:
            require_conditions(store)
            keys = [f"circle/{number}" for number in range(4)]
            for _ in range(3):
                etags = await store.put_many([Put(key, b"0") for key in keys])
                answers = await asyncio.gather(
                    *(
                        store.put_many(
                            [Put(keys[(at + 1) % 4], b"1")], conditions=[Condition(key, etag)]
                        )
                        for at, (key, etag) in enumerate(zip(keys, etags, strict=True))
                    ),
                    return_exceptions=True,
                )
                # Each makes the condition of the next fail, so that all four cannot have been done.
                done = [answer for answer in answers if isinstance(answer, list)]
                assert 1 <= len(done) <= 3
                assert all(isinstance(answer, list | ConflictError) for answer in answers), answers


class Race:
    """What became of writers whose condition is about to fail."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.over = False
        self.late = 0
        self.acknowledged: list[str] = []
        self.conflicts: set[str | None] = set()


async def write_while_held(
    store: StateStore, held: Condition, place: str, writer: int, race: Race
) -> None:
    """Write batches of one and of two keys until the condition does not hold any more."""
    for number in range(10_000):
        started_late = race.over
        # On both sides of the condition's key, as a store may lock keys in their order.
        keys = [f"{place}/{side}-{writer}-{number:05}" for side in "az"][: 1 + number % 2]
        try:
            await store.put_many(
                [Put(key, b"1", if_absent=True) for key in keys], conditions=[held]
            )
        except ConflictError as conflict:
            race.conflicts.add(conflict.key)
            return
        race.late += started_late
        race.acknowledged += keys
        race.started.set()
        await asyncio.sleep(0)


def require_conditions(store: StateStore) -> None:
    """Skip the test where the store does not check conditions."""
    if not store.conditional_put_many:
        pytest.skip("the store does not check conditions, and says so")
