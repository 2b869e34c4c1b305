"""Which ids there may be, what belongs together, and what is gone when something is deleted."""

from __future__ import annotations

import itertools

from holdfast.snapshots.keys import SnapshotLocation
from holdfast.snapshots.manifest import SnapshotManifest
from holdfast.testing.snapshot_checks import (
    HOSTILE_IDS,
    LOCATION,
    NewStorage,
    in_loop,
    keep,
    load,
    made,
    opened,
    values_of,
)


class SnapshotPlacesSuite:
    """Sessions, agents and scopes that are kept apart, and deleted one by one."""

    ids: tuple[str, ...] = HOSTILE_IDS
    """The ids of sessions and agents that must be kept apart, whatever characters they have."""

    @in_loop
    async def test_any_text_is_the_id_of_a_session_and_of_an_agent(
        self, new_storage: NewStorage
    ) -> None:
        places = [SnapshotLocation(each, scope_id=each) for each in self.ids]
        async with opened(new_storage) as storage:
            saved = {
                place: await keep(storage, made({"of": place.session_id}, place), place)
                for place in places
            }
            for place, snapshot_id in saved.items():
                found = await load(storage, snapshot_id, place)
                assert found.location == place
                assert found.state.values == {"of": place.session_id}
                assert await storage.list_snapshot_ids(location=place) == [snapshot_id]

    @in_loop
    async def test_the_parts_of_a_place_do_not_run_into_each_other(
        self, new_storage: NewStorage
    ) -> None:
        places = [
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
        async with opened(new_storage) as storage:
            for number, place in enumerate(places):
                await keep(storage, made({"n": number}, place), place, is_latest=True)
            for number, place in enumerate(places):
                assert await values_of(storage, None, place) == {"n": number}

    @in_loop
    async def test_the_scopes_of_a_session_are_kept_apart(self, new_storage: NewStorage) -> None:
        alone = SnapshotLocation("ses_1", "agent", "team")
        together = SnapshotLocation("ses_1", "multi_agent", "team")
        async with opened(new_storage) as storage:
            first = await keep(storage, made({"of": "one"}, alone), alone)
            second = await keep(storage, made({"of": "several"}, together), together)
            for place, snapshot_id, other in ((alone, first, second), (together, second, first)):
                found = await load(storage, snapshot_id, place)
                assert found.scope == place.scope
                assert await storage.list_snapshot_ids(location=place) == [snapshot_id]
                assert await storage.load_snapshot(location=place, snapshot_id=other) is None
                assert not await storage.delete_snapshot(location=place, snapshot_id=other)
            assert await values_of(storage, first, alone) == {"of": "one"}
            assert await values_of(storage, second, together) == {"of": "several"}

    @in_loop
    async def test_agents_may_use_the_same_snapshot_id(self, new_storage: NewStorage) -> None:
        places = [SnapshotLocation("ses_1", scope_id=name) for name in ("writer", "reader")]
        async with opened(new_storage) as storage:
            for place in places:
                await storage.save_snapshot(
                    location=place,
                    snapshot_id="start",
                    is_latest=False,
                    snapshot=made({"of": place.scope_id}, place),
                )
            for place in places:
                assert await values_of(storage, "start", place) == {"of": place.scope_id}

    # ---------------------------------------------------------------------------------- deleting

    @in_loop
    async def test_a_deleted_snapshot_is_gone_and_the_others_load(
        self, new_storage: NewStorage
    ) -> None:
        async with opened(new_storage) as storage:
            ids = [await keep(storage, made({"step": step})) for step in range(5)]
            for gone in (0, 2, 4):
                assert await storage.delete_snapshot(location=LOCATION, snapshot_id=ids[gone])
                assert not await storage.delete_snapshot(location=LOCATION, snapshot_id=ids[gone])
                found = await storage.load_snapshot(location=LOCATION, snapshot_id=ids[gone])
                assert found is None
            assert await storage.list_snapshot_ids(location=LOCATION) == [ids[1], ids[3]]
            for step in (1, 3):
                assert await values_of(storage, ids[step]) == {"step": step}

    @in_loop
    async def test_saving_goes_on_after_a_deletion(self, new_storage: NewStorage) -> None:
        async with opened(new_storage) as storage:
            first, second = made({"step": 1, "a": [1]}), made({"step": 2, "b": [2]})
            for snapshot in (first, second):
                await keep(storage, snapshot)
            assert await storage.delete_snapshot(location=LOCATION, snapshot_id=second.snapshot_id)
            third = await keep(storage, made({"step": 3, "b": [2]}))
            await keep(storage, second)
            assert await values_of(storage, third) == {"step": 3, "b": [2]}
            assert await values_of(storage, second.snapshot_id) == {"step": 2, "b": [2]}
            assert await values_of(storage, first.snapshot_id) == {"step": 1, "a": [1]}

    @in_loop
    async def test_deleting_what_is_not_there_is_answered_and_harmless(
        self, new_storage: NewStorage
    ) -> None:
        missing = made({}).snapshot_id
        async with opened(new_storage) as storage:
            assert not await storage.delete_snapshot(location=LOCATION, snapshot_id=missing)
            await storage.delete_session(session_id=LOCATION.session_id)
            snapshot_id = await keep(storage, made({"step": 1}))
            assert not await storage.delete_snapshot(location=LOCATION, snapshot_id=missing)
            await storage.delete_session(session_id="ses_other")
            assert await values_of(storage, snapshot_id) == {"step": 1}

    @in_loop
    async def test_a_deleted_session_is_gone_with_every_agents_part_and_no_other(
        self, new_storage: NewStorage
    ) -> None:
        parts = [("agent", "writer"), ("agent", "reader/.."), ("multi_agent", "writer")]
        names = ["ses_1", "ses_10", "ses_1/scopes", "SES_1"]
        places = {
            name: [SnapshotLocation(name, scope, scope_id) for scope, scope_id in parts]
            for name in names
        }
        saved: dict[SnapshotLocation, str] = {}
        async with opened(new_storage) as storage:
            for place in itertools.chain(*places.values()):
                saved[place] = await keep(storage, made({"in": str(place)}, place), place)
                await keep(storage, made({"latest": str(place)}, place), place, is_latest=True)
            await storage.delete_session(session_id="ses_1")
            for place in places.pop("ses_1"):
                assert await storage.load_snapshot(location=place) is None
                assert await storage.list_snapshot_ids(location=place) == []
                assert (await storage.list_snapshots(location=place)).snapshots == []
                assert await storage.load_manifest(location=place) == SnapshotManifest()
                gone = await storage.load_snapshot(location=place, snapshot_id=saved[place])
                assert gone is None
            for place in itertools.chain(*places.values()):
                assert await values_of(storage, None, place) == {"latest": str(place)}
                assert await storage.list_snapshot_ids(location=place) == [saved[place]]
                assert await values_of(storage, saved[place], place) == {"in": str(place)}

    @in_loop
    async def test_a_deleted_session_may_begin_again(self, new_storage: NewStorage) -> None:
        async with opened(new_storage) as storage:
            old = [made({"life": 1, "step": step}) for step in range(3)]
            for snapshot in old:
                await keep(storage, snapshot)
            await keep(storage, made({"life": 1}), is_latest=True)
            for life in (2, 3):
                await storage.delete_session(session_id=LOCATION.session_id)
                snapshot_id = await keep(storage, made({"life": life}))
                assert await storage.list_snapshot_ids(location=LOCATION) == [snapshot_id]
                assert await values_of(storage) == {"life": life}
            # What is gone is no obstacle to one of the same id.
            await keep(storage, old[1])
            assert await values_of(storage, old[1].snapshot_id) == {"life": 1, "step": 1}
            assert await values_of(storage, snapshot_id) == {"life": 3}
