"""Prune: what is kept, what is deleted, and tombstones."""

from __future__ import annotations

import datetime as dt

import pytest

from holdfast import ConflictError, NotFoundError
from holdfast.log import EventLog
from holdfast.log.event import draft_event
from holdfast.log.timeline import Timeline
from holdfast.snapshots import RetentionPolicy, SnapshotArchive
from support.async_tests import async_test
from support.observed_store import (
    HERE,
    NOW,
    ObservedStore,
    check_loads,
    check_whole,
    collect,
    make_snapshot,
    make_state,
    prune,
    save,
    save_many,
    take_last,
)

pytestmark = pytest.mark.usefixtures("one_incarnation")

HOUR = dt.timedelta(hours=1)


# ---------------------------------------------------------------------------- kept and deleted


@async_test
async def test_kept_snapshots_load_and_the_space_of_the_others_is_reclaimed(often):
    store = ObservedStore()
    snapshots = await save_many(store, 60)
    before = store.bytes
    kept = take_last(snapshots, 10)
    result = await prune(store)
    assert result.kept == list(kept)
    assert result.removed == [each for each in snapshots if each not in kept]
    assert result.events_removed == 52
    assert not result.dry_run
    await check_whole(store, kept)
    assert store.bytes < 0.75 * before
    for gone in result.removed:
        loaded = await SnapshotArchive(store).load_snapshot(location=HERE, snapshot_id=gone)
        assert loaded is None
    await prune(store, moment=NOW + dt.timedelta(days=2))
    assert store.bytes < 0.4 * before
    await check_whole(store, kept)


@async_test
async def test_the_stored_size_depends_only_on_what_is_kept(often):
    sizes = []
    for count in (40, 200):
        store = ObservedStore()
        for number in range(count):
            made = make_snapshot(make_state(5, plan="x" * 500, turn=number))
            await save(SnapshotArchive(store), made)
        await prune(store)
        await prune(store, moment=NOW + dt.timedelta(days=2))
        sizes.append(store.bytes)
    assert sizes[1] < 1.5 * sizes[0]


@async_test
async def test_a_session_continues_after_a_prune(often):
    store = ObservedStore()
    archive = SnapshotArchive(store)
    kept = take_last(await save_many(store, 20), 10)
    await prune(store)
    for number in range(20):
        made = make_snapshot(make_state(30 + number))
        kept[await save(archive, made)] = made
    await check_whole(store, kept)
    result = await prune(store, moment=NOW + dt.timedelta(days=2))
    assert result.events_removed == 20
    await check_whole(store, take_last(kept, 10))


@async_test
async def test_a_second_prune_changes_nothing(often):
    store = ObservedStore()
    snapshots = await save_many(store, 30)
    first = await prune(store)
    after = store.content
    store.forget()
    second = await prune(store)
    assert second.kept == first.kept
    assert second.removed == []
    assert second.events_removed == 0
    assert store.content == after
    assert store.written == []
    await check_whole(store, take_last(snapshots, 10))


@async_test
async def test_a_prune_that_keeps_all_changes_nothing():
    store = ObservedStore()
    snapshots = await save_many(store, 9)
    store.forget()
    result = await prune(store)
    assert result.kept == list(snapshots)
    assert (result.removed, result.events_removed) == ([], 0)
    assert store.written == []


@async_test
async def test_a_prune_with_nothing_to_do_reads_the_records_once(often):
    """However long the log is; also where an earlier prune deleted something."""
    for count in (9, 40):
        store = ObservedStore()
        await save_many(store, count)
        policy = RetentionPolicy(last=100)
        store.forget()
        await prune(store, policy)
        assert (store.listings, len(store.read)) == (2, count + 3)
    old = dt.datetime.now(dt.UTC) - dt.timedelta(days=9)
    await prune(store, moment=old)
    await prune(store)  # deletes the tombstones
    store.forget()
    await prune(store)
    assert (store.listings, len(store.read)) == (3, 10 + 3)
    assert store.written == []


@async_test
async def test_a_prune_of_a_missing_session_changes_nothing():
    store = ObservedStore()
    result = await prune(store)
    assert (result.kept, result.removed, result.events_removed) == ([], [], 0)
    assert store.content == {}


