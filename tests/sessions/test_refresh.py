"""A refresh applies the commits of other writers and keeps pending events on top."""

from __future__ import annotations

import datetime as dt

import pytest

from holdfast import BlockingSession, ConflictError, RetentionPolicy, SnapshotArchive
from holdfast.stores.memory import MemoryStateStore
from holdfast.stores.wrappers.base import WrappedStateStore
from support.async_tests import async_test
from support.conversations import (
    add_messages,
    capture_state,
    list_contents,
    list_types,
    open_session,
    open_two_writers,
    reopen_session,
)


@async_test
async def test_refresh_applies_what_another_writer_committed():
    one, other = await open_two_writers(MemoryStateStore())
    await add_messages(other, "a", "b")
    await one.refresh()
    assert list_contents(one) == ["a", "b"]
    assert not one.is_dirty
    assert one.log.head == other.log.head
    assert list(one.events) == list(other.events)


@async_test
async def test_refresh_keeps_pending_events_on_top():
    one, other = await open_two_writers(MemoryStateStore())
    one.add_message("user", "mine")
    one.set("mine", 1)
    await add_messages(other, "theirs")
    await one.refresh()
    assert list_contents(one) == ["theirs", "mine"]
    assert one.is_dirty
    await one.commit()
    assert list_contents(await reopen_session(one)) == ["theirs", "mine"]


@async_test
async def test_refresh_does_not_follow_a_writer_that_commits_all_the_time():
    content = MemoryStateStore()
    other = await open_session(content)
    await add_messages(other, "first")
    numbers = iter(range(50))

    class BusyStore(WrappedStateStore):
        async def list(self, prefix="", **bounds):
            await add_messages(other, str(next(numbers)))
            async for key in super().list(prefix, **bounds):
                yield key

    one = await open_session(BusyStore(content))
    await add_messages(other, "second")
    await one.refresh()
    assert "second" in list_contents(one)
    assert next(numbers) < 10


@async_test
async def test_refresh_raises_and_changes_nothing_if_pending_events_conflict():
    one, other = await open_two_writers(MemoryStateStore())
    one.set("plan", "mine")
    other.set("plan", "theirs")
    await other.commit()
    before = capture_state(one)
    with pytest.raises(ConflictError, match=r"state/plan.*call reload\(\)") as raised:
        await one.refresh()
    assert raised.value.conflicts == [("state", "plan")]
    assert capture_state(one) == before


@async_test
async def test_refresh_without_other_writers_changes_nothing():
    session = await add_messages(await open_session(MemoryStateStore()), "a")
    session.set("x", 1)
    before = capture_state(session)
    await session.refresh()
    assert capture_state(session) == before


@async_test
async def test_refresh_of_a_new_session_finds_the_one_that_another_writer_created():
    store = MemoryStateStore()
    session = await open_session(store)
    session.add_message("user", "mine")
    await add_messages(await open_session(store), "theirs")
    await session.refresh()
    assert list_contents(session) == ["theirs", "mine"]
    assert list_types(session.events).count("session.started") == 1


@async_test
async def test_refresh_of_a_deleted_session_starts_a_new_one_if_nothing_is_pending():
    store = MemoryStateStore()
    session = await add_messages(await open_session(store), "a")
    await SnapshotArchive(store).delete_session(session_id=session.session_id)
    await session.refresh()
    assert session.messages == []
    assert list_types(session.events) == ["session.started"]
    await add_messages(session, "b")
    assert list_contents(await reopen_session(session)) == ["b"]


@async_test
async def test_refresh_of_a_deleted_session_raises_if_events_are_pending():
    store = MemoryStateStore()
    session = await add_messages(await open_session(store), "a")
    session.set("x", 1)
    await SnapshotArchive(store).delete_session(session_id=session.session_id)
    with pytest.raises(ConflictError, match="the session was deleted"):
        await session.refresh()
    assert session.get("x") == 1


@async_test
async def test_events_start_where_the_log_starts_after_a_refresh():
    store = MemoryStateStore()
    session = await add_messages(await open_session(store), "a")
    other = await add_messages(await reopen_session(session), "b", "c")
    await session.refresh()
    await other.save()
    later = dt.datetime.now(dt.UTC) + dt.timedelta(days=9)
    await other.archive.prune(location=other.location, policy=RetentionPolicy(last=1), now=later)
    await session.refresh()
    assert list(session.events) == list((await reopen_session(other)).events)


def test_a_blocking_session_is_refreshed_too():
    store = MemoryStateStore()
    one, other = (BlockingSession.open(store, agent_id="bot", session_id="s") for _ in range(2))
    one.commit()
    other.refresh()
    one.set("x", 1)
    one.commit()
    other.refresh()
    assert other.get("x") == 1
