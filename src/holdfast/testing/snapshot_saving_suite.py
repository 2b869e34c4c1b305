"""What a snapshot is when it comes back, and what saving does to those that were there before."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Any

import pytest

from holdfast.errors import ConflictError
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.snapshots.session_snapshot import SessionSnapshot
from holdfast.snapshots.storage import SnapshotStorage
from holdfast.state.store import Store
from holdfast.testing.snapshot_checks import (
    EVERY_VALUE,
    LOCATION,
    NewStorage,
    identical,
    in_loop,
    keep,
    load,
    made,
    opened,
    values_of,
)


class SavingSnapshotsSuite:
    """By id and as the latest: the same state, and the same that is known of it."""

    turns = 20
    """How many snapshots of a growing state the test of a long history saves."""

    @in_loop
    async def test_it_does_all_that_a_storage_does(self, new_storage: NewStorage) -> None:
        async with opened(new_storage) as storage:
            assert isinstance(storage, SnapshotStorage)

    @in_loop
    async def test_nothing_is_loaded_where_nothing_was_saved(self, new_storage: NewStorage) -> None:
        missing = made({}).snapshot_id
        async with opened(new_storage) as storage:
            assert await storage.load_snapshot(location=LOCATION) is None
            assert await storage.load_snapshot(location=LOCATION, snapshot_id=missing) is None
            await keep(storage, made({"step": 1}))
            elsewhere = SnapshotLocation("ses_other", scope_id=LOCATION.scope_id)
            assert await storage.load_snapshot(location=LOCATION, snapshot_id=missing) is None
            assert await storage.load_snapshot(location=elsewhere) is None

    @in_loop
    async def test_each_snapshot_of_the_history_is_loaded_by_its_id(
        self, new_storage: NewStorage
    ) -> None:
        async with opened(new_storage) as storage:
            saved = [made({"step": step}) for step in range(3)]
            for snapshot in saved:
                await keep(storage, snapshot)
            for step in (1, 0, 2):
                found = await load(storage, saved[step].snapshot_id)
                assert isinstance(found, SessionSnapshot)
                assert found.snapshot_id == saved[step].snapshot_id
                assert found.state.values == {"step": step}

    @in_loop
    async def test_every_kind_of_value_comes_back_as_it_was(self, new_storage: NewStorage) -> None:
        snapshot = made(EVERY_VALUE)
        async with opened(new_storage) as storage:
            for is_latest in (False, True):
                await keep(storage, snapshot, is_latest=is_latest)
            for snapshot_id in (snapshot.snapshot_id, None):
                found = await values_of(storage, snapshot_id)
                assert found.keys() == EVERY_VALUE.keys()
                for name, value in EVERY_VALUE.items():
                    assert identical(found[name], value), f"{name}: {found[name]!r}"

    @in_loop
    async def test_what_is_loaded_has_the_digest_of_what_was_saved(
        self, new_storage: NewStorage
    ) -> None:
        async with opened(new_storage) as storage:
            for snapshot in (made(EVERY_VALUE), made({}), made({"n": 1}, messages=3)):
                found = await load(storage, await keep(storage, snapshot))
                assert found.digest == snapshot.digest

    @in_loop
    async def test_any_namespace_and_any_key_comes_back(self, new_storage: NewStorage) -> None:
        names = ["", "state", "messages", "a/b", "..", "%2F", "$set", "\x00", "Grüße \U0001f419"]
        entries = [(space, key, f"{space}|{key}") for space in names for key in names]
        store = Store()
        store.set_many(entries)
        snapshot = SessionSnapshot.from_snapshot(
            store.snapshot(), agent_id=LOCATION.scope_id, session_id=LOCATION.session_id
        )
        async with opened(new_storage) as storage:
            found = await load(storage, await keep(storage, snapshot))
            assert list(found.snapshot.items()) == sorted(entries)

    @in_loop
    async def test_a_state_of_a_megabyte_comes_back(self, new_storage: NewStorage) -> None:
        values = {f"part {number}": f"{number} " * 20_000 for number in range(20)}
        async with opened(new_storage) as storage:
            found = await values_of(storage, await keep(storage, made(values)))
            assert found == values

    @in_loop
    async def test_parent_tags_and_time_are_kept(self, new_storage: NewStorage) -> None:
        tags = {"env": "production", "reason": "", "Grüße": "\U0001f419 \x00 $set"}
        first = made({"step": 1})
        second = made({"step": 2}, parent_id=first.snapshot_id, tags=tags)
        long_ago = dt.datetime(2020, 2, 29, 23, 59, 59, 123_456, tzinfo=dt.UTC)
        third = dataclasses.replace(made({"step": 3}), created_at=long_ago)
        async with opened(new_storage) as storage:
            for snapshot in (first, second, third):
                found = await load(storage, await keep(storage, snapshot))
                assert found.parent_id == snapshot.parent_id
                assert found.tags == snapshot.tags
                assert found.created_at == snapshot.created_at
                assert found.location == LOCATION

    @in_loop
    async def test_a_snapshot_has_the_id_that_it_was_saved_under(
        self, new_storage: NewStorage
    ) -> None:
        async with opened(new_storage) as storage:
            snapshot = made({"step": 1})
            for snapshot_id in ("Before_the-incident", made({}).snapshot_id):
                await storage.save_snapshot(
                    location=LOCATION, snapshot_id=snapshot_id, is_latest=False, snapshot=snapshot
                )
                found = await load(storage, snapshot_id)
                assert found.snapshot_id == snapshot_id
                assert found.digest == snapshot.digest

    @in_loop
    async def test_the_latest_is_replaced_and_not_listed(self, new_storage: NewStorage) -> None:
        async with opened(new_storage) as storage:
            listed = await keep(storage, made({"step": 0}))
            for step in (1, 2, 3):
                latest = made({"step": step}, tags={"step": str(step)})
                await keep(storage, latest, is_latest=True)
                found = await load(storage)
                assert found.snapshot_id == latest.snapshot_id
                assert found.state.values == {"step": step}
                assert found.tags == {"step": str(step)}
                assert await storage.list_snapshot_ids(location=LOCATION) == [listed]
                page = await storage.list_snapshots(location=LOCATION)
                assert [info.snapshot_id for info in page.snapshots] == [listed]
            assert await values_of(storage, listed) == {"step": 0}

    @in_loop
    async def test_the_latest_may_be_all_there_is(self, new_storage: NewStorage) -> None:
        async with opened(new_storage) as storage:
            await keep(storage, made({"step": 1}), is_latest=True)
            assert await values_of(storage) == {"step": 1}
            assert await storage.list_snapshot_ids(location=LOCATION) == []

    @in_loop
    async def test_the_latest_is_replaced_by_another_one_of_its_id(
        self, new_storage: NewStorage
    ) -> None:
        async with opened(new_storage) as storage:
            first = made({"step": 1})
            await keep(storage, first, is_latest=True)
            second = dataclasses.replace(made({"step": 2}), snapshot_id=first.snapshot_id)
            await keep(storage, second, is_latest=True)
            assert await values_of(storage) == {"step": 2}

    @in_loop
    async def test_the_latest_is_the_one_that_was_said_to_be_though_it_is_older(
        self, new_storage: NewStorage
    ) -> None:
        async with opened(new_storage) as storage:
            old, new = made({"step": 1}), made({"step": 2})
            for snapshot in (old, new):
                await keep(storage, snapshot)
            await keep(storage, new, is_latest=True)
            await keep(storage, old, is_latest=True)
            assert await values_of(storage) == {"step": 1}
            assert await values_of(storage, new.snapshot_id) == {"step": 2}

    @in_loop
    async def test_the_same_snapshot_may_be_saved_again(self, new_storage: NewStorage) -> None:
        async with opened(new_storage) as storage:
            snapshot = made({"step": 1}, tags={"env": "production"})
            for _ in range(2):
                await keep(storage, snapshot)
            await keep(storage, made({"step": 2}))
            await keep(storage, snapshot)
            await keep(storage, await load(storage, snapshot.snapshot_id))
            ids = await storage.list_snapshot_ids(location=LOCATION)
            assert ids[0] == snapshot.snapshot_id
            assert len(ids) == 2
            assert await values_of(storage, ids[0]) == {"step": 1}
            assert await values_of(storage, ids[1]) == {"step": 2}

    @in_loop
    async def test_the_history_is_never_rewritten(self, new_storage: NewStorage) -> None:
        async with opened(new_storage) as storage:
            first = made({"step": 1}, tags={"env": "production"})
            await keep(storage, first)
            for another in (
                dataclasses.replace(made({"step": 2}), snapshot_id=first.snapshot_id),
                dataclasses.replace(first, tags={"env": "staging"}),
                dataclasses.replace(first, snapshot=made({}).snapshot),
            ):
                with pytest.raises(ConflictError):
                    await keep(storage, another)
                found = await load(storage, first.snapshot_id)
                assert found.state.values == {"step": 1}
                assert found.tags == {"env": "production"}
            assert await storage.list_snapshot_ids(location=LOCATION) == [first.snapshot_id]

    @in_loop
    async def test_what_was_removed_from_the_state_is_gone_in_the_next_snapshot_alone(
        self, new_storage: NewStorage
    ) -> None:
        states: list[dict[str, Any]] = [
            {"a": 1, "b": {"c": [1]}},
            {"b": {"c": [1, 2]}},
            {},
            {"a": 1, "b": {"c": [1]}},
            {"a": None},
        ]
        async with opened(new_storage) as storage:
            ids = [await keep(storage, made(state)) for state in states]
            assert [await values_of(storage, each) for each in ids] == states

    @in_loop
    async def test_all_snapshots_of_a_growing_state_load(self, new_storage: NewStorage) -> None:
        store = Store()
        past = {}
        async with opened(new_storage) as storage:
            for turn in range(self.turns):
                store.set("messages", f"{turn:012}", {"role": "user", "content": f"{turn} " * 300})
                store.set("state", "plan", {"step": turn})
                snapshot = SessionSnapshot.from_snapshot(
                    store.snapshot(), agent_id=LOCATION.scope_id, session_id=LOCATION.session_id
                )
                past[await keep(storage, snapshot)] = snapshot.digest
            assert await storage.list_snapshot_ids(location=LOCATION) == list(past)
            for snapshot_id, digest in past.items():
                assert (await load(storage, snapshot_id)).digest == digest

    @in_loop
    async def test_what_is_done_to_a_loaded_snapshot_stays_there(
        self, new_storage: NewStorage
    ) -> None:
        values = {"plan": {"steps": [1, 2]}}
        async with opened(new_storage) as storage:
            snapshot_id = await keep(storage, made(values, tags={"env": "production"}))
            for _ in range(2):
                found = await load(storage, snapshot_id)
                assert found.state.values == values
                assert found.tags == {"env": "production"}
                found.state.values["plan"]["steps"].append(3)
                found.snapshot.get("state", "plan")["steps"].clear()
                found.tags["env"] = "staging"
                live = found.to_store()
                live.set("state", "plan", None)
                assert found.state.values == values
                page = await storage.list_snapshots(location=LOCATION)
                page.snapshots[0].tags.clear()
                page.snapshots.clear()

    @in_loop
    async def test_what_is_done_to_a_snapshot_after_saving_is_not_saved(
        self, new_storage: NewStorage
    ) -> None:
        store = Store()
        store.set("state", "plan", [1])
        snapshot = SessionSnapshot.from_snapshot(
            store.snapshot(),
            agent_id=LOCATION.scope_id,
            session_id=LOCATION.session_id,
            tags={"env": "production"},
        )
        async with opened(new_storage) as storage:
            await keep(storage, snapshot)
            store.set("state", "plan", [1, 2])
            snapshot.tags["env"] = "staging"
            found = await load(storage, snapshot.snapshot_id)
            assert found.state.values == {"plan": [1]}
            assert found.tags == {"env": "production"}

    @in_loop
    async def test_a_loaded_snapshot_with_another_state_is_saved_with_that(
        self, new_storage: NewStorage
    ) -> None:
        async with opened(new_storage) as storage:
            ids = [await keep(storage, made({"step": step})) for step in range(3)]
            for number, snapshot_id in enumerate(ids):
                loaded = await load(storage, snapshot_id)
                live = loaded.to_store()
                live.set("state", "step", f"edited {number}")
                edited = dataclasses.replace(
                    loaded, snapshot=live.snapshot(), snapshot_id=made({}).snapshot_id
                )
                found = await values_of(storage, await keep(storage, edited))
                assert found == {"step": f"edited {number}"}
