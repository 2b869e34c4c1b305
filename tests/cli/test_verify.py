"""``holdfast state verify``."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

import holdfast


@pytest.fixture
def damaged_store(sample):
    """Damage an event in the store."""

    async def damage() -> None:
        async with holdfast.open_state_store("sqlite:///state.db") as store:
            keys = [key async for key in store.list("sessions/ses_1/")]
            key = next(key for key in keys if "/events/" in key or "/log/" in key)
            entry = await store.get(key)
            await store.put(key, entry.value[:-1] + bytes([entry.value[-1] ^ 1]))

    asyncio.run(damage())


def read_rows(text: str) -> list[list[str]]:
    return sorted(line.split() for line in text.splitlines()[1:])


def test_undamaged_store_is_ok(run, sample):
    ran = run("state", "verify")
    assert (ran.code, ran.err) == (0, "")
    columns = ["result", "agent_id", "session_id", "scope", "events", "snapshots", "blobs"]
    assert ran.out.splitlines()[0].split() == columns
    assert read_rows(ran.out) == [
        ["ok", "ann", "ses_shared", "agent", "2", "0", "0"],
        ["ok", "bob", "ses_shared", "agent", "2", "0", "0"],
        ["ok", "research-bot", "ses_1", "agent", "10", "2", "0"],
    ]


def test_verify_one_session_or_agent(run, sample):
    assert read_rows(run("state", "verify", "ses_1").out)[0][:3] == ["ok", "research-bot", "ses_1"]
    assert len(read_rows(run("state", "verify", "ses_shared").out)) == 2
    assert len(read_rows(run("state", "verify", "ses_shared", "--agent", "bob").out)) == 1
    assert len(read_rows(run("state", "verify", "--agent", "bob").out)) == 1


def test_sessions_with_equal_joined_names_are_reported_separately(run, sample):
    async def two() -> None:
        async with holdfast.open_state_store("sqlite:///state.db") as store:
            for agent, session in (("a/b", "c"), ("a", "b/c")):
                async with holdfast.Session.open(
                    store, agent_id=agent, session_id=session
                ) as opened:
                    opened.set("x", 1)

    asyncio.run(two())
    reports = json.loads(run("state", "verify", "--format", "json").out)
    named = {(each["agent_id"], each["session_id"], each["scope"]) for each in reports}
    assert {("a/b", "c", "agent"), ("a", "b/c", "agent")} <= named
    assert not any("session" in each for each in reports)
    ran = run("state", "prune", "--all", "--last", "1", "--format", "json", "--yes")
    pruned = json.loads(ran.out)
    assert {(each["agent_id"], each["session_id"], each["scope"]) for each in pruned} == named
    found = [line.split()[1:3] for line in run("state", "verify").out.splitlines()]
    assert ["a/b", "c"] in found
    assert ["a", "b/c"] in found


def test_damage_is_listed_and_exits_with_1(run, damaged_store):
    ran = run("state", "verify")
    assert ran.code == 1
    assert ["damaged", "research-bot", "ses_1"] in [row[:3] for row in read_rows(ran.out)]
    assert "\ndamaged: sessions/ses_1/" in ran.out
    assert ["ok", "ann", "ses_shared"] in [row[:3] for row in read_rows(ran.out)]
    ran = run("state", "verify", "ses_1", "--format", "json")
    (report,) = json.loads(ran.out)
    assert (ran.code, report["ok"], report["session_id"]) == (1, False, "ses_1")
    assert report["damage"][0].keys() == {"key", "problem"}


def test_other_commands_point_to_verify(run, damaged_store):
    run("state", "show", "ses_1").assert_failed("state verify")


def test_missing_session_or_agent_is_an_error(run, sample):
    run("state", "verify", "ses_9").assert_failed("no session")
    run("state", "verify", "--agent", "anne").assert_failed("no agent 'anne'", "ann")


def test_empty_store(run):
    assert run("state", "verify", "--store", "memory:").out == "no sessions\n"
    assert run("state", "verify", "--store", "memory:", "--format", "json").out == "[]\n"


def test_database_index_that_hides_entries_is_damage(run, sample):
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


def test_unknown_keys_are_reported_but_not_damage(run, sample):
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
        assert f"{key}: not written by Holdfast" in ran.out
    (report,) = json.loads(run("state", "verify", "ses_1", "--format", "json").out)
    assert report["ok"] is True
    assert sorted(report["other_keys"]) == sorted(keys)


def test_repair_restores_a_missing_index_entry(run, sample):
    async def lose() -> str:
        async with holdfast.open_state_store("sqlite:///state.db") as store:
            (key,) = [key async for key in store.list("agents/research-bot/")]
            await store.delete(key)
            return key

    key = asyncio.run(lose())
    assert "ses_1" not in run("state", "list", "research-bot").out
    ran = run("state", "verify", "ses_1", "--format", "json")
    assert ran.code == 1
    assert [each["key"] for each in json.loads(ran.out)[0]["damage"]] == [key]
    ran = run("state", "verify", "ses_1", "--repair")
    assert ran.code == 0
    assert f"repaired: {key}" in ran.out.replace("\n", "")
    assert "ses_1" in run("state", "list", "research-bot").out


def test_missing_and_unreferenced_blobs_are_reported(run, sample):
    async def write() -> str:
        async with holdfast.open_state_store("sqlite:///state.db") as store:
            session = await holdfast.Session.open(store, agent_id="bot", session_id="ses_blobs")
            image = await session.attach(b"x" * 700_000)
            session.set("image", image)
            await session.commit()
            prefix = f"{session.location.prefix}blobs/"
            await store.delete(f"{prefix}{image.digest}/000001")
            await store.put(f"{prefix}{'0' * 64}/000000", b"left over")
            return image.digest

    digest = asyncio.run(write())
    ran = run("state", "verify", "ses_blobs")
    assert ran.code == 1
    assert f"blob {digest} of 700000 bytes, which is incomplete: 1 of 2 chunks" in " ".join(
        ran.out.split()
    )
    assert f"left over: blob {'0' * 64} (9 bytes, incomplete): harmless" in " ".join(
        ran.out.split()
    )
    (report,) = json.loads(run("state", "verify", "ses_blobs", "--format", "json").out)
    assert (report["blobs"], report["blob_bytes"]) == (2, 524288 + 9)
    assert report["unreferenced_blobs"] == [{"digest": "0" * 64, "size": 9, "is_complete": False}]
    ran = run("state", "prune", "ses_blobs", "--last", "1", typed="y\n")
    assert "Delete 0 snapshots and 1 blob of 1 session permanently?" in ran.err
    assert ran.out.endswith("with 0 events and 1 blob (9 bytes)\n")
