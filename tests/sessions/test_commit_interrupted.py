"""Commits that failed or came too late: their outcome is found out, and nothing is lost."""

from __future__ import annotations

import asyncio
import datetime as dt

import pytest

from holdfast import (
    ConflictError,
    RetentionPolicy,
    SnapshotArchive,
    SnapshotManifest,
    StateStoreError,
    open_state_store,
)
from holdfast.stores.memory import MemoryStateStore
from holdfast.transfer.copy import copy_sessions
from support.async_tests import async_test
from support.conversations import (
    add_messages,
    list_contents,
    list_types,
    open_session,
    reopen_session,
)
from support.faults import Fault, FaultyStateStore


async def prune_session(session, *, days=0):
    """Prune to the last snapshot in another process, and again some days later."""
    other = await reopen_session(session)
    for number in range(3):
        other.add_message("user", f"later {number}")
        await other.save()
    now = dt.datetime.now(dt.UTC)
    for moment in (now, now + dt.timedelta(days=days)):
        await other.archive.prune(
            location=other.location, policy=RetentionPolicy(last=1), now=moment
        )
    return other


# --------------------------------------------------------------------------------- lost responses


LOST = [Fault(1, "unknown", done=True), Fault(1, "cancelled", done=True)]
NOT_DONE = [Fault(1, "error"), Fault(1, "unknown"), Fault(1, "cancelled")]


@pytest.mark.parametrize("how", ["commit", "save"])
@pytest.mark.parametrize("fault", [*LOST, *NOT_DONE], ids=str)
@async_test
async def test_a_repeated_commit_finds_out_whether_the_first_was_written(fault, how):
    store = FaultyStateStore(MemoryStateStore())
    session = await open_session(store)
    await session.save()
    session.add_message("user", "a")
    store.plan(fault)
    with pytest.raises((StateStoreError, asyncio.CancelledError)):
        await getattr(session, how)()
    assert session.is_dirty
    session.add_message("user", "b")
    await getattr(session, how)()
    assert not session.is_dirty
    other = await reopen_session(session)
    assert list_contents(other) == list_contents(session) == ["a", "b"]
    assert list(other.events) == list(session.events)
    assert list_types(other.events) == ["session.started", "message.appended", "message.appended"]
    await add_messages(session, "c")
    assert list_contents(await reopen_session(session)) == ["a", "b", "c"]
    assert (await session.verify()).ok


@pytest.mark.parametrize("done", [False, True])
@async_test
async def test_a_repeated_first_commit_finds_out_whether_it_was_written(done):
    store = FaultyStateStore(MemoryStateStore())
    session = await open_session(store)
    store.plan(Fault(1, "unknown", done=done))
    with pytest.raises(StateStoreError):
        await session.commit()
    await session.commit()
    assert list_types((await reopen_session(session)).events) == ["session.started"]


@async_test
async def test_a_lost_response_is_recognized_before_commits_of_other_writers():
    store = FaultyStateStore(MemoryStateStore())
    session = await add_messages(await open_session(store), "a")
    session.add_message("user", "b")
    store.plan(Fault(1, "unknown", done=True))
    with pytest.raises(StateStoreError):
        await session.commit()
    other = await add_messages(await reopen_session(session), "theirs")
    await session.commit()
    assert not session.is_dirty
    assert list_contents(session) == ["a", "b"]
    session.add_message("user", "c")
    with pytest.raises(ConflictError):
        await session.commit()
    await session.commit(on_conflict="rebase")
    assert (
        list_contents(session)
        == list_contents(await reopen_session(other))
        == ["a", "b", "theirs", "c"]
    )


@async_test
async def test_a_partly_written_batch_is_completed_by_the_next_commit():
    store = FaultyStateStore(MemoryStateStore(), atomic=False)
    session = await add_messages(await open_session(store), "a")
    session.add_message("user", "b")
    store.plan(Fault(2, "error"))
    with pytest.raises(StateStoreError):
        await session.save()
    saved = await session.save()
    assert saved.event_log_count == 3
    assert list_contents(await reopen_session(session)) == ["a", "b"]
    assert (await session.verify()).snapshots == 1


@async_test
async def test_a_commit_after_a_cancelled_one_finds_out_whether_it_was_written(tmp_path):
    async with open_state_store(f"sqlite:///{tmp_path}/state.db") as store:
        session = await add_messages(await open_session(store), "begun")
        for number in range(20):
            session.add_message("user", number)
            task = asyncio.create_task(session.commit())
            await asyncio.sleep(0 if number % 2 else 0.0005)
            task.cancel()
            await asyncio.wait([task])
        await session.commit()
        assert list_contents(await reopen_session(session)) == ["begun", *range(20)]
        assert (await session.verify()).ok


# ------------------------------------------------------------------------------------ pruned logs


@pytest.mark.parametrize("on_conflict", ["raise", "rebase"])
@async_test
async def test_a_writer_behind_a_pruned_log_gets_a_conflict(on_conflict):
    session = await add_messages(await open_session(MemoryStateStore()), "a")
    await prune_session(session)
    session.add_message("user", "mine")
    with pytest.raises(ConflictError, match="the events up to 5 were pruned"):
        await session.commit(on_conflict=on_conflict)
    with pytest.raises(ConflictError):
        await session.save(on_conflict=on_conflict)
    await session.reload()
    assert list_contents(session) == ["a", "later 0", "later 1", "later 2"]
    await add_messages(session, "mine")
    assert (await session.verify()).ok


