"""Documents survive a round trip through JSON, and modified ones are rejected."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import (
    Document,
    InvalidDocumentError,
    SnapshotLocation,
    UnsupportedValueError,
    register_type,
)
from holdfast.documents.encode import encode_chunks
from holdfast.log.event import draft_event
from holdfast.snapshots.session_state import STATUSES, message_key
from holdfast.values import lowering
from support.sample_documents import (
    FULL,
    edit_full_document,
    freeze,
    make_document,
    make_document_with_events,
    round_trip_document,
    update_digest,
)
from support.sample_values import SAMPLES, is_identical, text, values


def test_a_document_has_all_documented_fields():
    tree = FULL.to_dict()
    assert list(tree) == [
        "schema_version",
        "snapshot_id",
        "parent_id",
        "agent_id",
        "session_id",
        "scope",
        "created_at",
        "exported_at",
        "source_environment",
        "tags",
        "state",
        "event_log_count",
        "events",
        "digest",
        "base",
        "viewer",
    ]
    assert tree["schema_version"] == 1
    assert tree["created_at"].endswith("Z")
    assert tree["exported_at"] == "2026-11-15T09:30:00.000000Z"
    assert tree["digest"].startswith("sha256:")
    assert tree["state"] == {
        "status": "running",
        "messages": [{"role": "user"}],
        "values": {"before": 1, "plan": {"$tuple": [1, {"$bytes": "eA=="}]}},
        "namespaces": {"once": {"mail": True}},
    }
    assert list(tree["events"][0]) == ["seq", "id", "type", "at", "data", "changes", "prev", "hash"]
    assert [event["seq"] for event in tree["events"]] == [5, 6, 7, 8]
    assert tree["base"] == {"set": [["state", "before", 1]], "delete": []}


def test_a_full_document_survives_a_round_trip():
    again = round_trip_document(FULL)
    assert again.digest == FULL.digest
    assert again.base.digest == FULL.base.digest
    assert again.events == FULL.events
    same = {"snapshot": FULL.snapshot, "base": FULL.base}
    assert replace(again, **same) == FULL
    assert again.to_dict() == FULL.to_dict()


def test_a_document_without_events_and_base_survives_a_round_trip():
    snapshot = make_document(freeze(("session", "status", "running")))
    tree = snapshot.to_dict()
    assert "base" not in tree
    assert tree["events"] == []
    assert tree["exported_at"] is None
    again = round_trip_document(snapshot)
    assert again.base is None
    assert replace(again, snapshot=snapshot.snapshot) == snapshot


@given(st.dictionaries(st.tuples(text, text), values, max_size=6), st.sampled_from(STATUSES))
def test_any_state_survives_a_round_trip(entries, status):
    entries[("session", "status")] = status
    snapshot = make_document(freeze(*((*pair, value) for pair, value in entries.items())))
    again = round_trip_document(snapshot)
    assert again.digest == snapshot.digest
    assert again.snapshot.keys == snapshot.snapshot.keys
    for space, key, value in snapshot.snapshot.items():
        assert is_identical(again.snapshot.get(space, key), value)


@given(values)
def test_any_value_survives_a_round_trip_in_every_part_of_a_document(value):
    places = [("messages", message_key(0)), ("state", "key"), ("session", "key"), ("other", "key")]
    sets = [(*place, value) for place in places]
    deletes = [("other", "key"), ("state", "before")]
    snapshot = make_document_with_events(
        draft_event("any", value, set_=[("session", "status", "running"), *sets]),
        draft_event("back", value, delete=deletes),
        after=3,
        prev="hash",
    )
    base = freeze(*sets)
    again = round_trip_document(replace(snapshot, base=base))
    for place in places[:3]:
        assert is_identical(again.snapshot.get(*place), value)
        assert is_identical(again.base.get(*place), value)
    assert is_identical(again.events[0].data, value)
    assert [event.hash for event in again.events] == [event.hash for event in snapshot.events]


@pytest.mark.parametrize("name", SAMPLES)
def test_every_type_of_value_survives_a_round_trip(name):
    value = SAMPLES[name]
    items = [("messages", message_key(0), value), ("state", "k", value), ("n", "k", value)]
    again = round_trip_document(make_document(freeze(*items)))
    assert all(is_identical(again.snapshot.get(space, key), value) for space, key, _ in items)


@pytest.mark.parametrize(
    "keys",
    [
        ["000000000001", "000000000002"],
        ["000000000000", "000000000002"],
        ["a", "b"],
        ["", "000000000000"],
        ["000000000000", "0000000000000"],
        ["$tuple"],
        [],
    ],
)
def test_unusual_message_keys_survive_a_round_trip(keys):
    snapshot = make_document(freeze(*(("messages", key, f"at {key}") for key in keys)))
    tree = snapshot.to_dict()
    assert ("message_keys" in tree["state"]) == bool(keys)
    assert [key for space, key in round_trip_document(snapshot).snapshot.keys] == sorted(keys)


def test_consecutive_message_keys_are_not_written():
    snapshot = make_document(freeze(*(("messages", message_key(n), n) for n in range(12))))
    assert "message_keys" not in snapshot.to_dict()["state"]
    assert round_trip_document(snapshot).state.messages == list(range(12))


def test_a_missing_status_survives_a_round_trip():
    for others in ([], [("session", "agent:a", True)]):
        snapshot = make_document(freeze(("state", "k", 1), *others))
        tree = snapshot.to_dict()
        assert tree["state"]["status"] == "pending"
        again = round_trip_document(snapshot)
        assert not again.snapshot.contains("session", "status")
        assert again.state.status == "pending"
        assert again.digest == snapshot.digest


def test_the_default_status_of_a_document_is_pending():
    again = Document.from_dict(
        {"schema_version": 1, "agent_id": "a", "session_id": "s", "state": {}}
    )
    assert again.snapshot.keys == [("session", "status")]
    assert again.state.status == "pending"


@pytest.mark.parametrize("status", ["archived", "", None, 7, (1, 2)])
def test_any_status_survives_a_round_trip(status):
    snapshot = make_document(freeze(("session", "status", status)))
    assert round_trip_document(snapshot).digest == snapshot.digest


def test_other_session_entries_survive_a_round_trip():
    snapshot = make_document(freeze(("session", "status", "failed"), ("session", "agent:a", True)))
    assert snapshot.to_dict()["state"]["session"] == {"agent:a": True}
    assert round_trip_document(snapshot).digest == snapshot.digest


def test_keys_that_look_like_value_tags_survive_a_round_trip():
    snapshot = make_document(
        freeze(("state", "$tuple", [1]), ("$set", "$map", 1), ("session", "$x", 1))
    )
    assert round_trip_document(snapshot).digest == snapshot.digest


# ------------------------------------------------------------------------------- unknown fields


def test_unknown_fields_survive_a_round_trip():
    tree = update_digest({**FULL.to_dict(), "x-note": {"a": [1, None]}, "$odd": {"$tuple": [1]}})
    again = Document.from_dict(tree)
    assert again.extra == {
        "viewer": {"colour": "red"},
        "x-note": {"a": [1, None]},
        "$odd": {"$tuple": [1]},
    }
    assert again.to_dict() == tree


def test_unknown_fields_of_the_state_survive_a_round_trip():
    tree = FULL.to_dict()
    tree["state"]["summary"] = "of a later version"
    tree = update_digest(tree)
    again = Document.from_dict(tree)
    assert again.state_extra == {"summary": "of a later version"}
    assert again.to_dict() == tree


def test_unknown_fields_of_an_event_survive_a_round_trip():
    tree = FULL.to_dict()
    tree["events"][0]["duration"] = 3
    tree = update_digest(tree)
    assert Document.from_dict(tree).to_dict() == tree


def test_optional_fields_may_be_missing_or_null():
    least = {"schema_version": 1, "agent_id": "a", "session_id": "s", "state": {"messages": ["x"]}}
    names = ("snapshot_id", "parent_id", "created_at", "exported_at", "source_environment")
    for more in ({}, dict.fromkeys([*names, "tags", "events", "digest", "base"])):
        again = Document.from_dict({**least, **more})
        assert again.location == SnapshotLocation("s", "agent", "a")
        assert again.state.messages == ["x"]
        assert (again.tags, again.events, again.event_log_count) == ({}, (), 0)
        assert again.created_at.tzinfo is not None
        assert len(again.snapshot_id) == 36


def test_times_are_converted_to_utc():
    tree = {**FULL.to_dict(), "created_at": "2026-07-01T12:00:00+02:00"}
    again = Document.from_dict(update_digest(tree))
    assert again.to_dict()["created_at"] == "2026-07-01T10:00:00.000000Z"


def test_the_event_count_is_kept_without_events():
    tree = {**make_document(freeze(("a", "b", 1))).to_dict(), "event_log_count": 31}
    again = Document.from_dict(update_digest(tree))
    assert (again.event_log_count, again.events) == (31, ())


# ----------------------------------------------------------------------------------------- text


def test_an_environment_that_is_not_utf8_is_an_error_that_names_its_variable():
    snapshot = replace(FULL, source_environment=os.fsdecode(b"pr\xffod"))
    for written in (snapshot.chunks, snapshot.canonical):
        with pytest.raises(ValueError, match=r"pr.udcffod.* .*not UTF-8.*HOLDFAST_ENVIRONMENT"):
            b"".join(written())


@pytest.mark.parametrize(
    "snapshot", [FULL, make_document(), make_document_with_events(draft_event("one"))]
)
def test_the_text_of_a_document_is_its_json_data(snapshot):
    tree = snapshot.to_dict()
    text = b"".join(encode_chunks(tree))
    assert json.loads(text) == tree
    assert list(json.loads(text)) == list(tree)


def test_the_text_has_one_line_per_message_value_and_event():
    messages = [("messages", message_key(n), {"content": f"m{n}", "more": [1, 2]}) for n in (0, 1)]
    values = [("state", key, {"deep": [1, {"a": 2}]}) for key in ("one", "two")]
    drafts = [draft_event("set", set_=[each]) for each in (*messages, *values)]
    lines = (
        b"".join(encode_chunks(make_document_with_events(*drafts).to_dict())).decode().splitlines()
    )
    for start in ('{"content":"m0"', '{"content":"m1"', '"one": {', '"two": {', '{"seq":4,'):
        assert len([line for line in lines if line.strip().startswith(start)]) == 1


# ------------------------------------------------------------------------------- allow_modified


def test_a_modified_document_is_read_with_allow_modified():
    tree = edit_full_document("state", "values", "plan", to="another")
    again = Document.from_dict(tree, allow_modified=True)
    assert again.state.values["plan"] == "another"
    assert again.digest != FULL.digest
    with pytest.raises(InvalidDocumentError, match="do not lead to its state.*allow_modified"):
        Document.from_dict(again.to_dict())
    once_more = Document.from_dict(again.to_dict(), allow_modified=True)
    assert once_more.digest == again.digest


def test_allow_modified_recomputes_the_hash_chain():
    tree = edit_full_document("events", 1, "data", to={"redacted": True})
    again = Document.from_dict(tree, allow_modified=True)
    assert again.events[1].data == {"redacted": True}
    assert again.events[0] == FULL.events[0]
    assert [event.prev for event in again.events[1:]] == [event.hash for event in again.events[:-1]]
    assert Document.from_dict(again.to_dict()).events == again.events
    with pytest.raises(InvalidDocumentError, match="breaks the hash chain, its seq is 9"):
        Document.from_dict(edit_full_document("events", 1, "seq", to=9), allow_modified=True)


# ----------------------------------------------------------------------------------- validation


@pytest.mark.parametrize("tree", [None, [], "text", 7, b"{}", [{"schema_version": 1}]])
def test_data_that_is_not_an_object_is_rejected(tree):
    with pytest.raises(InvalidDocumentError, match="a document must be a JSON object"):
        Document.from_dict(tree)


@pytest.mark.parametrize("name", ["agent_id", "session_id", "state"])
def test_missing_fields_are_named(name):
    with pytest.raises(InvalidDocumentError, match=f"not a session document: it lacks {name}"):
        Document.from_dict(edit_full_document(name))


@pytest.mark.parametrize("version", [..., None, 0, -1, True, "1", 1.0])
def test_an_invalid_schema_version_is_rejected(version):
    with pytest.raises(InvalidDocumentError, match="schema_version.*must be a positive int"):
        Document.from_dict(edit_full_document("schema_version", to=version))


def test_a_newer_schema_version_is_rejected():
    with pytest.raises(InvalidDocumentError, match="schema version 2.*reads up to 1; upgrade"):
        Document.from_dict(edit_full_document("schema_version", to=2))


@pytest.mark.parametrize(
    "path",
    [
        ("state", "status"),
        ("state", "messages", 0, "role"),
        ("state", "values", "plan"),
        ("state", "namespaces", "once", "mail"),
    ],
)
def test_a_modified_state_is_rejected(path):
    with pytest.raises(InvalidDocumentError, match="does not match its digest.*changed after"):
        Document.from_dict(edit_full_document(*path, to="failed"))


@pytest.mark.parametrize("digest", ["", "sha256:" + "0" * 64, 7, []])
def test_a_wrong_digest_is_rejected(digest):
    with pytest.raises(InvalidDocumentError, match="does not match its digest"):
        Document.from_dict(edit_full_document("digest", to=digest))


@pytest.mark.parametrize(
    ("path", "value", "seq"),
    [
        (("events", 1, "type"), "other", 6),
        (("events", 1, "id"), "other", 6),
        (("events", 1, "at"), "2026-01-01T00:00:00Z", 6),
        (("events", 1, "data"), 0.5, 6),
        (("events", 1, "changes", "set"), [], 6),
        (("events", 3, "changes", "delete"), [], 8),
        (("events", 1, "prev"), "0" * 64, 6),
        (("events", 1, "hash"), "0" * 64, 6),
        (("events", 1, "seq"), 9, 6),
        (("events", 1, "seq"), "6", 6),
        (("events", 0, "prev"), "", 5),
        (("events", 0, "seq"), 1, 2),
    ],
)
def test_a_modified_event_breaks_the_hash_chain(path, value, seq):
    with pytest.raises(InvalidDocumentError, match=f"event {seq} .*breaks the hash chain"):
        Document.from_dict(edit_full_document(*path, to=value))


def test_missing_swapped_and_duplicate_events_break_the_hash_chain():
    events = FULL.to_dict()["events"]
    one, two, three, four = events
    for wrong in ([one, three, four], [one, three, two, four], [one, two, two, three, four]):
        with pytest.raises(InvalidDocumentError, match="breaks the hash chain"):
            Document.from_dict(edit_full_document("events", to=wrong))


@pytest.mark.parametrize("left", [1, 3])
def test_truncated_events_are_detected(left):
    tree = edit_full_document("events", to=FULL.to_dict()["events"][:left])
    with pytest.raises(
        InvalidDocumentError, match=f"has {left} events.*event_log_count is 4.*allow_modified"
    ):
        Document.from_dict(tree)
    again = Document.from_dict(tree, allow_modified=True)
    assert again.event_log_count == len(again.events) == left
    once_more = Document.from_dict(again.to_dict(), allow_modified=True)
    assert once_more.events == again.events


@pytest.mark.parametrize("count", [0, 3, 5, 8, 999])
def test_a_wrong_event_count_is_rejected(count):
    with pytest.raises(InvalidDocumentError, match="event_log_count"):
        Document.from_dict(edit_full_document("event_log_count", to=count))
    tree = update_digest(edit_full_document("event_log_count"))
    assert Document.from_dict(tree).event_log_count == 4


def test_events_cannot_be_removed_with_allow_modified():
    one, _, three, four = FULL.to_dict()["events"]
    tree = edit_full_document("events", to=[one, three, four])
    with pytest.raises(InvalidDocumentError, match="cannot be removed or reordered") as refused:
        Document.from_dict(tree, allow_modified=True)
    assert "allow_modified" not in str(refused.value)


class Point:
    def __init__(self, x):
        self.x = x


def test_an_unregistered_type_is_an_error_that_names_register_type():
    register_type(Point, name="point in a document", encode=lambda point: point.x, decode=Point)
    tree = make_document(freeze(("state", "where", Point(3)))).to_dict()
    assert Document.from_dict(tree).state.values["where"].x == 3
    # Simulate a process that did not register it.
    del lowering.registered_names["point in a document"], lowering.registered_types[Point]
    with pytest.raises(UnsupportedValueError, match="register_type"):
        Document.from_dict(tree)
