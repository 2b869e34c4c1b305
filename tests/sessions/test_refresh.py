"""A refresh applies the commits of other writers and keeps pending events on top."""

from __future__ import annotations

import datetime as dt

import pytest

from holdfast import BlockingSession, ConflictError, RetentionPolicy, SnapshotArchive
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test
from support.conversations import (
    contents,
    everything,
    opened,
    reopened,
    said,
    two,
    types,
)


@async_test
async def test_refresh_applies_what_another_writer_committed():
    one, other = await two(MemoryStateStore())
    await said(other, "a", "b")
    await one.refresh()
    assert contents(one) == ["a", "b"]
    assert not one.is_dirty
    assert one.log.head == other.log.head
    assert list(one.events) == list(other.events)


@async_test
async def test_refresh_keeps_pending_events_on_top():
    one, other = await two(MemoryStateStore())
    one.add_message("user", "mine")
    one.set("mine", 1)
    await said(other, "theirs")
    await one.refresh()
    assert contents(one) == ["theirs", "mine"]
    assert one.is_dirty
    await one.commit()
    assert contents(await reopened(one)) == ["theirs", "mine"]


@async_test
async def test_refresh_raises_and_changes_nothing_if_pending_events_conflict():
    one, other = await two(MemoryStateStore())
    one.set("plan", "mine")
    other.set("plan", "theirs")
    await other.commit()
    before = everything(one)
    with pytest.raises(ConflictError, match=r"state/plan.*call reload\(\)") as raised:
        await one.refresh()
    assert raised.value.conflicts == [("state", "plan")]
    assert everything(one) == before


@async_test
async def test_refresh_without_other_writers_changes_nothing():
    session = await said(await opened(MemoryStateStore()), "a")
    session.set("x", 1)
    before = everything(session)
    await session.refresh()
    assert everything(session) == before


@async_test
async def test_refresh_of_a_new_session_finds_the_one_that_another_writer_created():
    store = MemoryStateStore()
    session = await opened(store)
    session.add_message("user", "mine")
    await said(await opened(store), "theirs")
    await session.refresh()
    assert contents(session) == ["theirs", "mine"]
    assert types(session.events).count("session.started") == 1


@async_test
async def test_refresh_of_a_deleted_session_starts_a_new_one_if_nothing_is_pending():
    store = MemoryStateStore()
    session = await said(await opened(store), "a")
    await SnapshotArchive(store).delete_session(session_id=session.session_id)
    await session.refresh()
    assert session.messages == []
    assert types(session.events) == ["session.started"]
    await said(session, "b")
    assert contents(await reopened(session)) == ["b"]


@async_test
async def test_refresh_of_a_deleted_session_raises_if_events_are_pending():
    store = MemoryStateStore()
    session = await said(await opened(store), "a")
    session.set("x", 1)
    await SnapshotArchive(store).delete_session(session_id=session.session_id)
    with pytest.raises(ConflictError, match="the session was deleted"):
        await session.refresh()
    assert session.get("x") == 1


@async_test
async def test_events_start_where_the_log_starts_after_a_refresh():
    store = MemoryStateStore()
    session = await said(await opened(store), "a")
    other = await said(await reopened(session), "b", "c")
    await session.refresh()
    await other.save()
    later = dt.datetime.now(dt.UTC) + dt.timedelta(days=9)
    await other.archive.prune(location=other.location, policy=RetentionPolicy(last=1), now=later)
    await session.refresh()
    assert list(session.events) == list((await reopened(other)).events)


def test_a_blocking_session_is_refreshed_too():
    store = MemoryStateStore()
    one, other = (BlockingSession.open(store, agent_id="bot", session_id="s") for _ in range(2))
    one.commit()
    other.refresh()
    one.set("x", 1)
    one.commit()
    other.refresh()
    assert other.get("x") == 1
