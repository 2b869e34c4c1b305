"""Repair of the manifest and the index entry, and deletion of leftovers."""

from __future__ import annotations

import datetime as dt

import pytest

from holdfast import Catalog, RetentionPolicy, Session, SnapshotArchive, SnapshotLocation
from holdfast.snapshots.discovery import find_index_keys
from holdfast.snapshots.keys import index_key
from holdfast.snapshots.repair import repair_session
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test
from support.copied_sessions import HERE, read_all, save_messages
from support.faults import RAISED, Fault, FaultyStateStore


async def make_pruned_session(store):
    await save_messages(store)
    await SnapshotArchive(store).prune(location=HERE, policy=RetentionPolicy(last=2))


@pytest.mark.parametrize("world", [save_messages, make_pruned_session])
@async_test
async def test_a_lost_manifest_is_rebuilt_from_the_log(world):
    store = MemoryStateStore()
    await world(store)
    archive = SnapshotArchive(store)
    before = await archive.load_manifest(location=HERE)
    state = (await archive.load_snapshot(location=HERE)).snapshot
    await store.delete(HERE.manifest_key)
    assert not (await archive.verify(location=HERE)).ok
    result = await repair_session(store, HERE)
    assert HERE.manifest_key in result.written
    after = await archive.load_manifest(location=HERE)
    assert (after.incarnation, after.log_start) == (before.incarnation, before.log_start)
    assert (await archive.verify(location=HERE)).ok
    assert (await archive.load_snapshot(location=HERE)).snapshot.digest == state.digest
    session = await Session.open(store, agent_id="bot", session_id="ses", must_exist=True)
    session.add_message("user", "on")
    await session.commit()
    assert (await session.verify()).ok


@async_test
async def test_a_lost_index_entry_is_rewritten():
    store = MemoryStateStore()
    await save_messages(store)
    catalog = Catalog(store)
    (key,) = await find_index_keys(store, HERE)
    await store.delete(key)
    assert await catalog.latest_session("bot") is None
    (damage,) = (await SnapshotArchive(store).verify(location=HERE)).damage
    assert damage.key == key
    assert (await repair_session(store, HERE)).written == [key]
    assert (await catalog.latest_session("bot")).location == HERE
    assert (await SnapshotArchive(store).verify(location=HERE)).ok


@async_test
async def test_a_stale_index_entry_is_not_listed_and_is_deleted():
    store = MemoryStateStore()
    await save_messages(store)
    stale = index_key(HERE, dt.datetime(1970, 1, 1, tzinfo=dt.UTC))
    await store.put(stale, b"{}")
    assert len((await Catalog(store).sessions("bot")).sessions) == 1
    found = await SnapshotArchive(store).verify(location=HERE)
    assert found.ok
    assert found.leftovers == [stale]
    assert (await repair_session(store, HERE)).removed == [stale]


@async_test
async def test_leftovers_of_an_interrupted_creation_are_deleted():
    disk = MemoryStateStore()
    crashing = FaultyStateStore(disk, atomic=False)
    session = await Session.open(crashing, agent_id="bot", session_id="ses")
    crashing.plan(Fault(3, "crash", done=True))  # before the manifest names the session
    with pytest.raises(RAISED):
        await session.commit()
    assert len(await read_all(disk)) == 3
    assert await Catalog(disk).latest_session("bot") is None
    await save_messages(disk)
    found = await SnapshotArchive(disk).verify(location=HERE)
    assert found.ok
    assert len(found.leftovers) == 2
    result = await repair_session(disk, HERE)
    assert sorted(result.removed) == sorted(found.leftovers)
    assert (await SnapshotArchive(disk).verify(location=HERE)).leftovers == []


@async_test
async def test_no_manifest_is_made_for_a_session_that_was_never_created():
    store = MemoryStateStore()
    result = await repair_session(store, SnapshotLocation("none", "agent", "bot"))
    assert (result.written, result.removed) == ([], [])
