"""Durable snapshots are saved, restored and forked."""

from __future__ import annotations

import datetime as dt

import pytest

from holdfast import (
    Catalog,
    ConflictError,
    NotFoundError,
    RetentionPolicy,
    Session,
    SessionSnapshot,
    StateStoreError,
    Store,
    open_state_store,
)
from holdfast.ids import new_id
from holdfast.stores.memory import MemoryStateStore
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
from support.faults import Fault, FaultyStateStore
from support.observed_store import ObservedStore


async def list_infos(session):
    """Return the metadata of all snapshots, oldest first."""
    return (await session.archive.list_snapshots(location=session.location)).snapshots


# ------------------------------------------------------------------------------------------- save


@pytest.mark.parametrize("url", ["memory:", "sqlite:///{}/state.db"])
@async_test
async def test_save_commits_and_saves_a_snapshot(url, tmp_path):
    async with open_state_store(url.format(tmp_path)) as store:
        session = await open_session(store)
        session.add_message("user", "hello")
        session.set("plan", {"step": 1})
        session.status = "running"
        saved = await session.save(tags={"env": "production"})
        assert isinstance(saved, SessionSnapshot)
        assert not session.is_dirty
        assert saved.digest == session.snapshot().digest
        assert saved.state.messages == [{"role": "user", "content": "hello"}]
        assert saved.state.values == {"plan": {"step": 1}}
        assert saved.state.status == "running"
        assert saved.tags == {"env": "production"}
        assert saved.event_log_count == 4
        assert saved.parent_id is None
        assert saved.position == session.log.head
        assert saved.location == session.location

        await add_messages(session, "more")
        again = await session.archive.load_snapshot(
            location=session.location, snapshot_id=saved.snapshot_id
        )
        assert again.digest == saved.digest
        assert again.tags == saved.tags
        (info,) = await list_infos(session)
        assert (info.status, info.message_count, info.seq) == ("running", 1, 4)
        assert info.size_bytes == saved.snapshot.size_bytes
        assert info.unfinished is False


@async_test
async def test_save_without_pending_events_saves_the_same_position():
    session = await add_messages(await open_session(MemoryStateStore()), "hello")
    one = await session.save()
    other = await session.save(tags={"reason": "again"})
    assert one.snapshot_id < other.snapshot_id
    assert one.position == other.position
    assert one.digest == other.digest
    assert len(session.events) == 2
    assert [info.snapshot_id for info in await list_infos(session)] == [
        one.snapshot_id,
        other.snapshot_id,
    ]


@async_test
async def test_a_saved_snapshot_does_not_change_with_the_session():
    session = await open_session(MemoryStateStore())
    session.set("x", [1])
    saved = await session.save()
    session.set("x", [2])
    saved.state.values["x"].append(3)
    assert saved.state.values == {"x": [1]}


@async_test
async def test_the_parent_of_a_snapshot_is_the_previous_one_in_any_process():
    session = await open_session(MemoryStateStore())
    saved = [await session.save()]
    for number in range(3):
        session.add_message("user", number)
        saved.append(await session.save())
        if number == 1:
            session = await reopen_session(session)
    parents = [each.parent_id for each in saved]
    assert parents == [None, *(each.snapshot_id for each in saved[:-1])]
    assert [info.parent_id for info in await list_infos(session)] == parents


@async_test
async def test_the_parent_of_a_snapshot_after_a_restore_is_the_restored_one():
    session = await open_session(MemoryStateStore())
    first = await session.save()
    await add_messages(session, "wrong")
    await session.save()
    await session.restore(first.snapshot_id)
    session.add_message("user", "right")
    third = await session.save()
    assert third.parent_id == first.snapshot_id


@pytest.mark.parametrize(
    ("tags", "error"),
    [("env", TypeError), ({"env": 1}, TypeError), ({"env": "\ud800"}, ValueError)],
)
@async_test
async def test_invalid_tags_are_rejected_before_anything_is_written(tags, error):
    store = ObservedStore()
    session = await open_session(store)
    before = capture_state(session)
    with pytest.raises(error):
        await session.save(tags=tags)
    assert capture_state(session) == before
    assert store.written == []


@async_test
async def test_an_invalid_on_conflict_is_rejected():
    session = await open_session(MemoryStateStore())
    before = capture_state(session)
    for refused in (
        session.commit(on_conflict="merge"),
        session.save(on_conflict=None),
    ):
        with pytest.raises(ValueError, match='on_conflict must be "raise" or "rebase", got'):
            await refused
    assert capture_state(session) == before


@async_test
async def test_a_snapshot_saved_after_a_conflict_has_the_rebased_state():
    one, other = await open_two_writers(MemoryStateStore())
    await add_messages(one, "one")
    other.add_message("user", "other")
    with pytest.raises(ConflictError):
        await other.save()
    assert await list_infos(one) == []
    saved = await other.save(on_conflict="rebase")
    assert [message["content"] for message in saved.state.messages] == ["one", "other"]
    assert [(info.message_count, info.seq) for info in await list_infos(one)] == [(2, 3)]
    assert (await one.verify()).ok


