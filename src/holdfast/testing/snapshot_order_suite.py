"""The order of a history: what was saved last is the latest, whatever the ids."""

from __future__ import annotations

import uuid

from holdfast.ids import new_id
from holdfast.snapshots.storage import SnapshotStorage
from holdfast.testing.snapshot_checks import (
    LOCATION,
    NewStorage,
    in_loop,
    made,
    opened,
    values_of,
)

TRIES = 5


class SnapshotOrderSuite:
    """Ids of any kind, in any order."""

    @in_loop
    async def test_of_random_ids_the_one_that_was_saved_last_is_the_latest(
        self, new_storage: NewStorage
    ) -> None:
        async with opened(new_storage) as storage:
            ids: list[str] = []
            for _ in range(TRIES):
                for _ in range(3):
                    ids.append(str(uuid.uuid4()))
                    await self.save(storage, ids[-1], len(ids))
                assert await values_of(storage) == {"step": len(ids)}
            await self.check(storage, ids)

    @in_loop
    async def test_ids_that_descend_are_listed_as_they_were_saved(
        self, new_storage: NewStorage
    ) -> None:
        async with opened(new_storage) as storage:
            ids = [f"turn-{at:04}" for at in range(12, 0, -1)]
            for step, snapshot_id in enumerate(ids, 1):
                await self.save(storage, snapshot_id, step)
                assert await values_of(storage) == {"step": step}
            await self.check(storage, ids)

    @in_loop
    async def test_ids_of_all_kinds_are_listed_together_as_they_were_saved(
        self, new_storage: NewStorage
    ) -> None:
        async with opened(new_storage) as storage:
            ids: list[str] = []
            for at in range(4):
                for snapshot_id in (
                    new_id(),
                    str(uuid.uuid4()),
                    f"z-{at}",
                    new_id(),
                    f"{9 - at}",
                    f"{new_id()}_{at}",
                    new_id().upper(),
                    f"A_{at}",
                ):
                    ids.append(snapshot_id)
                    await self.save(storage, snapshot_id, len(ids))
                    assert await values_of(storage) == {"step": len(ids)}
            await self.check(storage, ids)

    @in_loop
    async def test_ids_with_times_are_listed_as_they_were_saved_and_not_as_they_were_made(
        self, new_storage: NewStorage
    ) -> None:
        async with opened(new_storage) as storage:
            made_in_order = [new_id() for _ in range(6)]
            ahead = ["7fffffff-ffff-7fff-bfff-ffffffffffff", "01ffffff-ffff-7000-8000-000000000000"]
            ids = [made_in_order[at] for at in (0, 3, 1, 5, 4, 2)]
            ids[2:2], ids[4:4] = ahead[:1], ahead[1:]
            for step, snapshot_id in enumerate(ids, 1):
                await self.save(storage, snapshot_id, step)
                assert await values_of(storage) == {"step": step}
            await self.check(storage, ids)

    @in_loop
    async def test_the_order_stays_when_some_are_deleted_and_saved_again(
        self, new_storage: NewStorage
    ) -> None:
        async with opened(new_storage) as storage:
            ids = [str(uuid.uuid4()) for _ in range(3)] + [new_id(), "b", "a"]
            for step, snapshot_id in enumerate(ids, 1):
                await self.save(storage, snapshot_id, step)
            for again in (ids[1], ids[3], "b"):
                assert await storage.delete_snapshot(location=LOCATION, snapshot_id=again)
                assert not await storage.delete_snapshot(location=LOCATION, snapshot_id=again)
                found = await storage.load_snapshot(location=LOCATION, snapshot_id=again)
                assert found is None
                ids.remove(again)
                assert await storage.list_snapshot_ids(location=LOCATION) == ids
                await self.save(storage, again, 100)
                ids.append(again)
                assert await storage.list_snapshot_ids(location=LOCATION) == ids
                assert await values_of(storage) == {"step": 100}

    async def save(self, storage: SnapshotStorage, snapshot_id: str, step: int) -> None:
        """Save a snapshot of a step under an id."""
        await storage.save_snapshot(
            location=LOCATION,
            snapshot_id=snapshot_id,
            is_latest=False,
            snapshot=made({"step": step}),
        )

    async def check(self, storage: SnapshotStorage, ids: list[str]) -> None:
        """Check that all are listed in order, in portions of any size, and load by their ids."""
        assert await storage.list_snapshot_ids(location=LOCATION) == ids
        for at, start in enumerate(ids):
            found = await storage.list_snapshot_ids(location=LOCATION, limit=3, start_after=start)
            assert found == ids[at + 1 : at + 4]
        for limit in (1, 5, len(ids), None):
            listed: list[str] = []
            token = None
            while True:
                page = await storage.list_snapshots(
                    location=LOCATION, limit=limit, next_token=token
                )
                listed += [info.snapshot_id for info in page.snapshots]
                token = page.next_token
                if token is None:
                    break
            assert listed == ids
        for step, snapshot_id in enumerate(ids, 1):
            assert await values_of(storage, snapshot_id) == {"step": step}