@async_test
async def test_dry_run_reports_the_result_and_writes_nothing(often):
    store = ObservedStore()
    snapshots = await save_many(store, 30)
    before = store.content
    store.forget()
    result = await prune(store, dry_run=True)
    assert result.dry_run
    assert store.written == []
    assert store.content == before
    did = await prune(store)
    assert (result.kept, result.removed, result.events_removed) == (
        did.kept,
        did.removed,
        did.events_removed,
    )
    await check_whole(store, take_last(snapshots, 10))


@async_test
async def test_dry_run_does_not_finish_an_interrupted_deletion():
    store = ObservedStore()
    await save_many(store, 3)
    await store.delete(HERE.manifest_key)
    store.forget()
    await prune(store, dry_run=True)
    assert store.written == []


@async_test
async def test_an_old_protected_snapshot_is_kept_with_the_last_ten(often):
    store = ObservedStore()
    tags = {3: {"reason": "incident"}, 17: {"reason": "incident"}, 18: {"other": "x"}}
    snapshots = await save_many(store, 60, tags=tags)
    ids = list(snapshots)
    expected = [ids[3], ids[17], *ids[-10:]]
    policy = RetentionPolicy(last=10, protected=["reason"])
    for now in (NOW, NOW, NOW + dt.timedelta(days=2), NOW + dt.timedelta(days=4)):
        result = await prune(store, policy, now)
        assert result.kept == expected
        await check_whole(store, {each: snapshots[each] for each in expected})
    assert len(store.keys_with("/log/")) == 9


@async_test
async def test_one_snapshot_per_hour_and_day_is_kept(often):
    store = ObservedStore()
    snapshots = await save_many(
        store, 60, since=NOW - 59 * dt.timedelta(minutes=20), every=dt.timedelta(minutes=20)
    )
    result = await prune(store, RetentionPolicy(hourly=5, daily=2))
    assert len(result.kept) == 6
    await check_whole(store, {each: snapshots[each] for each in result.kept})


@async_test
async def test_ages_are_measured_from_the_given_time(often):
    store = ObservedStore()
    snapshots = await save_many(store, 20, since=NOW - 19 * HOUR)
    policy = RetentionPolicy(max_age=5 * HOUR)
    assert len((await prune(store, policy)).kept) == 5
    assert len((await prune(store, policy, NOW + 3 * HOUR)).kept) == 2
    assert len((await prune(store, policy, NOW + 300 * HOUR)).kept) == 1
    await check_whole(store, take_last(snapshots, 1))


@pytest.mark.parametrize("latest_at", [0, 5, 29])
def test_the_latest_snapshot_loads_at_any_position(often, latest_at):
    @async_test
    async def work():
        store = ObservedStore()
        archive = SnapshotArchive(store)
        snapshots, latest = {}, None
        for number in range(30):
            made = make_snapshot(make_state(number + 1), created_at=NOW + number * HOUR)
            if number == latest_at:
                latest = make_snapshot(make_state(2, latest=True))
                await save(archive, latest, is_latest=True)
            snapshots[await save(archive, made)] = made
        for now in (NOW, NOW + dt.timedelta(days=2)):
            await prune(store, moment=now)
            await check_whole(store, take_last(snapshots, 10))
            await check_loads(store, {latest.snapshot_id: latest})
        # When the latest is replaced, what it needed is deleted.
        newer = make_snapshot(make_state(40))
        await save(archive, newer, is_latest=True)
        await prune(store, RetentionPolicy(last=1), NOW + dt.timedelta(days=2))
        await check_whole(store, take_last(snapshots, 1))
        await check_loads(store, {newer.snapshot_id: newer})

    work()


@async_test
async def test_snapshots_at_one_event_are_kept_or_deleted_individually(often):
    store = ObservedStore()
    archive = SnapshotArchive(store)
    made = [make_snapshot(make_state(3), created_at=NOW + at * HOUR) for at in range(6)]
    for each in made:
        await save(archive, each)
    assert len(store.keys_with("/log/")) == 1
    await prune(store, RetentionPolicy(last=2))
    await check_whole(store, {each.snapshot_id: each for each in made[-2:]})
    await prune(store, RetentionPolicy(last=2), NOW + dt.timedelta(days=2))
    await check_whole(store, {each.snapshot_id: each for each in made[-2:]})