@async_test
async def test_a_pruned_position_cannot_be_saved():
    session = await add_messages(await open_session(MemoryStateStore()), "a")
    await prune_session(session)
    with pytest.raises(ConflictError, match="the events up to 5 were pruned"):
        await session.save()
    await session.reload()
    assert (await session.save()).event_log_count == 5


# ------------------------------------------------- sessions that were pruned, deleted or replaced


def make_store():
    return MemoryStateStore()


def make_store_without_batches():
    return FaultyStateStore(MemoryStateStore(), atomic=False)


STORES = pytest.mark.parametrize("new_store", [make_store, make_store_without_batches])


async def read_all(store):
    keys = [key async for key in store.list("")]
    return {key: entry.value for key, entry in (await store.get_many(keys)).items()}


@pytest.mark.parametrize("goes_on", [False, True])
@STORES
@async_test
async def test_nothing_is_written_after_pruned_events_whose_tombstones_are_gone(new_store, goes_on):
    session = await add_messages(await open_session(new_store()), "a")
    other = await prune_session(session, days=2)
    if goes_on:
        await add_messages(other, "goes on")
    session.add_message("user", "mine")
    there = await read_all(session.state_store)
    with pytest.raises(ConflictError, match="were pruned"):
        await session.commit(on_conflict="rebase")
    assert await read_all(session.state_store) == there


@STORES
@async_test
async def test_a_session_that_another_writer_created_first_is_a_conflict_or_rebased(new_store):
    store = new_store()
    session = await open_session(store)
    await add_messages(await open_session(store), "theirs")
    session.add_message("user", "mine")
    with pytest.raises(ConflictError):
        await session.commit()
    await session.commit(on_conflict="rebase")
    assert list_contents(await open_session(store)) == ["theirs", "mine"]


@pytest.mark.parametrize("created_again", [False, True])
@pytest.mark.parametrize("operation", ["commit", "save", "save without events"])
@STORES
@async_test
async def test_a_writer_of_a_deleted_session_is_not_acknowledged(
    new_store, operation, created_again
):
    store = new_store()
    session = await add_messages(await open_session(store), "a", "b", "c")
    await SnapshotArchive(store).delete_session(session_id="ses")
    if created_again:
        await add_messages(await open_session(store), "new")
    there = await read_all(store)
    if operation != "save without events":
        session.add_message("user", "d")
    with pytest.raises(ConflictError, match="the session was deleted"):
        await (session.commit(on_conflict="rebase") if operation == "commit" else session.save())
    assert await read_all(store) == there
    await session.reload()
    assert list_contents(session) == (["new"] if created_again else [])
    await add_messages(session, "on")
    assert (await session.verify()).ok


@STORES
@async_test
async def test_a_writer_of_a_session_that_was_restored_from_a_backup_is_not_acknowledged(new_store):
    store, backup = new_store(), MemoryStateStore()
    session = await add_messages(await open_session(store), "a")
    await copy_sessions(store, backup)
    await add_messages(session, "b", "c")
    await SnapshotArchive(store).delete_session(session_id="ses")
    await copy_sessions(backup, store)
    there = await read_all(store)
    session.add_message("user", "d")
    with pytest.raises(ConflictError, match="restored from a backup without"):
        await session.commit(on_conflict="rebase")
    assert await read_all(store) == there
    await session.reload()
    assert list_contents(session) == ["a"]


@STORES
@async_test
async def test_a_writer_that_changes_the_manifest_does_not_disturb_another(new_store):
    store = new_store()
    session = await add_messages(await open_session(store), "a")
    given = SnapshotManifest(extra={"owner": "Ada"})
    await SnapshotArchive(store).save_manifest(location=session.location, manifest=given)
    await add_messages(session, "b")
    assert list_contents(await reopen_session(session)) == ["a", "b"]
    found = await SnapshotArchive(store).load_manifest(location=session.location)
    assert found.extra == {"owner": "Ada"}


@async_test
async def test_a_writer_that_stops_between_write_and_check_does_no_harm():
    inner = MemoryStateStore()
    store = FaultyStateStore(inner, atomic=False)
    session = await add_messages(await open_session(store), "a")
    await SnapshotArchive(inner).delete_session(session_id="ses")
    new = await add_messages(await open_session(inner), "new")
    await new.save()
    session.add_message("user", "late")
    # Both entries are written, and then the process ends.
    store.plan(Fault(2, "crash", done=True))
    with pytest.raises(BaseException, match="crash"):
        await session.save()
    again = await open_session(inner)
    assert list_contents(again) == ["new"]
    assert (await again.verify()).ok
    await add_messages(again, "on")
    snapshot = await SnapshotArchive(inner).load_snapshot(location=new.location)
    assert [message["content"] for message in snapshot.state.messages] == ["new"]
    page = await SnapshotArchive(inner).list_snapshots(location=new.location)
    assert [info.snapshot_id for info in page.snapshots] == [snapshot.snapshot_id]
    await SnapshotArchive(inner).delete_session(session_id="ses")
    assert await read_all(inner) == {}
