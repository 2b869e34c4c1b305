"""Concurrent writers in one location lose nothing and rewrite nothing."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import ConflictError, StateStoreError
from holdfast.snapshots import (
    SnapshotArchive,
    SnapshotLocation,
)
from holdfast.snapshots import save as save_module
from support.async_tests import async_test
from support.observed_store import (
    HERE,
    InterruptedStore,
    ObservedStore,
    check_loads,
    list_ids,
    load,
    make_snapshot,
    make_state,
    save,
    save_many,
)


@async_test
async def test_many_archives_can_save_concurrently():
    store = ObservedStore()
    archives = [SnapshotArchive(store) for _ in range(4)]
    made = [make_snapshot(make_state(number)) for number in range(12)]
    await asyncio.gather(
        *(save(archives[number % 4], each) for number, each in enumerate(made)),
    )
    await check_loads(store, {each.snapshot_id: each for each in made})
    assert sorted(each.snapshot_id for each in made) == sorted(await list_ids(store))
    assert (await archives[0].verify(location=HERE)).ok


@async_test
async def test_a_save_succeeds_when_another_writer_commits_at_any_step():
    at = 0
    while True:
        at += 1
        inner = ObservedStore()
        first, second = make_snapshot(make_state(7)), make_snapshot(make_state(8))

        async def interrupt(inner=inner, first=first):
            await save(SnapshotArchive(inner), first)

        slow = InterruptedStore(inner, at, interrupt)
        await save(SnapshotArchive(slow), second)
        if slow.calls < at:
            return
        await check_loads(inner, {each.snapshot_id: each for each in (first, second)})
        assert (await SnapshotArchive(inner).verify(location=HERE)).ok


@async_test
async def test_save_gives_up_after_repeated_conflicts(monkeypatch):
    monkeypatch.setattr(save_module, "ATTEMPTS", 3)
    inner = ObservedStore()

    class Late(InterruptedStore):
        async def put_many(self, puts, **conditions):
            await save(SnapshotArchive(inner), make_snapshot(make_state(1, now=len(inner.written))))
            return await super().put_many(puts, **conditions)

    with pytest.raises(ConflictError, match="committed first 3 times"):
        await save(SnapshotArchive(Late(inner, 0, None)), make_snapshot(make_state(2)))
    assert len(await list_ids(inner)) == 3


@async_test
async def test_save_creates_the_session_again_after_a_deletion():
    store = ObservedStore()
    archive = SnapshotArchive(store)
    await save(archive, make_snapshot(make_state(3)))
    await SnapshotArchive(store).delete_session(session_id=HERE.session_id)
    made = [make_snapshot(make_state(3)), make_snapshot(make_state(5))]
    for each in made:
        await save(archive, each)
    await check_loads(store, {each.snapshot_id: each for each in made})
    assert (await archive.verify(location=HERE)).ok


@async_test
async def test_only_the_most_recent_log_heads_are_cached(monkeypatch):
    monkeypatch.setattr(save_module, "CACHED_HEADS", 2)
    store = ObservedStore()
    archive = SnapshotArchive(store)
    locations = [SnapshotLocation(f"s{number}", scope_id="a") for number in range(4)]
    for number in range(3):
        for location in locations:
            made = make_snapshot(make_state(number, place=location.session_id), location)
            await save(archive, made, location)
            assert len(archive._saver._heads) <= 2
            assert (await load(store, location=location)).digest == made.digest
    store.forget()
    await save(archive, make_snapshot(make_state(9), locations[3]), locations[3])
    assert store.keys_with("s3")
    assert not [key for key in store.read if "/log/" in key or "/keyframes/" in key]


@async_test
async def test_a_failed_write_clears_the_cached_head():
    inner = ObservedStore()
    archive = SnapshotArchive(inner)
    await save(archive, make_snapshot(make_state(1)))

    plain = inner.put_many

    async def failing(puts, **options):
        await plain(puts, **options)
        raise StateStoreError("no answer", unknown=True)

    inner.put_many = failing
    lost = make_snapshot(make_state(2))
    with pytest.raises(StateStoreError):
        await save(archive, lost)
    inner.put_many = plain
    await save(archive, lost)
    following = make_snapshot(make_state(3))
    await save(archive, following)
    await check_loads(inner, {each.snapshot_id: each for each in (lost, following)})


@async_test
async def test_concurrent_saves_under_one_id_are_a_conflict():
    """A conflict before any call of the slower writer rewrites nothing."""

    at = 0
    while True:
        at += 1
        inner = ObservedStore()
        await save_many(inner, 2)
        first, second = make_snapshot(make_state(7)), make_snapshot(make_state(8))

        late = []

        async def interrupt(inner=inner, first=first, late=late):
            try:
                await save(SnapshotArchive(inner), first, snapshot_id="mine")
            except ConflictError as error:
                late.append(error)

        slow = InterruptedStore(inner, at, interrupt)
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
