"""Snapshots that Strands wrote (samples/make_strands.py) become sessions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import holdfast.importers
from holdfast.errors import InvalidDocumentError
from importers.graphs import check_imports

SAMPLES = Path(__file__).parent / "samples" / "strands" / "session"
TRIP = SAMPLES / "trip-1/scopes/agent/planner/snapshots"
TEAM = SAMPLES / "team-1/scopes/multiAgent/newsroom/snapshots"
ORDER = SAMPLES / "order-1/scopes/agent/clerk/snapshots"
LATEST = "snapshot_latest.json"


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """Writes a modified snapshot outside the folders of Strands."""
    monkeypatch.chdir(tmp_path)

    def write(**changes):
        tree = {**json.loads((TRIP / LATEST).read_bytes()), **changes}
        (tmp_path / "trip.json").write_text(json.dumps(tree))
        return "trip.json"

    return write


def test_the_latest_snapshot_is_imported_with_its_history():
    (document,) = holdfast.importers.read(str(TRIP / LATEST))
    assert (document.agent_id, document.session_id, document.scope) == (
        "planner",
        "trip-1",
        "agent",
    )
    assert document.tags == {"format": "strands"}
    assert document.state.values == {"city": "Oslo", "done": True}
    assert len(document.state.messages) == 8
    image = document.state.messages[4]["content"][1]["image"]
    assert image["source"] == {"bytes": b"\x89PNG\r\n"}
    assert document.state.namespaces["strands"]["system_prompt"] == [{"text": "Plan trips."}]
    counts = [each.after.count("messages") for each in holdfast.replay(document)]
    assert counts == [0, 4, 6, 8]
    assert document.events[-1].at.isoformat() > document.events[1].at.isoformat()
    check_imports(document)


def test_only_changes_between_snapshots_are_written():
    (document,) = holdfast.importers.read(str(TRIP / LATEST))
    keys = [
        [key for space, key, _ in each.changes["set"] if space == "messages"]
        for each in document.events
    ]
    assert [len(each) for each in keys] == [0, 4, 2, 2]


def test_a_snapshot_of_the_history_is_imported_alone():
    (file, *_) = sorted((TRIP / "immutable_history").iterdir())
    (document,) = holdfast.importers.read(str(file))
    assert (document.agent_id, document.session_id) == ("planner", "trip-1")
    assert len(document.state.messages) == 4
    assert document.state.status == "completed"
    check_imports(document)


def test_an_interrupted_agent_is_waiting():
    (document,) = holdfast.importers.read(str(ORDER / LATEST))
    assert (document.agent_id, document.session_id) == ("clerk", "order-1")
    assert document.state.status == "waiting"
    assert document.state.namespaces["strands"]["interrupt_state"]["activated"] is True
    check_imports(document)


def test_a_multi_agent_snapshot_becomes_a_multi_agent_session(tmp_path):
    (document,) = holdfast.importers.read(str(TEAM / LATEST))
    names = (document.agent_id, document.session_id, document.scope, document.state.status)
    assert names == ("newsroom", "team-1", "multi_agent", "completed")
    assert document.state.values["execution_order"] == ["writer", "critic"]
    check_imports(document)
    shutil.copy(TEAM / LATEST, tmp_path / "team.json")
    (document,) = holdfast.importers.read(str(tmp_path / "team.json"))
    assert (document.agent_id, document.session_id) == ("newsroom", "team")


def test_outside_the_folders_the_file_names_the_session(alone):
    (document,) = holdfast.importers.read(alone())
    assert (document.agent_id, document.session_id) == ("imported", "trip")
    assert len(document.events) == 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"schema_version": "2.0"}, "schema version '2.0'.*upgrade"),
        ({"scope": "galaxy"}, "scope 'galaxy'"),
        ({"scope": ["agent"]}, "scope"),
        ({"data": []}, "data must be an object"),
        ({"data": {"messages": {}}}, "messages must be a list"),
        ({"data": {"messages": [5]}}, "messages must be a list"),
        ({"data": {"messages": [], "state": 5}}, "state must be an object"),
        ({"created_at": "yesterday"}, "invalid time"),
        ({"created_at": None}, "invalid time"),
        ({"data": {"state": {"x": {"__bytes_encoded__": True, "data": "?"}}}}, "invalid base64"),
        ({"data": {"state": {"x": {"__bytes_encoded__": True, "data": 5}}}}, "invalid base64"),
    ],
)
def test_a_malformed_snapshot_is_refused(alone, changes, words):
    with pytest.raises(InvalidDocumentError, match=words):
        holdfast.importers.read(alone(**changes))


def test_a_damaged_file_in_the_history_is_named(tmp_path):
    shutil.copytree(SAMPLES, tmp_path / "session")
    folder = tmp_path / "session" / TRIP.relative_to(SAMPLES)
    damaged = sorted((folder / "immutable_history").iterdir())[1]
    damaged.write_bytes(damaged.read_bytes()[:50])
    with pytest.raises(InvalidDocumentError, match=damaged.name):
        holdfast.importers.read(str(folder / LATEST))
