"""What users do with sessions, on every backend."""

from __future__ import annotations

import datetime as dt

import pytest

import holdfast
from holdfast import ConflictError, NotFoundError, SnapshotArchive
from support.async_tests import async_test, run_async

AGENT, SESSION = "research-bot", "ses_abc123"
LOCATION = holdfast.SnapshotLocation(SESSION, scope="agent", scope_id=AGENT)
PLAN = {"step": 3, "sources": ("a", "b"), "seen": {1, 2}, "due": dt.date(2026, 11, 15)}


def opened(state_store, session_id=SESSION, **options):
    return holdfast.Session.open(state_store, agent_id=AGENT, session_id=session_id, **options)


def list_types(session):
    return [event.type for event in session.events]


@async_test
async def test_a_session_records_commits_saves_restores_and_forks(new_state_store):
    async with new_state_store() as state_store:
        session = await holdfast.Session.open(
            state_store, agent_id="research-bot", session_id="ses_abc123"
        )
        assert (session.status, session.messages, session.state) == ("pending", [], {})
        session.add_message("user", "Compare the two reports")
        session.add_message("assistant", [{"type": "text", "text": "Which?"}], model="m-1", cost=2)
        session.record("tool.called", {"tool": "search", "args": {"q": "reports"}})
        session.set("plan", PLAN)
        assert session.get("plan") == PLAN
        assert session.delete("plan")
        assert not session.delete("plan")
        session.set("plan", PLAN)
        session.status = "running"
        assert session.messages == [
            {"role": "user", "content": "Compare the two reports"},
            {
                "role": "assistant",
                "content": [{"type": "text", "text": "Which?"}],
                "model": "m-1",
                "cost": 2,
            },
        ]
        assert session.state == {"plan": PLAN}
        assert list_types(session) == [
            "session.started",
            "message.appended",
            "message.appended",
            "tool.called",
            "state.set",
            "state.deleted",
            "state.set",
            "status.changed",
        ]
        mark = session.snapshot()
        session.add_message("user", "Never mind")
        session.set("plan", None)
        session.rollback(mark)
        assert session.get("plan") == PLAN
        assert len(session.messages) == 2
        assert list_types(session)[-1] == "state.restored"
        await session.commit()
        saved = await session.save(tags={"env": "production"})
        assert isinstance(saved, holdfast.SessionSnapshot)
        assert saved.tags == {"env": "production"}
        assert saved.event_log_count == len(session.events) == 11

        session.add_message("user", "And a third")
        session.status = "waiting"
        await session.restore(saved.snapshot_id)
        assert (session.status, len(session.messages)) == ("running", 2)

        other = await session.fork("ses_what_if", at=saved.snapshot_id)
        assert (other.session_id, other.agent_id) == ("ses_what_if", "research-bot")
        assert other.messages == session.messages
        assert other.state == session.state
        assert list_types(other) == ["session.forked"]
        with pytest.raises(ValueError, match="pending, running"):
            session.status = "asleep"


@async_test
async def test_a_session_is_resumed_exactly_as_it_was_committed(new_state_store):
    async with new_state_store() as state_store:
        session = await opened(state_store)
        session.add_message("user", "Compare the two reports")
        session.record("tool.called", {"tool": "search", "args": (1, b"2")})
        session.set("plan", PLAN)
        session.status = "waiting"
        await session.commit()
        state, events = session.snapshot(), list(session.events)
        session.set("plan", "not committed")
    async with new_state_store() as state_store:
        session = await opened(state_store, must_exist=True)
        assert session.snapshot().digest == state.digest
        assert session.status == "waiting"
        assert session.get("plan") == PLAN
        assert list(session.events) == events
        assert [event async for event in session.events] == events
        session.add_message("assistant", "They differ")
        await session.commit()
        with pytest.raises(NotFoundError, match="ses_other"):
            await opened(state_store, "ses_other", must_exist=True)
    async with new_state_store() as state_store:
        session = await opened(state_store)
        assert [message["content"] for message in session.messages] == [
            "Compare the two reports",
            "They differ",
        ]
        assert (await session.verify()).ok


@async_test
async def test_a_block_commits_at_its_end_and_not_after_an_exception(new_state_store):
    async with new_state_store() as state_store:
        async with opened(state_store) as session:
            session.set("step", 1)
        with pytest.raises(ZeroDivisionError):
            async with opened(state_store) as session:
                session.set("step", 2)
                _ = 1 / 0
        async with await opened(state_store) as session:
            assert session.get("step") == 1
            assert not session.is_dirty


@async_test
async def test_a_fork_is_independent_of_its_origin(new_state_store):
    async with new_state_store() as state_store:
        session = await opened(state_store)
        session.set("plan", "first")
        saved = await session.save()
        session.set("plan", "second")
        await session.commit()
        early = await session.fork("ses_early", at=saved.snapshot_id)
        late = await session.fork()
        assert (early.get("plan"), late.get("plan")) == ("first", "second")
        early.set("plan", "what if")
        early.add_message("user", "hello")
        await early.save()
        session.add_message("user", "goodbye")
        await session.commit()
        assert (session.get("plan"), len(session.messages)) == ("second", 1)
        with pytest.raises(ConflictError, match="ses_early"):
            await session.fork("ses_early")
        with pytest.raises(NotFoundError):
            await session.fork("ses_never", at="no-such-snapshot")
    async with new_state_store() as state_store:
        again = await opened(state_store, "ses_early", must_exist=True)
        assert (again.get("plan"), len(again.messages)) == ("what if", 1)
        assert (await again.verify()).ok


