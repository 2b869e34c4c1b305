"""Concurrent saves, and several storages over the same data."""

from __future__ import annotations

import asyncio
import dataclasses

from holdfast.errors import ConflictError
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.testing.checks import async_test
from holdfast.testing.snapshot_checks import (
    LOCATION,
    NewStorage,
    load,
    load_values,
    make_snapshot,
    open_storage,
    save,
)


class ConcurrentSnapshotsSuite:
    """No acknowledged save is lost to a concurrent one."""

    writers = 6
    """Number of concurrent writers."""

    @async_test
    async def test_snapshots_survive_reopening(self, new_storage: NewStorage) -> None:
        snapshot = make_snapshot({"step": 1}, tags={"env": "production"})
        async with open_storage(new_storage) as storage:
            await save(storage, snapshot)
        async with open_storage(new_storage) as storage:
            found = await load(storage, snapshot.snapshot_id)
            assert found.digest == snapshot.digest
            assert found.tags == snapshot.tags
            second = await save(storage, make_snapshot({"step": 2}))
        async with open_storage(new_storage) as storage:
            ids = await storage.list_snapshot_ids(location=LOCATION)
            assert ids == [snapshot.snapshot_id, second]
            assert await load_values(storage, second) == {"step": 2}

    @async_test
    async def test_concurrent_saves_to_one_location_all_succeed(
        self, new_storage: NewStorage
    ) -> None:
        async with open_storage(new_storage) as storage:
            snapshots = [make_snapshot({f"of {n}": n, "shared": n}) for n in range(self.writers)]
            await asyncio.gather(*(save(storage, snapshot) for snapshot in snapshots))
            ids = [snapshot.snapshot_id for snapshot in snapshots]
            assert await storage.list_snapshot_ids(location=LOCATION) == ids
            for number, snapshot_id in enumerate(ids):
                found = await load_values(storage, snapshot_id)
                assert found == {f"of {number}": number, "shared": number}

    @async_test
    async def test_concurrent_saves_from_several_storages_all_succeed(
        self, new_storage: NewStorage
    ) -> None:
        async with open_storage(new_storage) as one, open_storage(new_storage) as two:
            # Each has read the location before the other wrote.
            for storage in (one, two):
                await save(storage, make_snapshot({"begun": True}))
            snapshots = [make_snapshot({f"of {n}": n}) for n in range(self.writers)]
            await asyncio.gather(
                *(
                    save((one, two)[number % 2], snapshot)
                    for number, snapshot in enumerate(snapshots)
                )
            )
            for storage in (one, two):
                ids = await storage.list_snapshot_ids(location=LOCATION)
                assert sorted(ids[2:]) == sorted(each.snapshot_id for each in snapshots)
                for number, snapshot in enumerate(snapshots):
                    found = await load_values(storage, snapshot.snapshot_id)
                    assert found == {f"of {number}": number}

    @async_test
    async def test_two_storages_share_their_snapshots(self, new_storage: NewStorage) -> None:
        async with open_storage(new_storage) as one, open_storage(new_storage) as two:
            ids = []
            for step in range(6):
                storage, other = (one, two) if step % 2 else (two, one)
                ids.append(await save(storage, make_snapshot({"step": step, f"own {step}": True})))
                await save(storage, make_snapshot({"latest": step}), is_latest=True)
                assert await load_values(other) == {"latest": step}
                assert await other.list_snapshot_ids(location=LOCATION) == ids
            for step, snapshot_id in enumerate(ids):
                expected = {"step": step, f"own {step}": True}
                assert await load_values(one, snapshot_id) == expected
                assert await load_values(two, snapshot_id) == expected

    @async_test
    async def test_concurrent_saves_to_different_locations_all_succeed(
        self, new_storage: NewStorage
    ) -> None:
        places = [
            SnapshotLocation(f"ses_{n % 2}", scope_id=f"bot_{n}") for n in range(self.writers)
        ]
        async with open_storage(new_storage) as storage:
            for step in range(2):
                await asyncio.gather(
                    *(
                        save(
                            storage,
                            make_snapshot({"of": place.scope_id, "step": step}, place),
                            place,
                        )
                        for place in places
                    )
                )
            for place in places:
                ids = await storage.list_snapshot_ids(location=place)
                assert [await load_values(storage, each, place) for each in ids] == [
                    {"of": place.scope_id, "step": step} for step in range(2)
                ]

    @async_test
    async def test_only_one_concurrent_save_of_an_id_succeeds(
        self, new_storage: NewStorage
    ) -> None:
        async with open_storage(new_storage) as one, open_storage(new_storage) as two:
            await save(one, make_snapshot({"begun": True}))
            wanted = make_snapshot({}).snapshot_id
            snapshots = [
                dataclasses.replace(make_snapshot({"of": n}), snapshot_id=wanted)
                for n in range(self.writers)
            ]
            answers = await asyncio.gather(
                *(
                    save((one, two)[number % 2], snapshot)
                    for number, snapshot in enumerate(snapshots)
                ),
                return_exceptions=True,
            )
            won = [number for number, answer in enumerate(answers) if answer == wanted]
            assert len(won) == 1
            assert all(isinstance(each, str | ConflictError) for each in answers)
            assert await load_values(one, wanted) == {"of": won[0]}

    @async_test
    async def test_the_same_snapshot_can_be_saved_concurrently(
        self, new_storage: NewStorage
    ) -> None:
        async with open_storage(new_storage) as one, open_storage(new_storage) as two:
            snapshot = make_snapshot({"step": 1}, tags={"env": "production"})
            await asyncio.gather(
                *(save((one, two)[number % 2], snapshot) for number in range(self.writers))
            )
            assert await one.list_snapshot_ids(location=LOCATION) == [snapshot.snapshot_id]
            assert await load_values(two, snapshot.snapshot_id) == {"step": 1}

    @async_test
    async def test_loads_are_complete_during_saves(self, new_storage: NewStorage) -> None:
        async with open_storage(new_storage) as storage:
            kept: dict[str, int] = {}

            async def write() -> None:
                for step in range(8):
                    values = {f"part {part}": step for part in range(5)}
                    kept[await save(storage, make_snapshot(values))] = step
                    await save(storage, make_snapshot(values), is_latest=True)

            writing = asyncio.create_task(write())
            while not writing.done():
                found = await storage.load_snapshot(location=LOCATION)
                assert found is None or len(set(found.state.values.values())) == 1
                for snapshot_id in list(kept)[-2:]:
                    values = await load_values(storage, snapshot_id)
                    assert set(values.values()) == {kept[snapshot_id]}
                await asyncio.sleep(0)  # a storage in memory never yields
            await writing

    @async_test
    async def test_session_deleted_by_another_storage_can_be_created_again(
        self, new_storage: NewStorage
    ) -> None:
        async with open_storage(new_storage) as one, open_storage(new_storage) as two:
            for step in range(3):
                await save(one, make_snapshot({"life": 1, "step": step}))
            await two.delete_session(session_id=LOCATION.session_id)
            assert await one.load_snapshot(location=LOCATION) is None
            snapshot_id = await save(one, make_snapshot({"life": 2, "step": 2}))
            for storage in (one, two):
                assert await storage.list_snapshot_ids(location=LOCATION) == [snapshot_id]
                assert await load_values(storage, snapshot_id) == {"life": 2, "step": 2}
