"""Commits that went wrong or came late: what was written is found out, and nothing is lost."""

from __future__ import annotations

import asyncio
import datetime as dt

import pytest

from faults import Fault, FaultyStateStore
from holdfast import (
    ConflictError,
    RetentionPolicy,
    SnapshotArchive,
    StateStoreError,
    open_state_store,
)
from holdfast.sessions import writing
from holdfast.sessions.copying import copy_sessions
from holdfast.snapshots.layout import deleted_key
from holdfast.stores.memory import MemoryStateStore
from loops import in_loop
from sessions.conversations import Counted, contents, opened, reopened, said, types


async def pruned(session, *, days=0):
    """Let another process keep the last snapshot alone, and do so again some days later."""
    other = await reopened(session)
    for number in range(3):
        other.add_message("user", f"later {number}")
        await other.save()
    now = dt.datetime.now(dt.UTC)
    for moment in (now, now + dt.timedelta(days=days)):
        await other.archive.prune(
            location=other.location, policy=RetentionPolicy(last=1), moment=moment
        )
    return other


# ---------------------------------------------------------------------------- lost answers


LOST = [Fault(1, "unknown", done=True), Fault(1, "cancelled", done=True)]
NOT_DONE = [Fault(1, "error"), Fault(1, "unknown"), Fault(1, "cancelled")]


@pytest.mark.parametrize("how", ["commit", "save"])
@pytest.mark.parametrize("fault", [*LOST, *NOT_DONE], ids=str)
@in_loop
async def test_whether_a_commit_was_done_is_found_out_by_the_next(fault, how):
    store = FaultyStateStore(MemoryStateStore())
    session = await opened(store)
    await session.save()
    session.add_message("user", "a")
    store.plan(fault)
    with pytest.raises((StateStoreError, asyncio.CancelledError)):
        await getattr(session, how)()
    assert session.is_dirty
    session.add_message("user", "b")
    await getattr(session, how)()
    assert not session.is_dirty
    other = await reopened(session)
    assert contents(other) == contents(session) == ["a", "b"]
    assert list(other.events) == list(session.events)
    assert types(other.events) == ["session.started", "message.appended", "message.appended"]
    await said(session, "c")
    assert contents(await reopened(session)) == ["a", "b", "c"]
    assert (await session.verify()).ok


@pytest.mark.parametrize("done", [False, True])
@in_loop
async def test_a_first_commit_without_an_answer_is_found_out_too(done):
    store = FaultyStateStore(MemoryStateStore())
    session = await opened(store)
    store.plan(Fault(1, "unknown", done=done))
    with pytest.raises(StateStoreError):
        await session.commit()
    await session.commit()
    assert types((await reopened(session)).events) == ["session.started"]


@in_loop
async def test_a_lost_answer_is_told_from_what_others_wrote_after_it():
    store = FaultyStateStore(MemoryStateStore())
    session = await said(await opened(store), "a")
    session.add_message("user", "b")
    store.plan(Fault(1, "unknown", done=True))
    with pytest.raises(StateStoreError):
        await session.commit()
    other = await said(await reopened(session), "theirs")
    await session.commit()
    assert not session.is_dirty
    assert contents(session) == ["a", "b"]
    session.add_message("user", "c")
    with pytest.raises(ConflictError):
        await session.commit()
    await session.commit(on_conflict="rebase")
    assert contents(session) == contents(await reopened(other)) == ["a", "b", "theirs", "c"]


@in_loop
async def test_a_batch_that_was_written_in_part_is_finished_by_the_next():
    store = FaultyStateStore(MemoryStateStore(), atomic=False)
    session = await said(await opened(store), "a")
    session.add_message("user", "b")
    store.plan(Fault(2, "error"))
    with pytest.raises(StateStoreError):
        await session.save()
    saved = await session.save()
    assert saved.event_log_count == 3
    assert contents(await reopened(session)) == ["a", "b"]
    assert (await session.verify()).snapshots == 1


def test_a_commit_whose_task_was_cancelled_is_found_out_by_the_next(tmp_path):
    async def work():
        async with open_state_store(f"sqlite:///{tmp_path}/state.db") as store:
            session = await said(await opened(store), "begun")
            for number in range(20):
                session.add_message("user", number)
                task = asyncio.create_task(session.commit())
                await asyncio.sleep(0 if number % 2 else 0.0005)
                task.cancel()
                await asyncio.wait([task])
            await session.commit()
            assert contents(await reopened(session)) == ["begun", *range(20)]
            assert (await session.verify()).ok

    asyncio.run(work())


# -------------------------------------------------------------------------- pruned meanwhile


@pytest.mark.parametrize("on_conflict", ["raise", "rebase"])
@in_loop
async def test_who_was_elsewhere_while_the_log_was_pruned_is_refused(on_conflict):
    session = await said(await opened(MemoryStateStore()), "a")
    await pruned(session)
    session.add_message("user", "mine")
    with pytest.raises(ConflictError, match="were first, and their events are pruned"):
        await session.commit(on_conflict=on_conflict)
    with pytest.raises(ConflictError):
        await session.save(on_conflict=on_conflict)
    await session.reload()
    assert contents(session) == ["a", "later 0", "later 1", "later 2"]
    await said(session, "mine")
    assert (await session.verify()).ok


@in_loop
async def test_a_place_that_was_pruned_cannot_be_saved_any_more():
    session = await said(await opened(MemoryStateStore()), "a")
    await pruned(session)
    with pytest.raises(ConflictError, match="the events up to 5 were pruned"):
        await session.save()
    await session.reload()
    assert (await session.save()).event_log_count == 5


