"""``holdfast replay``, printed and step by step."""

from __future__ import annotations

import asyncio
import json
import re

import pytest
import typer

import holdfast
from support.sample_documents import update_digest


@pytest.fixture
def step_through(run, sample, monkeypatch):
    """Replay with ``--step`` and these keys; ``typed`` answers prompts."""

    def call(*keys: str | BaseException, typed: str = "", name: str = "ses_1"):
        waiting = list(keys)

        def getchar() -> str:
            key = waiting.pop(0)
            if isinstance(key, BaseException):
                raise key
            return key

        monkeypatch.setattr(typer, "getchar", getchar)
        ran = run("replay", name, "--step", typed=typed)
        assert waiting == []
        assert (ran.code, ran.err) == (0, "")
        return ran.out

    return call


def read_event_numbers(text: str) -> list[int]:
    """Return the numbers of the printed events, in order."""
    return [int(seq) for seq in re.findall(r"(\d+) \d{4}-\d\d-\d\dT", text)]


def test_replay_prints_events_and_changes(run, sample):
    ran = run("replay", "ses_1")
    assert (ran.code, ran.err) == (0, "")
    assert read_event_numbers(ran.out) == list(range(1, 11))
    assert "message.appended\n+ messages/000000000000\n" in ran.out
    assert 'tool.called {"tool": "[bold]loud[/] :bug: \\u001b[2J\\\\"}\n' in ran.out


def test_replay_a_range(run, document):
    assert read_event_numbers(run("replay", "incident.json", "--from", "3", "--to", "5").out) == [
        3,
        4,
        5,
    ]
    ran = run("replay", "ses_1", "--from", "99")
    ran.assert_failed("no event 99", "last event is 10", "events 1 to 10")
    run("replay", "ses_1", "--from", "11").assert_failed("no event 11")
    run("replay", "incident.json", "--from", "99").assert_failed("no event 99")
    assert read_event_numbers(run("replay", "ses_1", "--from", "9", "--to", "99").out) == [9, 10]
    run("replay", "ses_1", "--from", "5", "--to", "3").assert_usage_error("less than --from 5")
    run("replay", "ses_1", "--from", "0").assert_usage_error("--from")


def test_replay_json(run, sample):
    found = json.loads(run("replay", "ses_1", "--to", "2", "--format", "json").out)
    assert [event["seq"] for event in found] == [1, 2]
    run("replay", "ses_1", "--from", "99", "--format", "json").assert_failed("no event 99")


@pytest.mark.parametrize("format_", ["table", "json"])
def test_pruned_events_are_an_error(run, sample, format_):
    async def go_on() -> None:
        async with (
            holdfast.open_state_store("sqlite:///state.db") as store,
            holdfast.Session.open(store, agent_id="research-bot", session_id="ses_1") as session,
        ):
            session.set("more", 1)

    asyncio.run(go_on())
    assert run("state", "prune", "ses_1", "--last", "1", "--yes").code == 0
    as_ = ("--format", format_)
    run("replay", "ses_1", "--to", "3", *as_).assert_failed(
        "events 1 to 3 were pruned", "after event 10"
    )
    run("replay", "ses_1", "--from", "2", *as_).assert_failed(
        "events 2 to 10 were pruned", "hint: "
    )
    run("replay", "ses_1", "--from", "4", "--to", "4", *as_).assert_failed("event 4 was pruned")
    assert run("replay", "ses_1", *as_).code == 0
    assert read_event_numbers(run("replay", "ses_1").out) == [11]
    assert run("state", "export", "research-bot", "-o", "x.json").code == 0
    run("replay", "x.json", "--to", "3", *as_).assert_failed("events 1 to 3 were pruned")
    assert read_event_numbers(run("replay", "x.json").out) == [11]


def test_fully_pruned_session_has_nothing_to_replay(run, sample):
    assert run("state", "prune", "ses_1", "--last", "1", "--yes").code == 0
    run("replay", "ses_1").assert_failed("events 1 to 10 were pruned", "state list --session ses_1")
    run("replay", "ses_1", "--to", "3").assert_failed("events 1 to 3 were pruned")


def test_replay_up_to_a_ref(run, sample):
    assert read_event_numbers(run("replay", "ses_1@tag:turn=1").out) == [1, 2, 3, 4, 5]
    assert read_event_numbers(run("replay", "ses_1@4", "--from", "3").out) == [3, 4]
    assert read_event_numbers(run("replay", f"ses_1@{sample.second}").out) == list(range(1, 11))


def test_shared_session_needs_an_agent(run, sample):
    run("replay", "ses_shared").assert_failed("--agent")
    assert read_event_numbers(run("replay", "ses_shared", "--agent", "bob").out) == [1, 2]


def test_step_without_a_terminal_prints_all(run, sample):
    assert read_event_numbers(run("replay", "ses_1", "--step").out) == list(range(1, 11))


def test_next_and_back_keys(step_through):
    assert read_event_numbers(step_through("n", " ", "b", "N", "q")) == [1, 2, 3, 2, 3]
    assert read_event_numbers(step_through("\r", "\n", "p", "q")) == [1, 2, 3, 2]


@pytest.mark.parametrize("mode", ["\x1b[", "\x1bO"])
def test_arrow_keys(step_through, mode):
    right, left, up, down = (mode + letter for letter in "CDAB")
    assert read_event_numbers(step_through(right, down, left, up, "q")) == [1, 2, 3, 2, 1]


def test_first_and_last_event(step_through):
    text = step_through("b", "g", "n", "q", typed="10\n")
    assert read_event_numbers(text) == [1, 10]
    assert "this is the first step" in text
    assert "this is the last step" in text


def test_go_to_an_event_or_the_nearest(step_through):
    assert read_event_numbers(step_through("g", "n", "g", "q", typed="7\n99\n")) == [1, 7, 8, 10]
    assert read_event_numbers(step_through("g", "q", typed="what\n4\n")) == [1, 4]


def test_aborted_go_to_stays(step_through):
    assert read_event_numbers(step_through("n", "g", "q", typed="")) == [1, 2, 2]


def test_state_and_changes_keys(step_through):
    text = step_through("g", "s", "c", "q", typed="3\n")
    assert read_event_numbers(text) == [1, 3, 3]
    assert '"status": "running"' in text
    assert '"content": "Compare the two"' in text


def test_help_line(step_through):
    assert "step 1 of 10: [n]ext [b]ack [g]o to a step [s]tate [c]hanges [q]uit" in step_through(
        "x", "q"
    )


@pytest.mark.parametrize("end", ["q", "Q", "\x1b", EOFError(), KeyboardInterrupt()], ids=repr)
def test_ways_to_quit(step_through, end):
    assert read_event_numbers(step_through(end)) == [1]


def test_document_without_events_is_an_error(run, document):
    tree = json.loads(document.read_bytes())
    tree["events"] = []
    document.write_text(json.dumps(update_digest(tree)))
    run("replay", "incident.json").assert_failed("has no events")
