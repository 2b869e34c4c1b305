"""Listing ids and metadata, and the manifest."""

from __future__ import annotations

import dataclasses
import datetime as dt

from holdfast.snapshots.keys import SnapshotLocation
from holdfast.snapshots.manifest import SnapshotManifest
from holdfast.snapshots.records import SnapshotInfo
from holdfast.snapshots.storage import SnapshotStorage
from holdfast.testing.checks import async_test
from holdfast.testing.snapshot_checks import (
    LOCATION,
    NewStorage,
    load_values,
    make_snapshot,
    open_storage,
    save,
)


class ListingSnapshotsSuite:
    """Oldest first, in pages of any size, during concurrent writes."""

    @async_test
    async def test_location_without_snapshots_has_an_empty_history(
        self, new_storage: NewStorage
    ) -> None:
        async with open_storage(new_storage) as storage:
            assert await storage.list_snapshot_ids(location=LOCATION) == []
            page = await storage.list_snapshots(location=LOCATION, limit=5)
            assert list(page.snapshots) == []
            assert page.next_token is None

    @async_test
    async def test_ids_are_listed_with_start_and_limit(self, new_storage: NewStorage) -> None:
        async with open_storage(new_storage) as storage:
            ids = [await save(storage, make_snapshot({"step": step})) for step in range(6)]
            for limit in (1, 4, 6, 7):
                found = await storage.list_snapshot_ids(location=LOCATION, limit=limit)
                assert found == ids[:limit]
            for at, start in enumerate(ids):
                found = await storage.list_snapshot_ids(location=LOCATION, start_after=start)
                assert found == ids[at + 1 :]
                found = await storage.list_snapshot_ids(
                    location=LOCATION, limit=2, start_after=start
                )
                assert found == ids[at + 1 : at + 3]

    @async_test
    async def test_ids_are_listed_after_a_missing_id(self, new_storage: NewStorage) -> None:
        async with open_storage(new_storage) as storage:
            ids = [await save(storage, make_snapshot({"step": step})) for step in range(2)]
            between = make_snapshot({}).snapshot_id
            ids += [await save(storage, make_snapshot({"step": step})) for step in (2, 3)]
            assert await storage.delete_snapshot(location=LOCATION, snapshot_id=ids[0])
            for start, rest in ((between, ids[2:]), (ids[0], ids[1:])):
                found = await storage.list_snapshot_ids(location=LOCATION, start_after=start)
                assert found == rest

    @async_test
    async def test_pages_have_no_gaps_or_duplicates(self, new_storage: NewStorage) -> None:
        async with open_storage(new_storage) as storage:
            ids = [await save(storage, make_snapshot({"step": step})) for step in range(6)]
            for limit in (1, 2, 4, 5, 6, 7, None):
                sizes = await self.read_pages(storage, limit, ids)
                whole = len(ids) if limit is None else limit
                assert sizes == [min(whole, len(ids) - at) for at in range(0, len(ids), whole)]

    async def read_pages(
        self, storage: SnapshotStorage, limit: int | None, ids: list[str]
    ) -> list[int]:
        """Read all pages; return the number of snapshots on each."""
        found: list[str] = []
        sizes = []
        token = None
        while True:
            page = await storage.list_snapshots(location=LOCATION, limit=limit, next_token=token)
            found += [info.snapshot_id for info in page.snapshots]
            sizes.append(len(page.snapshots))
            token = page.next_token
            if token is None:
                assert found == ids
                return sizes

    @async_test
    async def test_pages_stay_in_order_while_snapshots_are_saved(
        self, new_storage: NewStorage
    ) -> None:
        async with open_storage(new_storage) as storage:
            ids = [await save(storage, make_snapshot({"step": step})) for step in range(5)]
            page = await storage.list_snapshots(location=LOCATION, limit=2)
            found = [info.snapshot_id for info in page.snapshots]
            while page.next_token is not None:
                if len(ids) < 8:
                    ids.append(await save(storage, make_snapshot({"step": len(ids)})))
                page = await storage.list_snapshots(
                    location=LOCATION, limit=2, next_token=page.next_token
                )
                found += [info.snapshot_id for info in page.snapshots]
            assert found == ids

    @async_test
    async def test_paging_continues_after_a_deleted_snapshot(self, new_storage: NewStorage) -> None:
        async with open_storage(new_storage) as storage:
            ids = [await save(storage, make_snapshot({"step": step})) for step in range(5)]
            page = await storage.list_snapshots(location=LOCATION, limit=2)
            for gone in (ids[1], ids[2]):
                assert await storage.delete_snapshot(location=LOCATION, snapshot_id=gone)
            page = await storage.list_snapshots(
                location=LOCATION, limit=2, next_token=page.next_token
            )
            assert [info.snapshot_id for info in page.snapshots] == ids[3:]
            assert page.next_token is None

    @async_test
    async def test_page_contains_metadata(self, new_storage: NewStorage) -> None:
        async with open_storage(new_storage) as storage:
            first = make_snapshot({"step": 1})
            second = make_snapshot(
                {"step": 2, "plan": ["a", "b"]},
                messages=3,
                status="running",
                parent_id=first.snapshot_id,
                tags={"env": "production"},
            )
            for snapshot in (first, second):
                await save(storage, snapshot)
            page = await storage.list_snapshots(location=LOCATION)
            for info, snapshot in zip(page.snapshots, (first, second), strict=True):
                assert isinstance(info, SnapshotInfo)
                for name in ("snapshot_id", "parent_id", "agent_id", "session_id", "scope"):
                    assert getattr(info, name) == getattr(snapshot, name)
                assert info.created_at == snapshot.created_at
                assert info.tags == snapshot.tags
                assert info.size_bytes == snapshot.snapshot.size_bytes
            assert [info.status for info in page.snapshots] == ["pending", "running"]
            assert [info.message_count for info in page.snapshots] == [0, 3]

    @async_test
    async def test_locations_have_separate_histories(self, new_storage: NewStorage) -> None:
        places = [
            SnapshotLocation("ses_1", scope_id="bot"),
            SnapshotLocation("ses_1", scope_id="bot2"),
            SnapshotLocation("ses_12", scope_id="bot"),
            SnapshotLocation("ses_1", "multi_agent", "bot"),
        ]
        async with open_storage(new_storage) as storage:
            ids: dict[SnapshotLocation, list[str]] = {}
            for step in range(2):
                for place in places:
                    snapshot_id = await save(storage, make_snapshot({"step": step}, place), place)
                    ids.setdefault(place, []).append(snapshot_id)
            for place in places:
                assert await storage.list_snapshot_ids(location=place) == ids[place]
                page = await storage.list_snapshots(location=place)
                assert [info.snapshot_id for info in page.snapshots] == ids[place]
                assert {info.scope for info in page.snapshots} == {place.scope}

    # ---------------------------------------------------------------------------------- manifest

    @async_test
    async def test_new_location_has_an_empty_manifest(self, new_storage: NewStorage) -> None:
        async with open_storage(new_storage) as storage:
            assert await storage.load_manifest(location=LOCATION) == SnapshotManifest()
            assert await storage.load_snapshot(location=LOCATION) is None

    @async_test
    async def test_manifest_round_trips(self, new_storage: NewStorage) -> None:
        moment = dt.datetime(2026, 11, 15, 9, 30, 0, 123_456, tzinfo=dt.UTC)
        elsewhere = SnapshotLocation("ses_other", scope_id=LOCATION.scope_id)
        async with open_storage(new_storage) as storage:
            first = SnapshotManifest(
                updated_at=moment, extra={"owner": "Grüße", "counts": [1, None]}
            )
            second = dataclasses.replace(first, extra={"note": {"of": "mine"}})
            for manifest in (first, second):
                await storage.save_manifest(location=LOCATION, manifest=manifest)
                assert await storage.load_manifest(location=LOCATION) == manifest
            assert await storage.load_manifest(location=elsewhere) == SnapshotManifest()

    @async_test
    async def test_manifest_survives_saving_and_deleting_snapshots(
        self, new_storage: NewStorage
    ) -> None:
        async with open_storage(new_storage) as storage:
            manifest = SnapshotManifest(extra={"owner": "me"})
            await storage.save_manifest(location=LOCATION, manifest=manifest)
            for step in range(3):
                snapshot_id = await save(storage, make_snapshot({"step": step}))
                await save(storage, make_snapshot({"step": step}), is_latest=True)
            await storage.delete_snapshot(location=LOCATION, snapshot_id=snapshot_id)
            there = await storage.load_manifest(location=LOCATION)
            assert there.extra == {"owner": "me"}
            await storage.save_manifest(
                location=LOCATION, manifest=dataclasses.replace(there, extra={"owner": "you"})
            )
            assert (await storage.load_manifest(location=LOCATION)).extra == {"owner": "you"}
            ids = await storage.list_snapshot_ids(location=LOCATION)
            assert [await load_values(storage, each) for each in ids] == [{"step": 0}, {"step": 1}]
