"""Snapshots of Grampus become sessions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import holdfast.importers
from holdfast.errors import InvalidDocumentError
from holdfast.snapshots.tool_calls import ToolCallIndex
from importers.graphs import check_imports

SAMPLE = Path(__file__).parent / "samples" / "grampus" / "snapshot.json"
TREE = json.loads(SAMPLE.read_bytes())


@pytest.fixture
def read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def call(tree, **options):
        (tmp_path / "snapshot.json").write_text(json.dumps(tree))
        (document,) = holdfast.importers.read("snapshot.json", **options)
        return document

    return call


def change_state(**changes):
    return {**TREE, "state": {**TREE["state"], **changes}}


def test_a_snapshot_becomes_a_session():
    (document,) = holdfast.importers.read(str(SAMPLE))
    assert (document.agent_id, document.session_id) == ("research-bot", "ses_abc123")
    assert document.tags == {"format": "grampus"}
    assert document.state.messages == TREE["state"]["messages"]
    assert document.state.values == {"city": "Oslo"}
    assert document.state.status == "waiting"
    own = document.state.namespaces["grampus"]
    assert own["description"] == "Before the incident"
    assert own["tags"] == ["env=production"]
    assert own["event_log_count"] == 9
    assert own["state"]["total_token_usage"]["cost_usd"] == 0.002
    assert own["state"]["last_event_id"] == "evt_9"
    assert "agent_id" not in own["state"]
    check_imports(document)


def test_messages_are_events_at_their_times_and_the_snapshot_is_the_last():
    (document,) = holdfast.importers.read(str(SAMPLE))
    assert [each.at.strftime("%H:%M:%S") for each in document.events] == [
        "09:30:00",
        "09:30:00",
        "09:30:01",
        "09:30:02",
        "09:30:03",
        "09:40:00",
    ]
    assert document.events[-1].type == "snapshot.imported"
    called = [step.after for step in holdfast.replay(document)][2]
    assert [each.call_id for each in ToolCallIndex().unfinished(called)] == ["t1"]
    assert ToolCallIndex().unfinished(document.state.snapshot) == []


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("idle", "pending"),
        ("running", "running"),
        ("waiting_for_human", "waiting"),
        ("completed", "completed"),
        ("failed", "failed"),
    ],
)
def test_the_status_is_mapped(read, status, expected):
    assert read(change_state(status=status)).state.status == expected


def test_a_minimal_snapshot_is_read(read):
    least = {"schema_version": "1.0", "agent_id": "a", "session_id": "s", "state": {}}
    document = read(least)
    assert document.state.messages == []
    assert document.state.status == "pending"
    check_imports(document)


def test_ids_can_be_given(read):
    document = read(TREE, agent_id="a", session_id="s")
    assert (document.agent_id, document.session_id) == ("a", "s")
    assert document.state.namespaces["grampus"]["session_id"] == "ses_abc123"


def test_a_holdfast_document_with_a_wrong_version_is_not_taken_for_a_snapshot(read):
    (document,) = holdfast.importers.read(str(SAMPLE))
    with pytest.raises(InvalidDocumentError, match="schema_version"):
        read({**document.to_dict(), "schema_version": "1.0"})


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ({**TREE, "schema_version": "2.0"}, "schema version '2.0'.*upgrade"),
        ({**TREE, "agent_id": 5}, "agent_id of snapshot.json must be a non-empty str"),
        ({**TREE, "session_id": ""}, "session_id of snapshot.json must be a non-empty str"),
        ({**TREE, "created_at": "soon"}, "invalid time"),
        (change_state(messages=5), "messages of snapshot.json must be a list"),
        (change_state(messages=[{"content": "x"}]), "not a message with a role"),
        (change_state(messages=[{"role": "user", "timestamp": []}]), "message 0 .*invalid time"),
        (change_state(metadata=[]), "metadata of snapshot.json must be an object"),
        (change_state(status="asleep"), "invalid Grampus status 'asleep'"),
        (change_state(status=[]), "invalid Grampus status"),
        (change_state(created_at=7), "invalid time"),
    ],
)
def test_a_malformed_snapshot_is_refused(read, tree, words):
    with pytest.raises(InvalidDocumentError, match=words):
        read(tree)


@pytest.mark.parametrize("tree", [{"songs": []}, [1], {"schema_version": "1.0", "agent_id": "a"}])
def test_another_file_is_not_a_snapshot(read, tree):
    with pytest.raises(InvalidDocumentError, match="Grampus|must be"):
        read(tree, format="grampus")
