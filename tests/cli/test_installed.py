"""The installed program: the commands of the design as they are typed."""

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
def typed(tmp_path):
    """Runs a line in a folder where the embedded default is, and gives what it printed."""
    environment = {**os.environ, "HOLDFAST_ENVIRONMENT": "production"}
    environment.pop("HOLDFAST_STORE", None)

    def run(line: str, code: int = 0, program: Path = PROGRAM) -> str:
        command, *words = line.split()
        assert command == "holdfast"
        ran = subprocess.run(
            [str(program), *words],
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


def test_the_commands_of_the_design_run_as_they_are_typed(typed, tmp_path):
    if not PROGRAM.exists():
        pytest.skip("holdfast runs here from its source: pip install it to have the program")
    url = f"sqlite:///{tmp_path}/.holdfast/state.db"
    with BlockingSession.open(url, agent_id="research-bot", session_id="ses_abc123") as session:
        session.add_message("user", "Compare the two reports")
        first = session.save(tags={"turn": "1"})
        session.add_message("assistant", "B is newer")
        session.status = "completed"
        session.save(tags={"turn": "2"})

    export = "holdfast state export research-bot --session ses_abc123 --tag reason=incident"
    typed(f"{export} --output snapshot.json")
    assert json.loads(typed(f"{export} --redact --output -"))["tags"]["reason"] == "incident"
    typed(f"holdfast state export research-bot --snapshot {first.snapshot_id} --output old.json.gz")
    shown = typed("holdfast state show snapshot.json")
    table = shown.split("\n\n")[0]
    assert [line.split()[0] for line in table.splitlines()] == [
        "Field",
        "schema_version",
        "agent_id",
        "session_id",
        "status",
        "messages",
        "event_log_count",
        "source_environment",
        "exported_at",
        "tags",
    ]
    assert "production" in shown
    assert (
        json.loads(typed("holdfast state show snapshot.json --format json"))["schema_version"] == 1
    )
    typed("holdfast state import snapshot.json --dry-run --agent copy-bot --session ses_copy")
    assert "copy-bot" not in typed("holdfast state list")
    typed("holdfast state import snapshot.json --agent copy-bot --session ses_copy")
    assert "copy-bot" in typed("holdfast state list")
    assert "B is newer" in typed("holdfast state diff old.json.gz snapshot.json")
    assert "ok" in typed("holdfast state verify")
    typed(f"holdfast state restore ses_abc123 {first.snapshot_id} --yes")
    typed(f"holdfast state fork ses_abc123 ses_what_if --at {first.snapshot_id}")
    typed("holdfast state prune ses_abc123 --last 1 --yes")
    assert "session.started" in typed("holdfast replay snapshot.json --from 1 --to 2")
    typed("holdfast replay ses_copy")
    typed("holdfast copy sqlite:///.holdfast/state.db sqlite:///staging.db")
    typed("holdfast backup kept")
    typed("holdfast backup kept --verify")
    typed("holdfast doctor --store sqlite:///staging.db")
    typed("holdfast state delete ses_what_if --yes")
    typed("holdfast state export nobody --output snapshot.json", code=1)
    typed("holdfast state export research-bot --tag bad --output snapshot.json", code=2)


def test_a_session_goes_to_another_backend_and_back_with_the_same_state_and_events(typed, tmp_path):
    if not PROGRAM.exists():
        pytest.skip("holdfast runs here from its source: pip install it to have the program")
    url = f"sqlite:///{tmp_path}/.holdfast/state.db"
    with BlockingSession.open(url, agent_id="research-bot", session_id="ses_1") as session:
        session.add_message("user", "hello", at=(1, 2), image=b"\x00\xff")
        session.set("seen", {"a", "b"})
    there = f"file://{tmp_path}/other"
    typed("holdfast state export research-bot --output one.json")
    typed(f"holdfast state import one.json --store {there}")
    typed(f"holdfast state export research-bot --store {there} --output two.json.zst")
    typed("holdfast state show two.json.zst")
    one = json.loads((tmp_path / "one.json").read_text())
    two = json.loads(typed("holdfast state show two.json.zst --format json"))
    assert two["state"] == one["state"]
    *events, last = two["events"]
    assert events == one["events"]
    assert last["type"] == "session.imported"
