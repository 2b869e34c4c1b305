"""Commands whose output is not read: they complete all the same, in real processes."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast

SESSIONS = 25
URL = "sqlite:///many.db"
EACH = """
import json, os, sys
import holdfast.cli.main, holdfast.console_script
codes = []
for words in json.loads(sys.argv[1]):
    if not os.fork():
        holdfast.console_script.main(words)
    codes.append(os.waitstatus_to_exitcode(os.wait()[1]))
print(codes, file=sys.stderr)
"""
"""Runs commands one after another, each in a fork that has already imported everything."""


def run_unread(
    *arguments: str, errors: bool = False, program: tuple[str, ...] = ("-m", "holdfast")
) -> subprocess.CompletedProcess[bytes]:
    """Run a command with a closed stdout pipe; ``errors``: stderr too."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        return subprocess.run(
            [sys.executable, *program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=writing if errors else subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(writing)


async def fill(url: str, sessions: int = SESSIONS) -> None:
    async with holdfast.open_state_store(url) as store:
        for number in range(sessions):
            name = f"ses_{number:03}"
            session = await holdfast.Session.open(store, agent_id="bot", session_id=name)
            for turn in range(3):
                session.add_message("user", f"turn {turn}")
                await session.save(tags={"turn": str(turn)})


async def count_snapshots(url: str) -> list[int]:
    async with holdfast.open_state_store(url) as store:
        archive, catalog = holdfast.SnapshotArchive(store), holdfast.Catalog(store)
        return [
            len(await archive.list_snapshot_ids(location=location))
            for session_id in await catalog.session_ids()
            for location in await catalog.locations(session_id)
        ]


@pytest.fixture(scope="module")
def many_sessions(tmp_path_factory):
    folder = tmp_path_factory.mktemp("many")
    asyncio.run(fill(f"sqlite:///{folder}/many.db"))
    return folder / "many.db"


@pytest.fixture
def many_store(many_sessions, tmp_path, monkeypatch):
    """Copy a store of many sessions with three snapshots each."""
    for part in many_sessions.parent.iterdir():
        (tmp_path / part.name).write_bytes(part.read_bytes())
    monkeypatch.setenv("HOLDFAST_STORE", URL)
    return tmp_path


@pytest.mark.parametrize(
    ("format_", "errors"), [("table", True), ("json", False)], ids=["stdout and stderr", "stdout"]
)
def test_prune_completes(many_store, format_, errors):
    done = run_unread(
        "state", "prune", "--all", "--last", "1", "--yes", "--format", format_, errors=errors
    )
    assert (done.returncode, done.stderr or b"") == (0, b"")
    assert asyncio.run(count_snapshots(URL)) == [1] * SESSIONS


def test_prune_completes_when_the_reader_stops_after_a_line(many_store):
    command = f"{sys.executable} -m holdfast state prune --all --last 1 --yes | head -1"
    shell = ["bash", "-o", "pipefail", "-c", command]
    done = subprocess.run(shell, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.count(b"\n") == 1
    assert asyncio.run(count_snapshots(URL)) == [1] * SESSIONS


def test_restore_completes(run, sample):
    done = run_unread("state", "restore", "ses_1", sample.first, "--yes")
    assert (done.returncode, done.stderr) == (0, b"")
    assert run("state", "diff", "ses_1", sample.first).out == "no difference\n"


def test_writing_commands_complete(run, many_store):
    as_json = ("--format", "json")
    verbs = [
        ("state", "fork", "ses_000", "ses_fork"),
        ("state", "delete", "ses_001", "--yes", *as_json),
        ("state", "save", "ses_002", "--tag", "by=test"),
        ("copy", URL, "sqlite:///copy.db", *as_json),
        ("backup", "kept"),
        ("backup", "kept", "--verify", *as_json),
        ("doctor",),
        ("state", "verify", *as_json),
    ]
    done = run_unread(json.dumps(verbs), program=("-c", EACH))
    assert done.stderr.decode() == f"{[0] * len(verbs)}\n"
    assert run("state", "show", "ses_fork").code == 0
    assert run("state", "show", "ses_001").code == 1
    assert "by=test" in run("state", "list", "--session", "ses_002").out
    for url in ("sqlite:///copy.db", "file:kept"):
        assert len(asyncio.run(count_snapshots(url))) == SESSIONS


def test_import_completes(run, many_store):
    assert run("state", "export", "bot", "--session", "ses_003", "-o", "x.json").code == 0
    done = run_unread("state", "import", "x.json", "--session", "ses_new")
    assert (done.returncode, done.stderr) == (0, b"")
    assert run("state", "show", "ses_new").code == 0
    done = run_unread("state", "import", "x.json", "--session", "ses_000")
    assert (done.returncode, done.stderr) == (0, b"")


def test_demo_completes(run, tmp_path):
    done = run_unread("demo", "--folder", "play")
    assert done.returncode == 0
    assert done.stderr.startswith(b"incident.json: ")
    assert run("state", "show", "ses_ports", "--store", "sqlite:///play/staging.db").code == 0


def test_keys_new_completes(tmp_path):
    done = run_unread("keys", "new", "release")
    assert (done.returncode, done.stderr) == (0, b"")
    assert Path("release.key").exists()
    assert Path("release.pub").exists()


def test_export_to_a_closed_pipe_fails(run, many_store):
    done = run_unread("state", "export", "bot", "-o", "-")
    assert (done.returncode, done.stderr) == (1, b"")
    assert run_unread("state", "export", "bot", "-o", "x.json", errors=True).returncode == 0
    assert json.loads(Path("x.json").read_bytes())["agent_id"] == "bot"


def test_failed_command_still_exits_with_1(many_store):
    assert run_unread("state", "delete", "ses_none", "--yes", errors=True).returncode == 1
    done = run_unread("state", "delete", "ses_none", "--yes")
    assert done.returncode == 1
    assert done.stderr.startswith(b"error: no session")


def test_reading_command_exits_quietly(many_store):
    done = run_unread("state", "list", "bot")
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_full_disk_is_reported_after_the_command_completes(many_store):
    words = ("state", "prune", "--all", "--last", "1", "--yes")
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.startswith(b"error: cannot write the output: No space left on device\n")
    assert asyncio.run(count_snapshots(URL)) == [1] * SESSIONS
