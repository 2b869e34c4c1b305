"""Verify reports valid entries that do not match the log."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast import IntegrityError
from holdfast.log.event_log import Position
from holdfast.log.keyframe import decode_keyframe, encode_keyframe
from holdfast.log.segment import decode_segment, encode_tombstone
from holdfast.snapshots import RetentionPolicy, SnapshotArchive, SnapshotManifest
from holdfast.snapshots import verify as verify_module
from holdfast.snapshots.records import decode_record
from support.async_tests import async_test
from support.observed_store import (
    HERE,
    NOW,
    ObservedStore,
    check_loads,
    keyframe_key,
    list_damage,
    make_session_store,
    make_state,
    prune,
    record_key,
    save_many,
    segment_key,
    verify,
)

pytestmark = pytest.mark.usefixtures("one_incarnation")


def forge_keyframe(store, seq, content):
    """Replace the state of a keyframe by another."""
    real = decode_keyframe(keyframe_key(seq), store.content[keyframe_key(seq)])
    return encode_keyframe(seq, real.hash, (), content.changes(make_state()))[0]


async def rewrite(store, key, **fields):
    """Replace fields of a record."""
    info = replace(decode_record(key, store.content[key], HERE), **fields)
    await store.put(key, info.encode(HERE))


async def read_problem(store, key):
    (found,) = [each.problem for each in (await verify(store)).damage if each.key == key]
    return found


@async_test
async def test_a_keyframe_with_a_wrong_state_is_reported(often):
    store, _ = await make_session_store()
    await store.put(keyframe_key(9), forge_keyframe(store, 9, make_state(3)))
    assert "its state is not the fold of the log" in await read_problem(store, keyframe_key(9))
    assert keyframe_key(5) not in await list_damage(store)


@async_test
async def test_a_keyframe_of_another_log_is_reported(often):
    store, _ = await make_session_store()
    other, _ = await make_session_store()
    await store.put(keyframe_key(5), other.content[keyframe_key(5)])
    assert "its hash does not match event 5 of the log" in await read_problem(
        store, keyframe_key(5)
    )


@async_test
async def test_a_keyframe_of_another_event_is_reported(often):
    store, _ = await make_session_store()
    await store.put(keyframe_key(13), store.content[keyframe_key(9)])
    assert "it belongs to event 9" in await read_problem(store, keyframe_key(13))


@async_test
async def test_a_keyframe_with_a_wrong_chain_is_reported(often):
    store, _ = await make_session_store()
    real = decode_keyframe(keyframe_key(13), store.content[keyframe_key(13)])
    data, _ = encode_keyframe(13, real.hash, (9,), real.changes)
    await store.put(keyframe_key(13), data)
    assert "it builds on keyframe 9, which is missing" in await read_problem(
        store, keyframe_key(13)
    )


@async_test
async def test_a_record_of_another_log_is_reported(often):
    store, snapshots = await make_session_store()
    key = record_key(snapshots, 6)
    await rewrite(store, key, hash="0" * 64)
    assert "its hash does not match event 8 of the log" in await read_problem(store, key)
    with pytest.raises(IntegrityError, match="does not match event 8"):
        await SnapshotArchive(store).load_snapshot(location=HERE, snapshot_id=list(snapshots)[6])


@async_test
async def test_a_tombstone_of_unpruned_events_is_reported(often):
    store, snapshots = await make_session_store()
    segment = decode_segment(segment_key(7), store.content[segment_key(7)])
    await store.put(segment_key(7), encode_tombstone(segment, NOW))
    assert "a tombstone, but its events were not pruned" in await read_problem(
        store, segment_key(7)
    )
    # Its record cannot be verified; the keyframes after it can.
    assert await list_damage(store) == {segment_key(7), record_key(snapshots, 5)}


@async_test
async def test_keyframes_after_a_damaged_segment_are_still_verified(often):
    store, snapshots = await make_session_store()
    await store.damage(segment_key(3), lambda data: data[:-9])
    # The record of the event in it cannot be verified.
    assert await list_damage(store) == {segment_key(3), record_key(snapshots, 1)}
    await store.put(keyframe_key(13), forge_keyframe(store, 13, make_state(2)))
    assert await list_damage(store) == {segment_key(3), record_key(snapshots, 1), keyframe_key(13)}


# ------------------------------------------------------------------------------ after a prune


async def make_pruned_session():
    """Twenty snapshots, pruned to the fourth and the last ten; the log starts at 12."""
    store = ObservedStore()
    snapshots = await save_many(store, 20, tags={3: {"pin": ""}})
    result = await prune(store, RetentionPolicy(last=10, protected=["pin"]))
    return store, {each: snapshots[each] for each in result.kept}


@async_test
async def test_a_pruned_session_has_no_damage(often):
    store, _ = await make_pruned_session()
    found = await verify(store)
    assert found.ok
    assert found.events == 9
    assert found.snapshots == 11


@async_test
async def test_a_missing_keyframe_at_the_log_start_is_reported(often):
    store, snapshots = await make_pruned_session()
    await store.delete(keyframe_key(12))
    assert "the log starts here, and the keyframe is missing" in await read_problem(
        store, keyframe_key(12)
    )
    # After the next keyframe, the state is known again.
    await check_loads(store, dict(list(snapshots.items())[-5:]))


@async_test
async def test_a_missing_keyframe_of_a_snapshot_before_the_log_start_is_reported(often):
    store, snapshots = await make_pruned_session()
    assert (await verify(store)).ok
    await store.delete(keyframe_key(5))
    key = record_key(snapshots, 0)
    assert "it has no keyframe, and events up to 12 were pruned" in await read_problem(store, key)


@async_test
async def test_a_wrong_record_before_the_log_start_is_reported(often):
    store, snapshots = await make_pruned_session()
    key = record_key(snapshots, 0)
    await rewrite(store, key, hash="0" * 64)
    assert "its hash does not match the keyframe at 5" in await read_problem(store, key)


@async_test
async def test_a_wrong_record_at_the_log_start_is_reported(often):
    store, snapshots = await make_pruned_session()
    key = record_key(snapshots, 1)
    assert decode_record(key, store.content[key], HERE).seq == 12
    await rewrite(store, key, hash="0" * 64)
    assert "its hash does not match the start of the log at 12" in await read_problem(store, key)


@async_test
async def test_a_wrong_log_start_is_reported(often):
    store, _ = await make_pruned_session()
    found = await SnapshotArchive(store).load_manifest(location=HERE)
    wrong = replace(found, log_start=Position(found.log_start.seq, "0" * 64))
    await store.put(HERE.manifest_key, wrong.encode())
    assert segment_key(13) in await list_damage(store)


@async_test
async def test_a_lost_manifest_of_a_pruned_session_is_reported(often):
    for change in (lambda data: None, lambda data: SnapshotManifest().encode(), lambda data: b""):
        store, _ = await make_pruned_session()
        await store.damage(HERE.manifest_key, change)
        assert not (await verify(store)).ok


@async_test
async def test_verify_session_works_without_an_archive(often):
    store, _ = await make_session_store()
    assert (await verify_module.verify_session(store, HERE)).ok
