"""Several who save at once, and several storages on one place."""

from __future__ import annotations

import asyncio
import dataclasses

from holdfast.errors import ConflictError
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.testing.snapshot_checks import (
    LOCATION,
    NewStorage,
    in_loop,
    keep,
    load,
    made,
    opened,
    values_of,
)


class SharingSnapshotsSuite:
    """Nothing that was acknowledged is lost, whoever saves meanwhile."""

    writers = 6
    """How many save at the same time."""

    @in_loop
    async def test_what_was_saved_is_there_when_opened_again(self, new_storage: NewStorage) -> None:
        snapshot = made({"step": 1}, tags={"env": "production"})
        async with opened(new_storage) as storage:
            await keep(storage, snapshot)
        async with opened(new_storage) as storage:
            found = await load(storage, snapshot.snapshot_id)
            assert found.digest == snapshot.digest
            assert found.tags == snapshot.tags
            second = await keep(storage, made({"step": 2}))
        async with opened(new_storage) as storage:
            ids = await storage.list_snapshot_ids(location=LOCATION)
            assert ids == [snapshot.snapshot_id, second]
            assert await values_of(storage, second) == {"step": 2}

    @in_loop
    async def test_all_who_save_to_one_place_at_once_are_kept(
        self, new_storage: NewStorage
    ) -> None:
        async with opened(new_storage) as storage:
            snapshots = [made({f"of {n}": n, "shared": n}) for n in range(self.writers)]
            await asyncio.gather(*(keep(storage, snapshot) for snapshot in snapshots))
            ids = [snapshot.snapshot_id for snapshot in snapshots]
            assert await storage.list_snapshot_ids(location=LOCATION) == ids
            for number, snapshot_id in enumerate(ids):
                found = await values_of(storage, snapshot_id)
                assert found == {f"of {number}": number, "shared": number}

    @in_loop
    async def test_all_who_save_from_storages_of_their_own_are_kept(
        self, new_storage: NewStorage
    ) -> None:
        async with opened(new_storage) as one, opened(new_storage) as two:
            # Each knows the place as it was before the other wrote.
            for storage in (one, two):
                await keep(storage, made({"begun": True}))
            snapshots = [made({f"of {n}": n}) for n in range(self.writers)]
            await asyncio.gather(
                *(
                    keep((one, two)[number % 2], snapshot)
                    for number, snapshot in enumerate(snapshots)
                )
            )
            for storage in (one, two):
                ids = await storage.list_snapshot_ids(location=LOCATION)
                assert sorted(ids[2:]) == sorted(each.snapshot_id for each in snapshots)
                for number, snapshot in enumerate(snapshots):
                    found = await values_of(storage, snapshot.snapshot_id)
                    assert found == {f"of {number}": number}

    @in_loop
    async def test_two_storages_that_save_in_turns_see_each_other(
        self, new_storage: NewStorage
    ) -> None:
        async with opened(new_storage) as one, opened(new_storage) as two:
            ids = []
            for step in range(6):
                storage, other = (one, two) if step % 2 else (two, one)
                ids.append(await keep(storage, made({"step": step, f"own {step}": True})))
                await keep(storage, made({"latest": step}), is_latest=True)
                assert await values_of(other) == {"latest": step}
                assert await other.list_snapshot_ids(location=LOCATION) == ids
            for step, snapshot_id in enumerate(ids):
                expected = {"step": step, f"own {step}": True}
                assert await values_of(one, snapshot_id) == expected
                assert await values_of(two, snapshot_id) == expected

    @in_loop
    async def test_saves_to_different_places_do_not_meet(self, new_storage: NewStorage) -> None:
        places = [
            SnapshotLocation(f"ses_{n % 2}", scope_id=f"bot_{n}") for n in range(self.writers)
        ]
        async with opened(new_storage) as storage:
            for step in range(2):
                await asyncio.gather(
                    *(
                        keep(storage, made({"of": place.scope_id, "step": step}, place), place)
                        for place in places
                    )
                )
            for place in places:
                ids = await storage.list_snapshot_ids(location=place)
                assert [await values_of(storage, each, place) for each in ids] == [
                    {"of": place.scope_id, "step": step} for step in range(2)
                ]

    @in_loop
    async def test_of_many_who_want_one_id_one_gets_it(self, new_storage: NewStorage) -> None:
        async with opened(new_storage) as one, opened(new_storage) as two:
            await keep(one, made({"begun": True}))
            wanted = made({}).snapshot_id
            snapshots = [
                dataclasses.replace(made({"of": n}), snapshot_id=wanted)
                for n in range(self.writers)
            ]
            answers = await asyncio.gather(
                *(
                    keep((one, two)[number % 2], snapshot)
                    for number, snapshot in enumerate(snapshots)
                ),
                return_exceptions=True,
            )
            won = [number for number, answer in enumerate(answers) if answer == wanted]
            assert len(won) == 1
            assert all(isinstance(each, str | ConflictError) for each in answers)
            assert await values_of(one, wanted) == {"of": won[0]}

    @in_loop
    async def test_the_same_snapshot_may_be_saved_by_several_at_once(
        self, new_storage: NewStorage
    ) -> None:
        async with opened(new_storage) as one, opened(new_storage) as two:
            snapshot = made({"step": 1}, tags={"env": "production"})
            await asyncio.gather(
                *(keep((one, two)[number % 2], snapshot) for number in range(self.writers))
            )
            assert await one.list_snapshot_ids(location=LOCATION) == [snapshot.snapshot_id]
            assert await values_of(two, snapshot.snapshot_id) == {"step": 1}

    @in_loop
    async def test_loads_are_whole_while_others_save(self, new_storage: NewStorage) -> None:
        async with opened(new_storage) as storage:
            kept: dict[str, int] = {}

            async def write() -> None:
                for step in range(8):
                    values = {f"part {part}": step for part in range(5)}
                    kept[await keep(storage, made(values))] = step
                    await keep(storage, made(values), is_latest=True)

            writing = asyncio.create_task(write())
            while not writing.done():
                found = await storage.load_snapshot(location=LOCATION)
                assert found is None or len(set(found.state.values.values())) == 1
                for snapshot_id in list(kept)[-2:]:
                    values = await values_of(storage, snapshot_id)
                    assert set(values.values()) == {kept[snapshot_id]}
                await asyncio.sleep(0)  # a storage in memory never waits
            await writing

    @in_loop
    async def test_a_session_that_another_storage_deleted_may_begin_again(
        self, new_storage: NewStorage
    ) -> None:
        async with opened(new_storage) as one, opened(new_storage) as two:
            for step in range(3):
                await keep(one, made({"life": 1, "step": step}))
            await two.delete_session(session_id=LOCATION.session_id)
            assert await one.load_snapshot(location=LOCATION) is None
            snapshot_id = await keep(one, made({"life": 2, "step": 2}))
            for storage in (one, two):
                assert await storage.list_snapshot_ids(location=LOCATION) == [snapshot_id]
                assert await values_of(storage, snapshot_id) == {"life": 2, "step": 2}