@in_loop
async def test_who_was_idle_looks_where_the_log_ends_before_writing(monkeypatch):
    store = Counted()
    session = await said(await opened(store), "a")
    store.forget()
    await said(session, "b")
    assert store.calls == ["put_many"]
    idle(monkeypatch)
    store.forget()
    await said(session, "c")
    assert store.calls == ["get_many", "list", "put_many"]


def idle(monkeypatch):
    """Whoever writes did not write for long."""
    monkeypatch.setattr(writing, "IDLE", 0.0)
    monkeypatch.setattr(writing, "LOOK_AFTER", 0.0)


@pytest.mark.parametrize("goes_on", [False, True])
@in_loop
async def test_who_was_idle_writes_nothing_where_even_the_traces_are_gone(goes_on, monkeypatch):
    session = await said(await opened(MemoryStateStore()), "a")
    other = await pruned(session, days=2)
    if goes_on:
        await said(other, "goes on")
    idle(monkeypatch)
    session.add_message("user", "mine")
    there = dict(session.state_store._entries)
    with pytest.raises(ConflictError):
        await session.commit(on_conflict="rebase")
    assert session.state_store._entries == there


@pytest.mark.parametrize("clock", ["wall", "steady"])
@in_loop
async def test_who_was_idle_for_seconds_writes_nothing_where_a_wrong_clock_took_the_traces(clock):
    session = await said(await opened(MemoryStateStore()), "a")
    await pruned(session, days=2)
    looked = session._writer.looked
    setattr(looked, clock, getattr(looked, clock) - writing.LOOK_AFTER)
    session.add_message("user", "mine")
    there = dict(session.state_store._entries)
    with pytest.raises(ConflictError, match="were pruned"):
        await session.commit(on_conflict="rebase")
    assert session.state_store._entries == there


@in_loop
async def test_who_was_idle_and_began_a_session_that_is_there_meanwhile_meets_it(monkeypatch):
    store = MemoryStateStore()
    session = await opened(store)
    await said(await opened(store), "theirs")
    idle(monkeypatch)
    session.add_message("user", "mine")
    with pytest.raises(ConflictError):
        await session.commit()
    await session.commit(on_conflict="rebase")
    assert contents(await opened(store)) == ["theirs", "mine"]


# ------------------------------------------------------------------- deleted under a busy writer


def late(session):
    """Let it be time for a session to look."""
    session._writer.looked.steady -= writing.LOOK_AFTER


@pytest.mark.parametrize("begun_again", [False, True])
@in_loop
async def test_a_busy_writer_notices_in_time_that_its_session_was_deleted(begun_again):
    store = MemoryStateStore()
    session = await said(await opened(store), "a", "b", "c")
    await SnapshotArchive(store).delete_session(session_id="ses")
    if begun_again:
        await said(await opened(store), "anew")
    late(session)
    there = dict(store._entries)
    session.add_message("user", "d")
    with pytest.raises(ConflictError, match="deleted by somebody else"):
        await session.commit(on_conflict="rebase")
    assert store._entries == there
    await session.reload()
    assert contents(session) == (["anew"] if begun_again else [])


@pytest.mark.parametrize("begun_again", [False, True])
@in_loop
async def test_what_was_committed_before_the_writer_noticed_harms_nobody(begun_again):
    store = MemoryStateStore()
    session = await said(await opened(store), "a", "b", "c")
    await SnapshotArchive(store).delete_session(session_id="ses")
    if begun_again:
        await said(await opened(store), "anew")
    await said(session, "d", "e")
    late(session)
    session.add_message("user", "f")
    with pytest.raises(ConflictError, match="committed since then went with it"):
        await session.commit()
    again = await opened(store)
    assert contents(again) == (["anew"] if begun_again else [])
    await said(again, "on")
    assert (await again.verify()).ok


@pytest.mark.parametrize("more", [(), ("d", "e")])
@in_loop
async def test_a_writer_of_a_session_that_was_put_back_from_a_backup_notices_in_time(more):
    store, backup = MemoryStateStore(), MemoryStateStore()
    session = await said(await opened(store), "a")
    await copy_sessions(store, backup)
    await said(session, "b")
    late(session)
    await said(session, "c")
    await SnapshotArchive(store).delete_session(session_id="ses")
    await copy_sessions(backup, store)
    await said(session, *more)
    late(session)
    session.add_message("user", "d")
    with pytest.raises(ConflictError, match="had committed is not there any more"):
        await session.commit(on_conflict="rebase")
    await session.reload()
    assert contents(session) == ["a"]


@in_loop
async def test_nothing_is_saved_in_a_session_that_is_being_deleted():
    store = MemoryStateStore()
    session = await said(await opened(store), "a")
    await store.put(deleted_key("ses"), b"{}")
    with pytest.raises(ConflictError, match="deleted by somebody else"):
        await session.save()
    assert [key async for key in store.list(session.location.history)] == []


@in_loop
async def test_one_that_meets_another_session_under_its_id_is_not_told_of_damage():
    store = MemoryStateStore()
    session = await said(await opened(store), "a")
    await SnapshotArchive(store).delete_session(session_id="ses")
    await said(await opened(store), "anew", "and", "on")
    session.add_message("user", "mine")
    with pytest.raises(ConflictError, match="deleted by somebody else"):
        await session.commit(on_conflict="rebase")
    assert (await (await opened(store)).verify()).ok
