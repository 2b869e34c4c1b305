"""``holdfast state verify``."""

from __future__ import annotations

import asyncio
import json

import pytest

import holdfast


@pytest.fixture
def damaged(world):
    """A store in which an event was changed."""

    async def damage() -> None:
        async with holdfast.open_state_store("sqlite:///state.db") as store:
            keys = [key async for key in store.list("sessions/ses_1/")]
            key = next(key for key in keys if "/events/" in key or "/log/" in key)
            entry = await store.get(key)
            await store.put(key, entry.value[:-1] + bytes([entry.value[-1] ^ 1]))

    asyncio.run(damage())


def test_a_whole_store_is_ok(run, world):
    ran = run("state", "verify")
    assert (ran.code, ran.err) == (0, "")
    assert sorted(ran.out.splitlines()) == [
        "ok ann/ses_shared: 2 events, 0 snapshots",
        "ok bob/ses_shared: 2 events, 0 snapshots",
        "ok research-bot/ses_1: 10 events, 2 snapshots",
    ]


def test_a_session_or_an_agent_is_looked_at_alone(run, world):
    assert run("state", "verify", "ses_1").out.startswith("ok research-bot/ses_1")
    assert len(run("state", "verify", "ses_shared").out.splitlines()) == 2
    assert len(run("state", "verify", "ses_shared", "--agent", "bob").out.splitlines()) == 1
    assert len(run("state", "verify", "--agent", "bob").out.splitlines()) == 1


def test_damage_is_listed_and_fails(run, damaged):
    ran = run("state", "verify")
    assert ran.code == 1
    assert "damaged research-bot/ses_1" in ran.out
    assert "   sessions/ses_1/" in ran.out
    assert "ok ann/ses_shared" in ran.out
    ran = run("state", "verify", "ses_1", "--format", "json")
    (report,) = json.loads(ran.out)
    assert (ran.code, report["ok"], report["session"]) == (1, False, "research-bot/ses_1")
    assert report["damage"][0].keys() == {"key", "problem"}


def test_damage_met_by_another_command_is_one_line(run, damaged):
    run("state", "show", "ses_1").failed("state verify")


def test_what_is_not_there_is_an_error(run, world):
    run("state", "verify", "ses_9").failed("there is no session")
    run("state", "verify", "--agent", "anne").failed("there is no agent 'anne'", "ann")


def test_an_empty_store_says_so(run):
    assert run("state", "verify", "--store", "memory:").out == "nothing here yet\n"
    assert run("state", "verify", "--store", "memory:", "--format", "json").out == "[]\n"
