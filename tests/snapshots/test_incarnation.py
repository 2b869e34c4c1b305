"""Incarnations: creation, deletion and re-creation of a session under the same id."""

from __future__ import annotations

import asyncio
import datetime as dt
from contextlib import suppress

import pytest

from holdfast import (
    Catalog,
    ConflictError,
    RetentionPolicy,
    Session,
    SnapshotArchive,
    SnapshotManifest,
    open_state_store,
)
from holdfast.documents.export import export_document
from holdfast.snapshots import incarnation
from holdfast.snapshots.delete import Deletion
from holdfast.snapshots.discovery import find_incarnations, find_index_keys
from holdfast.snapshots.incarnation import ACTIVITY_RESOLUTION, Incarnation
from holdfast.stores.memory import MemoryStateStore
from holdfast.stores.wrappers.base import WrappedStateStore
from holdfast.stores.wrappers.read_only import ReadOnlyStateStore
from holdfast.transfer.import_document import import_document
from support.async_tests import async_test
from support.conversations import add_messages, list_contents, open_session
from support.copied_sessions import HERE, read_all, save_messages
from support.faults import RAISED, WAYS, Fault, FaultyStateStore
from support.observed_store import InterruptedStore

STORES = pytest.mark.parametrize("atomic", [True, False], ids=["atomic", "one by one"])


# ------------------------------------------------------------------------------------- creation


class GatedStore(WrappedStateStore):
    """A store without atomic batches whose write with some number waits for an event."""

    def __init__(self, inner, number, at_gate, gate):
        super().__init__(inner)
        self.atomic_put_many = self.conditional_put_many = self.runs_inline = False
        self.number, self.at_gate, self.gate = number, at_gate, gate

    async def put_many(self, puts, **_):
        etags = []
        for put in puts:
            self.number -= 1
            if self.number == 0:
                self.at_gate.set()
                await self.gate.wait()
            etags += await self.inner.put_many([put])
        return etags


@async_test
async def test_a_creator_that_loses_keeps_the_index_entry_of_the_winner():
    source = MemoryStateStore()
    await save_messages(source, "a")
    document = await export_document(SnapshotArchive(source), HERE)
    disk = MemoryStateStore()
    claimed, hidden, lost = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def lose():
        try:
            # Claims, waits before its index entry, and finds the claim of the other.
            await import_document(
                GatedStore(disk, 3, claimed, hidden), document, HERE, dry_run=False
            )
        finally:
            lost.set()

    async def win():
        await claimed.wait()
        await import_document(GatedStore(disk, 4, hidden, lost), document, HERE, dry_run=False)

    outcomes = await asyncio.gather(lose(), win(), return_exceptions=True)
    assert [type(each) for each in outcomes] == [ConflictError, type(None)]
    assert len((await Catalog(disk).sessions(HERE.scope_id)).sessions) == 1
    assert (await SnapshotArchive(disk).verify(location=HERE)).damage == []


@STORES
@async_test
async def test_a_creation_that_crashes_at_any_write_is_complete_or_absent(atomic):
    for kind, is_done in (("crash", False), ("crash", True), ("error", False), ("unknown", True)):
        for number in range(1, 6):
            disk = MemoryStateStore()
            store = FaultyStateStore(disk, atomic=atomic)
            session = await open_session(store)
            session.add_message("user", "a")
            store.plan(Fault(number, kind, is_done))
            failed = False
            try:
                await session.save()
            except RAISED:
                failed = True
            store.plan(None)
            listed = (await Catalog(disk).sessions("bot")).sessions
            reader = await open_session(disk)
            assert (await reader.verify()).damage == []
            assert bool(listed) == (list_contents(reader) == ["a"])
            assert failed or listed
            if kind != "crash":
                await session.save()
                assert list_contents(await open_session(disk)) == ["a"]
                assert len((await Catalog(disk).sessions("bot")).sessions) == 1


@STORES
@async_test
async def test_concurrent_creation_is_a_conflict_for_one(atomic):
    counting = InterruptedStore(FaultyStateStore(MemoryStateStore(), atomic=atomic), 0, None)
    await add_messages(await open_session(counting), "one")
    for at in range(1, counting.calls + 1):
        disk = MemoryStateStore()

        async def other(disk=disk):
            await add_messages(await open_session(FaultyStateStore(disk, atomic=atomic)), "other")

        store = InterruptedStore(FaultyStateStore(disk, atomic=atomic), at, other)
        session = await open_session(store)
        session.add_message("user", "one")
        acknowledged = True
        try:
            await session.commit()
        except ConflictError:
            acknowledged = False
        reader = await open_session(disk)
        assert ("one" in list_contents(reader)) == acknowledged, at
        assert (await reader.verify()).ok, at
        assert len((await Catalog(disk).sessions("bot")).sessions) == 1, at


