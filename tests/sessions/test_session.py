"""Sessions are opened, resumed, rolled back, reloaded and closed."""

from __future__ import annotations

import asyncio
import enum

import pytest

from holdfast import (
    Catalog,
    ConflictError,
    NotFoundError,
    Session,
    StateStoreError,
    open_state_store,
)
from holdfast.sessions.session import SessionOpener
from holdfast.snapshots.session_state import STATUSES
from holdfast.stores.memory import MemoryStateStore
from holdfast.stores.wrappers.read_only import ReadOnlyStateStore
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
from support.observed_store import ObservedStore

# ----------------------------------------------------------------------------------- opening


@async_test
async def test_a_new_session_is_pending_and_empty():
    session = await open_session(MemoryStateStore())
    assert (session.agent_id, session.session_id, session.scope) == ("bot", "ses", "agent")
    assert session.status == "pending"
    assert session.messages == []
    assert session.state == {}
    assert session.message_count == 0
    assert session.agents == ["bot"]
    assert session.is_dirty
    assert list_types(session.events) == ["session.started"]
    assert session.events[0].data == {"agent_id": "bot", "session_id": "ses"}


@async_test
async def test_nothing_is_written_before_the_first_commit():
    store = ObservedStore()
    session = await open_session(store)
    session.add_message("user", "hello")
    session.set("x", 1)
    session.status = "running"
    assert store.written == []
    with pytest.raises(NotFoundError):
        await open_session(store, must_exist=True)


@async_test
async def test_a_session_opened_without_an_id_is_new():
    store = MemoryStateStore()
    one = await Session.open(store, agent_id="bot")
    other = await Session.open(store, agent_id="bot")
    assert one.session_id.startswith("ses_")
    assert one.session_id != other.session_id
    await one.commit()
    assert (await Catalog(store).latest_session("bot")).session_id == one.session_id


@pytest.mark.parametrize("url", ["memory:", "sqlite:///{}/state.db", "file://{}/folder"])
@async_test
async def test_a_session_is_resumed_exactly_as_it_was_committed(url, tmp_path):
    async with open_state_store(url.format(tmp_path)) as store:
        session = await open_session(store)
        session.add_message("user", [{"type": "text", "text": "hi"}], at=(1, 2))
        session.set("plan", {1: {"a", "b"}, "n": None})
        session.status = "running"
        session.record("tool.called", {"tool": "search"})
        await session.commit()
        session.add_message("assistant", "two")
        session.delete("nothing")
        session.pop_message()
        await session.commit()
        session.set("lost", 1)
        other = await reopen_session(session)
        assert other.messages == session.messages
        assert other.state == {"plan": {1: {"a", "b"}, "n": None}}
        assert other.status == "running"
        assert other.message_count == 1
        assert list(other.events) == session.events[:-1]
        assert not other.is_dirty
        assert other.log.head == session.log.head
        await add_messages(other, "goes on")
        assert list_contents(await reopen_session(other))[-1] == "goes on"


@async_test
async def test_must_exist_raises_for_a_missing_session():
    store = MemoryStateStore()
    with pytest.raises(NotFoundError, match="agent bot has no session ses.*Catalog"):
        await open_session(store, must_exist=True)
    await (await open_session(store)).commit()
    assert (await open_session(store, must_exist=True)).session_id == "ses"
    with pytest.raises(NotFoundError):
        await open_session(store, must_exist=True, scope="multi_agent")
    with pytest.raises(NotFoundError):
        await open_session(store, must_exist=True, agent_id="another")


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"agent_id": ""}, ValueError, "agent_id must have 1 to 256 characters"),
        ({"agent_id": None}, TypeError, "agent_id must be a str"),
        ({"session_id": ""}, ValueError, "session_id must have 1 to 256"),
        ({"session_id": 7}, TypeError, "session_id must be a str"),
        ({"session_id": "x" * 257}, ValueError, "got 257"),
        ({"scope": "team"}, ValueError, "invalid scope 'team'; use one of agent, multi_agent"),
    ],
)
def test_invalid_ids_are_rejected_at_once(options, error, words):
    with pytest.raises(error, match=words):
        Session.open(MemoryStateStore(), **{"agent_id": "bot", "session_id": "ses", **options})


def test_open_takes_a_store_and_not_a_url():
    with pytest.raises(TypeError, match="must be a StateStore, got 'memory:'"):
        Session.open("memory:", agent_id="bot")


