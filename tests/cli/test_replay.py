"""``holdfast replay``, printed and walked through."""

from __future__ import annotations

import asyncio
import json
import re

import pytest
import typer

import holdfast
from support.sample_documents import with_digest


@pytest.fixture
def walk(run, world, monkeypatch):
    """Walk with keys; what a person types at a prompt comes after."""

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


def seen(text: str) -> list[int]:
    """The events that were shown, in order."""
    return [int(seq) for seq in re.findall(r"(\d+) \d{4}-\d\d-\d\dT", text)]


def test_every_event_is_printed_with_what_it_changed(run, world):
    ran = run("replay", "ses_1")
    assert (ran.code, ran.err) == (0, "")
    assert seen(ran.out) == list(range(1, 11))
    assert "message.appended\n+ messages/000000000000\n" in ran.out
    assert 'tool.called {"tool": "[bold]loud[/] :bug: \\u001b[2J\\\\"}\n' in ran.out


def test_a_range_is_chosen(run, document):
    assert seen(run("replay", "incident.json", "--from", "3", "--to", "5").out) == [3, 4, 5]
    ran = run("replay", "ses_1", "--from", "99")
    ran.failed("no event 99", "last event is 10", "there are events 1 to 10")
    run("replay", "ses_1", "--from", "11").failed("no event 11")
    run("replay", "incident.json", "--from", "99").failed("no event 99")
    assert seen(run("replay", "ses_1", "--from", "9", "--to", "99").out) == [9, 10]
    run("replay", "ses_1", "--from", "5", "--to", "3").misused("before --from 5")
    run("replay", "ses_1", "--from", "0").misused("--from")


def test_json_is_the_events(run, world):
    found = json.loads(run("replay", "ses_1", "--to", "2", "--format", "json").out)
    assert [event["seq"] for event in found] == [1, 2]
    run("replay", "ses_1", "--from", "99", "--format", "json").failed("no event 99")


@pytest.mark.parametrize("format_", ["table", "json"])
def test_events_that_were_pruned_are_an_error(run, world, format_):
    async def go_on() -> None:
        async with (
            holdfast.open_state_store("sqlite:///state.db") as store,
            holdfast.Session.open(store, agent_id="research-bot", session_id="ses_1") as session,
        ):
            session.set("more", 1)

    asyncio.run(go_on())
    assert run("state", "prune", "ses_1", "--last", "1", "--yes").code == 0
    as_ = ("--format", format_)
    run("replay", "ses_1", "--to", "3", *as_).failed("events 1 to 3 were pruned", "after event 10")
    run("replay", "ses_1", "--from", "2", *as_).failed(
        "events 2 to 10 were pruned", "hint: there are events 11 to 11"
    )
    run("replay", "ses_1", "--from", "4", "--to", "4", *as_).failed("event 4 was pruned")
    assert run("replay", "ses_1", *as_).code == 0
    assert seen(run("replay", "ses_1").out) == [11]
    assert run("state", "export", "research-bot", "-o", "x.json").code == 0
    run("replay", "x.json", "--to", "3", *as_).failed("events 1 to 3 were pruned")
    assert seen(run("replay", "x.json").out) == [11]


def test_a_session_of_which_every_event_was_pruned_has_none_to_replay(run, world):
    assert run("state", "prune", "ses_1", "--last", "1", "--yes").code == 0
    run("replay", "ses_1").failed("events 1 to 10 were pruned", "state list --session ses_1")
    run("replay", "ses_1", "--to", "3").failed("events 1 to 3 were pruned")


def test_a_session_is_replayed_up_to_a_ref(run, world):
    assert seen(run("replay", "ses_1@tag:turn=1").out) == [1, 2, 3, 4, 5]
    assert seen(run("replay", "ses_1@4", "--from", "3").out) == [3, 4]
    assert seen(run("replay", f"ses_1@{world.second}").out) == list(range(1, 11))


def test_an_agent_is_named_where_several_share_a_session(run, world):
    run("replay", "ses_shared").failed("--agent")
    assert seen(run("replay", "ses_shared", "--agent", "bob").out) == [1, 2]


def test_steps_without_a_terminal_are_printed(run, world):
    assert seen(run("replay", "ses_1", "--step").out) == list(range(1, 11))


def test_next_and_back(walk):
    assert seen(walk("n", " ", "b", "N", "q")) == [1, 2, 3, 2, 3]
    assert seen(walk("\r", "\n", "p", "q")) == [1, 2, 3, 2]


@pytest.mark.parametrize("mode", ["\x1b[", "\x1bO"])
def test_arrow_keys(walk, mode):
    right, left, up, down = (mode + letter for letter in "CDAB")
    assert seen(walk(right, down, left, up, "q")) == [1, 2, 3, 2, 1]


def test_the_ends_are_said(walk):
    text = walk("b", "g", "n", "q", typed="10\n")
    assert seen(text) == [1, 10]
    assert "there is nothing before it" in text
    assert "this was the last" in text


def test_jump_to_an_event_or_the_nearest(walk):
    assert seen(walk("g", "n", "g", "q", typed="7\n99\n")) == [1, 7, 8, 10]
    assert seen(walk("g", "q", typed="what\n4\n")) == [1, 4]


def test_a_jump_that_is_given_up_stays(walk):
    assert seen(walk("n", "g", "q", typed="")) == [1, 2, 2]


def test_state_and_changes(walk):
    text = walk("g", "s", "c", "q", typed="3\n")
    assert seen(text) == [1, 3, 3]
    assert '"status": "running"' in text
    assert '"content": "Compare the two"' in text


def test_the_keys_are_told_as_they_are(walk):
    assert "step 1 of 10: [n]ext [b]ack [g]o to a step [s]tate [c]hanges [q]uit" in walk("x", "q")


@pytest.mark.parametrize("end", ["q", "Q", "\x1b", EOFError(), KeyboardInterrupt()], ids=repr)
def test_every_way_to_stop(walk, end):
    assert seen(walk(end)) == [1]


def test_a_snapshot_without_its_events_is_an_error(run, document):
    tree = json.loads(document.read_bytes())
    tree["events"] = []
    document.write_text(json.dumps(with_digest(tree)))
    run("replay", "incident.json").failed("has no events")
