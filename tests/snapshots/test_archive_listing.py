"""What an archive tells of what it keeps, what it removes, and what it says of damage."""

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
    Interrupted,
    Watched,
    check_loads,
    ids_of,
    load,
    save,
    saved,
    session_snapshot,
    state,
)


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 8, 100])
def test_pages_follow_each_other_to_the_end(limit):
    @async_test
    async def work():
        store = Watched()
        snapshots = await saved(store, 7)
        keeper = SnapshotArchive(store)
        infos, token = [], None
        while True:
            page = await keeper.list_snapshots(location=HERE, limit=limit, next_token=token)
            assert len(page.snapshots) <= limit
            infos += page.snapshots
            token = page.next_token
            if token is None:
                break
            assert len(page.snapshots) == limit
        assert [info.snapshot_id for info in infos] == list(snapshots)
        assert [info.message_count for info in infos] == list(range(1, 8))
        ids = []
        while page := await keeper.list_snapshot_ids(
            location=HERE, limit=limit, start_after=ids[-1] if ids else None
        ):
            ids += page
        assert ids == list(snapshots)

    work()


@async_test
async def test_a_page_reads_the_records_of_the_page_and_no_state():
    store = Watched()
    await saved(store, 30)
    keeper = SnapshotArchive(store)
    store.forget()
    assert len((await keeper.list_snapshots(location=HERE, limit=5)).snapshots) == 5
    assert len(store.read) == 5
    assert store.listed == 6
    store.forget()
    assert len((await keeper.list_snapshots(location=HERE)).snapshots) == 30
    assert not [key for key in store.read if "/history/" in key or "/log/" in key]
    store.forget()
    assert len(await keeper.list_snapshot_ids(location=HERE, limit=5)) == 5
    assert (store.listed, store.read) == (5, [])


@async_test
async def test_what_is_deleted_while_a_page_is_read_is_left_out():
    inner = Watched()
    snapshots = await saved(inner, 5)
    gone = list(snapshots)[2]

    async def meanwhile():
        await SnapshotArchive(inner).delete_snapshot(location=HERE, snapshot_id=gone)

    page = await SnapshotArchive(Interrupted(inner, 2, meanwhile)).list_snapshots(location=HERE)
    assert [info.snapshot_id for info in page.snapshots] == [
        each for each in snapshots if each != gone
    ]


@pytest.mark.parametrize("bad", [0, -1, True, "5"])
def test_a_limit_that_is_none_is_refused(bad):
    @async_test
    async def work():
        keeper = SnapshotArchive(Watched())
        with pytest.raises(ValueError, match="limit"):
            await keeper.list_snapshots(location=HERE, limit=bad)
        with pytest.raises(ValueError, match="limit"):
            await keeper.list_snapshot_ids(location=HERE, limit=bad)

    work()


# ------------------------------------------------------------------------- removing, the manifest


@async_test
async def test_one_is_removed_and_the_others_stay():
    store = Watched()
    keeper = SnapshotArchive(store)
    snapshots = await saved(store, 6)
    for at in (5, 0, 3):
        gone = list(snapshots)[at]
        assert await keeper.delete_snapshot(location=HERE, snapshot_id=gone) is True
        assert await keeper.delete_snapshot(location=HERE, snapshot_id=gone) is False
        assert await load(store, gone) is None
    left = {each: snapshots[each] for at, each in enumerate(snapshots) if at not in (5, 0, 3)}
    assert await ids_of(store) == list(left)
    await check_loads(store, left)


@async_test
async def test_the_latest_is_removed_by_its_id():
    store = Watched()
    keeper = SnapshotArchive(store)
    kept, latest = session_snapshot(state(1)), session_snapshot(state(2))
    await save(keeper, kept)
    await save(keeper, latest, is_latest=True)
    assert await keeper.delete_snapshot(location=HERE, snapshot_id=kept.snapshot_id) is True
    assert (await load(store)).digest == latest.digest
    assert await keeper.delete_snapshot(location=HERE, snapshot_id=latest.snapshot_id) is True
    assert await load(store) is None
    both = session_snapshot(state(3))
    await save(keeper, both)
    await save(keeper, both, is_latest=True)
    assert await keeper.delete_snapshot(location=HERE, snapshot_id=both.snapshot_id) is True
    assert await load(store, both.snapshot_id) is None
    assert store.keys_with("snapshot_") == []


