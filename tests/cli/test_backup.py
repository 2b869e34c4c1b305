"""``holdfast backup``."""

from __future__ import annotations

import asyncio
import json
import shlex
from pathlib import Path

import pytest

import holdfast

WHOLE = """\
ok research-bot/ses_1: 10 events, 2 snapshots
ok ann/ses_shared: 2 events, 0 snapshots
ok bob/ses_shared: 2 events, 0 snapshots
3 sessions complete and undamaged
"""


async def change_first_entry(url: str, part: str, *, remove: bool) -> None:
    """Remove or damage the first entry of the session that has a part in its key."""
    async with holdfast.open_state_store(url) as store:
        keys = [key async for key in store.list("sessions/ses_1/") if part in key]
        entry = await store.get(keys[0])
        if remove:
            await store.delete(keys[0])
        else:
            await store.put(keys[0], entry.value[:-1] + bytes([entry.value[-1] ^ 1]))


@pytest.mark.parametrize("place", ["kept", "sqlite:///kept.db", "file:kept"])
def test_backup_round_trips_all_entries(run, sample, entries, place, tmp_path):
    ran = run("backup", place)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("3 sessions, ")
    ran = run("backup", place, "--verify")
    assert (ran.code, ran.out, ran.err) == (0, WHOLE, "")
    url = place if ":" in place else f"file://{tmp_path / place}"
    assert entries(url) == entries()
    assert run("copy", url, "sqlite:///again.db").code == 0
    assert entries("sqlite:///again.db") == entries()


def test_second_backup_writes_only_new_entries(run, sample):
    run("backup", "kept")
    assert run("backup", "kept").out == "3 sessions, 0 new entries, 0 bytes\n"
    assert run("state", "fork", "ses_1", "ses_2").code == 0
    ran = run("backup", "kept", "--verify")
    assert ran.code == 1
    assert "research-bot/ses_2: " in ran.err
    assert run("backup", "kept").out.startswith("4 sessions, ")
    ran = run("backup", "kept", "--verify")
    assert ran.out.endswith("4 sessions complete and undamaged\n")


@pytest.mark.parametrize("remove", [True, False], ids=["removed", "damaged"])
@pytest.mark.parametrize("part", ["/log/", "/snapshots/"])
def test_verify_reports_missing_and_damaged_entries(run, sample, part, remove):
    run("backup", "sqlite:///kept.db")
    asyncio.run(change_first_entry("sqlite:///kept.db", part, remove=remove))
    ran = run("backup", "sqlite:///kept.db", "--verify")
    assert ran.code == 1
    assert ran.out == "".join(WHOLE.splitlines(keepends=True)[1:3])
    assert ran.err.startswith("damaged research-bot/ses_1: ")
    assert f"\n   sessions/ses_1/scopes/agent/research-bot{part}" in ran.err
    assert "\n1 of 3 sessions incomplete or damaged\nhint: " in ran.err
    assert "ann/" not in ran.err


def test_verify_summarizes_many_problems(run, sample):
    run("backup", "kept", "--store", "sqlite:///state.db")
    assert run("state", "fork", "ses_1", "ses_2").code == 0
    for number in range(8):
        assert run("state", "save", "ses_2", "--tag", f"n={number}").code == 0
    ran = run("backup", "kept", "--verify")
    assert ran.code == 1
    assert "ok research-bot/ses_1: 10 events, 2 snapshots\n" in ran.out
    lines = ran.err.splitlines()
    assert lines[0].startswith("damaged research-bot/ses_2: ")
    assert len([line for line in lines if line.startswith("   sessions/")]) == 5
    assert " more; see --format json" in ran.err
    found = json.loads(run("backup", "kept", "--verify", "--format", "json").out)
    assert found["ok"] is False
    (bad,) = [each for each in found["sessions"] if not each["ok"]]
    assert (bad["agent_id"], bad["session_id"], bad["scope"]) == ("research-bot", "ses_2", "agent")
    assert len(bad["problems"]) > 8


@pytest.mark.parametrize("folder", ["kept", "./kept/", "file:kept"])
def test_backup_onto_itself_is_refused(run, sample, folder):
    assert run("backup", "kept").code == 0
    run("backup", folder, "--store", "file:kept").assert_failed(
        "are the same store", "another target"
    )


def test_missing_backup_or_store_is_an_error(run, sample):
    run("backup", "nowhere", "--verify").assert_failed("no store", "nowhere")
    assert not Path("nowhere").exists()
    run("backup", "kept", "--store", "sqlite:///nowhere.db").assert_failed("no store")
    assert not Path("kept").exists()


@pytest.mark.parametrize("part", ["/log/", "/snapshots/"])
def test_repair_rewrites_damaged_entries(run, sample, entries, part):
    kept = "sqlite:///kept.db"
    run("backup", kept)
    asyncio.run(change_first_entry(kept, part, remove=False))
    ran = run("backup", kept, "--verify")
    again = f"hint: holdfast backup --repair {kept} writes missing and damaged entries\n"
    assert ran.err.endswith(again)
    assert json.loads(run("backup", kept, "--verify", "--format", "json").out)["ok"] is False
    ran = run("backup", kept, "--repair")
    assert ran.code == 0
    assert ran.out.endswith(" bytes, 1 damaged entry repaired\n")
    assert entries(kept) == entries()
    assert run("backup", kept, "--verify").out == WHOLE
    ran = run("backup", kept, "--verify", "--format", "json")
    found = json.loads(ran.out)
    assert found["ok"] is True
    assert [each["problems"] for each in found["sessions"]] == [[], [], []]


@pytest.mark.parametrize("part", ["/log/", "/snapshots/"])
def test_backup_rewrites_missing_entries_without_repair(run, sample, entries, part):
    run("backup", "sqlite:///kept.db")
    asyncio.run(change_first_entry("sqlite:///kept.db", part, remove=True))
    assert run("backup", "sqlite:///kept.db").code == 0
    assert entries("sqlite:///kept.db") == entries()


@pytest.mark.parametrize("more", [(), ("--verify",)], ids=["write", "verify"])
@pytest.mark.parametrize("folder", ["2026-11-15T12:30", "nightly:1/a b"])
def test_folder_with_a_colon_gets_a_hint(run, sample, folder, more):
    ran = run("backup", folder, *more)
    ran.assert_failed("unknown URL scheme", shlex.quote(f"./{folder}"))
    assert run("backup", f"./{folder}").code == 0
    assert run("backup", f"./{folder}", "--verify").out == WHOLE
    ran = run("backup", "ada:secret@host/db")
    ran.assert_failed("./FOLDER")
    assert "secret" not in ran.err
    run("backup", "what://x").assert_failed("unknown scheme")


def test_verify_and_repair_cannot_be_combined(run, sample):
    run("backup", "kept", "--verify", "--repair").assert_usage_error("--repair")
    assert not Path("kept").exists()


def test_unencrypted_backup_of_an_encrypted_store_warns(run, sample, monkeypatch):
    from holdfast.stores.wrappers.encryption import new_key

    monkeypatch.setenv("KEYS", new_key())
    hidden = "sqlite:///hidden.db?encrypt=KEYS"
    ran = run("copy", "sqlite:///state.db", hidden)
    assert (ran.code, ran.err) == (0, "")
    ran = run("backup", "plain", "--store", hidden)
    assert ran.code == 0
    assert ran.err.startswith("warning: the source is encrypted and the target is not")
    ran = run("backup", "sqlite:///kept.db?encrypt=KEYS", "--store", hidden)
    assert (ran.code, ran.err) == (0, "")
