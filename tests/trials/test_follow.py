"""A short trial of followers that are killed, and what its check reports."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Session
from holdfast.stores.memory import MemoryStateStore
from support.backends import make_url
from trials.follow.__main__ import Trial, compare
from trials.follow.worker import Notes, read_lines
from trials.report import Report


@pytest.mark.parametrize("backend", ["sqlite", "redis"])
def test_killed_followers_receive_every_event_once_and_in_order(backend, request, tmp_path):
    """One of them with all notifications, one with every second, and one with none."""
    report = Report(backend)
    url = make_url(backend, request)
    Trial(url, tmp_path, report, seed="7", pause=0.2).run(writers=2, followers=3, kills=2)
    assert report.problems == []
    assert report.counts["kills of followers"] == 2
    assert report.counts["events received"] == 3 * report.counts["events"] > 30
    assert (report.counts["notifications lost"] > 0) == (backend != "sqlite")


@pytest.fixture(scope="module")
def events():
    async def write():
        async with MemoryStateStore() as store:
            session = await Session.open(store, agent_id="bot", session_id="ses")
            for number in range(3):
                session.set("value", number)
            await session.commit()
            return session.events

    return asyncio.run(write())


def test_missing_repeated_and_swapped_events_are_problems(events):
    lines = [f"{event.seq} {event.id}" for event in events]
    first, second, third, *rest = lines
    assert compare(events, lines) == []
    for wrong, expected in (
        ([first, third, *rest], "expected event 2"),
        ([first, second, second, third, *rest], "expected event 3"),
        ([second, first, third, *rest], "expected event 1"),
        (lines[:-1], "got nothing"),
        ([*lines, "9 x"], "got 9 x after the last event"),
        ([], "expected event 1"),
    ):
        (problem,) = compare(events, wrong)
        assert expected in problem


def test_a_line_that_a_kill_cut_short_is_removed(tmp_path):
    path = tmp_path / "notes"
    Notes(path).add("1 a")
    path.write_text(path.read_text() + "2 ")
    assert read_lines(path) == ["1 a"]
    Notes(path).add("2 b")
    assert read_lines(path) == ["1 a", "2 b"]
