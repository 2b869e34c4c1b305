"""How a session begins and is deleted, whatever is interrupted."""

from __future__ import annotations

import datetime as dt

import pytest

from faults import Crash, Fault, FaultyStateStore
from holdfast import IntegrityError, Session
from holdfast.log.timeline import Timeline
from holdfast.snapshots import (
    Catalog,
    RetentionPolicy,
    SnapshotArchive,
    SnapshotLocation,
    SnapshotManifest,
    founding,
    manifest,
)
from holdfast.snapshots.layout import deleted_key, index_key, session_place
from holdfast.stores.wrappers.read_only import ReadOnlyStateStore
from loops import done, in_loop
from watched import (
    HERE,
    NOW,
    Interrupted,
    Watched,
    check_loads,
    check_whole,
    last_of,
    prune,
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
    return [key for key in store.keys_with() if key.startswith(session_place(HERE.session_id))]


def of_index(store):
    return [key for key in store.keys_with("agents/") if f"_{HERE.session_id}/" in key]


# ------------------------------------------------------------------------------------ founding


def test_what_follows_the_first_segment_is_the_index_and_then_the_manifest():
    index, kept = founding.founding(HERE, START)
    assert index.key == index_key(HERE, founding.microseconds(START))
    assert index.value == b"{}"
    assert kept.key == HERE.manifest
    found = manifest.decoded(kept.key, kept.value)
    assert found == SnapshotManifest(started_at=START, updated_at=START)


def test_microseconds_are_counted_from_the_epoch():
    assert founding.microseconds(dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) == 0
    assert founding.microseconds(START) == int(START.timestamp()) * 1_000_000 + 123_456
    assert founding.moment_of(founding.microseconds(START)) == START


def test_what_somebody_put_into_the_manifest_before_stays_there():
    _, kept = founding.founding(HERE, START, extra={"owner": "us"})
    assert manifest.decoded(kept.key, kept.value).extra == {"owner": "us"}


@pytest.mark.parametrize("at", [2, 3, 4])
def test_a_founding_that_was_interrupted_is_finished_by_whoever_opens_next(at):
    @in_loop
    async def work():
        inner = Watched()
        first = session_snapshot(state(1))
        dying = FaultyStateStore(inner, atomic=False)
        dying.plan(Fault(at, "crash"))
        with pytest.raises(Crash):
            await save(SnapshotArchive(dying), first)
        assert len(inner.keys_with("/log/")) == 1
        found = await SnapshotArchive(inner).settle(HERE)
        entry = await Catalog(inner).latest_session("research-bot")
        assert entry.location == HERE
        assert found.started_at == entry.started_at
        assert await SnapshotArchive(inner).load_manifest(location=HERE) == found
        second = session_snapshot(state(2))
        for snapshot in (first, second):
            await save(SnapshotArchive(inner), snapshot)
        await check_loads(inner, {each.snapshot_id: each for each in (first, second)})
        assert len(inner.keys_with("agents/")) == 1
        assert (await SnapshotArchive(inner).verify(location=HERE)).ok

    work()


@in_loop
async def test_a_founding_that_failed_before_anything_leaves_nothing():
    inner = Watched()
    dying = FaultyStateStore(inner, atomic=False)
    dying.plan(Fault(1, "crash"))
    with pytest.raises(Crash):
        await save(SnapshotArchive(dying), session_snapshot())
    assert inner.content == {}
    assert await SnapshotArchive(inner).settle(HERE) == SnapshotManifest()
    assert inner.content == {}


@in_loop
async def test_whoever_may_only_read_finishes_nothing():
    inner = Watched()
    dying = FaultyStateStore(inner, atomic=False)
    dying.plan(Fault(2, "crash"))
    with pytest.raises(Crash):
        await save(SnapshotArchive(dying), session_snapshot())
    before = inner.content
    found = await SnapshotArchive(ReadOnlyStateStore(inner)).settle(HERE)
    assert found.started_at is not None
    assert inner.content == before
    await inner.put(deleted_key(HERE.session_id), b"{}")
    await SnapshotArchive(ReadOnlyStateStore(inner)).settle(HERE)
    assert inner.content == {**before, deleted_key(HERE.session_id): b"{}"}


@pytest.mark.parametrize("days", [0, 2])
@pytest.mark.parametrize("last", [1, 3])
def test_a_manifest_that_was_lost_takes_nothing_with_it(last, days):
    @in_loop
    async def work():
        store = Watched()
        snapshots = await saved(store, 6)
        for moment in (NOW, NOW + dt.timedelta(days=days)):
            await prune(store, RetentionPolicy(last=last), moment)
        before = await SnapshotArchive(store).load_manifest(location=HERE)
        await store.delete(HERE.manifest)
        found = await SnapshotArchive(store).settle(HERE)
        assert found.floor == before.floor
        assert found.started_at == before.started_at
        await check_whole(store, last_of(snapshots, last))
        assert len(of_index(store)) == 1

    work()


@in_loop
async def test_a_log_that_begins_nowhere_is_refused():
    store = Watched()
    await saved(store, 3)
    for key in [*store.keys_with("/log/")[:2], HERE.manifest]:
        await store.delete(key)
    with pytest.raises(IntegrityError, match="begins at event 4, and nothing says what was before"):
        await SnapshotArchive(store).settle(HERE)
    await SnapshotArchive(store).delete_session(session_id=HERE.session_id)
    assert store.content == {}


@in_loop
async def test_keyframes_of_a_session_that_never_began_go():
    store = Watched()
    other = SnapshotLocation("other", scope_id="research-bot")
    for location in (HERE, other):
        await store.put(f"{location.place}keyframes/000000000007.json.gz", b"of an import")
    read_only = SnapshotArchive(ReadOnlyStateStore(store))
    assert await read_only.settle(HERE) == SnapshotManifest()
    assert len(store.content) == 2
    assert await SnapshotArchive(store).settle(HERE) == SnapshotManifest()
    assert store.keys_with() == [f"{other.place}keyframes/000000000007.json.gz"]


@in_loop
async def test_what_is_founded_is_settled_without_a_write():
    store = Watched()
    await saved(store, 2)
    store.forget()
    found = await SnapshotArchive(store).settle(HERE)
    assert found.started_at is not None
    assert store.written == []


# ------------------------------------------------------------------------------------ deleting


@in_loop
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


@in_loop
async def test_a_session_of_many_entries_is_deleted_to_the_last(monkeypatch):
    monkeypatch.setattr(founding, "AT_ONCE", 4)
    store = Watched()
    await saved(store, 15)
    await SnapshotArchive(store).delete_session(session_id=HERE.session_id)
    assert store.content == {}


@in_loop
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


WRITES = done(writes_of_deletion())


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
            assert await SnapshotArchive(inner).settle(HERE) == SnapshotManifest()
            assert of_session(inner) == [], f"broken off at write {at}"
            assert of_index(inner) == [], f"broken off at write {at}"
            for location in NEIGHBOURS:
                loaded = await SnapshotArchive(inner).load_snapshot(location=location)
                assert loaded.location == location

    done(work())


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

    done(work())


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

    done(work())


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
            await session.commit()

        slow = Interrupted(inner, at, meanwhile)
        await SnapshotArchive(slow).delete_session(session_id=HERE.session_id)
        return [key async for key in inner.list("")], slow.calls

    async def work():
        _, calls = await left(0)
        # Before the last call, which takes the mark away, the deleter has looked once more.
        for at in range(3, calls - 2):
            assert (await left(at))[0] == [], at

    done(work())


def test_what_a_new_session_writes_meanwhile_is_not_deleted():
    """Who meets the mark finishes the deletion and begins anew; then the first deleter goes on."""

    async def overtaken(at):
        inner = Watched()
        await filled(inner, count=1)
        new = session_snapshot(state(4, new=True))

        async def meanwhile():
            await save(SnapshotArchive(inner), new)

        slow = Interrupted(inner, at, meanwhile)
        await SnapshotArchive(slow).delete_session(session_id=HERE.session_id)
        loaded = await SnapshotArchive(inner).load_snapshot(location=HERE)
        return (
            loaded is not None
            and loaded.digest == new.digest
            and len(of_index(inner)) == 1
            and (await SnapshotArchive(inner).verify(location=HERE)).ok
        )

    async def work():
        calls = await calls_of_deletion()
        # The first call looks whether there is anything, the second writes the mark.
        lost = [at for at in range(3, calls + 1) if not await overtaken(at)]
        assert lost == [], f"lost where the deleter was overtaken at these of its {calls} calls"

    done(work())


@pytest.mark.parametrize("key", [HERE.manifest, HERE.latest, f"{HERE.place}log/000000000001.json"])
def test_a_session_that_is_damaged_can_be_deleted(key):
    @in_loop
    async def work():
        store = Watched()
        await filled(store)
        await store.damage(key, lambda data: data[:-9])
        await SnapshotArchive(store).delete_session(session_id=HERE.session_id)
        assert of_session(store) == []
        assert of_index(store) == []

    work()


@in_loop
async def test_an_entry_of_the_index_is_found_where_the_manifest_is_gone_or_says_another_time():
    for change in (
        lambda data: None,
        lambda data: SnapshotManifest(started_at=START).encoded(),
        lambda data: SnapshotManifest().encoded(),
    ):
        store = Watched()
        await filled(store)
        await store.damage(HERE.manifest, change)
        await SnapshotArchive(store).delete_session(session_id=HERE.session_id)
        assert of_index(store) == []
        assert len(store.keys_with("agents/")) == len(NEIGHBOURS)


@in_loop
async def test_keys_of_somebody_else_inside_a_session_go_with_it():
    store = Watched()
    await filled(store)
    odd = f"{session_place(HERE.session_id)}scopes/agent/odd"
    for key in (odd, f"{session_place(HERE.session_id)}notes.txt"):
        await store.put(key, b"notes")
    await SnapshotArchive(store).delete_session(session_id=HERE.session_id)
    assert of_session(store) == []


@in_loop
async def test_an_id_that_is_none_is_refused():
    with pytest.raises(ValueError, match="session_id"):
        await SnapshotArchive(Watched()).delete_session(session_id="")


@in_loop
async def test_who_settles_does_not_undo_what_was_founded_meanwhile():
    # As while somebody copies a session: its keyframe and a snapshot first, then all the rest.
    source = Watched()
    await filled(source)
    pieces = {
        key: entry.value for key, entry in source._entries.items() if key.startswith(HERE.place)
    }
    known = await SnapshotArchive(source).load_manifest(location=HERE)
    timeline = Timeline(source, HERE.place)
    opened = await timeline.open()
    await timeline.write_keyframe(opened.store.snapshot())
    (seq,) = await timeline.keyframe_seqs()
    frame = await source.get(timeline.key(seq))
    target = Watched()
    await target.put(timeline.key(seq), frame.value)
    (first, *_) = [key for key in pieces if key.startswith(HERE.history)]
    await target.put(first, pieces[first])
    put_many = target.put_many

    async def after_the_copy(puts):
        target.put_many = put_many
        for key, value in pieces.items():
            await target.put(key, value)
        await put_many(puts)

    target.put_many = after_the_copy
    assert (await founding.settle(target, HERE)).floor == known.floor
    assert await SnapshotArchive(target).load_manifest(location=HERE) == known
