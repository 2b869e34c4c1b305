"""Deleting a session, with interruptions at every step."""

from __future__ import annotations

import datetime as dt
from contextlib import suppress

import pytest

from holdfast import ConflictError, Session
from holdfast.adapters.shared_session import session_exists
from holdfast.snapshots import (
    Catalog,
    SnapshotArchive,
    SnapshotLocation,
    SnapshotManifest,
)
from holdfast.snapshots.delete import delete_locations
from holdfast.snapshots.keys import deletion_mark_key, parse_index_key, session_prefix
from holdfast.stores import batch_read
from support.async_tests import async_test, run_async
from support.faults import Crash, Fault, FaultyStateStore
from support.observed_store import (
    HERE,
    InterruptedStore,
    ObservedStore,
    make_snapshot,
    make_state,
    save,
    save_many,
)

START = dt.datetime(2026, 11, 15, 9, 30, 0, 123_456, dt.UTC)
NEIGHBOURS = [
    SnapshotLocation("ses_abc1234", scope_id="research-bot"),
    SnapshotLocation("ses_abc12", scope_id="research-bot"),
    SnapshotLocation("other", scope_id="research-bot"),
]
LOCATIONS = [
    HERE,
    SnapshotLocation(HERE.session_id, "agent", "reviewer"),
    SnapshotLocation(HERE.session_id, "multi_agent", "team"),
]


async def fill(store, *, count=3):
    """Store a session with three locations, and sessions with similar ids."""
    for location in LOCATIONS:
        await save_many(store, count, location)
    for location in NEIGHBOURS:
        await save_many(store, 1, location)
    await save(SnapshotArchive(store), make_snapshot(make_state(9)), is_latest=True)


def session_keys(store):
    return [key for key in store.keys_with() if key.startswith(session_prefix(HERE.session_id))]


def index_keys(store):
    return [key for key in store.keys_with("agents/") if f"_{HERE.session_id}/" in key]


def index_keys_of(store, location):
    return [
        key
        for key in store.keys_with("agents/")
        if (parsed := parse_index_key(key)) is not None and parsed[0] == location
    ]


@async_test
async def test_delete_session_deletes_all_of_it_and_nothing_else():
    store = ObservedStore()
    await fill(store)
    expected = {
        key: value
        for key, value in store.content.items()
        if key not in session_keys(store) + index_keys(store)
    }
    await SnapshotArchive(store).delete_session(session_id=HERE.session_id)
    assert store.content == expected
    assert HERE.session_id not in await Catalog(store).session_ids()
    await SnapshotArchive(store).delete_session(session_id=HERE.session_id)
    assert store.content == expected


@async_test
async def test_a_session_of_many_entries_is_deleted_completely(monkeypatch):
    monkeypatch.setattr(batch_read, "BATCH_SIZE", 4)
    store = ObservedStore()
    await save_many(store, 15)
    await SnapshotArchive(store).delete_session(session_id=HERE.session_id)
    assert store.content == {}


@async_test
async def test_deleting_a_missing_session_writes_nothing():
    store = ObservedStore()
    await SnapshotArchive(store).delete_session(session_id="missing")
    assert store.written == []


async def count_writes_of_deletion():
    inner = ObservedStore()
    await fill(inner)
    counting = FaultyStateStore(inner)
    await SnapshotArchive(counting).delete_session(session_id=HERE.session_id)
    return counting.writes


WRITES = run_async(count_writes_of_deletion())


async def interrupt_deletion(at, *, is_done=False):
    """Return a store in which a deletion crashed at a write."""
    inner = ObservedStore()
    await fill(inner)
    dying = FaultyStateStore(inner)
    dying.plan(Fault(at, "crash", is_done))
    with pytest.raises(Crash):
        await SnapshotArchive(dying).delete_session(session_id=HERE.session_id)
    return inner


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@async_test
async def test_opening_a_session_finishes_its_interrupted_deletion(is_done):
    assert WRITES > 20
    for at in range(1 if is_done else 2, WRITES + 1):
        inner = await interrupt_deletion(at, is_done=is_done)
        assert await SnapshotArchive(inner).recover(HERE) == SnapshotManifest()
        assert session_keys(inner) == [], f"interrupted at write {at}"
        assert index_keys(inner) == [], f"interrupted at write {at}"
        for location in NEIGHBOURS:
            loaded = await SnapshotArchive(inner).load_snapshot(location=location)
            assert loaded.location == location


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@async_test
async def test_one_agent_of_a_session_is_deleted_also_after_an_interruption(is_done):
    other = LOCATIONS[1]
    at = 0
    while True:
        at += 1
        inner = ObservedStore()
        await fill(inner)
        expected = {
            key: value
            for key, value in inner.content.items()
            if not key.startswith(HERE.prefix) and key not in index_keys_of(inner, HERE)
        }
        session = await Session.open(inner, agent_id=other.scope_id, session_id=other.session_id)
        dying = FaultyStateStore(inner)
        dying.plan(Fault(at, "crash", is_done))
        try:
            await delete_locations(dying, HERE.session_id, [HERE])
        except Crash:
            is_marked = at > 1 or is_done
            await session.refresh()  # another agent's session is not deleted
            assert session_exists(session)
            if is_marked and at % 2:
                await SnapshotArchive(inner).recover(other)
            else:
                await delete_locations(inner, HERE.session_id, [HERE])
            assert inner.content == expected, f"interrupted at write {at}"
        else:
            assert inner.content == expected
            break
    assert at > 8


