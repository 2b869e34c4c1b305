"""The installed program, run as a user types it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import BlockingSession

PROGRAM = Path(sys.executable).with_name("holdfast")


@pytest.fixture
def run_line(tmp_path):
    """Run a line with the embedded default store, and return its stdout."""
    if not PROGRAM.exists():
        pytest.skip("holdfast runs here from its source: pip install it to have the program")
    environment = {**os.environ, "HOLDFAST_ENVIRONMENT": "production"}
    environment.pop("HOLDFAST_STORE", None)

    def run(line: str, code: int = 0) -> str:
        command, *words = line.split()
        assert command == "holdfast"
        ran = subprocess.run(
            [str(PROGRAM), *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == code, ran.stderr
        assert "Traceback" not in ran.stderr
        return ran.stdout

    return run


def test_session_moves_to_another_backend(run_line, tmp_path):
    url = f"sqlite:///{tmp_path}/.holdfast/state.db"
    with BlockingSession.open(url, agent_id="research-bot", session_id="ses_1") as session:
        session.add_message("user", "hello", at=(1, 2), image=b"\x00\xff")
        session.set("seen", {"a", "b"})
    target = f"file://{tmp_path}/other"
    run_line("holdfast state export research-bot --output one.json")
    run_line(f"holdfast state import one.json --store {target}")
    run_line(f"holdfast state export research-bot --store {target} --output two.json.zst")
    one = json.loads((tmp_path / "one.json").read_text())
    two = json.loads(run_line("holdfast state show two.json.zst --format json"))
    assert (one["source_environment"], two["state"]) == ("production", one["state"])
    *events, last = two["events"]
    assert events == one["events"]
    assert last["type"] == "session.imported"


def test_exit_codes(run_line):
    run_line("holdfast state export missing --output x.json", code=1)
    run_line("holdfast state export missing --tag bad --output x.json", code=2)
