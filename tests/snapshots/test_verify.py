"""Verify reports all damage with its key."""

from __future__ import annotations

import os

import pytest

from holdfast import HoldfastError, IntegrityError, Put
from holdfast.snapshots import RetentionPolicy, SnapshotArchive, Verification
from holdfast.stores.wrappers.encryption import EncryptedStateStore, EncryptionKeys
from support.async_tests import async_test
from support.observed_store import (
    HERE,
    ObservedStore,
    check_loads,
    flip_bit,
    keyframe_key,
    list_damage,
    make_session_store,
    prune,
    record_key,
    save_many,
    segment_key,
    take_last,
    verify,
)

pytestmark = pytest.mark.usefixtures("one_incarnation")


async def check_loads_except(store, snapshots, keys, unloadable):
    """Check that intact snapshots load, and the errors of others name a key."""
    for at, (snapshot_id, snapshot) in enumerate(snapshots.items()):
        if at in unloadable:
            with pytest.raises(IntegrityError) as caught:
                await SnapshotArchive(store).load_snapshot(location=HERE, snapshot_id=snapshot_id)
            assert any(key in str(caught.value) for key in keys)
        else:
            await check_loads(store, {snapshot_id: snapshot})


# ------------------------------------------------------------------------------------- intact


@async_test
async def test_an_intact_session_has_no_damage(often):
    store, snapshots = await make_session_store()
    before = store.content
    store.forget()
    found = await verify(store)
    assert found == Verification(events=13, segments=12, keyframes=3, snapshots=13, damage=[])
    assert found.ok
    assert store.written == []
    assert store.content == before
    await check_loads(store, snapshots)


@async_test
async def test_a_missing_session_has_no_damage():
    found = await verify(ObservedStore())
    assert found.ok
    assert found == Verification()


@async_test
async def test_all_of_many_records_are_verified(often):
    store, snapshots = await make_session_store(230)
    found = await verify(store)
    assert found.ok
    assert found.snapshots == 231
    await store.damage(record_key(snapshots, 215), lambda data: data[:-1])
    assert await list_damage(store) == {record_key(snapshots, 215)}


# ------------------------------------------------------------------------------------- damage