@async_test
async def test_deletions_of_two_agents_at_the_same_time_delete_both():
    inner = ObservedStore()
    await fill(inner)
    dying = FaultyStateStore(inner)
    dying.plan(Fault(1, "crash", True))
    with pytest.raises(Crash):
        await delete_locations(dying, HERE.session_id, [LOCATIONS[1]])
    await delete_locations(inner, HERE.session_id, [HERE])
    assert await Catalog(inner).locations(HERE.session_id) == [LOCATIONS[2]]
    await delete_locations(inner, HERE.session_id, [HERE])
    dying.plan(Fault(1, "crash", True))
    with pytest.raises(Crash):
        await delete_locations(dying, HERE.session_id, [LOCATIONS[2]])
    await SnapshotArchive(inner).delete_session(session_id=HERE.session_id)
    assert session_keys(inner) == []


@async_test
async def test_a_session_created_after_an_interrupted_deletion_is_empty():
    for at in range(2, WRITES + 1):
        inner = await interrupt_deletion(at)
        new = make_snapshot(make_state(1, new=True))
        archive = SnapshotArchive(inner)
        await save(archive, new)
        assert await archive.list_snapshot_ids(location=HERE) == [new.snapshot_id]
        assert (await archive.load_snapshot(location=HERE)).digest == new.digest
        assert await Catalog(inner).locations(HERE.session_id) == [HERE]
        assert len(index_keys(inner)) == 1


@async_test
async def test_a_partly_deleted_session_is_not_listed():
    for at in range(2, WRITES + 1):
        inner = await interrupt_deletion(at)
        # Sessions that are still listed load.
        for entry in (await Catalog(inner).sessions("research-bot")).sessions:
            loaded = await SnapshotArchive(inner).load_snapshot(location=entry.location)
            assert loaded is not None


async def count_calls_of_deletion():
    inner = ObservedStore()
    await fill(inner, count=1)
    counting = InterruptedStore(inner, 0, None)
    await SnapshotArchive(counting).delete_session(session_id=HERE.session_id)
    return counting.calls


def test_a_commit_during_a_deletion_is_deleted_too():
    async def left(at):
        inner = ObservedStore()
        session = await Session.open(
            inner, agent_id=HERE.scope_id, session_id=HERE.session_id, scope=HERE.scope
        )
        await session.save()

        async def interrupt():
            session.set("late", at)
            with suppress(ConflictError):  # the session is deleted
                await session.commit()

        slow = InterruptedStore(inner, at, interrupt)
        await SnapshotArchive(slow).delete_session(session_id=HERE.session_id)
        return [key async for key in inner.list("")], slow.calls

    async def work():
        _, calls = await left(0)
        # Before the last call, which deletes the mark, the deletion lists once more.
        for at in range(3, calls - 2):
            assert (await left(at))[0] == [], at

    run_async(work())


def test_a_session_created_during_a_deletion_is_not_deleted():
    """The new session finishes the deletion; then the first deletion continues."""

    async def overtaken(at):
        inner = ObservedStore()
        await fill(inner, count=1)
        new = make_snapshot(make_state(4, new=True))

        is_marked = False

        async def interrupt():
            nonlocal is_marked
            is_marked = deletion_mark_key(HERE.session_id) in inner.content
            await save(SnapshotArchive(inner), new)

        slow = InterruptedStore(inner, at, interrupt)
        await SnapshotArchive(slow).delete_session(session_id=HERE.session_id)
        if not is_marked:
            return session_keys(inner) == []  # it belonged to the deleted session
        loaded = await SnapshotArchive(inner).load_snapshot(location=HERE)
        return (
            loaded is not None
            and loaded.digest == new.digest
            and len(index_keys(inner)) == 1
            and (await SnapshotArchive(inner).verify(location=HERE)).ok
        )

    async def work():
        calls = await count_calls_of_deletion()
        lost = [at for at in range(1, calls + 1) if not await overtaken(at)]
        assert lost == [], f"lost where the deleter was overtaken at these of its {calls} calls"

    run_async(work())


@pytest.mark.parametrize(
    "key", [HERE.manifest_key, HERE.latest_key, f"{HERE.prefix}log/00000000/000000000001.json"]
)
@pytest.mark.usefixtures("one_incarnation")
def test_a_damaged_session_can_be_deleted(key):
    @async_test
    async def work():
        store = ObservedStore()
        await fill(store)
        await store.damage(key, lambda data: data[:-9])
        await SnapshotArchive(store).delete_session(session_id=HERE.session_id)
        assert session_keys(store) == []
        assert index_keys(store) == []

    work()


@async_test
async def test_the_index_entry_is_deleted_even_if_the_manifest_does_not_name_it():
    for change in (
        lambda data: None,
        lambda data: SnapshotManifest(started_at=START).encode(),
        lambda data: SnapshotManifest().encode(),
    ):
        store = ObservedStore()
        await fill(store)
        await store.damage(HERE.manifest_key, change)
        await SnapshotArchive(store).delete_session(session_id=HERE.session_id)
        assert index_keys(store) == []
        assert len(store.keys_with("agents/")) == len(NEIGHBOURS)


@async_test
async def test_unknown_keys_inside_a_session_are_deleted_with_it():
    store = ObservedStore()
    await fill(store)
    odd = f"{session_prefix(HERE.session_id)}scopes/agent/odd"
    for key in (odd, f"{session_prefix(HERE.session_id)}notes.txt"):
        await store.put(key, b"notes")
    await SnapshotArchive(store).delete_session(session_id=HERE.session_id)
    assert session_keys(store) == []


@async_test
async def test_invalid_id_is_rejected():
    with pytest.raises(ValueError, match="session_id"):
        await SnapshotArchive(ObservedStore()).delete_session(session_id="")
