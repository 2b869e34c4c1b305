"""A durable snapshot: metadata, a frozen state, and a position in the log."""

from __future__ import annotations

import datetime as dt
import uuid
from dataclasses import FrozenInstanceError, replace

import pytest

from holdfast import Store
from holdfast.log.event_log import Position
from holdfast.snapshots import SessionSnapshot, SnapshotInfo, SnapshotLocation
from holdfast.snapshots.session_snapshot import snapshot_from_info
from support.observed_store import make_state


def make_snapshot(snapshot=None, **fields):
    given = {"agent_id": "research-bot", "session_id": "ses_abc123", **fields}
    return SessionSnapshot.from_snapshot(
        make_state(2, plan=[1]) if snapshot is None else snapshot, **given
    )


def test_from_snapshot_takes_the_snapshot_of_any_store():
    before = dt.datetime.now(dt.UTC)
    frozen = make_state(2, plan=[1])
    snapshot = make_snapshot(
        frozen, parent_id="p", tags={"env": "test"}, source_environment="laptop"
    )
    assert snapshot.snapshot is frozen
    assert snapshot.digest == frozen.digest
    assert uuid.UUID(snapshot.snapshot_id).version == 7
    assert before <= snapshot.created_at <= dt.datetime.now(dt.UTC)
    assert (snapshot.parent_id, snapshot.tags) == ("p", {"env": "test"})
    assert snapshot.source_environment == "laptop"
    assert snapshot.location == SnapshotLocation("ses_abc123", "agent", "research-bot")
    assert snapshot.position is None


def test_new_ids_are_unique_and_increasing():
    ids = [make_snapshot().snapshot_id for _ in range(100)]
    assert ids == sorted(set(ids))


def test_the_location_has_the_scope():
    together = make_snapshot(scope="multi_agent")
    assert together.location == SnapshotLocation("ses_abc123", "multi_agent", "research-bot")


def test_state_gives_messages_values_and_status():
    store = Store()
    store.set("session", "status", "completed")
    store.set("messages", "000000000000", "hello")
    store.set("state", "plan", {"step": 3})
    view = make_snapshot(store.snapshot()).state
    assert (view.status, view.messages, view.values) == (
        "completed",
        ["hello"],
        {"plan": {"step": 3}},
    )


def test_changes_to_the_store_do_not_affect_the_snapshot():
    snapshot = make_snapshot(make_state(1, plan=[1]))
    store = snapshot.to_store()
    assert store.get("state", "plan") == [1]
    store.set("state", "plan", [2])
    store.delete("messages", "000000000000")
    assert snapshot.state.values == {"plan": [1]}
    assert len(snapshot.state.messages) == 1
    assert snapshot.to_store().get("state", "plan") == [1]
    with pytest.raises(FrozenInstanceError):
        snapshot.tags = {}


def test_tags_are_copied():
    tags = {"env": "test"}
    snapshot = SessionSnapshot(snapshot=make_state(), agent_id="a", session_id="s", tags=tags)
    tags["env"] = "changed"
    assert snapshot.tags == {"env": "test"}


@pytest.mark.parametrize(
    ("fields", "error", "what"),
    [
        ({"agent_id": ""}, ValueError, "scope_id"),
        ({"agent_id": None}, TypeError, "scope_id"),
        ({"session_id": "x" * 257}, ValueError, "session_id"),
        ({"scope": "galaxy"}, ValueError, "scope"),
        ({"tags": ["env"]}, TypeError, "tags must be a mapping"),
        ({"tags": {"env": 1}}, TypeError, "tag names and values must be str"),
    ],
)
def test_invalid_fields_are_rejected(fields, error, what):
    with pytest.raises(error, match=what):
        make_snapshot(**fields)


def test_invalid_snapshot_id_is_rejected():
    with pytest.raises(ValueError, match="snapshot_id"):
        replace(make_snapshot(), snapshot_id="../x")


@pytest.mark.parametrize("bad", [None, {}, Store()])
def test_from_snapshot_rejects_other_objects(bad):
    with pytest.raises(TypeError, match="expected a Snapshot"):
        SessionSnapshot.from_snapshot(bad, agent_id="a", session_id="s")


def test_info_has_the_metadata():
    store = Store()
    store.set("session", "status", "waiting")
    store.set("messages", "000000000000", "hello")
    store.set("messages", "any key", "hello")
    frozen = store.snapshot()
    snapshot = replace(
        make_snapshot(frozen, parent_id="p", tags={"a": "b"}),
        position=Position(7, "hash"),
        keyframe=4,
        unfinished=True,
    )
    assert snapshot.info() == SnapshotInfo(
        snapshot_id=snapshot.snapshot_id,
        parent_id="p",
        agent_id="research-bot",
        session_id="ses_abc123",
        scope="agent",
        created_at=snapshot.created_at,
        tags={"a": "b"},
        status="waiting",
        message_count=2,
        size_bytes=frozen.size_bytes,
        seq=7,
        hash="hash",
        keyframe=4,
        unfinished=True,
    )


def test_info_without_a_position_is_at_zero():
    assert make_snapshot().info().position == Position()
    assert make_snapshot().info().status == "pending"


def test_a_snapshot_is_rebuilt_from_info_and_state():
    frozen = make_state(3)
    snapshot = replace(
        make_snapshot(frozen, scope="multi_agent", parent_id="p", tags={"a": "b"}),
        position=Position(7, "hash"),
        event_log_count=7,
        keyframe=4,
        unfinished=True,
    )
    assert snapshot_from_info(snapshot.info(), frozen) == snapshot
