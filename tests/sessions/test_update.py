"""An update commits what a function recorded, on the state that the function read."""

from __future__ import annotations

import asyncio
import threading

import pytest

from holdfast import BlockingSession, ConflictError, SnapshotArchive, StateStoreError
from holdfast.sessions import backoff
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test
from support.backends import make_opener
from support.conversations import (
    add_messages,
    capture_state,
    list_contents,
    open_session,
    open_two_writers,
    reopen_session,
)
from support.faults import Fault, FaultyStateStore
from support.observed_store import ObservedStore


def increment(session):
    """Read a counter and write it back, the classic lost update."""
    session.set("count", session.get("count", 0) + 1)
    return session.get("count")


def open_blocking(store):
    return BlockingSession.open(store, agent_id="bot", session_id="ses")


# ------------------------------------------------------------------------------ one writer


@async_test
async def test_update_commits_what_a_function_recorded_and_returns_its_result():
    session = await open_session(MemoryStateStore())
    assert await session.update(increment) == 1
    assert session.get("count") == 1
    assert not session.is_dirty
    assert (await reopen_session(session)).get("count") == 1


@async_test
async def test_the_function_of_an_update_may_be_async():
    session = await open_session(MemoryStateStore())

    async def slowly(session):
        await asyncio.sleep(0)
        return increment(session)

    assert await session.update(slowly) == 1
    assert (await reopen_session(session)).get("count") == 1


@async_test
async def test_an_update_of_one_writer_is_one_write():
    store = ObservedStore()
    session = await add_messages(await open_session(store), "a")
    store.forget()
    await session.update(increment)
    assert store.calls == ["put_many"]


@async_test
async def test_an_update_that_records_nothing_writes_nothing():
    store = ObservedStore()
    session = await open_session(store)
    store.forget()
    assert await session.update(lambda session: session.get("count")) is None
    assert store.calls == []


@async_test
async def test_the_function_sees_pending_events_and_they_are_committed_with_its_own():
    session = await add_messages(await open_session(MemoryStateStore()), "a")
    session.set("count", 41)
    assert await session.update(increment) == 42
    assert (await reopen_session(session)).get("count") == 42


@async_test
async def test_pending_events_are_committed_by_an_update_that_records_nothing():
    session = await add_messages(await open_session(MemoryStateStore()), "a")
    session.set("x", 1)
    await session.update(lambda _: None)
    assert (await reopen_session(session)).get("x") == 1


# ------------------------------------------------------------------------------- conflicts


@async_test
async def test_an_update_runs_again_on_what_another_writer_committed():
    one, other = await open_two_writers(MemoryStateStore())
    await other.update(increment)
    seen = []

    def count(session):
        seen.append(session.get("count", 0))
        return increment(session)

    assert await one.update(count) == 2
    assert seen == [0, 1]
    assert (await reopen_session(one)).get("count") == 2
    assert (await one.verify()).ok


@async_test
async def test_events_of_a_failed_attempt_are_discarded():
    one, other = await open_two_writers(MemoryStateStore())
    await add_messages(other, "theirs")

    def answer(session):
        session.add_message("assistant", f"after {session.message_count}")
        session.record("answered")

    await one.update(answer)
    assert list_contents(await reopen_session(one)) == ["theirs", "after 1"]
    assert [event.type for event in one.events].count("answered") == 1


@async_test
async def test_pending_events_survive_the_retries_of_an_update():
    one, other = await open_two_writers(MemoryStateStore())
    one.add_message("user", "before")
    one.set("mine", 1)
    await other.update(increment)
    await one.update(increment)
    again = await reopen_session(one)
    assert (again.state, list_contents(again)) == ({"count": 2, "mine": 1}, ["before"])


@async_test
async def test_pending_events_that_conflict_fail_the_update_and_stay_pending():
    one, other = await open_two_writers(MemoryStateStore())
    one.set("plan", "mine")
    before = capture_state(one)
    other.set("plan", "theirs")
    await other.commit()
    with pytest.raises(ConflictError) as raised:
        await one.update(increment)
    assert raised.value.conflicts == [("state", "plan")]
    assert capture_state(one) == before


@async_test
async def test_a_conflict_of_a_commit_inside_the_function_starts_it_again():
    one, other = await open_two_writers(MemoryStateStore())
    await other.update(increment)

    async def save(session):
        increment(session)
        return await session.save()

    saved = await one.update(save)
    assert saved.state.values == {"count": 2}
    assert (await one.archive.list_snapshot_ids(location=one.location)) == [saved.snapshot_id]


@async_test
async def test_a_conflict_of_another_session_is_an_error_of_the_function():
    session = await add_messages(await open_session(MemoryStateStore()), "a")
    calls = []

    async def fork(session):
        calls.append(session.get("x"))
        session.set("x", 1)
        await session.fork("ses")

    with pytest.raises(ConflictError, match="already exists"):
        await session.update(fork)
    assert calls == [None]
    assert not session.is_dirty


@async_test
async def test_an_update_of_a_session_that_was_deleted_starts_a_new_one():
    store = MemoryStateStore()
    session = await open_session(store)
    await session.update(increment)
    await SnapshotArchive(store).delete_session(session_id=session.session_id)
    assert await session.update(increment) == 1
    assert (await reopen_session(session)).state == {"count": 1}


