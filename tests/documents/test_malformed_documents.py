"""Malformed documents are rejected with an error that names the field."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import Document, InvalidDocumentError
from support.sample_documents import FULL, edit_full_document, iterate_paths

MALFORMED = [
    (("agent_id",), "", "agent_id"),
    (("agent_id",), 7, "agent_id"),
    (("agent_id",), None, "agent_id"),
    (("session_id",), "x" * 257, "session_id"),
    (("session_id",), ["s"], "session_id"),
    (("scope",), "galaxy", "scope"),
    (("scope",), None, "scope"),
    (("scope",), {}, "scope"),
    (("snapshot_id",), "../x", "snapshot_id"),
    (("snapshot_id",), 7, "snapshot_id"),
    (("parent_id",), 7, "parent_id"),
    (("source_environment",), ["production"], "source_environment"),
    (("created_at",), "yesterday", "created_at"),
    (("created_at",), 7, "created_at"),
    (("created_at",), "2026-01-01T00:00:00", "created_at"),
    (("created_at",), "0001-01-01T00:00:00+01:00", "created_at"),
    (("exported_at",), "9999-12-31T23:59:59-01:00", "exported_at"),
    (("exported_at",), {}, "exported_at"),
    (("tags",), ["env"], "tag"),
    (("tags",), {"env": 1}, "tag"),
    (("tags",), {"\ud800": "x"}, "tag"),
    (("event_log_count",), -1, "event_log_count"),
    (("event_log_count",), "31", "event_log_count"),
    (("event_log_count",), True, "event_log_count"),
    (("state",), None, "state"),
    (("state",), [], "state"),
    (("state", "status"), None, "status"),
    (("state", "status"), 7, "status"),
    (("state", "status"), [], "status"),
    (("state", "messages"), None, "messages"),
    (("state", "messages"), {}, "messages"),
    (("state", "messages"), "hello", "messages"),
    (("state", "messages", 0), {"$unknown": 1}, "messages"),
    (("state", "messages", 0), {"text": "\ud800"}, "messages"),
    (("state", "message_keys"), [], "message_keys"),
    (("state", "message_keys"), "a", "message_keys"),
    (("state", "message_keys"), [7], "key"),
    (("state", "message_keys"), [["a"]], "message_keys"),
    (("state", "message_keys"), ["\ud800"], "key"),
    (("state", "values"), [], "values"),
    (("state", "values", "plan"), {"$tuple": 1}, "plan"),
    (("state", "values", "\ud800"), 1, "key"),
    (("state", "session"), 7, "session"),
    (("state", "session"), {"status": 7}, "session.status"),
    (("state", "session"), {"status": []}, "session.status"),
    (("state", "namespaces"), [], "namespaces"),
    (("state", "namespaces", "once"), [1], "once"),
    (("state", "namespaces", "state"), {}, "namespace state"),
    (("state", "namespaces", "once", "mail"), {"$date": "today"}, "mail"),
    (("events",), {}, "events"),
    (("events",), "", "events"),
    (("events",), False, "events"),
    (("events",), {"a": 1}, "events"),
    (("events", 0), None, "event"),
    (("events", 0), "event", "event"),
    (("events", 0, "seq"), ..., "seq"),
    (("events", 0, "seq"), "x", "seq"),
    (("events", 0, "seq"), None, "seq"),
    (("events", 0, "seq"), float("inf"), "seq"),
    (("events", 0, "seq"), float("nan"), "seq"),
    (("events", 0, "seq"), {}, "seq"),
    (("events", 0, "seq"), 1.5, "seq"),
    (("events", 0, "prev"), None, "prev"),
    (("events", 0, "prev"), 7, "prev"),
    (("events", 0, "prev"), [], "prev"),
    (("events", 2, "id"), ..., "id"),
    (("events", 2, "id"), 7, "event"),
    (("events", 2, "type"), None, "event"),
    (("events", 2, "at"), "yesterday", "event"),
    (("events", 2, "at"), "0001-01-01T00:00:00+01:00", "event"),
    (("events", 2, "data"), {"$uuid": "x"}, "event"),
    (("events", 2, "changes"), None, "event"),
    (("events", 2, "changes", "set"), [["a", "b"]], "event"),
    (("events", 2, "changes", "set"), [["a", 7, 1]], "event"),
    (("events", 2, "changes", "delete"), None, "event"),
    (("events", 2, "changes", "delete"), [1], "event"),
    (("base",), [], "base"),
    (("base", "set"), None, "base"),
    (("base", "set"), [["a", "b"]], "base"),
    (("base", "set"), [[1, "b", 2]], "base"),
    (("base", "set"), ["abc"], "base"),
    (("base", "set"), [{"a": 1, "b": 2, "c": 3}], "base"),
    (("base", "set"), [["a", "b", {"$unknown": 1}]], "base"),
    (("base", "set"), [["\ud800", "b", 1]], "base"),
    (("base", "delete"), 7, "base"),
]


NAMES = [f"{path}={value}" for path, value, _ in MALFORMED]


def read_error(path, value):
    tree = edit_full_document(*path, to=value)
    # The hash chain would reject most changes before they are examined.
    for event in tree["events"] if isinstance(tree["events"], list) else ():
        if isinstance(event, dict):
            event.pop("hash")
    with pytest.raises(InvalidDocumentError) as caught:
        Document.from_dict(tree)
    return str(caught.value)


@pytest.mark.parametrize(("path", "value", "where"), MALFORMED, ids=NAMES)
def test_malformed_fields_are_rejected(path, value, where):
    assert read_error(path, value)


@pytest.mark.parametrize(("path", "value", "where"), MALFORMED, ids=NAMES)
def test_an_error_names_the_malformed_field(path, value, where):
    assert where in read_error(path, value)


@pytest.mark.parametrize("seq", [0, -7])
def test_an_event_number_below_1_is_rejected(seq):
    event = {**FULL.to_dict()["events"][0], "seq": seq}
    del event["hash"]
    with pytest.raises(InvalidDocumentError, match="seq"):
        Document.from_dict(edit_full_document("events", to=[event]))


JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from(["2026-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "running", "agent"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(max_size=3) | st.sampled_from(["$tuple", "$set", "$map", "$bytes", "$x"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=5,
)


PATHS = list(iterate_paths(FULL.to_dict()))[1:]


@settings(max_examples=200)
@given(st.sampled_from(PATHS), JUNK | st.just(...))
def test_any_data_in_any_field_is_read_or_rejected(path, junk):
    try:
        again = Document.from_dict(edit_full_document(*path, to=junk))
    except InvalidDocumentError:
        pass
    else:
        # With digest and chain intact, an accepted document has the original content.
        assert again.to_dict() == FULL.to_dict()


@settings(max_examples=120)
@given(st.lists(st.tuples(st.sampled_from(PATHS), JUNK), min_size=1, max_size=4))
def test_any_data_is_read_or_rejected_with_allow_modified(changes):
    tree = copy.deepcopy(FULL.to_dict())
    for path, junk in changes:
        at = tree
        try:
            for step in path[:-1]:
                at = at[step]
            at[path[-1]] = junk
        except (KeyError, IndexError, TypeError):
            continue
    try:
        again = Document.from_dict(tree, allow_modified=True)
    except InvalidDocumentError:
        return
    written = json.loads(json.dumps(replace(again, extra={}, state_extra={}).to_dict()))
    once_more = Document.from_dict(written, allow_modified=True)
    assert once_more.digest == again.digest


def test_deeply_nested_fields_are_rejected():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    for path in [("state", "values", "plan"), ("events", 1, "data"), ("base", "set")]:
        with pytest.raises(InvalidDocumentError):
            Document.from_dict(edit_full_document(*path, to=deep))
