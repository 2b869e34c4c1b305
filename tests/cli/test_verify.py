"""``holdfast state verify``."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

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


def test_an_index_that_hides_entries_is_damage(run, world):
    async def fill() -> None:
        async with holdfast.open_state_store("sqlite:///state.db") as store:
            await store.put_many([holdfast.Put(f"other/{n:05}", b"1") for n in range(1000)])

    asyncio.run(fill())
    assert run("state", "verify").code == 0
    data = bytearray(Path("state.db").read_bytes())
    size = int.from_bytes(data[16:18], "big")
    leaf = max(at for at in range(size, len(data), size) if data[at] == 0x0A)
    data[leaf + 3 : leaf + 5] = (1).to_bytes(2, "big")
    Path("state.db").write_bytes(data)
    ran = run("state", "verify", "--format", "json")
    assert ran.code == 1
    assert ran.err.startswith("damaged: sqlite:///state.db: ")
    assert "index" in ran.err
    assert all(report["ok"] for report in json.loads(ran.out))


def test_keys_that_are_not_ours_are_named_and_no_damage(run, world):
    async def stray() -> list[str]:
        async with holdfast.open_state_store("sqlite:///state.db") as store:
            keys = [key async for key in store.list("sessions/ses_1/")]
            found = [
                next(key for key in keys if "/log/" in key) + ".bak",
                next(key for key in keys if "/immutable_history/" in key) + ".orig",
            ]
            for key in found:
                await store.put(key, b"not ours")
            return found

    keys = asyncio.run(stray())
    ran = run("state", "verify", "ses_1")
    assert (ran.code, ran.err) == (0, "")
    for key in keys:
        assert f"{key}: not written by Holdfast, ignored" in ran.out
    (report,) = json.loads(run("state", "verify", "ses_1", "--format", "json").out)
    assert report["ok"] is True
    assert sorted(report["other_keys"]) == sorted(keys)
