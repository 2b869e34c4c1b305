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
from support.observed_store import state


def made(snapshot=None, **fields):
    given = {"agent_id": "research-bot", "session_id": "ses_abc123", **fields}
    return SessionSnapshot.from_snapshot(
        state(2, plan=[1]) if snapshot is None else snapshot, **given
    )


def test_one_is_made_of_any_stores_snapshot():
    before = dt.datetime.now(dt.UTC)
    frozen = state(2, plan=[1])
    snapshot = made(frozen, parent_id="p", tags={"env": "test"}, source_environment="laptop")
    assert snapshot.snapshot is frozen
    assert snapshot.digest == frozen.digest
    assert uuid.UUID(snapshot.snapshot_id).version == 7
    assert before <= snapshot.created_at <= dt.datetime.now(dt.UTC)
    assert (snapshot.parent_id, snapshot.tags) == ("p", {"env": "test"})
    assert snapshot.source_environment == "laptop"
    assert snapshot.location == SnapshotLocation("ses_abc123", "agent", "research-bot")
    assert snapshot.position is None


def test_each_has_an_id_of_its_own_in_the_order_of_their_making():
    ids = [made().snapshot_id for _ in range(100)]
    assert ids == sorted(set(ids))


def test_it_belongs_to_one_agent_or_to_several():
    together = made(scope="multi_agent")
    assert together.location == SnapshotLocation("ses_abc123", "multi_agent", "research-bot")


def test_its_state_is_seen_in_a_sessions_own_words():
    store = Store()
    store.set("session", "status", "completed")
    store.set("messages", "000000000000", "hello")
    store.set("state", "plan", {"step": 3})
    view = made(store.snapshot()).state
    assert (view.status, view.messages, view.values) == (
        "completed",
        ["hello"],
        {"plan": {"step": 3}},
    )


def test_a_live_store_of_it_can_be_changed_and_it_cannot():
    snapshot = made(state(1, plan=[1]))
    store = snapshot.to_store()
    assert store.get("state", "plan") == [1]
    store.set("state", "plan", [2])
    store.delete("messages", "000000000000")
    assert snapshot.state.values == {"plan": [1]}
    assert len(snapshot.state.messages) == 1
    assert snapshot.to_store().get("state", "plan") == [1]
    with pytest.raises(FrozenInstanceError):
        snapshot.tags = {}


def test_its_tags_are_its_own():
    tags = {"env": "test"}
    snapshot = SessionSnapshot(snapshot=state(), agent_id="a", session_id="s", tags=tags)
    tags["env"] = "changed"
    assert snapshot.tags == {"env": "test"}


@pytest.mark.parametrize(
    ("fields", "error", "what"),
    [
        ({"agent_id": ""}, ValueError, "scope_id"),
        ({"agent_id": None}, TypeError, "scope_id"),
        ({"session_id": "x" * 257}, ValueError, "session_id"),
        ({"scope": "galaxy"}, ValueError, "scope"),
        ({"tags": ["env"]}, TypeError, "tags are a mapping"),
        ({"tags": {"env": 1}}, TypeError, "a tag is a text"),
    ],
)
def test_what_cannot_be_kept_is_refused(fields, error, what):
    with pytest.raises(error, match=what):
        made(**fields)


def test_an_id_that_is_no_part_of_a_key_is_refused():
    with pytest.raises(ValueError, match="snapshot_id"):
        replace(made(), snapshot_id="../x")


@pytest.mark.parametrize("bad", [None, {}, Store()])
def test_what_is_no_snapshot_is_refused(bad):
    with pytest.raises(TypeError, match="expected a Snapshot as returned by Store.snapshot"):
        SessionSnapshot.from_snapshot(bad, agent_id="a", session_id="s")


def test_what_is_known_of_it_without_its_state():
    store = Store()
    store.set("session", "status", "waiting")
    store.set("messages", "000000000000", "hello")
    store.set("messages", "any key", "hello")
    frozen = store.snapshot()
    snapshot = replace(
        made(frozen, parent_id="p", tags={"a": "b"}),
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


def test_one_without_a_place_in_a_log_is_at_its_beginning():
    assert made().info().position == Position()
    assert made().info().status == "pending"


def test_what_is_known_and_a_state_make_the_whole():
    frozen = state(3)
    snapshot = replace(
        made(frozen, scope="multi_agent", parent_id="p", tags={"a": "b"}),
        position=Position(7, "hash"),
        event_log_count=7,
        keyframe=4,
        unfinished=True,
    )
    assert snapshot_from_info(snapshot.info(), frozen) == snapshot
