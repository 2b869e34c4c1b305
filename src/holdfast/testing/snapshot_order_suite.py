"""The order of a history: the last saved is the latest, whatever the ids."""

from __future__ import annotations

import uuid

from holdfast.ids import new_id
from holdfast.snapshots.storage import SnapshotStorage
from holdfast.testing.checks import async_test
from holdfast.testing.snapshot_checks import (
    LOCATION,
    NewStorage,
    load_values,
    make_snapshot,
    open_storage,
)

TRIES = 5


class SnapshotOrderSuite:
    """Ids of any kind, in any order."""

    @async_test
    async def test_last_saved_is_the_latest_with_random_ids(self, new_storage: NewStorage) -> None:
        async with open_storage(new_storage) as storage:
            ids: list[str] = []
            for _ in range(TRIES):
                for _ in range(3):
                    ids.append(str(uuid.uuid4()))
                    await self.save(storage, ids[-1], len(ids))
                assert await load_values(storage) == {"step": len(ids)}
            await self.check(storage, ids)

    @async_test
    async def test_descending_ids_are_listed_in_saved_order(self, new_storage: NewStorage) -> None:
        async with open_storage(new_storage) as storage:
            ids = [f"turn-{at:04}" for at in range(12, 0, -1)]
            for step, snapshot_id in enumerate(ids, 1):
                await self.save(storage, snapshot_id, step)
                assert await load_values(storage) == {"step": step}
            await self.check(storage, ids)

    @async_test
    async def test_mixed_ids_are_listed_in_saved_order(self, new_storage: NewStorage) -> None:
        async with open_storage(new_storage) as storage:
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
                    assert await load_values(storage) == {"step": len(ids)}
            await self.check(storage, ids)

    @async_test
    async def test_time_ordered_ids_are_listed_in_saved_order(
        self, new_storage: NewStorage
    ) -> None:
        async with open_storage(new_storage) as storage:
            made_in_order = [new_id() for _ in range(6)]
            ahead = ["7fffffff-ffff-7fff-bfff-ffffffffffff", "01ffffff-ffff-7000-8000-000000000000"]
            ids = [made_in_order[at] for at in (0, 3, 1, 5, 4, 2)]
            ids[2:2], ids[4:4] = ahead[:1], ahead[1:]
            for step, snapshot_id in enumerate(ids, 1):
                await self.save(storage, snapshot_id, step)
                assert await load_values(storage) == {"step": step}
            await self.check(storage, ids)

    @async_test
    async def test_order_is_kept_after_deleting_and_saving_again(
        self, new_storage: NewStorage
    ) -> None:
        async with open_storage(new_storage) as storage:
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
                assert await load_values(storage) == {"step": 100}

    async def save(self, storage: SnapshotStorage, snapshot_id: str, step: int) -> None:
        """Save a snapshot of a step under an id."""
        await storage.save_snapshot(
            location=LOCATION,
            snapshot_id=snapshot_id,
            is_latest=False,
            snapshot=make_snapshot({"step": step}),
        )

    async def check(self, storage: SnapshotStorage, ids: list[str]) -> None:
        """Check that all are listed in order, in pages of any size, and load by id."""
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
            assert await load_values(storage, snapshot_id) == {"step": step}
