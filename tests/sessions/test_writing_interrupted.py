"""Commits that went wrong or came late: what was written is found out, and nothing is lost."""

from __future__ import annotations

import asyncio
import datetime as dt

import pytest

from faults import Fault, FaultyStateStore
from holdfast import ConflictError, RetentionPolicy, StateStoreError, open_state_store
from holdfast.sessions import writing
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
    monkeypatch.setattr(writing, "IDLE", 0.0)
    store.forget()
    await said(session, "c")
    assert store.calls == ["get", "list", "put_many"]


@pytest.mark.parametrize("goes_on", [False, True])
@in_loop
async def test_who_was_idle_writes_nothing_where_even_the_traces_are_gone(goes_on, monkeypatch):
    session = await said(await opened(MemoryStateStore()), "a")
    other = await pruned(session, days=2)
    if goes_on:
        await said(other, "goes on")
    monkeypatch.setattr(writing, "IDLE", 0.0)
    session.add_message("user", "mine")
    there = dict(session.state_store._entries)
    with pytest.raises(ConflictError):
        await session.commit(on_conflict="rebase")
    assert session.state_store._entries == there


@pytest.mark.parametrize("clock", ["touched", "steady"])
@in_loop
async def test_who_was_idle_for_seconds_writes_nothing_where_a_wrong_clock_took_the_traces(clock):
    session = await said(await opened(MemoryStateStore()), "a")
    await pruned(session, days=2)
    setattr(session._writer, clock, getattr(session._writer, clock) - writing.LOOK_AFTER)
    session.add_message("user", "mine")
    there = dict(session.state_store._entries)
    with pytest.raises(ConflictError, match="were pruned"):
        await session.commit(on_conflict="rebase")
    assert session.state_store._entries == there


@in_loop
async def test_who_was_idle_and_began_a_session_that_is_there_meanwhile_meets_it(monkeypatch):
    store = MemoryStateStore()
    idle = await opened(store)
    await said(await opened(store), "theirs")
    monkeypatch.setattr(writing, "IDLE", 0.0)
    idle.add_message("user", "mine")
    with pytest.raises(ConflictError):
        await idle.commit()
    await idle.commit(on_conflict="rebase")
    assert contents(await opened(store)) == ["theirs", "mine"]