@async_test
async def test_what_is_known_of_them_together_is_kept():
    store = Watched()
    keeper = SnapshotArchive(store)
    assert await keeper.load_manifest(location=HERE) == SnapshotManifest()
    await saved(store, 2)
    found = await keeper.load_manifest(location=HERE)
    assert found.started_at is not None
    given_ = SnapshotManifest(
        started_at=NOW, updated_at=NOW, log_start=Position(99, "x"), extra={"owner": "us"}
    )
    await keeper.save_manifest(location=HERE, manifest=given_)
    after = await keeper.load_manifest(location=HERE)
    assert after == replace(found, updated_at=NOW, extra={"owner": "us"})
    await keeper.save_manifest(location=HERE, manifest=SnapshotManifest(extra={"n": 1}))
    assert (await keeper.load_manifest(location=HERE)).updated_at > found.updated_at


@async_test
async def test_a_manifest_may_be_saved_before_any_snapshot():
    store = Watched()
    keeper = SnapshotArchive(store)
    given_ = SnapshotManifest(log_start=Position(99, "x"), extra={"owner": "us"})
    await keeper.save_manifest(location=HERE, manifest=given_)
    assert (await keeper.load_manifest(location=HERE)).log_start == Position()
    kept = await saved(store, 3)
    found = await keeper.load_manifest(location=HERE)
    assert found.extra == {"owner": "us"}
    assert found.started_at is not None
    await check_loads(store, kept)


@async_test
async def test_of_two_that_save_a_manifest_at_once_one_gets_a_conflict():
    for count in (0, 1):
        inner = Watched()
        await saved(inner, count)

        async def meanwhile(inner=inner):
            theirs = SnapshotManifest(extra={"by": "them"})
            await SnapshotArchive(inner).save_manifest(location=HERE, manifest=theirs)

        slow = SnapshotArchive(Interrupted(inner, 2, meanwhile))
        with pytest.raises(ConflictError):
            await slow.save_manifest(location=HERE, manifest=SnapshotManifest(extra={"by": "us"}))
        found = await SnapshotArchive(inner).load_manifest(location=HERE)
        assert found.extra == {"by": "them"}


# -------------------------------------------------------------------------------------- damage


@async_test
async def test_damage_is_named():
    for part in ("/log/", "immutable_history", "snapshot_latest", "manifest"):
        store = Watched()
        snapshots = await saved(store, 4)
        keeper = SnapshotArchive(store)
        await save(keeper, session_snapshot(state(9)), is_latest=True)
        key = store.keys_with(part)[-1]
        await store.damage(key, lambda data: data[:-7])
        with pytest.raises(IntegrityError, match=key):
            if "manifest" in key:
                await keeper.load_manifest(location=HERE)
            else:
                await keeper.load_snapshot(location=HERE)
        await check_loads(store, dict(list(snapshots.items())[:2]))


@async_test
async def test_a_snapshot_that_is_damaged_can_be_removed():
    store = Watched()
    snapshots = await saved(store, 4)
    gone = list(snapshots)[1]
    await store.damage(HERE.snapshot_key(gone), lambda data: data[:-7])
    assert await SnapshotArchive(store).delete_snapshot(location=HERE, snapshot_id=gone)
    assert (await SnapshotArchive(store).verify(location=HERE)).ok


@async_test
async def test_a_record_is_small_however_large_the_state():
    store = Watched()
    keeper = SnapshotArchive(store)
    for count in (1, 2000):
        made = session_snapshot(state(count))
        await save(keeper, made)
        data = store.content[HERE.snapshot_key(made.snapshot_id)]
        assert len(data) < 450
        assert json.loads(data)["content"]["messages"] == count
