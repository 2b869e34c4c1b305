"""Find a snapshot without knowing its session."""

from __future__ import annotations

import pytest

from holdfast import IntegrityError, Session
from holdfast.ids import new_id
from holdfast.snapshots import SnapshotArchive, SnapshotLocation
from holdfast.snapshots.discovery import iterate_locations
from holdfast.snapshots.lookup import find_snapshot_location
from support.async_tests import async_test
from support.observed_store import ObservedStore, make_snapshot, make_state, save


async def make_sessions(count, *, is_latest=False):
    """Save one snapshot in each of some sessions; return the store and the ids by location."""
    store = ObservedStore()
    archive = SnapshotArchive(store)
    found = {}
    for number in range(count):
        location = SnapshotLocation(f"ses_{number:04}", scope_id="bot")
        snapshot = make_snapshot(make_state(turn=number), location)
        found[location] = await save(archive, snapshot, location, is_latest=is_latest)
    return store, found


async def find(store, snapshot_id):
    """Return the location of a snapshot."""
    return await find_snapshot_location(store, snapshot_id, iterate_locations(store))


@pytest.mark.parametrize("is_latest", [False, True])
def test_a_snapshot_is_found_in_any_session(is_latest):
    @async_test
    async def work():
        store, ids = await make_sessions(100, is_latest=is_latest)
        for location in list(ids)[::33]:
            assert await find(store, ids[location]) == location
        assert await find(store, new_id()) is None

    work()


@async_test
async def test_a_snapshot_with_a_given_id_is_found():
    store, ids = await make_sessions(3)
    location = list(ids)[1]
    await save(SnapshotArchive(store), make_snapshot(), location, snapshot_id="mine")
    assert await find(store, "mine") == location


@async_test
async def test_a_damaged_record_is_an_error():
    store, ids = await make_sessions(3)
    location, snapshot_id = list(ids.items())[2]
    await store.damage(location.snapshot_key(snapshot_id), lambda _: b"{}")
    with pytest.raises(IntegrityError):
        await find(store, snapshot_id)


@pytest.mark.parametrize("is_latest", [False, True])
def test_an_unknown_id_costs_few_calls(is_latest):
    @async_test
    async def work():
        store, _ = await make_sessions(340, is_latest=is_latest)
        calls = []
        read = store._get_many

        async def count(keys):
            calls.append(len(keys))
            return await read(keys)

        store._get_many = count
        store.forget()
        assert await find(store, new_id()) is None
        assert len(calls) <= 5
        assert store.listings <= 8

    work()


async def count_calls_of_loads(count):
    """Count listings, keys listed and keys read by loading one snapshot by its id."""
    store = ObservedStore()
    session = await Session.open(store, agent_id="bot", session_id="ses")
    ids = []
    for number in range(count):
        session.set("number", number)
        ids.append((await session.save()).snapshot_id)
    archive = SnapshotArchive(store)
    store.forget()
    found = await archive.load_snapshot(location=session.location, snapshot_id=ids[-20])
    assert found.snapshot.get("state", "number") == count - 20
    return store.listings, store.listed, len(store.read)


@async_test
async def test_one_snapshot_costs_the_same_in_a_long_history(monkeypatch):
    monkeypatch.setattr("holdfast.log.timeline.MAX_SEGMENTS", 16)
    monkeypatch.setattr("holdfast.log.timeline.MAX_CHAIN", 1)
    assert await count_calls_of_loads(80) == await count_calls_of_loads(800)
