"""The two requests of the design's section 14, with curl, against a session of the demo."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from support.http_server import serving

SESSION = "ses_ports"


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "folder"
    subprocess.run(
        [sys.executable, "-m", "holdfast", "demo", "--folder", str(folder)],
        check=True,
        capture_output=True,
        stdin=subprocess.DEVNULL,
    )
    with serving(f"sqlite:///{folder}/.holdfast/state.db") as address:
        yield address


def curl(*arguments: str) -> str:
    if shutil.which("curl") is None:
        pytest.skip("there is no curl on this machine")
    done = subprocess.run(["curl", "-sS", "--fail", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_document_is_fetched_and_restored(demo, tmp_path):
    file = tmp_path / "snapshot.json"
    file.write_text(curl(f"{demo}/agents/{SESSION}/snapshot"))
    document = json.loads(file.read_text())
    assert document["schema_version"] == 1
    assert document["session_id"] == SESSION
    assert document["event_log_count"] == len(document["events"]) == 13

    url = f"{demo}/agents/snapshot/restore"
    tried = json.loads(curl("-X", "POST", f"{url}?dry_run=true", "-d", f"@{file}"))
    assert tried["dry_run"] is True

    done = json.loads(
        curl("-X", "POST", url, "-H", "Content-Type: application/json", "-d", f"@{file}")
    )
    assert done["messages_restored"] == 2
    assert done["undo_snapshot_id"]
    again = json.loads(curl(f"{demo}/agents/{SESSION}/snapshot?agent_id=research-bot"))
    assert again["state"] == document["state"]
    assert again["events"][:13] == document["events"]
    assert again["events"][13]["type"] == "session.imported"
