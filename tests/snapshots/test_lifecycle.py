"""How a session is deleted, whatever is interrupted."""

from __future__ import annotations

import datetime as dt
from contextlib import suppress

import pytest

from holdfast import ConflictError, Session
from holdfast.snapshots import (
    Catalog,
    SnapshotArchive,
    SnapshotLocation,
    SnapshotManifest,
    lifecycle,
)
from holdfast.snapshots.keys import deletion_mark_key, session_prefix
from support.async_tests import async_test, run_async
from support.faults import Crash, Fault, FaultyStateStore
from support.observed_store import (
    HERE,
    Interrupted,
    Watched,
    save,
    saved,
    session_snapshot,
    state,
)

START = dt.datetime(2026, 11, 15, 9, 30, 0, 123_456, dt.UTC)
NEIGHBOURS = [
    SnapshotLocation("ses_abc1234", scope_id="research-bot"),
    SnapshotLocation("ses_abc12", scope_id="research-bot"),
    SnapshotLocation("other", scope_id="research-bot"),
]
PARTS = [
    HERE,
    SnapshotLocation(HERE.session_id, "agent", "reviewer"),
    SnapshotLocation(HERE.session_id, "multi_agent", "team"),
]


async def filled(store, *, count=3):
    """A session of three parts, and its neighbours."""
    for location in PARTS:
        await saved(store, count, location)
    for location in NEIGHBOURS:
        await saved(store, 1, location)
    await save(SnapshotArchive(store), session_snapshot(state(9)), is_latest=True)


def of_session(store):
    return [key for key in store.keys_with() if key.startswith(session_prefix(HERE.session_id))]


def of_index(store):
    return [key for key in store.keys_with("agents/") if f"_{HERE.session_id}/" in key]


def test_microseconds_are_counted_from_the_epoch():
    assert lifecycle.to_microseconds(dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) == 0
    assert lifecycle.to_microseconds(START) == int(START.timestamp()) * 1_000_000 + 123_456
    assert lifecycle.from_microseconds(lifecycle.to_microseconds(START)) == START


# ------------------------------------------------------------------------------------ deleting


@async_test
async def test_deleting_leaves_nothing_of_a_session_and_all_of_the_others():
    store = Watched()
    await filled(store)
    expected = {
        key: value
        for key, value in store.content.items()
        if key not in of_session(store) + of_index(store)
    }
    await SnapshotArchive(store).delete_session(session_id=HERE.session_id)
    assert store.content == expected
    assert HERE.session_id not in await Catalog(store).session_ids()
    await SnapshotArchive(store).delete_session(session_id=HERE.session_id)
    assert store.content == expected


@async_test
async def test_a_session_of_many_entries_is_deleted_to_the_last(monkeypatch):
    monkeypatch.setattr(lifecycle, "AT_ONCE", 4)
    store = Watched()
    await saved(store, 15)
    await SnapshotArchive(store).delete_session(session_id=HERE.session_id)
    assert store.content == {}


@async_test
async def test_deleting_what_is_not_there_writes_nothing():
    store = Watched()
    await SnapshotArchive(store).delete_session(session_id="nobody")
    assert store.written == []


async def writes_of_deletion():
    inner = Watched()
    await filled(inner)
    counting = FaultyStateStore(inner)
    await SnapshotArchive(counting).delete_session(session_id=HERE.session_id)
    return counting.writes


WRITES = run_async(writes_of_deletion())


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
def test_a_deletion_that_was_interrupted_is_finished_by_whoever_opens_next(is_done):
    async def interrupted(at):
        inner = Watched()
        await filled(inner)
        dying = FaultyStateStore(inner)
        dying.plan(Fault(at, "crash", is_done))
        with pytest.raises(Crash):
            await SnapshotArchive(dying).delete_session(session_id=HERE.session_id)
        return inner

    async def work():
        assert WRITES > 20
        for at in range(1 if is_done else 2, WRITES + 1):
            inner = await interrupted(at)
            assert await SnapshotArchive(inner).recover(HERE) == SnapshotManifest()
            assert of_session(inner) == [], f"broken off at write {at}"
            assert of_index(inner) == [], f"broken off at write {at}"
            for location in NEIGHBOURS:
                loaded = await SnapshotArchive(inner).load_snapshot(location=location)
                assert loaded.location == location

    run_async(work())


def test_a_new_session_in_the_place_of_one_that_was_half_deleted_has_nothing_of_it():
    async def work():
        for at in range(2, WRITES + 1):
            inner = Watched()
            await filled(inner)
            dying = FaultyStateStore(inner)
            dying.plan(Fault(at, "crash"))
            with pytest.raises(Crash):
                await SnapshotArchive(dying).delete_session(session_id=HERE.session_id)
            new = session_snapshot(state(1, new=True))
            archive = SnapshotArchive(inner)
            await save(archive, new)
            assert await archive.list_snapshot_ids(location=HERE) == [new.snapshot_id]
            assert (await archive.load_snapshot(location=HERE)).digest == new.digest
            assert await Catalog(inner).locations(HERE.session_id) == [HERE]
            assert len(of_index(inner)) == 1

    run_async(work())