# ---------------------------------------------------------------------------------------- restore


@pytest.mark.parametrize("how", ["by its id", "by itself", "as it was loaded", "in memory"])
@async_test
async def test_restore_restores_the_state_and_commits_it(how):
    session = await add_messages(await open_session(MemoryStateStore()), "kept")
    session.set("plan", 1)
    saved = await session.save()
    await add_messages(session, "undone")
    session.delete("plan")
    session.status = "failed"
    moments = {
        "by its id": saved.snapshot_id,
        "by itself": saved,
        "as it was loaded": await session.archive.load_snapshot(location=session.location),
        "in memory": saved.snapshot,
    }
    await session.restore(moments[how])
    assert session.snapshot().digest == saved.digest
    assert not session.is_dirty
    assert session.message_count == 1
    other = await reopen_session(session)
    assert other.snapshot().digest == saved.digest
    assert list_types(other.events)[-3:] == ["state.deleted", "status.changed", "state.restored"]
    durable = None if how == "in memory" else saved.snapshot_id
    assert other.events[-1].data == {"snapshot_id": durable}
    await add_messages(session, "goes on")
    assert list_contents(session) == ["kept", "goes on"]


@async_test
async def test_snapshots_can_be_restored_in_any_order():
    session = await open_session(MemoryStateStore())
    saved = []
    for number in range(5):
        session.set("n", number)
        session.add_message("user", number)
        saved.append(await session.save())
    for place in (3, 0, 4, 2, 2, 1):
        await session.restore(saved[place].snapshot_id)
        assert session.get("n") == place
        assert list_contents(session) == list(range(place + 1))
        assert (await reopen_session(session)).snapshot().digest == saved[place].digest


@async_test
async def test_a_missing_snapshot_cannot_be_restored():
    store = MemoryStateStore()
    session = await add_messages(await open_session(store), "hello")
    elsewhere = await (await open_session(store, "another")).save()
    before = capture_state(session)
    for snapshot_id in (new_id(), elsewhere.snapshot_id):
        with pytest.raises(NotFoundError, match="session ses of bot has no snapshot"):
            await session.restore(snapshot_id)
    with pytest.raises(ValueError, match="invalid snapshot_id"):
        await session.restore("../manifest")
    with pytest.raises(TypeError, match="snapshot_id must be a str"):
        await session.restore(1.5)
    with pytest.raises(NotFoundError, match="session ses of bot has no event 7; its last event"):
        await session.restore(7)
    for number in (0, -1, True):
        with pytest.raises(ValueError, match="events are counted from 1"):
            await session.restore(number)
    assert capture_state(session) == before


@async_test
async def test_the_state_after_any_event_can_be_restored():
    session = await add_messages(await open_session(MemoryStateStore()), "a", "b", "c")
    for seq, left in ((3, ["a", "b"]), (4, ["a", "b", "c"]), (1, []), (5, ["a", "b"])):
        await session.restore(seq)
        assert list_contents(await reopen_session(session)) == left
    assert [event.data for event in session.events[4:]] == [{"seq": seq} for seq in (3, 4, 1, 5)]


@async_test
async def test_a_pruned_event_cannot_be_restored():
    session = await add_messages(await open_session(MemoryStateStore()), "a", "b")
    for _ in range(2):
        await session.save()
    await add_messages(session, "c")
    await session.archive.prune(location=session.location, policy=RetentionPolicy(last=1))
    with pytest.raises(NotFoundError, match="event 2 was pruned from session ses of bot; its log"):
        await session.restore(2)
    await session.restore(3)
    assert list_contents(await reopen_session(session)) == ["a", "b"]


@async_test
async def test_a_snapshot_object_of_another_session_can_be_restored():
    store = MemoryStateStore()
    session = await add_messages(await open_session(store), "mine")
    theirs = await add_messages(await open_session(store, "another", agent_id="other"), "theirs")
    await session.restore(await theirs.save())
    assert list_contents(await reopen_session(session)) == ["theirs"]


@async_test
async def test_a_restore_with_a_conflict_writes_nothing():
    one, other = await open_two_writers(MemoryStateStore())
    saved = await other.save()
    await add_messages(one, "one")
    with pytest.raises(ConflictError):
        await other.restore(saved.snapshot_id)
    assert other.is_dirty
    await other.reload()
    assert list_contents(other) == ["one"]


# ------------------------------------------------------------------------------------------- fork


