"""The namespaces of a session and the view of its state."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Store
from holdfast.snapshots import SessionState
from holdfast.snapshots.session_state import (
    STATUSES,
    agent_namespace,
    message_key,
    message_number,
    validate_status,
)
from support.sample_values import SAMPLES, is_identical


def test_the_view_has_messages_values_status_and_namespaces():
    store = Store()
    store.set("session", "status", "running")
    for number in (1, 0, 10, 2):
        store.set("messages", message_key(number), {"content": number})
    store.set("state", "plan", (1, 2))
    store.set("once", "mail", True)
    store.set("state/bot", "mood", "good")
    view = SessionState(store.snapshot())
    assert view.status == "running"
    assert [message["content"] for message in view.messages] == [0, 1, 2, 10]
    assert view.values == {"plan": (1, 2)}
    assert view.namespaces == {"once": {"mail": True}, "state/bot": {"mood": "good"}}


def test_the_status_of_an_empty_state_is_pending():
    view = SessionState(Store().snapshot())
    assert view.status == "pending"
    assert view.messages == []
    assert view.values == {}
    assert view.namespaces == {}


@pytest.mark.parametrize("name", SAMPLES)
def test_all_value_types_are_returned_as_set(name):
    store = Store()
    for space, key in (("messages", "0"), ("state", "key"), ("other", "key")):
        store.set(space, key, SAMPLES[name])
    view = SessionState(store.snapshot())
    assert is_identical(view.messages[0], SAMPLES[name])
    assert is_identical(view.values["key"], SAMPLES[name])
    assert is_identical(view.namespaces["other"]["key"], SAMPLES[name])


def test_values_are_copies():
    store = Store()
    store.set("messages", message_key(0), {"content": "hello"})
    store.set("state", "plan", [1])
    store.set("other", "list", [1])
    view = SessionState(store.snapshot())
    view.messages[0]["content"] = "changed"
    view.values["plan"].append(2)
    view.namespaces["other"]["list"].append(2)
    assert view.messages == [{"content": "hello"}]
    assert view.values == {"plan": [1]}
    assert view.namespaces == {"other": {"list": [1]}}


@given(st.integers(0, 10**12 - 1), st.integers(0, 10**12 - 1))
def test_message_keys_sort_by_number(one, other):
    assert (message_key(one) < message_key(other)) == (one < other)
    assert message_number(message_key(one)) == one


@pytest.mark.parametrize(
    "key", ["", "7", "0000000000001", "00000000000x", "-00000000001", "\u0660" * 12, "hello worlds"]
)
def test_other_keys_have_no_number(key):
    assert message_number(key) is None


def test_each_agent_has_a_namespace():
    assert agent_namespace("writer") == "state/writer"


def test_unknown_status_is_rejected():
    assert [validate_status(status) for status in STATUSES] == list(STATUSES)
    for bad in ("archived", "", None, 7, ["running"]):
        with pytest.raises(ValueError, match="invalid status .*; use one of pending, running"):
            validate_status(bad)
