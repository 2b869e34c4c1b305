"""Listing and deleting snapshots, the manifest, and damage."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from holdfast import ConflictError, IntegrityError
from holdfast.log.event_log import Position
from holdfast.snapshots import (
    SnapshotArchive,
    SnapshotManifest,
)
from support.async_tests import async_test
from support.observed_store import (
    HERE,
    NOW,
    InterruptedStore,
    ObservedStore,
    check_loads,
    load,
    make_snapshot,
    make_state,
    save,
    save_many,
)


@async_test
async def test_a_page_reads_only_its_records_and_the_manifest():
    store = ObservedStore()
    await save_many(store, 30)
    archive = SnapshotArchive(store)
    store.forget()
    assert len((await archive.list_snapshots(location=HERE, limit=5)).snapshots) == 5
    assert len(store.read) == 5 + 1
    assert store.listed == 6
    store.forget()
    assert len((await archive.list_snapshots(location=HERE)).snapshots) == 30
    assert not [key for key in store.read if "/history/" in key or "/log/" in key]
    store.forget()
    assert len(await archive.list_snapshot_ids(location=HERE, limit=5)) == 5
    assert (store.listed, store.read) == (5, [])


@async_test
async def test_a_snapshot_deleted_during_a_listing_is_left_out():
    inner = ObservedStore()
    snapshots = await save_many(inner, 5)
    gone = list(snapshots)[2]

    async def interrupt():
        await SnapshotArchive(inner).delete_snapshot(location=HERE, snapshot_id=gone)

    page = await SnapshotArchive(InterruptedStore(inner, 2, interrupt)).list_snapshots(
        location=HERE
    )
    assert [info.snapshot_id for info in page.snapshots] == [
        each for each in snapshots if each != gone
    ]


@pytest.mark.parametrize("bad", [0, -1, True, "5"])
def test_invalid_limit_is_rejected(bad):
    @async_test
    async def work():
        archive = SnapshotArchive(ObservedStore())
        with pytest.raises(ValueError, match="limit"):
            await archive.list_snapshots(location=HERE, limit=bad)
        with pytest.raises(ValueError, match="limit"):
            await archive.list_snapshot_ids(location=HERE, limit=bad)

    work()


# ------------------------------------------------------------------------- deleting, the manifest


@async_test
async def test_delete_snapshot_deletes_the_latest_by_its_id():
    store = ObservedStore()
    archive = SnapshotArchive(store)
    kept, latest = make_snapshot(make_state(1)), make_snapshot(make_state(2))
    await save(archive, kept)
    await save(archive, latest, is_latest=True)
    assert await archive.delete_snapshot(location=HERE, snapshot_id=kept.snapshot_id) is True
    assert (await load(store)).digest == latest.digest
    assert await archive.delete_snapshot(location=HERE, snapshot_id=latest.snapshot_id) is True
    assert await load(store) is None
    both = make_snapshot(make_state(3))
    await save(archive, both)
    await save(archive, both, is_latest=True)
    assert await archive.delete_snapshot(location=HERE, snapshot_id=both.snapshot_id) is True
    assert await load(store, both.snapshot_id) is None
    assert store.keys_with("snapshot_") == []


@async_test
async def test_save_manifest_replaces_only_the_callers_fields():
    store = ObservedStore()
    archive = SnapshotArchive(store)
    assert await archive.load_manifest(location=HERE) == SnapshotManifest()
    await save_many(store, 2)
    found = await archive.load_manifest(location=HERE)
    assert found.started_at is not None
    given_ = SnapshotManifest(
        started_at=NOW, updated_at=NOW, log_start=Position(99, "x"), extra={"owner": "us"}
    )
    await archive.save_manifest(location=HERE, manifest=given_)
    after = await archive.load_manifest(location=HERE)
    assert after == replace(found, updated_at=NOW, extra={"owner": "us"})
    await archive.save_manifest(location=HERE, manifest=SnapshotManifest(extra={"n": 1}))
    assert (await archive.load_manifest(location=HERE)).updated_at > found.updated_at


@async_test
async def test_a_manifest_can_be_saved_before_any_snapshot():
    store = ObservedStore()
    archive = SnapshotArchive(store)
    given_ = SnapshotManifest(log_start=Position(99, "x"), extra={"owner": "us"})
    await archive.save_manifest(location=HERE, manifest=given_)
    assert (await archive.load_manifest(location=HERE)).log_start == Position()
    kept = await save_many(store, 3)
    found = await archive.load_manifest(location=HERE)
    assert found.extra == {"owner": "us"}
    assert found.started_at is not None
    await check_loads(store, kept)


@async_test
async def test_concurrent_save_manifest_is_a_conflict():
    for count in (0, 1):
        inner = ObservedStore()
        await save_many(inner, count)

        async def interrupt(inner=inner):
            theirs = SnapshotManifest(extra={"by": "them"})
            await SnapshotArchive(inner).save_manifest(location=HERE, manifest=theirs)

        slow = SnapshotArchive(InterruptedStore(inner, 2, interrupt))
        with pytest.raises(ConflictError):
            await slow.save_manifest(location=HERE, manifest=SnapshotManifest(extra={"by": "us"}))
        found = await SnapshotArchive(inner).load_manifest(location=HERE)
        assert found.extra == {"by": "them"}


# -------------------------------------------------------------------------------------- damage


@async_test
async def test_load_names_the_damaged_key():
    for part in ("/log/", "immutable_history", "snapshot_latest", "manifest"):
        store = ObservedStore()
        snapshots = await save_many(store, 4)
        archive = SnapshotArchive(store)
        await save(archive, make_snapshot(make_state(9)), is_latest=True)
        key = store.keys_with(part)[-1]
        await store.damage(key, lambda data: data[:-7])
        with pytest.raises(IntegrityError, match=key):
            if "manifest" in key:
                await archive.load_manifest(location=HERE)
            else:
                await archive.load_snapshot(location=HERE)
        await check_loads(store, dict(list(snapshots.items())[:2]))


@async_test
async def test_a_damaged_snapshot_can_be_deleted():
    store = ObservedStore()
    snapshots = await save_many(store, 4)
    gone = list(snapshots)[1]
    await store.damage(HERE.snapshot_key(gone), lambda data: data[:-7])
    assert await SnapshotArchive(store).delete_snapshot(location=HERE, snapshot_id=gone)
    assert (await SnapshotArchive(store).verify(location=HERE)).ok


@async_test
async def test_the_size_of_a_record_does_not_depend_on_the_state():
    store = ObservedStore()
    archive = SnapshotArchive(store)
    for count in (1, 2000):
        made = make_snapshot(make_state(count))
        await save(archive, made)
        data = store.content[HERE.snapshot_key(made.snapshot_id)]
        assert len(data) < 450
        assert json.loads(data)["content"]["messages"] == count
