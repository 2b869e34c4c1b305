"""Events as a sequence: the same events at the same indexes, in memory or not."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import RetentionPolicy, open_state_store
from holdfast.log import timeline
from holdfast.sessions import event_view
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test, run_async
from support.conversations import (
    add_messages,
    list_types,
    open_session,
    open_two_writers,
    reopen_session,
)
from support.observed_store import ObservedStore


@pytest.fixture
def short(monkeypatch):
    """Keep few segments between keyframes and few in memory."""
    monkeypatch.setattr(timeline, "MAX_SEGMENTS", 4)
    monkeypatch.setattr(event_view, "MAX_SEGMENTS_IN_MEMORY", 4)


async def make_session(state_store, commits=10, waiting=2):
    """Return a session with some commits of two events each, and pending events."""
    session = await open_session(state_store)
    await session.commit()
    for number in range(commits):
        session.add_message("user", number)
        session.record("tick", {"number": number})
        await session.commit()
    for number in range(waiting):
        session.record("waiting", {"number": number})
    return session


async def prune_session(session, kept=1):
    """Prune a session to its last snapshots, two of them new."""
    await session.save()
    session.record("saved")
    await session.save()
    policy = RetentionPolicy(last=kept)
    await session.archive.prune(location=session.location, policy=policy)
    return await reopen_session(session)


@async_test
async def test_events_are_a_sequence_in_order():
    session = await make_session(MemoryStateStore())
    events = session.events
    assert len(events) == 1 + 20 + 2
    assert [event.seq for event in events] == list(range(1, 24))
    assert list_types(events[:3]) == ["session.started", "message.appended", "tick"]
    assert list_types(events[-3:]) == ["tick", "waiting", "waiting"]
    assert events[0].prev == ""
    assert [event.prev for event in events[1:]] == [event.hash for event in events[:-1]]
    assert repr(events) == "<EventView: 23 events>"
    assert events[4] in events
    assert events.index(events[7]) == 7
    assert events.count(events[7]) == 1
    assert list(reversed(events)) == list(events)[::-1]
    assert bool(events)


@async_test
async def test_an_index_out_of_range_is_an_error():
    events = (await make_session(MemoryStateStore(), commits=2)).events
    for index in (len(events), -len(events) - 1, 1000):
        with pytest.raises(IndexError):
            events[index]
    assert events[len(events) :] == []
    assert events[-1000:1000] == list(events)
    with pytest.raises(TypeError):
        events["last"]


@async_test
async def test_pending_events_have_their_future_positions():
    session = await make_session(MemoryStateStore())
    waiting = session.events[-2:]
    assert [event.seq for event in waiting] == [22, 23]
    await session.commit()
    assert session.events[-2:] == waiting
    assert (await reopen_session(session)).events[-2:] == waiting


@async_test
async def test_a_view_includes_events_that_are_recorded_later():
    session = await open_session(MemoryStateStore())
    events = session.events
    assert len(events) == 1
    session.record("tick")
    assert list_types(events) == ["session.started", "tick"]
    await session.commit()
    session.record("tock")
    assert list_types(events) == ["session.started", "tick", "tock"]
    assert events[-1].seq == 3


@pytest.mark.parametrize("how", ["rebased", "reloaded"])
@async_test
async def test_a_view_is_valid_after_a_rebase(how):
    one, other = await open_two_writers(MemoryStateStore())
    one.record("mine")
    events = one.events
    await add_messages(other, "theirs")
    if how == "rebased":
        await one.commit(on_conflict="rebase")
    else:
        await one.reload()
    one.record("later")
    assert list_types(events) == list_types(one.events)
    assert list(events) == list(one.events)


async def check_all_ways(session, expected, places):
    """Check indexes, slices, negative indexes and both kinds of loops."""
    events = session.events
    assert len(events) == len(expected)
    assert list(events) == expected
    assert [event async for event in events] == expected
    assert events[:] == expected
    for place in range(len(expected)):
        assert events[place] == expected[place]
        assert events[place - len(expected)] == expected[place]
    for part in places:
        assert events[part] == expected[part]


SLICES = [
    slice(0, 3),
    slice(2, 9),
    slice(None, None, 2),
    slice(None, None, -1),
    slice(-4, None),
    slice(-1, 3, -3),
    slice(5, 5),
    slice(9, 2),
    slice(12, 14),
]


@async_test
async def test_all_ways_of_reading_return_the_same_events():
    session = await make_session(MemoryStateStore())
    expected = [event async for event in session.log.read()] + session.events[-2:]
    await check_all_ways(session, expected, SLICES)


@pytest.mark.parametrize("url", ["memory:", "sqlite:///{}/state.db"])
@async_test
async def test_events_that_are_not_in_memory_are_read_from_the_store(short, url, tmp_path):
    async with open_state_store(url.format(tmp_path)) as store:
        session = await make_session(store)
        expected = [event async for event in session.log.read()] + session.events[-2:]
        assert session._committer.tail.after.seq > 0
        await check_all_ways(session, expected, SLICES)
        again = await reopen_session(session)
        assert again._committer.tail.after.seq == 15
        await check_all_ways(again, expected[:-2], SLICES)
        again.record("waiting")
        assert again.events[-2:] == [expected[-3], again.events[-1]]


@async_test
async def test_the_last_events_are_read_from_memory(short):
    store = ObservedStore()
    session = await reopen_session(await make_session(store, waiting=0))
    session.record("waiting")
    store.forget()
    assert list_types(session.events[-4:]) == ["tick", "message.appended", "tick", "waiting"]
    assert session.events[-1].seq == len(session.events)
    assert store.calls == []
    assert session.events[0].seq == 1
    assert store.calls != []


@async_test
async def test_the_first_event_after_a_prune_has_index_0(short):
    session = await make_session(MemoryStateStore(), waiting=0)
    again = await prune_session(session)
    assert len(again.events) == 0
    assert list(again.events) == [event async for event in again.events] == []
    with pytest.raises(IndexError):
        again.events[0]
    for number in range(6):
        await add_messages(again, f"later {number}")
    again.record("waiting")
    assert [event.seq for event in again.events] == list(range(23, 30))
    expected = [event async for event in again.events]
    await check_all_ways(again, expected, SLICES)
    await check_all_ways(await reopen_session(again), expected[:-1], SLICES)


@async_test
async def test_events_between_kept_snapshots_stay_after_a_prune(short):
    session = await make_session(MemoryStateStore(), commits=4, waiting=0)
    for text in "abcd":
        session.add_message("user", text)
        await session.save()
    before = list(session.events)
    again = await prune_session(session, kept=3)
    left = list(again.events)
    assert [event.seq for event in left] == [14]
    assert again.events[0].type == "saved"
    await add_messages(again, *"efghi")
    await check_all_ways(again, list(again.events), SLICES)
    assert [event.seq for event in again.events] == list(range(14, 20))
    assert before[-1].hash == left[0].prev


@async_test
async def test_a_range_of_events_is_read_by_their_numbers(short):
    session = await make_session(MemoryStateStore())
    everything = list(session.events)

    async def read(*bounds):
        return [event.seq async for event in session.events.read(*bounds)]

    assert await read(3, 5) == [3, 4, 5]
    assert await read(15) == list(range(15, 24))
    assert await read(1, 2) == [1, 2]
    assert await read(20, 22) == [20, 21, 22]
    assert await read(23, 99) == [23]
    assert await read(24) == []
    assert await read(9, 3) == []
    assert len(everything) == 23


@async_test
async def test_changing_an_event_does_not_change_what_is_committed(short):
    session = await make_session(MemoryStateStore(), waiting=0)
    session.set("plan", {"steps": [1]})
    session.record("tool.called", {"args": [1]})
    for event in session.events:
        tamper(event)
    await session.commit()
    for event in session.events:
        tamper(event)
    again = await reopen_session(session)
    assert again.get("plan") == {"steps": [1]}
    assert again.events[-1].data == {"args": [1]}
    assert again.events[-2].changes["set"] == [("state", "plan", {"steps": [1]})]
    assert again.snapshot().digest == session.snapshot().digest
    assert session.events[-1].data == {"args": [1]}
    assert (await session.verify()).ok


def tamper(event):
    """Change an event, as a careless caller may."""
    if isinstance(event.data, dict):
        event.data["tampered"] = True
    for _, _, value in event.changes["set"]:
        if isinstance(value, dict):
            value["tampered"] = True
    event.changes["set"].append(("state", "tampered", True))


@async_test
async def test_repeated_reads_of_events_read_only_the_requested_ones(short):
    store = ObservedStore()
    session = await make_session(store, commits=40)
    store.forget()
    for _ in range(5):
        assert session.events[-1].type == "waiting"
        assert len(session.events) == 83
    assert store.calls == []


@given(
    commits=st.lists(st.integers(1, 3), max_size=12),
    waiting=st.integers(0, 3),
    places=st.lists(
        st.slices(12)
        | st.builds(slice, st.integers(-30, 30), st.integers(-30, 30), st.sampled_from([1, -2])),
        max_size=4,
    ),
)
def test_a_view_behaves_like_a_list(commits, waiting, places):
    before = (timeline.MAX_SEGMENTS, event_view.MAX_SEGMENTS_IN_MEMORY)
    timeline.MAX_SEGMENTS, event_view.MAX_SEGMENTS_IN_MEMORY = 3, 2

    async def work():
        session = await open_session(MemoryStateStore())
        for count in commits:
            for number in range(count):
                session.record("tick", number)
            await session.commit()
        for number in range(waiting):
            session.record("waiting", number)
        expected = [event async for event in session.log.read()]
        expected += session._working.events()
        assert len(session.events) == len(expected)
        assert list(session.events) == expected
        assert [event async for event in session.events] == expected
        for part in places:
            assert session.events[part] == expected[part]

    try:
        run_async(work())
    finally:
        timeline.MAX_SEGMENTS, event_view.MAX_SEGMENTS_IN_MEMORY = before


@async_test
async def test_event_times_are_in_utc_and_ordered():
    session = await make_session(MemoryStateStore(), commits=3)
    times = [event.at for event in session.events]
    assert times == sorted(times)
    assert all(at.tzinfo is dt.UTC for at in times)