@async_test
async def test_a_fork_has_the_current_state_with_pending_events_and_is_durable():
    session = await add_messages(await open_session(MemoryStateStore()), "committed")
    session.add_message("user", "waiting")
    session.set("plan", 1)
    session.status = "running"
    other = await session.fork("what-if")
    assert (other.session_id, other.agent_id, other.scope) == ("what-if", "bot", "agent")
    assert not other.is_dirty
    again = await reopen_session(other)
    assert again.snapshot().digest == session.snapshot().digest
    assert list_types(again.events) == ["session.forked"]
    assert again.events[0].data == {
        "agent_id": "bot",
        "session_id": "ses",
        "snapshot_id": None,
        "seq": None,
    }
    assert session.is_dirty
    assert list_contents(await reopen_session(session)) == ["committed"]


@async_test
async def test_a_fork_and_its_origin_are_independent():
    session = await add_messages(await open_session(MemoryStateStore()), "a")
    other = await session.fork()
    assert other.session_id.startswith("ses_")
    assert other.events[0].data["seq"] == 2
    await add_messages(session, "b")
    await add_messages(other, "c")
    assert list_contents(await reopen_session(session)) == ["a", "b"]
    assert list_contents(await reopen_session(other)) == ["a", "c"]
    saved = await other.save()
    assert saved.parent_id is None
    assert (await other.verify()).ok
    page = await Catalog(other.state_store).sessions("bot")
    assert {entry.session_id for entry in page.sessions} == {"ses", other.session_id}


@async_test
async def test_a_fork_at_a_snapshot_has_its_state():
    session = await add_messages(await open_session(MemoryStateStore()), "a")
    saved = await session.save()
    mark = session.snapshot()
    await add_messages(session, "b")
    by_id = await session.fork("one", at=saved.snapshot_id)
    by_itself = await session.fork("two", at=saved)
    in_memory = await session.fork("three", at=mark, agent_id="another")
    for fork in (by_id, by_itself, in_memory):
        assert list_contents(fork) == ["a"]
        assert (await reopen_session(fork)).snapshot().digest == saved.digest
    assert by_id.events[0].data["snapshot_id"] == saved.snapshot_id
    assert in_memory.events[0].data["snapshot_id"] is None
    assert in_memory.agent_id == "another"
    with pytest.raises(NotFoundError):
        await session.fork("four", at=new_id())
    by_event = await session.fork("five", at=2)
    assert list_contents(await reopen_session(by_event)) == ["a"]
    assert by_event.events[0].data["seq"] == 2
    with pytest.raises(NotFoundError, match="has no event 9"):
        await session.fork("six", at=9)


@async_test
async def test_a_fork_does_not_replace_an_existing_session():
    store = MemoryStateStore()
    session = await add_messages(await open_session(store), "mine")
    await add_messages(await open_session(store, "taken"), "theirs")
    with pytest.raises(ConflictError, match="session taken of bot already exists; fork to"):
        await session.fork("taken")
    assert list_contents(await open_session(store, "taken")) == ["theirs"]


@async_test
async def test_a_fork_does_not_replace_a_pruned_session():
    store = MemoryStateStore()
    session = await add_messages(await open_session(store), "mine")
    there = await open_session(store, "taken")
    for number in range(3):
        there.add_message("user", number)
        await there.save()
    today = dt.datetime.now(dt.UTC)
    for moment in (today, today + dt.timedelta(days=2)):
        await there.archive.prune(
            location=there.location, policy=RetentionPolicy(last=1), now=moment
        )
    before = dict(store._entries)
    with pytest.raises(ConflictError, match="session taken of bot already exists"):
        await session.fork("taken")
    assert store._entries == before


@async_test
async def test_a_fork_that_cannot_be_written_raises():
    store = FaultyStateStore(MemoryStateStore())
    session = await add_messages(await open_session(store), "a")
    store.plan(Fault(1, "error"))
    with pytest.raises(StateStoreError):
        await session.fork("other")
    assert list_contents(await session.fork("other")) == ["a"]


@async_test
async def test_any_state_can_be_restored_and_forked():
    session = await add_messages(await open_session(MemoryStateStore()), "a")
    store = Store()
    store.set("elsewhere", "k", {1, 2})
    await session.restore(store.snapshot())
    assert session.status == "pending"
    assert (await reopen_session(session)).snapshot().digest == store.snapshot().digest
    assert (await session.fork("empty", at=Store().snapshot())).messages == []


async def count_calls_of_saves(events):
    """Count listings, keys read and keys written by the saves of a session with a long log."""
    store = ObservedStore()
    session = await Session.open(store, agent_id="bot", session_id="ses")
    for number in range(events):
        session.add_message("user", f"hello {number}")
        if number % 500 == 0:
            await session.commit()
    await session.save()
    session = await Session.open(store, agent_id="bot", session_id="ses")
    store.forget()
    for _ in range(3):
        session.add_message("user", "hello")
        await session.save()
    return store.listings, len(store.read), len(store.written)


@async_test
async def test_a_save_makes_as_many_calls_in_a_long_session_as_in_a_short_one():
    assert await count_calls_of_saves(50) == await count_calls_of_saves(5_000)
