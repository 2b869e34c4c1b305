"""Snapshot files that Strands wrote (samples/make_strands.py)."""

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
    """A file outside of the folders of Strands, changed."""
    monkeypatch.chdir(tmp_path)

    def write(**changes):
        tree = {**json.loads((TRIP / LATEST).read_bytes()), **changes}
        (tmp_path / "trip.json").write_text(json.dumps(tree))
        return "trip.json"

    return write


def test_the_latest_snapshot_is_a_session_with_the_history_beside_it():
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


def test_what_did_not_change_between_two_snapshots_is_not_written_again():
    (document,) = holdfast.importers.read(str(TRIP / LATEST))
    keys = [
        [key for space, key, _ in each.changes["set"] if space == "messages"]
        for each in document.events
    ]
    assert [len(each) for each in keys] == [0, 4, 2, 2]


def test_a_snapshot_of_the_history_stands_alone():
    (file, *_) = sorted((TRIP / "immutable_history").iterdir())
    (document,) = holdfast.importers.read(str(file))
    assert (document.agent_id, document.session_id) == ("planner", "trip-1")
    assert len(document.state.messages) == 4
    assert document.state.status == "completed"
    check_imports(document)


def test_an_agent_that_was_interrupted_waits():
    (document,) = holdfast.importers.read(str(ORDER / LATEST))
    assert (document.agent_id, document.session_id) == ("clerk", "order-1")
    assert document.state.status == "waiting"
    assert document.state.namespaces["strands"]["interrupt_state"]["activated"] is True
    check_imports(document)


def test_several_agents_are_a_session_of_several(tmp_path):
    (document,) = holdfast.importers.read(str(TEAM / LATEST))
    names = (document.agent_id, document.session_id, document.scope, document.state.status)
    assert names == ("newsroom", "team-1", "multi_agent", "completed")
    assert document.state.values["execution_order"] == ["writer", "critic"]
    check_imports(document)
    shutil.copy(TEAM / LATEST, tmp_path / "team.json")
    (document,) = holdfast.importers.read(str(tmp_path / "team.json"))
    assert (document.agent_id, document.session_id) == ("newsroom", "team")


def test_elsewhere_the_file_names_the_session(alone):
    (document,) = holdfast.importers.read(alone())
    assert (document.agent_id, document.session_id) == ("imported", "trip")
    assert len(document.events) == 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"schema_version": "2.0"}, "schema version '2.0'.*upgrade"),
        ({"scope": "galaxy"}, "scope 'galaxy'"),
        ({"scope": ["agent"]}, "scope"),
        ({"data": []}, "no object data"),
        ({"data": {"messages": {}}}, "messages are no list"),
        ({"data": {"messages": [5]}}, "messages are no list"),
        ({"data": {"messages": [], "state": 5}}, "state is no object"),
        ({"created_at": "yesterday"}, "no time"),
        ({"created_at": None}, "no time"),
        ({"data": {"state": {"x": {"__bytes_encoded__": True, "data": "?"}}}}, "no base64"),
        ({"data": {"state": {"x": {"__bytes_encoded__": True, "data": 5}}}}, "no base64"),
    ],
)
def test_what_is_malformed_is_one_error(alone, changes, words):
    with pytest.raises(InvalidDocumentError, match=words):
        holdfast.importers.read(alone(**changes))


def test_a_damaged_file_of_the_history_is_named(tmp_path):
    shutil.copytree(SAMPLES, tmp_path / "session")
    folder = tmp_path / "session" / TRIP.relative_to(SAMPLES)
    damaged = sorted((folder / "immutable_history").iterdir())[1]
    damaged.write_bytes(damaged.read_bytes()[:50])
    with pytest.raises(InvalidDocumentError, match=damaged.name):
        holdfast.importers.read(str(folder / LATEST))