@STORES
@async_test
async def test_creation_keeps_extra_fields_of_an_earlier_manifest(atomic):
    store = FaultyStateStore(MemoryStateStore(), atomic=atomic)
    archive = SnapshotArchive(store)
    given = SnapshotManifest(extra={"owner": "Ada"})
    await archive.save_manifest(location=HERE, manifest=given)
    await add_messages(await open_session(store), "a")
    found = await archive.load_manifest(location=HERE)
    assert found.extra == {"owner": "Ada"}
    assert found.incarnation


# ------------------------------------------------------------------------------------- deletion


@STORES
@async_test
async def test_a_deletion_concurrent_with_a_creation_leaves_the_new_session_or_nothing(atomic):
    """Interleave a creation and a deletion at every call of either."""
    counting = InterruptedStore(FaultyStateStore(MemoryStateStore(), atomic=atomic), 0, None)
    await save_messages(counting, "a")
    for at in range(1, counting.calls + 1):
        disk = MemoryStateStore()
        await save_messages(disk, "old")

        async def delete(disk=disk):
            store = FaultyStateStore(disk, atomic=atomic)
            await SnapshotArchive(store).delete_session(session_id="ses")

        store = InterruptedStore(FaultyStateStore(disk, atomic=atomic), at, delete)
        session = await open_session(store)
        session.add_message("user", "new")
        acknowledged = True
        try:
            await session.commit(on_conflict="rebase")
        except ConflictError:
            acknowledged = False
        reader = await open_session(disk)
        assert (await reader.verify()).damage == [], at
        if store.calls >= at and not acknowledged:
            assert "new" not in list_contents(reader), at


class TurnStore(InterruptedStore):
    """Makes calls only while it has the turn, and passes the turn on before given calls."""

    def __init__(self, inner, *stops):
        super().__init__(inner, 0, None)
        self.stops = stops
        self.turn = asyncio.Event()

    async def _call(self):
        self.calls += 1
        if self.calls in self.stops:
            self.turn.clear()
            self.other.turn.set()
            await self.turn.wait()
            await self.action()

    async def run(self, act):
        """Run a function on this store and return its result, or None if it conflicts."""
        await self.turn.wait()
        try:
            return await act(FaultyStateStore(self, atomic=False))
        except ConflictError:
            return None
        finally:
            self.other.stops = ()
            self.other.turn.set()


async def take_turns(disk, first, second, third):
    """Create a session while it is deleted, and read it at each change of turns.

    The creation runs until its call number ``first``, the deletion until its call ``second``, the
    creation until its call ``third``, the deletion to its end, and the creation to its own.
    """
    creation, deletion = TurnStore(disk, first, third), TurnStore(disk, second)
    creation.other, deletion.other = deletion, creation

    async def read():
        return await open_session(ReadOnlyStateStore(disk))

    async def create(store):
        session = await add_messages(await open_session(store), "new")
        return session.committer.incarnation.id

    async def delete(store):
        started = await Deletion.start(store, "ses")
        await started.run()
        return started.incarnations

    creation.action = deletion.action = read
    creation.turn.set()
    created, deleted = await asyncio.gather(creation.run(create), deletion.run(delete))
    is_kept = created is not None and created not in deleted
    reader = await read()
    assert list_contents(reader) == ["new"] * is_kept, (first, second, third)
    assert (await reader.verify()).damage == [], (first, second, third)
    return creation.calls, deletion.calls, is_kept


@async_test
async def test_a_session_created_during_a_deletion_can_be_read_at_any_time():
    """A deletion of leftovers never deletes what a creation is about to name."""

    async def make_disk():
        disk = MemoryStateStore()
        await add_messages(await open_session(disk), "old")
        await disk.delete(HERE.manifest_key)
        return disk

    creations, deletions, _ = await take_turns(await make_disk(), 1, 99, 99)
    outcomes = set()
    for first in range(1, creations + 2):
        for second in range(1, deletions + 2):
            for third in range(first + 1, creations + 2):
                outcomes.add((await take_turns(await make_disk(), first, second, third))[2])
    assert outcomes == {True, False}


