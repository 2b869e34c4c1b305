"""``holdfast state fork``."""

from __future__ import annotations

import asyncio
import json

import pytest

import holdfast


def test_fork_copies_the_state(run, sample):
    ran = run("state", "fork", "ses_1", "ses_what_if")
    assert (ran.code, ran.out, ran.err) == (0, "ses_what_if: 2 messages, running\n", "")
    assert run("state", "diff", "ses_1", "ses_what_if").out == "no difference\n"


def test_fork_at_a_snapshot(run, sample):
    assert run("state", "fork", "ses_1", "ses_what_if", "--at", sample.first).code == 0
    assert run("state", "diff", sample.first, "ses_what_if").out == "no difference\n"
    assert run("state", "diff", sample.second, "ses_1").out == "no difference\n"


@pytest.mark.parametrize("ref", ["latest", "tag:turn=2", "10", "prefix"])
def test_fork_at_any_ref(run, sample, ref):
    ref = sample.second if ref == "prefix" else ref
    assert run("state", "fork", "ses_1", "ses_a", "--at", ref).code == 0
    assert run("state", "fork", f"ses_1@{ref}", "ses_b").code == 0
    for name in ("ses_a", "ses_b"):
        assert run("state", "diff", sample.second, name).out == "no difference\n"


def test_fork_at_an_event(run, sample):
    ran = run("state", "fork", "ses_1", "ses_x", "--at", "3")
    assert (ran.code, ran.out) == (0, "ses_x: 1 message, running\n")
    first = json.loads(run("replay", "ses_x", "--format", "json").out)[0]
    assert (first["data"]["session_id"], first["data"]["seq"]) == ("ses_1", 3)
    run("state", "fork", "ses_1", "ses_y", "--at", "99").assert_failed(
        "no event 99", "last event is 10"
    )


def test_fork_of_a_shared_session_needs_an_agent(run, sample):
    run("state", "fork", "ses_shared", "ses_x").assert_failed("--agent")
    assert run("state", "fork", "ses_shared", "ses_x", "--agent", "bob").code == 0


def test_existing_session_id_is_an_error(run, sample, entries):
    before = entries()
    run("state", "fork", "ses_1", "ses_1").assert_failed(
        "already", "holdfast state list research-bot"
    )
    assert entries() == before


def test_missing_snapshot_is_an_error(run, sample):
    run("state", "fork", "ses_1", "ses_x", "--at", "rubbish").assert_failed("rubbish")


def test_multi_agent_session_is_forked_as_one(run, sample):
    async def together() -> None:
        async with (
            holdfast.open_state_store("sqlite:///state.db") as store,
            holdfast.Session.open(
                store, agent_id="team", session_id="ses_team", scope="multi_agent"
            ) as session,
        ):
            session.agent("ann").add_message("user", "hello")

    asyncio.run(together())
    assert run("state", "fork", "ses_team", "ses_x").out == "ses_x: 1 message, pending\n"
    ran = run("state", "show", "ses_x", "--format", "json")
    assert json.loads(ran.out)["scope"] == "multi_agent"


def test_fork_json(run, sample):
    ran = run("state", "fork", "ses_1", "ses_x", "--format", "json")
    assert json.loads(ran.out) == {
        "agent_id": "research-bot",
        "session_id": "ses_x",
        "scope": "agent",
        "messages": 2,
        "status": "running",
    }
