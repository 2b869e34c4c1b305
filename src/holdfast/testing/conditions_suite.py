"""Batches with conditions on keys that they do not write."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.errors import ConflictError, StateStoreError
from holdfast.stores.base import StateStore
from holdfast.stores.entries import Condition, Put
from holdfast.testing.checks import NewStore, async_test, read_all

ROUNDS = 8
WRITERS = 4


class ConditionsSuite:
    """``put_many`` with conditions, if the store supports them."""

    @async_test
    async def test_unsupported_conditions_are_refused(self, new_store: NewStore) -> None:
        async with new_store() as store:
            if store.conditional_put_many:
                pytest.skip("the store declares conditional batches")
            etag = await store.put("fence", b"1")
            with pytest.raises(StateStoreError, match="conditions"):
                await store.put_many([Put("a", b"1")], conditions=[Condition("fence", etag)])
            assert await read_all(store) == {"fence": b"1"}

    @async_test
    async def test_put_many_writes_if_conditions_hold(self, new_store: NewStore) -> None:
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
            assert await read_all(store) == {**written, "one": b"0", "two": b"0"}
            entries = await store.get_many(["one", "two"])
            assert [entry.etag for entry in entries.values()] == [one, two]

    @async_test
    async def test_failed_condition_names_its_key_and_writes_nothing(
        self, new_store: NewStore
    ) -> None:
        async with new_store() as store:
            require_conditions(store)
            held = await store.put("m-held", b"0")
            stale = await store.put("m-moved", b"0")
            await store.put("m-moved", b"1")
            gone = await store.put("m-gone", b"0")
            await store.delete("m-gone")
            before = await read_all(store)
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
                    # The put fails too; conditions of the batch are checked first.
                    [Put("a", b"1", if_match="no-such-etag")],
                    [Put("z", b"1"), Put("a", b"1", if_match="no-such-etag")],
                ):
                    with pytest.raises(ConflictError) as caught:
                        await store.put_many(puts, conditions=[condition])
                    assert caught.value.key == condition.key
                    assert repr(condition.key) in str(caught.value)
                    assert await read_all(store) == before

    @async_test
    async def test_failed_put_is_named_if_conditions_hold(self, new_store: NewStore) -> None:
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
                    assert await read_all(store) == {"fence": b"0", "held": b"0"}

    @async_test
    async def test_duplicate_keys_in_a_batch_are_refused(self, new_store: NewStore) -> None:
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
            assert await read_all(store) == {"fence": b"0"}

    @async_test
    async def test_no_batch_succeeds_after_its_condition_key_was_deleted(
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

    @async_test
    async def test_batches_that_depend_on_each_other_do_not_deadlock(
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
    """The results of writers whose condition is about to fail."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.over = False
        self.late = 0
        self.acknowledged: list[str] = []
        self.conflicts: set[str | None] = set()


async def write_while_held(
    store: StateStore, held: Condition, place: str, writer: int, race: Race
) -> None:
    """Write batches of one and two keys until the condition fails."""
    for number in range(10_000):
        started_late = race.over
        # Before and after the condition's key, because a store may lock keys in order.
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
    """Skip the test if the store does not support conditions."""
    if not store.conditional_put_many:
        pytest.skip("the store declares no conditional batches")