@async_test
async def test_an_update_that_always_loses_fails_in_the_end(monkeypatch):
    monkeypatch.setattr(backoff, "GIVE_UP_AFTER", 0.2)
    one, other = await open_two_writers(MemoryStateStore())

    async def overtaken(session):
        increment(session)
        await add_messages(other, "first")

    with pytest.raises(ConflictError, match=r"committed first in \d+ attempts; the update was"):
        await one.update(overtaken)
    assert not one.is_dirty
    assert "count" not in (await reopen_session(one)).state
    assert await one.update(increment) == 1


@pytest.mark.parametrize("backend", ["memory", "sqlite", "files"])
@async_test
async def test_no_increment_of_eight_writers_is_lost(backend, request):
    new_state_store = make_opener(backend, request)
    shared = new_state_store()
    stores = [shared if backend == "memory" else new_state_store() for _ in range(8)]

    async def count(store):
        session = await open_session(store)
        return [await session.update(increment) for _ in range(5)]

    results = await asyncio.gather(*map(count, stores))
    assert sorted(value for each in results for value in each) == list(range(1, 41))
    session = await open_session(shared)
    assert session.get("count") == 40
    assert (await session.verify()).ok
    for store in {id(each): each for each in [shared, *stores]}.values():
        await store.close()


@async_test
async def test_tasks_that_share_a_session_update_it_one_after_the_other():
    session = await open_session(MemoryStateStore())

    async def slowly(session):
        count = session.get("count", 0)
        await asyncio.sleep(0)
        session.set("count", count + 1)

    await asyncio.gather(*(session.update(slowly) for _ in range(10)))
    assert (await reopen_session(session)).get("count") == 10


# ------------------------------------------------------------------- errors and cancellation


@async_test
async def test_an_exception_of_the_function_discards_its_events_and_is_raised():
    session = await add_messages(await open_session(MemoryStateStore()), "a")
    session.set("before", 1)
    before = capture_state(session)

    async def fail(session):
        session.add_message("assistant", "half an answer")
        session.pop_message()
        session.pop_message()
        session.delete("before")
        session.status = "running"
        raise LookupError("no answer")

    with pytest.raises(LookupError, match="no answer"):
        await session.update(fail)
    assert capture_state(session) == before
    assert session.status == "pending"
    await session.commit()
    assert (await reopen_session(session)).state == {"before": 1}


@async_test
async def test_a_cancelled_function_leaves_nothing_behind():
    session = await add_messages(await open_session(MemoryStateStore()), "a")
    before = capture_state(session)

    async def endless(session):
        session.set("x", 1)
        await asyncio.sleep(60)

    task = asyncio.create_task(session.update(endless))
    await asyncio.sleep(0.01)
    assert session.get("x") == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert capture_state(session) == before
    assert await session.update(increment) == 1


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("kind", ["error", "cancelled", "unknown"])
@async_test
async def test_an_update_whose_commit_fails_is_completed_by_the_next_commit(kind, is_done):
    store = FaultyStateStore(MemoryStateStore())
    session = await add_messages(await open_session(store), "a")
    store.plan(Fault(1, kind, is_done and kind != "error"))
    with pytest.raises((StateStoreError, asyncio.CancelledError)):
        await session.update(increment)
    assert session.is_dirty
    await session.commit()
    again = await reopen_session(session)
    assert again.get("count") == 1
    assert [event.type for event in again.events].count("state.set") == 1


@async_test
async def test_an_update_inside_an_update_is_an_error():
    session = await open_session(MemoryStateStore())

    async def nested(session):
        await session.update(increment)

    with pytest.raises(RuntimeError, match="function of another update"):
        await session.update(nested)
    assert await session.update(increment) == 1


@async_test
async def test_update_takes_a_function():
    session = await open_session(MemoryStateStore())
    with pytest.raises(TypeError, match="takes a function of the session, got 7"):
        await session.update(7)


# -------------------------------------------------------------------------------- blocking


def test_blocking_updates_of_two_writers_lose_nothing():
    store = MemoryStateStore()
    one, other = open_blocking(store), open_blocking(store)
    assert [one.update(increment), other.update(increment), one.update(increment)] == [1, 2, 3]
    assert open_blocking(store).get("count") == 3


def test_threads_that_share_a_blocking_session_update_it_one_after_the_other():
    session = open_blocking(MemoryStateStore())
    threads = [
        threading.Thread(target=lambda: [session.update(increment) for _ in range(10)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert session.get("count") == 40


def test_a_blocking_update_discards_the_events_of_a_function_that_raises():
    session = open_blocking(MemoryStateStore())
    session.set("before", 1)

    def fail(session):
        session.set("x", 1)
        raise LookupError("no answer")

    with pytest.raises(LookupError):
        session.update(fail)
    assert session.state == {"before": 1}


def test_a_blocking_update_takes_a_plain_function():
    session = open_blocking(MemoryStateStore())

    async def function(session):
        session.set("x", 1)

    with pytest.raises(TypeError, match="plain function; use Session.update"):
        session.update(function)
    with pytest.raises(TypeError, match="takes a function of the session"):
        session.update(None)
    with pytest.raises(RuntimeError, match="function of another update"):
        session.update(lambda session: session.update(increment))
    assert session.state == {}
    assert session.update(increment) == 1


def test_a_blocking_update_that_always_loses_fails_in_the_end(monkeypatch):
    monkeypatch.setattr(backoff, "GIVE_UP_AFTER", 0.2)
    store = MemoryStateStore()
    one, other = open_blocking(store), open_blocking(store)

    def overtaken(session):
        increment(session)
        other.update(lambda other: other.add_message("user", "first"))

    with pytest.raises(ConflictError, match="the update was discarded"):
        one.update(overtaken)