@async_test
async def test_any_text_is_a_session_id():
    store = MemoryStateStore()
    ids = ["a", "a/b", "../a", "a%2Fb", ".", "..", "ä", "🦀" * 256]
    for session_id in ids:
        await add_messages(await open_session(store, session_id), session_id)
        await add_messages(await open_session(store, "shared", agent_id=session_id), session_id)
    for session_id in ids:
        assert list_contents(await open_session(store, session_id)) == [session_id]
        assert list_contents(await open_session(store, "shared", agent_id=session_id)) == [
            session_id
        ]


@async_test
async def test_a_session_can_be_read_from_a_read_only_store():
    inner = MemoryStateStore()
    await add_messages(await open_session(inner), "hello")
    store = ReadOnlyStateStore(inner)
    session = await open_session(store)
    assert list_contents(session) == ["hello"]
    session.add_message("user", "more")
    with pytest.raises(StateStoreError):
        await session.commit()
    assert (await open_session(store, "fresh")).messages == []


# ------------------------------------------------------------------------------ async with


@async_test
async def test_an_async_with_block_commits_at_its_end():
    store = MemoryStateStore()
    async with open_session(store) as session:
        assert isinstance(session, Session)
        session.add_message("user", "hello")
    async with await open_session(store) as session:
        session.add_message("user", "again")
    assert not session.is_dirty
    assert list_contents(await open_session(store)) == ["hello", "again"]


@async_test
async def test_an_async_with_block_does_not_commit_after_an_exception():
    store = MemoryStateStore()
    with pytest.raises(RuntimeError, match="the agent failed"):
        async with open_session(store) as session:
            session.add_message("user", "hello")
            raise RuntimeError("the agent failed")
    with pytest.raises(asyncio.CancelledError):
        async with await open_session(store) as session:
            session.add_message("user", "hello")
            raise asyncio.CancelledError
    assert session.is_dirty
    with pytest.raises(NotFoundError):
        await open_session(store, must_exist=True)


@async_test
async def test_a_session_that_cannot_be_opened_is_not_entered():
    with pytest.raises(NotFoundError):
        async with open_session(MemoryStateStore(), must_exist=True):
            pytest.fail("it was entered")


@async_test
async def test_an_opener_that_was_never_entered_can_be_left():
    opening = open_session(MemoryStateStore())
    assert isinstance(opening, SessionOpener)
    await opening.__aexit__(None, None, None)
    assert (await opening).messages == []


# ------------------------------------------------------------------------------------- properties


@async_test
async def test_the_status_is_one_of_six_and_each_change_is_an_event():
    session = await open_session(MemoryStateStore())
    for status in STATUSES[1:]:
        session.status = status
        assert session.status == status
    await session.commit()
    assert (await reopen_session(session)).status == "cancelled"
    assert list_types(session.events)[1:] == ["status.changed"] * 5
    session.status = "cancelled"
    assert not session.is_dirty


@pytest.mark.parametrize("status", ["done", "", None, 1, ["running"], "RUNNING"])
def test_an_invalid_status_is_rejected_and_changes_nothing(session, status):
    before = capture_state(session)
    with pytest.raises(ValueError, match="invalid status .*; use one of pending, running"):
        session.status = status
    assert capture_state(session) == before


def test_a_status_that_is_an_enum_becomes_a_plain_str(session):
    class Status(str, enum.Enum):
        RUNNING = "running"

    session.status = Status.RUNNING
    assert session.status == "running"
    assert type(session.status) is str


def test_the_repr_shows_ids_status_and_counts(session):
    session.add_message("user", "hello")
    assert repr(session) == "<Session ses of bot: pending, 1 messages, 0 events, 2 pending>"


@async_test
async def test_committed_events_are_not_pending():
    session = await add_messages(await open_session(MemoryStateStore()), "hello")
    assert not session.is_dirty
    assert repr(session) == "<Session ses of bot: pending, 1 messages, 2 events>"
    assert session.log.head.seq == 2
    assert [event async for event in session.log.read()] == list(session.events)
    session.set("x", 1)
    assert session.is_dirty
    assert session.log.head.seq == 2


@async_test
async def test_a_session_of_a_single_agent_has_no_agents_to_add():
    session = await open_session(MemoryStateStore())
    with pytest.raises(ValueError, match="ses belongs to a single agent"):
        session.agent("writer")


