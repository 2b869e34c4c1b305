"""A prune that crashes, runs concurrently or finds damage loses no kept snapshot."""

from __future__ import annotations

import asyncio
import datetime as dt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import IntegrityError
from holdfast.log import EventLog, timeline
from holdfast.log.event import draft_event
from holdfast.log.event_log import Position
from holdfast.log.timeline import Timeline
from holdfast.snapshots import RetentionPolicy, SnapshotArchive
from holdfast.snapshots import prune as prune_module
from support.async_tests import async_test, run_async
from support.faults import Crash, Fault, FaultyStateStore
from support.observed_store import (
    HERE,
    NOW,
    InterruptedStore,
    ObservedStore,
    check_loads,
    check_whole,
    collect,
    make_snapshot,
    make_state,
    prune,
    save,
    save_many,
)

pytestmark = pytest.mark.usefixtures("one_incarnation")

PINNED = RetentionPolicy(last=5, protected=["pin"])


async def count_writes_of_prune():
    inner = ObservedStore()
    await save_many(inner, 18, tags={3: {"pin": ""}})
    counting = FaultyStateStore(inner)
    await prune(counting, PINNED)
    return counting.writes


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@async_test
async def test_a_prune_interrupted_anywhere_loses_no_kept_snapshot(often, is_done):
    writes = await count_writes_of_prune()
    assert writes > 20
    for at in range(1, writes + 1):
        inner = ObservedStore()
        snapshots = await save_many(inner, 18, tags={3: {"pin": ""}})
        ids = list(snapshots)
        kept = {each: snapshots[each] for each in (ids[3], *ids[-5:])}
        dying = FaultyStateStore(inner)
        dying.plan(Fault(at, "crash", is_done))
        with pytest.raises(Crash):
            await prune(dying, PINNED)
        await check_loads(inner, kept)
        listed = await SnapshotArchive(inner).list_snapshot_ids(location=HERE)
        await check_loads(inner, {each: snapshots[each] for each in listed})
        verification = await SnapshotArchive(inner).verify(location=HERE)
        assert verification.damage == [], f"interrupted at write {at}"
        new = make_snapshot(make_state(40), created_at=NOW)
        kept[await save(SnapshotArchive(inner), new)] = new
        for now in (NOW, NOW + dt.timedelta(days=2)):
            await prune(inner, RetentionPolicy(last=6, protected=["pin"]), now)
            await check_whole(inner, kept)


def prune_with_interruptions(interrupt):
    """Prune once for each call that it makes, with an interruption before that call."""

    async def work():
        at = 0
        while True:
            at += 1
            inner = ObservedStore()
            snapshots = await save_many(inner, 14)
            more = {}

            async def happens(inner=inner, more=more):
                more.update(await interrupt(inner))

            slow = InterruptedStore(inner, at, happens)
            result = await prune(slow, RetentionPolicy(last=5))
            if slow.calls < at:
                return
            kept = {each: snapshots[each] for each in result.kept if each in snapshots}
            assert len(kept) in (4, 5)
            assert (await SnapshotArchive(inner).verify(location=HERE)).damage == [], at
            await check_loads(inner, {**kept, **more})

    run_async(work())


def test_snapshots_saved_during_a_prune_are_kept(often):
    async def interrupt(inner):
        made = make_snapshot(make_state(20))
        return {await save(SnapshotArchive(inner), made): made}

    prune_with_interruptions(interrupt)


def test_two_prunes_can_run_concurrently(often):
    async def interrupt(inner):
        await prune(inner, RetentionPolicy(last=5))
        return {}

    prune_with_interruptions(interrupt)


def test_the_manifest_can_be_saved_during_a_prune(often):
    async def interrupt(inner):
        archive = SnapshotArchive(inner)
        found = await archive.load_manifest(location=HERE)
        found.extra["note"] = "mine"
        await archive.save_manifest(location=HERE, manifest=found)
        return {}

    prune_with_interruptions(interrupt)


@async_test
async def test_nothing_is_deleted_if_a_kept_snapshot_cannot_be_read(often):
    store = ObservedStore()
    snapshots = await save_many(store, 20)
    key = store.keys_with("/log/")[17]
    await store.damage(key, lambda data: data[:-5])
    before = [*store.keys_with("snapshot_"), *store.keys_with("/log/")]
    with pytest.raises(IntegrityError, match=key):
        await prune(store, RetentionPolicy(last=2))
    assert [*store.keys_with("snapshot_"), *store.keys_with("/log/")] == before
    await check_loads(store, dict(list(snapshots.items())[:15]))


@async_test
async def test_a_segment_across_the_cutoff_is_kept(often):
    store = ObservedStore()
    log = EventLog(store, HERE.prefix, "00000000")
    for _ in range(4):
        await log.append([draft_event("a", set_=[("state", "n", n)]) for n in range(3)])
    entry = await store.get(log.key(4))
    middle = Position(5, (await collect(log.read(5, 5)))[0].hash)
    await prune_module.replace_by_tombstones(
        store, Timeline(store, HERE.prefix, "00000000"), middle, NOW
    )
    assert (await store.get(log.key(4))) == entry
    assert b"pruned_at" in store.content[log.key(1)]


@async_test
async def test_a_needed_keyframe_that_is_missing_is_ignored(often):
    store = ObservedStore()
    snapshots = await save_many(store, 12)
    asked = Timeline(store, HERE.prefix, "00000000")
    cutoff = (await asked.load(9)).end
    await prune_module.delete_keyframes(store, asked, cutoff, {7, cutoff.seq})
    assert await asked.list_keyframe_seqs() == [5, 9, 13]
    await check_whole(store, snapshots)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("save"), st.integers(0, 6), st.sampled_from(["", "pin"])),
        st.tuples(st.just("latest"), st.integers(0, 6)),
        st.tuples(st.just("prune"), st.integers(0, 4), st.integers(0, 3)),
        st.tuples(st.just("delete"), st.integers(0, 9)),
    ),
    max_size=40,
)


@settings(max_examples=40)
@given(STEPS)
def test_kept_snapshots_load_after_any_saves_deletes_and_prunes(steps):
    async def work():
        store = ObservedStore()
        archives = [SnapshotArchive(store), SnapshotArchive(store)]
        kept, latest, now = {}, {}, NOW
        for number, (what, *how) in enumerate(steps):
            now += dt.timedelta(minutes=1)
            archive = archives[number % 2]
            if what == "save":
                made = make_snapshot(
                    make_state(how[0]), created_at=now, tags={how[1]: "x"} if how[1] else {}
                )
                kept[await save(archive, made)] = made
            elif what == "latest":
                made = make_snapshot(make_state(how[0], latest=True), created_at=now)
                await save(archive, made, is_latest=True)
                latest = {made.snapshot_id: made}
            elif what == "delete" and kept:
                gone = list(kept)[how[0] % len(kept)]
                del kept[gone]
                assert await archive.delete_snapshot(location=HERE, snapshot_id=gone)
            elif what == "prune":
                if how[1]:
                    # A writer that was idle for an hour reads the head of the log again.
                    now += how[1] * dt.timedelta(hours=10)
                    archives = [SnapshotArchive(store), SnapshotArchive(store)]
                policy = RetentionPolicy(last=how[0], protected=["pin"])
                result = await prune(store, policy, now)
                kept = {each: kept[each] for each in result.kept}
            await check_whole(store, kept)
            await check_loads(store, latest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timeline, "MAX_SEGMENTS", 3)
        patch.setattr(timeline, "MAX_CHAIN", 2)
        asyncio.run(work())