@async_test
async def test_the_newest_snapshot_can_be_at_an_older_event_than_expired_ones(often):
    store = ObservedStore()
    archive = SnapshotArchive(store)
    snapshots = await save_many(store, 12, since=NOW - 100 * HOUR)
    old = await archive.load_snapshot(location=HERE, snapshot_id=list(snapshots)[4])
    again = make_snapshot(
        old.snapshot, position=old.position, keyframe=old.keyframe, created_at=NOW
    )
    await save(archive, again)
    for now in (NOW, NOW + dt.timedelta(days=2)):
        await prune(store, RetentionPolicy(last=1), now)
        await check_whole(store, {again.snapshot_id: again})
    following = make_snapshot(make_state(50), created_at=NOW + HOUR)
    await save(SnapshotArchive(store), following)
    await check_whole(store, {each.snapshot_id: each for each in (again, following)})


@async_test
async def test_other_sessions_are_not_touched(often):
    store = ObservedStore()
    other = HERE.__class__("ses_abc123", scope_id="research-bot2")
    await save_many(store, 20)
    theirs = await save_many(store, 20, other)
    before = {key: value for key, value in store.content.items() if other.prefix in key}
    await prune(store)
    assert {key: value for key, value in store.content.items() if other.prefix in key} == before
    await check_loads(store, theirs, other)


# ---------------------------------------------------------------------------------- tombstones


@async_test
async def test_tombstones_are_deleted_after_a_day(often):
    store = ObservedStore()
    snapshots = await save_many(store, 30)
    await prune(store)
    assert len(store.keys_with("/log/")) == 30
    tombstones = [key for key in store.keys_with("/log/") if b"pruned_at" in store.content[key]]
    assert tombstones == store.keys_with("/log/")[:21]
    for hours in (1, 23, 24):
        await prune(store, moment=NOW + hours * HOUR)
        assert len(store.keys_with("/log/")) == 30
    await prune(store, moment=NOW + 25 * HOUR)
    assert store.keys_with("/log/") == store.keys_with("/log/")[-9:]
    assert not any(b"pruned_at" in value for value in store.content.values())
    await check_whole(store, take_last(snapshots, 10))


@async_test
async def test_a_stale_writer_gets_a_conflict_from_a_tombstone(often):
    store = ObservedStore()
    await save_many(store, 5)
    stale = Timeline(store, HERE.prefix, "00000000")
    await stale.open()
    await save_many(store, 20)
    await prune(store)
    with pytest.raises(ConflictError):
        await stale.log.append([draft_event("late")])
    with pytest.raises(NotFoundError, match="were pruned"):
        await collect(EventLog(store, HERE.prefix, "00000000").read())


@pytest.mark.parametrize("are_tombstones_deleted", [False, True])
@pytest.mark.parametrize("state", [make_state(7, late=True), make_state(1)], ids=["new", "pruned"])
@async_test
async def test_a_stale_archive_saves_after_a_prune(often, state, are_tombstones_deleted):
    store = ObservedStore()
    stale = SnapshotArchive(store)
    await save(stale, make_snapshot(make_state(1), created_at=NOW - 1000 * HOUR))
    kept = take_last(await save_many(store, 20), 10)
    await prune(store)
    if are_tombstones_deleted:
        await prune(store, moment=NOW + dt.timedelta(days=2))
    late = make_snapshot(state)
    await save(stale, late)
    await check_whole(store, {**kept, late.snapshot_id: late})


@async_test
async def test_pruned_events_are_not_found_even_without_tombstones(often):
    store = ObservedStore()
    await save_many(store, 30, tags={4: {"pin": ""}})
    policy = RetentionPolicy(last=10, protected=["pin"])
    for now in (NOW, NOW + dt.timedelta(days=2)):
        await prune(store, policy, now)
        for seq in (1, 3, 8, 20):
            with pytest.raises(NotFoundError, match="pruned"):
                await Timeline(store, HERE.prefix, "00000000").load(seq)