@async_test
async def test_restores_and_rollbacks_do_not_truncate_the_log(new_state_store):
    async with new_state_store() as state_store:
        session = await opened(state_store)
        saved = []
        for step in range(4):
            session.set("step", step)
            session.add_message("user", f"message {step}")
            saved.append(await session.save())
        count = len(session.events)
        for step in (0, 2, 1):
            await session.restore(saved[step].snapshot_id)
            assert session.get("step") == step
            assert len(session.messages) == step + 1
            count += 1
            assert len(session.events) == count
            assert session.events[-1].type == "state.restored"
        mark = session.snapshot()
        session.delete("step")
        session.rollback(mark)
        await session.commit()
        with pytest.raises(NotFoundError, match="no-such-snapshot"):
            await session.restore("no-such-snapshot")
    async with new_state_store() as state_store:
        session = await opened(state_store)
        assert (session.get("step"), len(session.messages)) == (1, 2)
        # A state from before a restore can be restored as well.
        await session.restore(saved[3].snapshot_id)
        assert session.get("step") == 3
        assert (await session.verify()).ok


@async_test
async def test_of_two_writers_one_gets_a_conflict_and_rebases(new_state_store):
    async with new_state_store() as first, new_state_store() as second:
        one = await opened(first)
        one.set("shared", 0)
        await one.commit()
        two = await opened(second)

        one.set("of one", 1)
        one.add_message("user", "from one")
        await one.commit()
        two.set("of two", 2)
        two.add_message("user", "from two")
        with pytest.raises(ConflictError, match="rebase"):
            await two.commit()
        assert two.is_dirty
        await two.commit(on_conflict="rebase")
        assert two.state == {"of one": 1, "of two": 2, "shared": 0}
        assert [message["content"] for message in two.messages] == ["from one", "from two"]

        one.set("shared", "one")
        with pytest.raises(ConflictError):
            await one.commit()
        await one.commit(on_conflict="rebase")
        two.set("shared", "two")
        with pytest.raises(ConflictError) as caught:
            await two.commit(on_conflict="rebase")
        assert caught.value.conflicts == [("state", "shared")]
        await two.reload()
        assert two.get("shared") == "one"
        two.set("shared", "two")
        saved = await two.save(on_conflict="rebase")
        await one.reload()
        assert one.snapshot().digest == two.snapshot().digest == saved.digest
        assert (await one.verify()).ok


@async_test
async def test_every_snapshot_of_many_turns_loads(new_state_store):
    async with new_state_store() as state_store:
        session = await opened(state_store)
        added, saved = [], []
        for turn in range(40):
            for role in ("user", "assistant"):
                session.add_message(role, f"{role} says {turn} " * 20)
            session.set("plan", {"step": turn})
            added.append(session.messages[-2:])
            saved.append(await session.save(tags={"turn": str(turn)}))
    async with new_state_store() as state_store:
        archive = SnapshotArchive(state_store)
        ids = await archive.list_snapshot_ids(location=LOCATION)
        assert ids == [each.snapshot_id for each in saved]
        for turn, snapshot_id in enumerate(ids):
            found = await archive.load_snapshot(location=LOCATION, snapshot_id=snapshot_id)
            assert found.state.messages == [each for pair in added[: turn + 1] for each in pair]
            assert found.state.values == {"plan": {"step": turn}}
            assert found.tags == {"turn": str(turn)}
            assert found.parent_id == (ids[turn - 1] if turn else None)
        latest = await archive.load_snapshot(location=LOCATION)
        assert latest.snapshot_id == ids[-1]
        assert (await archive.verify(location=LOCATION)).snapshots == 40


@async_test
async def test_one_snapshot_holds_all_agents(new_state_store):
    async with new_state_store() as state_store:
        session = await holdfast.Session.open(
            state_store, agent_id="team", session_id=SESSION, scope="multi_agent"
        )
        writer, reader = session.agent("writer"), session.agent("reader")
        writer.add_message("assistant", "draft")
        reader.add_message("assistant", "remarks")
        writer.set("mood", "good")
        reader.set("mood", "better")
        session.set("topic", "reports")
        saved = await session.save()
        writer.set("mood", "bad")
        await session.restore(saved.snapshot_id)
    async with new_state_store() as state_store:
        session = await holdfast.Session.open(
            state_store, agent_id="team", session_id=SESSION, scope="multi_agent"
        )
        assert sorted(session.agents) == ["reader", "writer"]
        assert session.agent("writer").get("mood") == "good"
        assert session.agent("reader").get("mood") == "better"
        assert [each["content"] for each in session.messages] == ["draft", "remarks"]
        assert session.state == {"topic": "reports"}


def test_a_blocking_session_commits_saves_restores_and_forks(new_state_store):
    store = new_state_store()
    session = holdfast.BlockingSession.open(store, agent_id=AGENT, session_id=SESSION)
    with session:
        session.add_message("user", "Compare the two reports")
        session.set("plan", PLAN)
        session.status = "running"
    saved = session.save(tags={"env": "production"})
    session.set("plan", None)
    session.restore(saved.snapshot_id)
    other = session.fork("ses_what_if", at=saved.snapshot_id)
    again = holdfast.BlockingSession.open(store, agent_id=AGENT, session_id=SESSION)
    assert again.get("plan") == other.get("plan") == PLAN
    assert again.status == "running"
    assert again.messages == [{"role": "user", "content": "Compare the two reports"}]
    assert again.verify().ok
    run_async(store.close())