WAYS = {
    "a flipped bit": lambda data: flip_bit(data, len(data) * 4),
    "the last bit": lambda data: flip_bit(data, len(data) * 8 - 8),
    "cut short": lambda data: data[: len(data) // 2],
    "cut by a byte": lambda data: data[:-1],
    "empty": lambda data: b"",
    "zeros": lambda data: bytes(len(data)),
    "other JSON": lambda data: b"{}",
    "more after the end": lambda data: data + b"{}",
}
# Entries, and which of the twelve snapshots need each.
ENTRIES = {
    "the first segment": (lambda snapshots: segment_key(1), {0, 1, 2}),
    "a segment": (lambda snapshots: segment_key(7), {5, 6}),
    "the last segment before a keyframe": (lambda snapshots: segment_key(9), set()),
    "the last segment": (lambda snapshots: segment_key(13), set()),
    "a keyframe": (lambda snapshots: keyframe_key(5), set()),
    "a keyframe on it": (lambda snapshots: keyframe_key(9), set()),
    "the last keyframe": (lambda snapshots: keyframe_key(13), set()),
    "a record": (lambda snapshots: record_key(snapshots, 6), {6}),
    "the newest record": (lambda snapshots: record_key(snapshots, 11), {11}),
    "the latest": (lambda snapshots: HERE.latest_key, set()),
    "the manifest": (lambda snapshots: HERE.manifest_key, set()),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("entry", ENTRIES)
def test_damage_is_reported_with_its_key_and_other_snapshots_load(often, entry, way):
    @async_test
    async def work():
        store, snapshots = await make_session_store()
        key_of, unloadable = ENTRIES[entry]
        key = key_of(snapshots)
        await store.damage(key, WAYS[way])
        found = await verify(store)
        assert not found.ok
        assert key in {each.key for each in found.damage}
        if "keyframe" not in entry and "segment" not in entry:
            assert {each.key for each in found.damage} == {key}
        await check_loads_except(store, snapshots, {key}, unloadable)

    work()


@async_test
async def test_a_missing_segment_is_reported(often):
    for seq, unloadable in ((1, {0, 1, 2}), (7, {5, 6}), (9, set())):
        store, snapshots = await make_session_store()
        await store.delete(segment_key(seq))
        assert segment_key(seq) in await list_damage(store), seq
        await check_loads_except(store, snapshots, {segment_key(seq)}, unloadable)


@async_test
async def test_missing_segments_at_the_end_are_reported_by_a_later_keyframe(often):
    store, snapshots = await make_session_store()
    await store.delete(record_key(snapshots, 11))
    await store.delete(HERE.latest_key)
    await store.delete(segment_key(13))
    assert not (await verify(store)).ok


@async_test
async def test_records_after_the_end_of_the_log_are_reported(often):
    store, snapshots = await make_session_store(11)
    await store.delete(segment_key(12))
    assert await list_damage(store) >= {record_key(snapshots, 10), HERE.latest_key}
    (found,) = [
        each.problem
        for each in (await verify(store)).damage
        if each.key == record_key(snapshots, 10)
    ]
    assert "it is at event 12, the log ends at 11" in found


@async_test
async def test_keyframes_that_build_on_a_missing_one_are_reported(often):
    store, snapshots = await make_session_store()
    await store.delete(keyframe_key(5))
    found = {each.key: each.problem for each in (await verify(store)).damage}
    assert found.keys() == {keyframe_key(9), keyframe_key(13)}
    assert found[keyframe_key(9)] == "it builds on keyframe 5, which is missing"
    await check_loads(store, snapshots)


@async_test
async def test_a_missing_keyframe_that_nothing_needs_is_not_reported(often):
    store, snapshots = await make_session_store()
    await store.delete(keyframe_key(13))
    assert (await verify(store)).ok
    await check_loads(store, snapshots)


@async_test
async def test_a_deleted_record_is_not_reported(often):
    store, snapshots = await make_session_store()
    for key in (record_key(snapshots, 3), HERE.latest_key):
        await store.delete(key)
        assert (await verify(store)).ok
    del snapshots[list(snapshots)[3]]
    await check_loads(store, snapshots)


@pytest.mark.parametrize("segments", [0, 1])
@async_test
async def test_entries_of_a_writer_of_a_deleted_session_are_leftovers(segments):
    store, snapshots = await make_session_store()
    kept = [*store.keys_with("/log/")[-1:][:segments], record_key(snapshots, -1)]
    for key in list(store.content):
        if key not in kept:
            await store.delete(key)
    found = await verify(store)
    assert found.damage == []
    assert sorted(found.leftovers) == sorted(kept)


@async_test
async def test_a_lost_manifest_and_first_segment_are_damage():
    store, _ = await make_session_store()
    await store.delete(HERE.manifest_key)
    await store.delete(segment_key(1))
    found = await verify(store)
    assert HERE.manifest_key in [each.key for each in found.damage]
    assert found.leftovers == []


@async_test
async def test_a_missing_manifest_is_reported_and_the_rest_is_verified(often):
    store, _ = await make_session_store()
    before = await verify(store)
    await store.delete(HERE.manifest_key)
    found = await verify(store)
    assert [each.key for each in found.damage] == [HERE.manifest_key]
    assert (found.events, found.segments, found.keyframes) == (
        before.events,
        before.segments,
        before.keyframes,
    )


@async_test
async def test_two_swapped_entries_are_both_reported(often):
    pairs = [
        lambda snapshots: (segment_key(4), segment_key(6)),
        lambda snapshots: (segment_key(1), segment_key(13)),
        lambda snapshots: (keyframe_key(5), keyframe_key(9)),
        lambda snapshots: (keyframe_key(9), keyframe_key(13)),
        lambda snapshots: (record_key(snapshots, 3), record_key(snapshots, 8)),
        lambda snapshots: (HERE.manifest_key, HERE.latest_key),
    ]
    for pair in pairs:
        store, snapshots = await make_session_store()
        one, other = pair(snapshots)
        content = store.content
        await store.put_many([Put(one, content[other]), Put(other, content[one])])
        assert await list_damage(store) >= {one, other}
        for snapshot_id, snapshot in snapshots.items():
            try:
                await check_loads(store, {snapshot_id: snapshot})
            except HoldfastError as error:
                assert HERE.prefix in str(error)  # noqa: PT017 - it may load, or say why not


@async_test
async def test_the_latest_record_under_a_history_key_is_reported(often):
    store, snapshots = await make_session_store()
    await store.put(record_key(snapshots, 4), store.content[HERE.latest_key])
    assert await list_damage(store) == {record_key(snapshots, 4)}


@async_test
async def test_all_damage_is_reported(often):
    store, snapshots = await make_session_store()
    keys = {
        segment_key(3),
        segment_key(11),
        keyframe_key(9),
        record_key(snapshots, 5),
        HERE.latest_key,
        HERE.manifest_key,
    }
    for key in keys:
        await store.damage(key, WAYS["a flipped bit"])
    await store.delete(segment_key(7))
    assert await list_damage(store) >= keys | {segment_key(7)}


@async_test
async def test_any_flipped_bit_is_reported_or_changes_nothing(often):
    store, snapshots = await make_session_store(4)
    for key, data in list(store.content.items()):
        if not key.startswith(HERE.prefix):
            continue
        for bit in range(0, len(data) * 8, 101):
            await store.put(key, flip_bit(data, bit))
            if key not in await list_damage(store):
                await check_loads(store, snapshots)
                assert (await verify(store)).ok
        await store.put(key, data)
    assert (await verify(store)).ok


# --------------------------------------------------------------------------------- encryption


@async_test
async def test_all_undecryptable_entries_are_reported(often):
    disk = ObservedStore()
    store = EncryptedStateStore(disk, EncryptionKeys({"one": os.urandom(32)}))
    snapshots = await save_many(store, 12)
    assert (await verify(store)).ok
    disk.forget()
    await verify(store)
    assert len(disk.read) == len(set(disk.read))
    keys = {
        segment_key(3),
        segment_key(11),
        keyframe_key(9),
        record_key(snapshots, 5),
        record_key(snapshots, 7),
        HERE.manifest_key,
    }
    for key in keys:
        await disk.damage(key, WAYS["a flipped bit"])
    found = await verify(store)
    assert {each.key for each in found.damage} >= keys
    assert (found.segments, found.snapshots) == (10, 10)
    assert all("cannot be decrypted" in e.problem for e in found.damage if e.key in keys)


@async_test
async def test_unknown_keys_are_listed_and_ignored():
    store, snapshots = await make_session_store()
    strays = [
        f"{HERE.history_prefix}x.json.bak",
        f"{HERE.prefix}snapshots/immutable_history/.snapshot_x.json.swp",
        f"{HERE.prefix}keyframes/notes.txt",
        f"{segment_key(1)}.orig",
    ]
    for key in strays:
        await store.put(key, b"not ours")
    result = await verify(store)
    assert result.ok
    assert sorted(result.other_keys) == sorted(strays)
    await prune(store, RetentionPolicy(last=3))
    assert (await verify(store)).ok
    await check_loads(store, take_last(snapshots, 3))
    assert sorted((await verify(store)).other_keys) == sorted(strays)
