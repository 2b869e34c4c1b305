"""What is whole and yet not true: a keyframe, a record or a beginning that is not the log's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast import IntegrityError
from holdfast.log.keyframe import decode_keyframe, encode_keyframe
from holdfast.log.segment import decode_segment, encode_tombstone
from holdfast.snapshots import RetentionPolicy, SnapshotArchive, SnapshotManifest
from holdfast.snapshots import verify as verify_module
from holdfast.snapshots.records import decode_record
from support.async_tests import async_test
from support.observed_store import (
    HERE,
    NOW,
    Watched,
    check_loads,
    damage_of,
    frame,
    log,
    prune,
    record,
    saved,
    state,
    verify,
    world,
)

pytestmark = pytest.mark.usefixtures("one_incarnation")


def forged(store, seq, content):
    """A keyframe that is whole, and has another state."""
    real = decode_keyframe(frame(seq), store.content[frame(seq)])
    return encode_keyframe(seq, real.hash, (), content.changes(state()))[0]


async def rewrite(store, key, **fields):
    """A record that is whole, and says something else."""
    info = replace(decode_record(key, store.content[key], HERE), **fields)
    await store.put(key, info.encode(HERE))


async def problem_of(store, key):
    (found,) = [each.problem for each in (await verify(store)).damage if each.key == key]
    return found


@async_test
async def test_a_keyframe_with_another_state_than_the_log_leads_to_is_listed(often):
    store, _ = await world()
    await store.put(frame(9), forged(store, 9, state(3)))
    assert "its state is not what the log leads to" in await problem_of(store, frame(9))
    assert frame(5) not in await damage_of(store)


@async_test
async def test_a_keyframe_of_another_log_is_listed(often):
    store, _ = await world()
    other, _ = await world()
    await store.put(frame(5), other.content[frame(5)])
    assert "it was made at another event 5" in await problem_of(store, frame(5))


@async_test
async def test_a_keyframe_of_another_event_is_listed(often):
    store, _ = await world()
    await store.put(frame(13), store.content[frame(9)])
    assert "it is that of the event 9" in await problem_of(store, frame(13))


@async_test
async def test_a_keyframe_that_says_another_way_to_what_it_builds_on_is_listed(often):
    store, _ = await world()
    real = decode_keyframe(frame(13), store.content[frame(13)])
    data, _ = encode_keyframe(13, real.hash, (9,), real.changes)
    await store.put(frame(13), data)
    assert "the keyframe 9 that it builds on is not there" in await problem_of(store, frame(13))


@async_test
async def test_a_record_of_another_log_is_listed(often):
    store, snapshots = await world()
    key = record(snapshots, 6)
    await rewrite(store, key, hash="0" * 64)
    assert "saved at another event 8 than the log has now" in await problem_of(store, key)
    with pytest.raises(IntegrityError, match="was saved at another event 8"):
        await SnapshotArchive(store).load_snapshot(location=HERE, snapshot_id=list(snapshots)[6])


@async_test
async def test_a_stub_where_nothing_was_pruned_is_listed(often):
    store, snapshots = await world()
    segment = decode_segment(log(7), store.content[log(7)])
    await store.put(log(7), encode_tombstone(segment, NOW))
    assert "a stub, but its events were not pruned" in await problem_of(store, log(7))
    # Its record cannot be checked; the keyframes behind it are whole.
    assert await damage_of(store) == {log(7), record(snapshots, 5)}


@async_test
async def test_behind_a_damaged_segment_the_next_keyframe_is_where_the_state_is_known_again(often):
    store, snapshots = await world()
    await store.damage(log(3), lambda data: data[:-9])
    # The record of the event in it cannot be checked.
    assert await damage_of(store) == {log(3), record(snapshots, 1)}
    await store.put(frame(13), forged(store, 13, state(2)))
    assert await damage_of(store) == {log(3), record(snapshots, 1), frame(13)}


# --------------------------------------------------------------------------- after pruning


async def pruned_world():
    """Twenty snapshots, of which the fourth and the last ten are kept; the log begins at 12."""
    store = Watched()
    snapshots = await saved(store, 20, tags={3: {"pin": ""}})
    result = await prune(store, RetentionPolicy(last=10, protected=["pin"]))
    return store, {each: snapshots[each] for each in result.kept}


@async_test
async def test_a_pruned_session_is_clean(often):
    store, _ = await pruned_world()
    found = await verify(store)
    assert found.ok
    assert found.events == 9
    assert found.snapshots == 11


@async_test
async def test_the_keyframe_where_the_log_begins_is_missed(often):
    store, snapshots = await pruned_world()
    await store.delete(frame(12))
    assert "there is no state for it" in await problem_of(store, frame(12))
    # What comes after the next keyframe is known again.
    await check_loads(store, dict(list(snapshots.items())[-5:]))


@async_test
async def test_the_keyframe_of_a_kept_snapshot_before_the_beginning_is_missed(often):
    store, snapshots = await pruned_world()
    assert (await verify(store)).ok
    await store.delete(frame(5))
    key = record(snapshots, 0)
    assert "no keyframe has its state, and the events to 12 are gone" in await problem_of(
        store, key
    )


@async_test
async def test_a_record_before_the_beginning_of_another_log_is_listed(often):
    store, snapshots = await pruned_world()
    key = record(snapshots, 0)
    await rewrite(store, key, hash="0" * 64)
    assert "another event 5 than its keyframe" in await problem_of(store, key)


@async_test
async def test_a_record_at_the_beginning_of_another_log_is_listed(often):
    store, snapshots = await pruned_world()
    key = record(snapshots, 1)
    assert decode_record(key, store.content[key], HERE).seq == 12
    await rewrite(store, key, hash="0" * 64)
    assert "another event 12 than the log had" in await problem_of(store, key)


@async_test
async def test_a_beginning_that_is_not_the_logs_is_listed(often):
    store, _ = await pruned_world()
    found = await SnapshotArchive(store).load_manifest(location=HERE)
    wrong = replace(found, log_start=replace(found.log_start, hash="0" * 64))
    await store.put(HERE.manifest_key, wrong.encode())
    assert log(13) in await damage_of(store)


@async_test
async def test_a_lost_manifest_of_a_pruned_session_is_noticed(often):
    for change in (lambda data: None, lambda data: SnapshotManifest().encode(), lambda data: b""):
        store, _ = await pruned_world()
        await store.damage(HERE.manifest_key, change)
        assert not (await verify(store)).ok


@async_test
async def test_it_can_be_asked_of_a_place_without_an_archive(often):
    store, _ = await world()
    assert (await verify_module.verify_session(store, HERE)).ok
