"""Ids, separate locations, and deletion."""

from __future__ import annotations

import itertools

from holdfast.snapshots.keys import SnapshotLocation
from holdfast.snapshots.manifest import SnapshotManifest
from holdfast.testing.checks import async_test
from holdfast.testing.snapshot_checks import (
    HOSTILE_IDS,
    LOCATION,
    NewStorage,
    load,
    load_values,
    make_snapshot,
    open_storage,
    save,
)


class SnapshotLocationsSuite:
    """Sessions, agents and scopes are separate, and deleted one by one."""

    ids: tuple[str, ...] = HOSTILE_IDS
    """Ids of sessions and agents that must stay separate."""

    @async_test
    async def test_ids_may_be_any_text(self, new_storage: NewStorage) -> None:
        locations = [SnapshotLocation(each, scope_id=each) for each in self.ids]
        async with open_storage(new_storage) as storage:
            saved = {
                location: await save(
                    storage, make_snapshot({"of": location.session_id}, location), location
                )
                for location in locations
            }
            for location, snapshot_id in saved.items():
                found = await load(storage, snapshot_id, location)
                assert found.location == location
                assert found.state.values == {"of": location.session_id}
                assert await storage.list_snapshot_ids(location=location) == [snapshot_id]

    @async_test
    async def test_similar_locations_are_separate(self, new_storage: NewStorage) -> None:
        locations = [
            SnapshotLocation(session_id, scope, scope_id)
            for session_id, scope, scope_id in (
                ("a", "agent", "b"),
                ("a", "multi_agent", "b"),
                ("a", "agent", "../multi_agent/b"),
                ("a/../a", "agent", "b"),
                ("a", "agent", "b/c"),
                ("a/b", "agent", "c"),
                ("a", "agent", "b%2Fc"),
                ("a%2Fb", "agent", "c"),
                ("a/scopes/agent/b", "agent", "c"),
                ("a", "agent", "b/snapshots"),
                ("agent", "agent", "agent"),
            )
        ]
        async with open_storage(new_storage) as storage:
            for number, location in enumerate(locations):
                await save(
                    storage, make_snapshot({"n": number}, location), location, is_latest=True
                )
            for number, location in enumerate(locations):
                assert await load_values(storage, None, location) == {"n": number}

    @async_test
    async def test_scopes_of_a_session_are_separate(self, new_storage: NewStorage) -> None:
        alone = SnapshotLocation("ses_1", "agent", "team")
        together = SnapshotLocation("ses_1", "multi_agent", "team")
        async with open_storage(new_storage) as storage:
            first = await save(storage, make_snapshot({"of": "one"}, alone), alone)
            second = await save(storage, make_snapshot({"of": "several"}, together), together)
            for location, snapshot_id, other in ((alone, first, second), (together, second, first)):
                found = await load(storage, snapshot_id, location)
                assert found.scope == location.scope
                assert await storage.list_snapshot_ids(location=location) == [snapshot_id]
                assert await storage.load_snapshot(location=location, snapshot_id=other) is None
                assert not await storage.delete_snapshot(location=location, snapshot_id=other)
            assert await load_values(storage, first, alone) == {"of": "one"}
            assert await load_values(storage, second, together) == {"of": "several"}

    @async_test
    async def test_agents_can_use_the_same_snapshot_id(self, new_storage: NewStorage) -> None:
        locations = [SnapshotLocation("ses_1", scope_id=name) for name in ("writer", "reader")]
        async with open_storage(new_storage) as storage:
            for location in locations:
                await storage.save_snapshot(
                    location=location,
                    snapshot_id="start",
                    is_latest=False,
                    snapshot=make_snapshot({"of": location.scope_id}, location),
                )
            for location in locations:
                assert await load_values(storage, "start", location) == {"of": location.scope_id}

    # ---------------------------------------------------------------------------------- deleting

    @async_test
    async def test_deleting_a_snapshot_keeps_the_others(self, new_storage: NewStorage) -> None:
        async with open_storage(new_storage) as storage:
            ids = [await save(storage, make_snapshot({"step": step})) for step in range(5)]
            for gone in (0, 2, 4):
                assert await storage.delete_snapshot(location=LOCATION, snapshot_id=ids[gone])
                assert not await storage.delete_snapshot(location=LOCATION, snapshot_id=ids[gone])
                found = await storage.load_snapshot(location=LOCATION, snapshot_id=ids[gone])
                assert found is None
            assert await storage.list_snapshot_ids(location=LOCATION) == [ids[1], ids[3]]
            for step in (1, 3):
                assert await load_values(storage, ids[step]) == {"step": step}

    @async_test
    async def test_snapshots_can_be_saved_after_a_deletion(self, new_storage: NewStorage) -> None:
        async with open_storage(new_storage) as storage:
            first, second = (
                make_snapshot({"step": 1, "a": [1]}),
                make_snapshot({"step": 2, "b": [2]}),
            )
            for snapshot in (first, second):
                await save(storage, snapshot)
            assert await storage.delete_snapshot(location=LOCATION, snapshot_id=second.snapshot_id)
            third = await save(storage, make_snapshot({"step": 3, "b": [2]}))
            await save(storage, second)
            assert await load_values(storage, third) == {"step": 3, "b": [2]}
            assert await load_values(storage, second.snapshot_id) == {"step": 2, "b": [2]}
            assert await load_values(storage, first.snapshot_id) == {"step": 1, "a": [1]}

    @async_test
    async def test_deleting_a_missing_snapshot_returns_false(self, new_storage: NewStorage) -> None:
        missing = make_snapshot({}).snapshot_id
        async with open_storage(new_storage) as storage:
            assert not await storage.delete_snapshot(location=LOCATION, snapshot_id=missing)
            await storage.delete_session(session_id=LOCATION.session_id)
            snapshot_id = await save(storage, make_snapshot({"step": 1}))
            assert not await storage.delete_snapshot(location=LOCATION, snapshot_id=missing)
            await storage.delete_session(session_id="ses_other")
            assert await load_values(storage, snapshot_id) == {"step": 1}

    @async_test
    async def test_delete_session_deletes_all_its_agents_only(
        self, new_storage: NewStorage
    ) -> None:
        parts = [("agent", "writer"), ("agent", "reader/.."), ("multi_agent", "writer")]
        names = ["ses_1", "ses_10", "ses_1/scopes", "SES_1"]
        locations = {
            name: [SnapshotLocation(name, scope, scope_id) for scope, scope_id in parts]
            for name in names
        }
        saved: dict[SnapshotLocation, str] = {}
        async with open_storage(new_storage) as storage:
            for location in itertools.chain(*locations.values()):
                saved[location] = await save(
                    storage, make_snapshot({"in": str(location)}, location), location
                )
                await save(
                    storage,
                    make_snapshot({"latest": str(location)}, location),
                    location,
                    is_latest=True,
                )
            await storage.delete_session(session_id="ses_1")
            for location in locations.pop("ses_1"):
                assert await storage.load_snapshot(location=location) is None
                assert await storage.list_snapshot_ids(location=location) == []
                assert (await storage.list_snapshots(location=location)).snapshots == []
                assert await storage.load_manifest(location=location) == SnapshotManifest()
                gone = await storage.load_snapshot(location=location, snapshot_id=saved[location])
                assert gone is None
            for location in itertools.chain(*locations.values()):
                assert await load_values(storage, None, location) == {"latest": str(location)}
                assert await storage.list_snapshot_ids(location=location) == [saved[location]]
                assert await load_values(storage, saved[location], location) == {
                    "in": str(location)
                }

    @async_test
    async def test_deleted_session_can_be_created_again(self, new_storage: NewStorage) -> None:
        async with open_storage(new_storage) as storage:
            old = [make_snapshot({"life": 1, "step": step}) for step in range(3)]
            for snapshot in old:
                await save(storage, snapshot)
            await save(storage, make_snapshot({"life": 1}), is_latest=True)
            for life in (2, 3):
                await storage.delete_session(session_id=LOCATION.session_id)
                snapshot_id = await save(storage, make_snapshot({"life": life}))
                assert await storage.list_snapshot_ids(location=LOCATION) == [snapshot_id]
                assert await load_values(storage) == {"life": life}
            # A deleted snapshot does not block its id.
            await save(storage, old[1])
            assert await load_values(storage, old[1].snapshot_id) == {"life": 1, "step": 1}
            assert await load_values(storage, snapshot_id) == {"life": 3}