@async_test
async def test_verify_finds_damage():
    store = ObservedStore()
    session = await add_messages(await open_session(store), "a", "b")
    await session.save()
    assert (await session.verify()).ok
    await store.put(store.keys_with("/log/")[0], b"{}")
    assert not (await session.verify()).ok


# --------------------------------------------------------------------------------------- rollback


@async_test
async def test_a_rollback_undoes_later_changes_and_is_recorded():
    session = await add_messages(await open_session(MemoryStateStore()), "kept")
    session.set("plan", {"step": 1})
    mark = session.snapshot()
    session.add_message("assistant", "wrong")
    session.set("plan", {"step": 2})
    session.set("new", 1)
    session.status = "failed"
    session.rollback(mark)
    assert list_contents(session) == ["kept"]
    assert session.state == {"plan": {"step": 1}}
    assert session.status == "pending"
    assert session.message_count == 1
    assert session.snapshot().digest == mark.digest
    assert list_types(session.events)[-1] == "state.restored"
    assert session.events[-1].data == {"snapshot": mark.id}
    session.add_message("assistant", "right")
    await session.commit()
    other = await reopen_session(session)
    assert list_contents(other) == ["kept", "right"]
    assert list_types(other.events) == list_types(session.events)
    assert list_types(other.events).count("message.appended") == 3


@async_test
async def test_a_rollback_may_go_across_commits_in_both_directions():
    session = await add_messages(await open_session(MemoryStateStore()), "a")
    before = session.snapshot()
    await add_messages(session, "b", "c")
    after = session.snapshot()
    session.rollback(before)
    await add_messages(session, "d")
    session.rollback(after)
    assert list_contents(session) == ["a", "b", "c"]
    await session.commit()
    assert (await reopen_session(session)).snapshot().digest == after.digest


@pytest.mark.parametrize("mark", [None, 7, "019a8b5e-6f00-7000-8000-000000000000", {}])
def test_rollback_takes_an_in_memory_snapshot(session, mark):
    before = capture_state(session)
    with pytest.raises(TypeError, match="rollback takes a snapshot"):
        session.rollback(mark)
    assert capture_state(session) == before


# ----------------------------------------------------------------------------------------- reload


@async_test
async def test_reload_reads_the_last_commit_and_drops_pending_events():
    one, two_ = await open_two_writers(MemoryStateStore())
    await add_messages(one, "one")
    two_.add_message("user", "two")
    with pytest.raises(ConflictError):
        await two_.commit()
    await two_.reload()
    assert list_contents(two_) == ["one"]
    assert not two_.is_dirty
    assert list_types(two_.events) == ["session.started", "message.appended"]
    await add_messages(two_, "two")
    assert list_contents(await reopen_session(one)) == ["one", "two"]


@async_test
async def test_reload_of_a_session_that_was_never_committed_starts_it_again():
    session = await open_session(MemoryStateStore())
    session.add_message("user", "dropped")
    await session.reload()
    assert list_types(session.events) == ["session.started"]
    await session.save()
    assert (await reopen_session(session)).messages == []


@async_test
async def test_the_parent_of_a_snapshot_after_a_reload_is_the_newest_snapshot():
    one, two_ = await open_two_writers(MemoryStateStore())
    first = await two_.save()
    two_.set("x", 1)
    second = await two_.save()
    await one.reload()
    third = await one.save()
    assert [first.parent_id, second.parent_id, third.parent_id] == [
        None,
        first.snapshot_id,
        second.snapshot_id,
    ]


# ------------------------------------------------------------------------------------ tasks


@pytest.mark.parametrize("url", ["memory:", "sqlite:///{}/state.db"])
@async_test
async def test_tasks_of_one_loop_share_a_session(url, tmp_path):
    async with open_state_store(url.format(tmp_path)) as store:
        session = await open_session(store)

        async def speak(task):
            for number in range(10):
                session.add_message("user", (task, number))
                await asyncio.sleep(0)
                if number % 3 == 0:
                    await session.save(tags={"task": str(task)})
                else:
                    await session.commit()

        await asyncio.gather(*(speak(task) for task in range(4)))
        assert not session.is_dirty
        other = await reopen_session(session)
        assert other.messages == session.messages
        assert len(other.messages) == 40
        for task in range(4):
            own = [number for who, number in list_contents(other) if who == task]
            assert own == list(range(10))
        assert (await other.verify()).ok
        page = await other.archive.list_snapshots(location=other.location)
        parents = [info.parent_id for info in page.snapshots]
        assert parents == [None, *(info.snapshot_id for info in page.snapshots[:-1])]
