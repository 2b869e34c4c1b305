"""Saved snapshots round-trip, and do not change earlier ones."""

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
from holdfast.testing.checks import async_test
from holdfast.testing.snapshot_checks import (
    EVERY_VALUE,
    LOCATION,
    NewStorage,
    is_identical,
    load,
    load_values,
    make_snapshot,
    open_storage,
    save,
)


class SavingSnapshotsSuite:
    """State and metadata round-trip, by id and as the latest."""

    turns = 20
    """Number of snapshots in the test of a long history."""

    @async_test
    async def test_storage_implements_the_protocol(self, new_storage: NewStorage) -> None:
        async with open_storage(new_storage) as storage:
            assert isinstance(storage, SnapshotStorage)

    @async_test
    async def test_load_returns_none_if_nothing_was_saved(self, new_storage: NewStorage) -> None:
        missing = make_snapshot({}).snapshot_id
        async with open_storage(new_storage) as storage:
            assert await storage.load_snapshot(location=LOCATION) is None
            assert await storage.load_snapshot(location=LOCATION, snapshot_id=missing) is None
            await save(storage, make_snapshot({"step": 1}))
            elsewhere = SnapshotLocation("ses_other", scope_id=LOCATION.scope_id)
            assert await storage.load_snapshot(location=LOCATION, snapshot_id=missing) is None
            assert await storage.load_snapshot(location=elsewhere) is None

    @async_test
    async def test_snapshots_are_loaded_by_id(self, new_storage: NewStorage) -> None:
        async with open_storage(new_storage) as storage:
            saved = [make_snapshot({"step": step}) for step in range(3)]
            for snapshot in saved:
                await save(storage, snapshot)
            for step in (1, 0, 2):
                found = await load(storage, saved[step].snapshot_id)
                assert isinstance(found, SessionSnapshot)
                assert found.snapshot_id == saved[step].snapshot_id
                assert found.state.values == {"step": step}

    @async_test
    async def test_every_type_round_trips(self, new_storage: NewStorage) -> None:
        snapshot = make_snapshot(EVERY_VALUE)
        async with open_storage(new_storage) as storage:
            for is_latest in (False, True):
                await save(storage, snapshot, is_latest=is_latest)
            for snapshot_id in (snapshot.snapshot_id, None):
                found = await load_values(storage, snapshot_id)
                assert found.keys() == EVERY_VALUE.keys()
                for name, value in EVERY_VALUE.items():
                    assert is_identical(found[name], value), f"{name}: {found[name]!r}"

    @async_test
    async def test_digest_round_trips(self, new_storage: NewStorage) -> None:
        async with open_storage(new_storage) as storage:
            for snapshot in (
                make_snapshot(EVERY_VALUE),
                make_snapshot({}),
                make_snapshot({"n": 1}, messages=3),
            ):
                found = await load(storage, await save(storage, snapshot))
                assert found.digest == snapshot.digest

    @async_test
    async def test_any_namespace_and_key_round_trips(self, new_storage: NewStorage) -> None:
        names = ["", "state", "messages", "a/b", "..", "%2F", "$set", "\x00", "Grüße \U0001f419"]
        entries = [(space, key, f"{space}|{key}") for space in names for key in names]
        store = Store()
        store.set_many(entries)
        snapshot = SessionSnapshot.from_snapshot(
            store.snapshot(), agent_id=LOCATION.scope_id, session_id=LOCATION.session_id
        )
        async with open_storage(new_storage) as storage:
            found = await load(storage, await save(storage, snapshot))
            assert list(found.snapshot.items()) == sorted(entries)

    @async_test
    async def test_large_state_round_trips(self, new_storage: NewStorage) -> None:
        values = {f"part {number}": f"{number} " * 20_000 for number in range(20)}
        async with open_storage(new_storage) as storage:
            found = await load_values(storage, await save(storage, make_snapshot(values)))
            assert found == values

    @async_test
    async def test_parent_tags_and_time_are_kept(self, new_storage: NewStorage) -> None:
        tags = {"env": "production", "reason": "", "Grüße": "\U0001f419 \x00 $set"}
        first = make_snapshot({"step": 1})
        second = make_snapshot({"step": 2}, parent_id=first.snapshot_id, tags=tags)
        long_ago = dt.datetime(2020, 2, 29, 23, 59, 59, 123_456, tzinfo=dt.UTC)
        third = dataclasses.replace(make_snapshot({"step": 3}), created_at=long_ago)
        async with open_storage(new_storage) as storage:
            for snapshot in (first, second, third):
                found = await load(storage, await save(storage, snapshot))
                assert found.parent_id == snapshot.parent_id
                assert found.tags == snapshot.tags
                assert found.created_at == snapshot.created_at
                assert found.location == LOCATION

    @async_test
    async def test_loaded_snapshot_has_the_id_it_was_saved_under(
        self, new_storage: NewStorage
    ) -> None:
        async with open_storage(new_storage) as storage:
            snapshot = make_snapshot({"step": 1})
            for snapshot_id in ("Before_the-incident", make_snapshot({}).snapshot_id):
                await storage.save_snapshot(
                    location=LOCATION, snapshot_id=snapshot_id, is_latest=False, snapshot=snapshot
                )
                found = await load(storage, snapshot_id)
                assert found.snapshot_id == snapshot_id
                assert found.digest == snapshot.digest

    @async_test
    async def test_latest_is_replaced_and_not_listed(self, new_storage: NewStorage) -> None:
        async with open_storage(new_storage) as storage:
            listed = await save(storage, make_snapshot({"step": 0}))
            for step in (1, 2, 3):
                latest = make_snapshot({"step": step}, tags={"step": str(step)})
                await save(storage, latest, is_latest=True)
                found = await load(storage)
                assert found.snapshot_id == latest.snapshot_id
                assert found.state.values == {"step": step}
                assert found.tags == {"step": str(step)}
                assert await storage.list_snapshot_ids(location=LOCATION) == [listed]
                page = await storage.list_snapshots(location=LOCATION)
                assert [info.snapshot_id for info in page.snapshots] == [listed]
            assert await load_values(storage, listed) == {"step": 0}

    @async_test
    async def test_latest_without_a_history(self, new_storage: NewStorage) -> None:
        async with open_storage(new_storage) as storage:
            await save(storage, make_snapshot({"step": 1}), is_latest=True)
            assert await load_values(storage) == {"step": 1}
            assert await storage.list_snapshot_ids(location=LOCATION) == []

    @async_test
    async def test_latest_can_be_replaced_under_the_same_id(self, new_storage: NewStorage) -> None:
        async with open_storage(new_storage) as storage:
            first = make_snapshot({"step": 1})
            await save(storage, first, is_latest=True)
            second = dataclasses.replace(make_snapshot({"step": 2}), snapshot_id=first.snapshot_id)
            await save(storage, second, is_latest=True)
            assert await load_values(storage) == {"step": 2}

    @async_test
    async def test_latest_may_be_older_than_the_history(self, new_storage: NewStorage) -> None:
        async with open_storage(new_storage) as storage:
            old, new = make_snapshot({"step": 1}), make_snapshot({"step": 2})
            for snapshot in (old, new):
                await save(storage, snapshot)
            await save(storage, new, is_latest=True)
            await save(storage, old, is_latest=True)
            assert await load_values(storage) == {"step": 1}
            assert await load_values(storage, new.snapshot_id) == {"step": 2}

    @async_test
    async def test_saving_the_same_snapshot_twice_is_allowed(self, new_storage: NewStorage) -> None:
        async with open_storage(new_storage) as storage:
            snapshot = make_snapshot({"step": 1}, tags={"env": "production"})
            for _ in range(2):
                await save(storage, snapshot)
            await save(storage, make_snapshot({"step": 2}))
            await save(storage, snapshot)
            await save(storage, await load(storage, snapshot.snapshot_id))
            ids = await storage.list_snapshot_ids(location=LOCATION)
            assert ids[0] == snapshot.snapshot_id
            assert len(ids) == 2
            assert await load_values(storage, ids[0]) == {"step": 1}
            assert await load_values(storage, ids[1]) == {"step": 2}

    @async_test
    async def test_history_is_not_rewritten(self, new_storage: NewStorage) -> None:
        async with open_storage(new_storage) as storage:
            first = make_snapshot({"step": 1}, tags={"env": "production"})
            await save(storage, first)
            for another in (
                dataclasses.replace(make_snapshot({"step": 2}), snapshot_id=first.snapshot_id),
                dataclasses.replace(first, tags={"env": "staging"}),
                dataclasses.replace(first, snapshot=make_snapshot({}).snapshot),
            ):
                with pytest.raises(ConflictError):
                    await save(storage, another)
                found = await load(storage, first.snapshot_id)
                assert found.state.values == {"step": 1}
                assert found.tags == {"env": "production"}
            assert await storage.list_snapshot_ids(location=LOCATION) == [first.snapshot_id]

    @async_test
    async def test_removed_keys_stay_in_earlier_snapshots(self, new_storage: NewStorage) -> None:
        states: list[dict[str, Any]] = [
            {"a": 1, "b": {"c": [1]}},
            {"b": {"c": [1, 2]}},
            {},
            {"a": 1, "b": {"c": [1]}},
            {"a": None},
        ]
        async with open_storage(new_storage) as storage:
            ids = [await save(storage, make_snapshot(state)) for state in states]
            assert [await load_values(storage, each) for each in ids] == states

    @async_test
    async def test_every_snapshot_of_a_growing_state_loads(self, new_storage: NewStorage) -> None:
        store = Store()
        past = {}
        async with open_storage(new_storage) as storage:
            for turn in range(self.turns):
                store.set("messages", f"{turn:012}", {"role": "user", "content": f"{turn} " * 300})
                store.set("state", "plan", {"step": turn})
                snapshot = SessionSnapshot.from_snapshot(
                    store.snapshot(), agent_id=LOCATION.scope_id, session_id=LOCATION.session_id
                )
                past[await save(storage, snapshot)] = snapshot.digest
            assert await storage.list_snapshot_ids(location=LOCATION) == list(past)
            for snapshot_id, digest in past.items():
                assert (await load(storage, snapshot_id)).digest == digest

    @async_test
    async def test_changing_a_loaded_snapshot_does_not_change_the_storage(
        self, new_storage: NewStorage
    ) -> None:
        values = {"plan": {"steps": [1, 2]}}
        async with open_storage(new_storage) as storage:
            snapshot_id = await save(storage, make_snapshot(values, tags={"env": "production"}))
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

    @async_test
    async def test_changing_a_snapshot_after_saving_has_no_effect(
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
        async with open_storage(new_storage) as storage:
            await save(storage, snapshot)
            store.set("state", "plan", [1, 2])
            snapshot.tags["env"] = "staging"
            found = await load(storage, snapshot.snapshot_id)
            assert found.state.values == {"plan": [1]}
            assert found.tags == {"env": "production"}

    @async_test
    async def test_loaded_snapshot_can_be_saved_with_another_state(
        self, new_storage: NewStorage
    ) -> None:
        async with open_storage(new_storage) as storage:
            ids = [await save(storage, make_snapshot({"step": step})) for step in range(3)]
            for number, snapshot_id in enumerate(ids):
                loaded = await load(storage, snapshot_id)
                live = loaded.to_store()
                live.set("state", "step", f"edited {number}")
                edited = dataclasses.replace(
                    loaded, snapshot=live.snapshot(), snapshot_id=make_snapshot({}).snapshot_id
                )
                found = await load_values(storage, await save(storage, edited))
                assert found == {"step": f"edited {number}"}