def test_what_is_half_deleted_is_not_listed_any_more():
    async def work():
        for at in range(2, WRITES + 1):
            inner = Watched()
            await filled(inner)
            dying = FaultyStateStore(inner)
            dying.plan(Fault(at, "crash"))
            with pytest.raises(Crash):
                await SnapshotArchive(dying).delete_session(session_id=HERE.session_id)
            # What an agent's list still has can be loaded.
            for entry in (await Catalog(inner).sessions("research-bot")).sessions:
                loaded = await SnapshotArchive(inner).load_snapshot(location=entry.location)
                assert loaded is not None

    run_async(work())


async def calls_of_deletion():
    inner = Watched()
    await filled(inner, count=1)
    counting = Interrupted(inner, 0, None)
    await SnapshotArchive(counting).delete_session(session_id=HERE.session_id)
    return counting.calls


def test_what_a_writer_adds_meanwhile_goes_with_the_session():
    async def left(at):
        inner = Watched()
        session = await Session.open(
            inner, agent_id=HERE.scope_id, session_id=HERE.session_id, scope=HERE.scope
        )
        await session.save()

        async def meanwhile():
            session.set("late", at)
            with suppress(ConflictError):  # the session is deleted
                await session.commit()

        slow = Interrupted(inner, at, meanwhile)
        await SnapshotArchive(slow).delete_session(session_id=HERE.session_id)
        return [key async for key in inner.list("")], slow.calls

    async def work():
        _, calls = await left(0)
        # Before the last call, which takes the mark away, the deleter has looked once more.
        for at in range(3, calls - 2):
            assert (await left(at))[0] == [], at

    run_async(work())


def test_what_a_new_session_writes_meanwhile_is_not_deleted():
    """Who meets the mark finishes the deletion and begins anew; then the first deleter goes on."""

    async def overtaken(at):
        inner = Watched()
        await filled(inner, count=1)
        new = session_snapshot(state(4, new=True))

        is_marked = False

        async def meanwhile():
            nonlocal is_marked
            is_marked = deletion_mark_key(HERE.session_id) in inner.content
            await save(SnapshotArchive(inner), new)

        slow = Interrupted(inner, at, meanwhile)
        await SnapshotArchive(slow).delete_session(session_id=HERE.session_id)
        if not is_marked:
            return of_session(inner) == []  # it was a part of the session that is deleted
        loaded = await SnapshotArchive(inner).load_snapshot(location=HERE)
        return (
            loaded is not None
            and loaded.digest == new.digest
            and len(of_index(inner)) == 1
            and (await SnapshotArchive(inner).verify(location=HERE)).ok
        )

    async def work():
        calls = await calls_of_deletion()
        lost = [at for at in range(1, calls + 1) if not await overtaken(at)]
        assert lost == [], f"lost where the deleter was overtaken at these of its {calls} calls"

    run_async(work())


@pytest.mark.parametrize(
    "key", [HERE.manifest_key, HERE.latest_key, f"{HERE.prefix}log/00000000/000000000001.json"]
)
@pytest.mark.usefixtures("one_incarnation")
def test_a_session_that_is_damaged_can_be_deleted(key):
    @async_test
    async def work():
        store = Watched()
        await filled(store)
        await store.damage(key, lambda data: data[:-9])
        await SnapshotArchive(store).delete_session(session_id=HERE.session_id)
        assert of_session(store) == []
        assert of_index(store) == []

    work()


@async_test
async def test_an_entry_of_the_index_is_found_where_the_manifest_is_gone_or_says_another_time():
    for change in (
        lambda data: None,
        lambda data: SnapshotManifest(started_at=START).encode(),
        lambda data: SnapshotManifest().encode(),
    ):
        store = Watched()
        await filled(store)
        await store.damage(HERE.manifest_key, change)
        await SnapshotArchive(store).delete_session(session_id=HERE.session_id)
        assert of_index(store) == []
        assert len(store.keys_with("agents/")) == len(NEIGHBOURS)


@async_test
async def test_keys_of_somebody_else_inside_a_session_go_with_it():
    store = Watched()
    await filled(store)
    odd = f"{session_prefix(HERE.session_id)}scopes/agent/odd"
    for key in (odd, f"{session_prefix(HERE.session_id)}notes.txt"):
        await store.put(key, b"notes")
    await SnapshotArchive(store).delete_session(session_id=HERE.session_id)
    assert of_session(store) == []


@async_test
async def test_an_id_that_is_none_is_refused():
    with pytest.raises(ValueError, match="session_id"):
        await SnapshotArchive(Watched()).delete_session(session_id="")
