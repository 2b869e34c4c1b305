"""A replay yields each event with the state before and after it."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import (
    BlockingSession,
    Document,
    NotFoundError,
    RetentionPolicy,
    Session,
    Store,
    open_state_store,
    replay,
)
from holdfast.log import timeline
from holdfast.log.changes import fold_changes
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test, run_async
from support.conversations import add_messages, list_types, open_session
from support.observed_store import ObservedStore


@pytest.fixture
def often(monkeypatch):
    """Write a keyframe after few segments."""
    monkeypatch.setattr(timeline, "MAX_SEGMENTS", 3)


async def record_session(state_store, turns=5):
    """Return a session with messages, values, deletions and a rollback."""
    session = await open_session(state_store)
    for turn in range(turns):
        mark = session.snapshot()
        session.add_message("user", turn)
        session.set("turn", turn)
        session.record("tool.called", {"turn": turn})
        if turn % 3 == 1:
            session.rollback(mark)
        if turn % 3 == 2:
            session.delete("turn")
        await session.commit()
    return session


async def read_states(session):
    """Return the state after each number of events."""
    store = Store()
    found = [store.snapshot().digest]
    async for event in session.log.read():
        fold_changes(store, [event.changes])
        found.append(store.snapshot().digest)
    return found


async def collect_steps(source, **bounds):
    return [step async for step in replay(source, **bounds)]


def check(steps, expected, events, first=1):
    """Check that steps have these events and the states before and after them."""
    assert [step.event for step in steps] == events
    for number, step in enumerate(steps, first):
        assert step.event.seq == number
        assert step.before.digest == expected[number - 1]
        assert step.after.digest == expected[number]
        assert step.changes == step.event.changes


@pytest.mark.parametrize("url", ["memory:", "sqlite:///{}/state.db"])
@async_test
async def test_a_step_has_its_event_and_the_states_before_and_after_it(often, url, tmp_path):
    async with open_state_store(url.format(tmp_path)) as store:
        session = await record_session(store)
        expected = await read_states(session)
        check(await collect_steps(session), expected, list(session.events))
        check(list(replay(session)), expected, list(session.events))
        document = await session.export()
        check(await collect_steps(document), expected, list(session.events))
        check(list(replay(document)), expected, list(session.events))


@pytest.mark.parametrize("kind", ["session", "document"])
@async_test
async def test_a_range_is_replayed_from_the_state_before_it(often, kind):
    session = await record_session(MemoryStateStore())
    source = session if kind == "session" else await session.export()
    expected, events = await read_states(session), list(session.events)
    for first in range(1, len(events) + 2):
        for last in (None, first - 1, first, first + 2, len(events), len(events) + 5):
            end = len(events) if last is None else last
            found = await collect_steps(source, first=first, last=last)
            check(found, expected, events[first - 1 : end], first)
            assert [each.event for each in replay(source, first=first, last=last)] == [
                each.event for each in found
            ]


@pytest.mark.parametrize("kind", ["session", "document"])
@async_test
async def test_after_the_last_event_there_are_no_steps(kind):
    session = await add_messages(await open_session(MemoryStateStore()), "a")
    source = session if kind == "session" else await session.export()
    assert await collect_steps(source, first=3) == []
    assert await collect_steps(source, first=4) == []
    assert list(replay(source, first=1000)) == []


@async_test
async def test_pending_events_are_not_replayed():
    session = await add_messages(await open_session(MemoryStateStore()), "a")
    session.add_message("user", "waiting")
    assert list_types(step.event for step in await collect_steps(session)) == [
        "session.started",
        "message.appended",
    ]
    assert await collect_steps(await open_session(MemoryStateStore())) == []


@async_test
async def test_the_states_of_steps_can_be_compared():
    session = await record_session(MemoryStateStore())
    steps = await collect_steps(session)
    for step in steps:
        changed = step.after.diff(step.before)
        touched = {(space, key) for space, key, _ in step.changes["set"]}
        touched |= set(step.changes["delete"])
        assert {pair for pairs in changed.values() for pair in pairs} <= touched
    assert steps[0].before.keys == []
    assert steps[-1].after.digest == session.snapshot().digest
    with pytest.raises(AttributeError):
        steps[0].event = None


@async_test
async def test_replaying_the_end_of_a_log_does_not_read_its_start(often):
    store = ObservedStore()
    session = await add_messages(await open_session(store), *map(str, range(40)))
    read = []
    plain = store._get_many

    async def watched(keys):
        read.extend(key for key in keys if "/log/" in key)
        return await plain(keys)

    store._get_many = watched
    assert len(await collect_steps(session, first=39)) == 3
    assert 0 < len(set(read)) < 10


@async_test
async def test_a_replay_of_a_pruned_session_starts_at_the_log_start(often):
    session = await open_session(MemoryStateStore())
    for number in range(6):
        session.add_message("user", number)
        session.record("tick")
        await session.save()
    expected, events = await read_states(session), list(session.events)
    now = dt.datetime.now(dt.UTC)
    for moment in (now, now + dt.timedelta(days=2)):
        await session.archive.prune(
            location=session.location, policy=RetentionPolicy(last=3), now=moment
        )
    left = await collect_steps(session)
    check(left, expected, events[9:], 10)
    check(list(replay(session)), expected, events[9:], 10)
    check(await collect_steps(session, first=11, last=12), expected, events[10:12], 11)
    document = await session.export()
    check(await collect_steps(document), expected, events[9:], 10)
    check(list(replay(document, first=12)), expected, events[11:], 12)


@pytest.mark.parametrize("kind", ["session", "document"])
@async_test
async def test_pruned_events_cannot_be_replayed(kind):
    session = await open_session(MemoryStateStore())
    for number in range(3):
        session.add_message("user", number)
        await session.save()
    await session.archive.prune(location=session.location, policy=RetentionPolicy(last=2))
    source = session if kind == "session" else await session.export()
    for bounds, which in (
        ({"last": 2}, "events 1 to 2 were"),
        ({"first": 1}, "events 1 to 3 were"),
        ({"first": 2, "last": 4}, "events 2 to 3 were"),
        ({"first": 2, "last": 2}, "event 2 was"),
    ):
        with pytest.raises(NotFoundError, match=f"{which} pruned from session ses of bot; its log"):
            await collect_steps(source, **bounds)
        with pytest.raises(NotFoundError, match=which):
            list(replay(source, **bounds))
    assert [step.event.seq for step in await collect_steps(source)] == [4]
    assert [step.event.seq for step in await collect_steps(source, last=4)] == [4]
    assert [step.event.seq for step in await collect_steps(source, first=4)] == [4]
    assert await collect_steps(source, first=5) == []


@pytest.mark.parametrize("kind", ["session", "document"])
@async_test
async def test_a_log_without_events_has_no_steps(kind):
    session = await add_messages(await open_session(MemoryStateStore()), "a")
    for _ in range(2):
        await session.save()
    await session.archive.prune(location=session.location, policy=RetentionPolicy(last=1))
    source = session if kind == "session" else await session.export()
    assert await collect_steps(source) == []
    with pytest.raises(NotFoundError, match="events 1 to 2 were pruned"):
        await collect_steps(source, first=1)


@async_test
async def test_a_snapshot_without_its_events_cannot_be_replayed():
    session = await add_messages(await open_session(MemoryStateStore()), "a")
    saved = await session.save()
    with pytest.raises(TypeError, match="replay takes a Session or a Document.*export the session"):
        replay(saved)
    with pytest.raises(NotFoundError, match="has no events; replay the session"):
        list(replay(Document.from_snapshot(saved)))
    with pytest.raises(NotFoundError):
        await collect_steps(Document.from_snapshot(saved))


@pytest.mark.parametrize("source", [None, "ses", 7, Store()])
def test_replay_takes_a_session_or_a_document(source):
    with pytest.raises(TypeError, match="replay takes a [sS]ession or a [dD]ocument, got"):
        replay(source)


def test_replay_rejects_a_first_event_below_1(session):
    for first in (0, -3):
        with pytest.raises(ValueError, match=f"first must be at least 1, got {first}"):
            replay(session, first=first)


def test_a_plain_loop_over_steps_may_be_left_early(tmp_path):
    with BlockingSession.open(f"sqlite:///{tmp_path}/state.db", agent_id="bot") as session:
        for number in range(10):
            session.add_message("user", number)
            session.commit()
        seen = []
        for step in replay(session):
            seen.append(step.event.seq)
            if step.event.seq == 4:
                break
        assert seen == [1, 2, 3, 4]
        assert [step.event.seq for step in replay(session.export(), last=2)] == [1, 2]


def test_replaying_twice_yields_the_same_steps(session):
    run_async(add_messages(session, "a", "b"))
    again = replay(session)
    assert [step.event for step in again] == [step.event for step in again]
    assert len(list(again)) == 3


@given(
    st.lists(
        st.lists(
            st.tuples(st.sampled_from("abc"), st.none() | st.integers(0, 2)),
            min_size=1,
            max_size=3,
        ),
        max_size=6,
    ),
    st.integers(1, 20),
    st.none() | st.integers(0, 20),
)
def test_the_steps_of_any_session_equal_the_fold_of_its_events(commits, first, last):
    before = timeline.MAX_SEGMENTS
    timeline.MAX_SEGMENTS = 2

    async def work():
        session = await open_session(MemoryStateStore())
        await session.commit()
        for commit in commits:
            for key, value in commit:
                if value is None:
                    session.delete(key)
                else:
                    session.set(key, value)
            await session.commit()
        expected, events = await read_states(session), list(session.events)
        begin = min(first, len(events) + 1)
        found = await collect_steps(session, first=begin, last=last)
        check(found, expected, events[begin - 1 : last], begin)
        check(
            await collect_steps(await session.export(), first=begin, last=last),
            expected,
            events[begin - 1 : last],
            begin,
        )

    try:
        run_async(work())
    finally:
        timeline.MAX_SEGMENTS = before


@async_test
async def test_the_end_of_a_long_log_is_replayed_from_the_last_keyframe(monkeypatch):
    monkeypatch.setattr("holdfast.log.timeline.MAX_SEGMENTS", 10)
    store = ObservedStore()
    session = await Session.open(store, agent_id="bot", session_id="ses")
    for number in range(60):
        session.set("number", number)
        await session.commit()
    store.forget()
    steps = [step async for step in replay(session, first=session.log.head.seq)]
    assert [step.after.get("state", "number") for step in steps] == [59]
    assert len([key for key in store.read if "/log/" in key]) <= 20
