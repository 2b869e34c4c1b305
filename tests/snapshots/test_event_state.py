"""The states at two positions of a session, and its head."""

from __future__ import annotations

import pytest

from holdfast import NotFoundError, Session
from holdfast.snapshots import RetentionPolicy
from holdfast.snapshots.event_state import find_head, load_state, load_states
from support.async_tests import async_test
from support.observed_store import HERE, ObservedStore


async def make_session(turns):
    """Save after every turn of two events; every third commit has two turns."""
    store = ObservedStore()
    session = await Session.open(store, agent_id=HERE.scope_id, session_id=HERE.session_id)
    ids = []
    for turn in range(turns):
        session.add_message("user", f"turn {turn}")
        session.set("turn", turn)
        if turn % 3 == 2:
            continue
        ids.append((await session.save()).snapshot_id)
    await session.commit()
    return store, session, ids


@async_test
async def test_two_states_are_those_that_each_position_has_alone():
    _, session, ids = await make_session(8)
    archive, head = session.archive, session.log.head.seq
    refs = [None, *range(1, head + 1), *ids]
    alone = {ref: (await load_state(archive, HERE, ref)).digest for ref in refs}
    for first in refs:
        for second in refs:
            one, two = await load_states(archive, HERE, first, second)
            assert (one.digest, two.digest) == (alone[first], alone[second])


@async_test
async def test_a_position_far_behind_is_loaded_on_its_own(monkeypatch):
    monkeypatch.setattr("holdfast.snapshots.event_state.MIN_STEPS", 1)
    monkeypatch.setattr("holdfast.log.timeline.MAX_SEGMENTS", 4)
    _, session, _ = await make_session(40)
    for second in (session.log.head.seq, None):
        one, two = await load_states(session.archive, HERE, 2, second)
        assert (len(one.keys), two.count("messages")) == (2, 40)


@pytest.mark.parametrize("bad", [99, "019a8b5e-6f00-7000-8000-000000000000"])
def test_a_missing_position_is_an_error(bad):
    @async_test
    async def work():
        _, session, _ = await make_session(3)
        for refs in ((1, bad), (bad, 1), (bad, None)):
            with pytest.raises(NotFoundError, match=str(bad)):
                await load_states(session.archive, HERE, *refs)

    work()


@async_test
async def test_the_later_state_costs_only_what_follows_the_earlier_one():
    store, session, _ = await make_session(60)
    head = session.log.head.seq
    store.forget()
    await load_state(session.archive, HERE, head - 10)
    one = len(store.read)
    store.forget()
    await load_states(session.archive, HERE, head - 10, head)
    assert len(store.read) <= one + 10


@async_test
async def test_the_head_is_found_without_reading_the_log(monkeypatch):
    monkeypatch.setattr("holdfast.log.timeline.MAX_SEGMENTS", 8)
    store, session, _ = await make_session(30)
    timeline = await session.archive.timeline(location=HERE)
    store.forget()
    assert await find_head(timeline) == session.log.head.seq
    assert len(store.read) == 1
    await session.archive.prune(location=HERE, policy=RetentionPolicy(last=1))
    assert await find_head(timeline) == session.log.head.seq
