"""Several that save in one place: nothing is lost, and nothing rewritten."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import ConflictError, StateStoreError
from holdfast.snapshots import (
    SnapshotArchive,
    SnapshotLocation,
    archive,
)
from support.async_tests import async_test
from support.observed_store import (
    HERE,
    Interrupted,
    Watched,
    check_loads,
    ids_of,
    load,
    save,
    saved,
    session_snapshot,
    state,
)


@async_test
async def test_two_archives_in_one_place_take_turns():
    store = Watched()
    keepers = [SnapshotArchive(store), SnapshotArchive(store)]
    kept = {}
    for number in range(20):
        made = session_snapshot(state(number % 7, turn=number))
        kept[await save(keepers[number % 2], made)] = made
    await check_loads(store, kept)
    assert (await keepers[0].verify(location=HERE)).ok


@async_test
async def test_many_may_save_at_once():
    store = Watched()
    keepers = [SnapshotArchive(store) for _ in range(4)]
    made = [session_snapshot(state(number)) for number in range(12)]
    await asyncio.gather(
        *(save(keepers[number % 4], each) for number, each in enumerate(made)),
    )
    await check_loads(store, {each.snapshot_id: each for each in made})
    assert sorted(each.snapshot_id for each in made) == sorted(await ids_of(store))
    assert (await keepers[0].verify(location=HERE)).ok


@async_test
async def test_tasks_may_share_an_archive():
    store = Watched()
    keeper = SnapshotArchive(store)
    made = [session_snapshot(state(number)) for number in range(12)]
    await asyncio.gather(*(save(keeper, each) for each in made))
    await check_loads(store, {each.snapshot_id: each for each in made})


def test_whoever_is_overtaken_anywhere_saves_what_it_was_given():
    async def work():
        at = 0
        while True:
            at += 1
            inner = Watched()
            first, second = session_snapshot(state(7)), session_snapshot(state(8))

            async def meanwhile(inner=inner, first=first):
                await save(SnapshotArchive(inner), first)

            slow = Interrupted(inner, at, meanwhile)
            await save(SnapshotArchive(slow), second)
            if slow.calls < at:
                return
            await check_loads(inner, {each.snapshot_id: each for each in (first, second)})
            assert (await SnapshotArchive(inner).verify(location=HERE)).ok

    asyncio.run(work())


@async_test
async def test_who_is_always_second_gives_up_with_a_conflict(monkeypatch):
    monkeypatch.setattr(archive, "ATTEMPTS", 3)
    inner = Watched()

    class Late(Interrupted):
        async def put_many(self, puts, **conditions):
            await save(SnapshotArchive(inner), session_snapshot(state(1, now=len(inner.written))))
            return await super().put_many(puts, **conditions)

    with pytest.raises(ConflictError, match="other writers were first 3 times"):
        await save(SnapshotArchive(Late(inner, 0, None)), session_snapshot(state(2)))
    assert len(await ids_of(inner)) == 3


@async_test
async def test_a_place_that_somebody_else_deleted_is_begun_anew():
    store = Watched()
    keeper = SnapshotArchive(store)
    await save(keeper, session_snapshot(state(3)))
    await SnapshotArchive(store).delete_session(session_id=HERE.session_id)
    made = [session_snapshot(state(3)), session_snapshot(state(5))]
    for each in made:
        await save(keeper, each)
    await check_loads(store, {each.snapshot_id: each for each in made})
    assert (await keeper.verify(location=HERE)).ok


@async_test
async def test_the_ends_of_few_logs_are_remembered(monkeypatch):
    monkeypatch.setattr(archive, "REMEMBERED", 2)
    store = Watched()
    keeper = SnapshotArchive(store)
    places = [SnapshotLocation(f"s{number}", scope_id="a") for number in range(4)]
    for number in range(3):
        for place in places:
            made = session_snapshot(state(number, place=place.session_id), place)
            await save(keeper, made, place)
            assert len(keeper._heads) <= 2
            assert (await load(store, location=place)).digest == made.digest
    store.forget()
    await save(keeper, session_snapshot(state(9), places[3]), places[3])
    assert store.keys_with("s3")
    assert not [key for key in store.read if "/log/" in key or "/keyframes/" in key]


@async_test
async def test_a_write_that_failed_leaves_nothing_behind_in_memory():
    inner = Watched()
    keeper = SnapshotArchive(inner)
    await save(keeper, session_snapshot(state(1)))

    plain = inner.put_many

    async def failing(puts, **options):
        await plain(puts, **options)
        raise StateStoreError("no answer", unknown=True)

    inner.put_many = failing
    lost = session_snapshot(state(2))
    with pytest.raises(StateStoreError):
        await save(keeper, lost)
    inner.put_many = plain
    await save(keeper, lost)
    following = session_snapshot(state(3))
    await save(keeper, following)
    await check_loads(inner, {each.snapshot_id: each for each in (lost, following)})


def test_of_two_that_save_another_one_under_an_id_one_gets_a_conflict():
    """Whoever is overtaken, before any of its calls, rewrites nothing."""

    async def work():
        at = 0
        while True:
            at += 1
            inner = Watched()
            await saved(inner, 2)
            first, second = session_snapshot(state(7)), session_snapshot(state(8))

            late = []

            async def meanwhile(inner=inner, first=first, late=late):
                try:
                    await save(SnapshotArchive(inner), first, snapshot_id="mine")
                except ConflictError as error:
                    late.append(error)

            slow = Interrupted(inner, at, meanwhile)
            refused = None
            try:
                await save(SnapshotArchive(slow), second, snapshot_id="mine")
            except ConflictError as error:
                refused = error
            if slow.calls < at:
                return
            found = await load(inner, "mine")
            if late:
                assert found.digest == second.digest, f"rewritten after its call {at}"
                assert refused is None
                continue
            assert found.digest == first.digest, f"rewritten by one overtaken at its call {at}"
            assert refused is not None

    asyncio.run(work())