@pytest.mark.parametrize("url", ["memory:", "sqlite:///{}/s.db", "file://{}/s"])
@async_test
async def test_concurrent_agents_and_deletions_never_damage_a_session(url, tmp_path):
    problems: list[str] = []
    acknowledged = 0
    async with open_state_store(url.format(tmp_path)) as store:
        stop = asyncio.get_running_loop().time() + 2

        async def agent(name):
            nonlocal acknowledged
            while asyncio.get_running_loop().time() < stop:
                try:
                    session = await open_session(store)
                    for number in range(4):
                        session.add_message("user", f"{name} {number}")
                        await session.commit(on_conflict="rebase")
                        acknowledged += 1
                        await asyncio.sleep(0)
                except ConflictError:
                    continue
                except Exception as error:  # noqa: BLE001
                    problems.append(repr(error))

        async def deleter():
            while asyncio.get_running_loop().time() < stop:
                await asyncio.sleep(0.1)
                await SnapshotArchive(store).delete_session(session_id="ses")

        await asyncio.gather(agent("a"), agent("b"), agent("c"), deleter())
        session = await open_session(store)
        assert (await session.verify()).ok
        await SnapshotArchive(store).delete_session(session_id="ses")
        assert await read_all(store) == {}
    assert problems == []
    assert acknowledged > 20


@STORES
@async_test
async def test_a_prune_does_not_touch_a_session_created_during_it(atomic):
    whole = MemoryStateStore()
    await save_messages(whole, "abcdef")
    counting = InterruptedStore(whole, 0, None)
    policy = RetentionPolicy(last=1)
    await SnapshotArchive(counting).prune(location=HERE, policy=policy)
    for at in range(1, counting.calls + 1):
        disk = MemoryStateStore()
        await save_messages(disk, "abcdef")

        async def replace_it(disk=disk):
            await SnapshotArchive(disk).delete_session(session_id="ses")
            await save_messages(disk, "xyz")

        store = InterruptedStore(FaultyStateStore(disk, atomic=atomic), at, replace_it)
        try:
            await SnapshotArchive(store).prune(location=HERE, policy=policy)
        except ConflictError:
            assert store.calls >= at
        reader = await open_session(disk)
        assert list_contents(reader) == list("xyz"), at
        assert (await reader.verify()).damage == [], at
        ids = await SnapshotArchive(disk).list_snapshot_ids(location=HERE)
        for snapshot_id in ids:
            assert await SnapshotArchive(disk).load_snapshot(location=HERE, snapshot_id=snapshot_id)


# ------------------------------------------------------------------------------------- activity


@pytest.mark.parametrize("url", ["memory:", "file://{}/s"])
@async_test
async def test_a_commit_moves_an_old_index_entry(url, tmp_path, monkeypatch):
    monkeypatch.setattr(incarnation, "ACTIVITY_RESOLUTION", dt.timedelta())
    async with open_state_store(url.format(tmp_path)) as store:
        session = await add_messages(await open_session(store), "a")
        (first,) = await find_index_keys(store, HERE)
        other = await open_session(store)
        await add_messages(session, "b")
        (second,) = await find_index_keys(store, HERE)
        assert second < first  # the newest first
        # Another writer sees that the entry moved, and moves it from there.
        await other.reload()
        await add_messages(other, "c")
        assert len(await find_index_keys(store, HERE)) == 1
        (entry,) = (await Catalog(store).sessions("bot")).sessions
        assert entry.active_at > entry.started_at
        assert (await other.verify()).leftovers == []


@STORES
@async_test
async def test_a_move_of_the_index_entry_that_fails_leaves_the_session_listed(atomic, monkeypatch):
    monkeypatch.setattr(incarnation, "ACTIVITY_RESOLUTION", dt.timedelta())
    for kind, is_done in WAYS:
        for number in range(1, 5):
            disk = MemoryStateStore()
            store = FaultyStateStore(disk, atomic=atomic)
            session = await add_messages(await open_session(store), "a")
            session.add_message("user", "b")
            store.plan(Fault(number, kind, is_done))
            with suppress(*RAISED):
                await session.commit()
            assert len((await Catalog(disk).sessions("bot")).sessions) == 1, (kind, number)
            reader = await add_messages(await open_session(disk), "c")
            assert (await reader.verify()).ok, (kind, number)
            assert len((await Catalog(disk).sessions("bot")).sessions) == 1, (kind, number)


@async_test
async def test_not_every_commit_moves_the_index_entry():
    store = MemoryStateStore()
    session = await add_messages(await open_session(store), "a")
    before = await find_index_keys(store, HERE)
    await add_messages(session, "b", "c")
    assert await find_index_keys(store, HERE) == before
    known = (await Incarnation.read(store, HERE)).manifest
    assert dt.datetime.now(dt.UTC) - known.active_at < ACTIVITY_RESOLUTION


@async_test
async def test_log_and_keyframes_are_stored_below_the_incarnation():
    store = MemoryStateStore()
    await save_messages(store, "ab")
    (one,) = await find_incarnations(store, HERE)
    await SnapshotArchive(store).delete_session(session_id="ses")
    await save_messages(store, "cd")
    (two,) = await find_incarnations(store, HERE)
    assert one != two
    session = await Session.open(store, agent_id="bot", session_id="ses")
    assert session.log.prefix == f"{HERE.prefix}log/{two}/"
