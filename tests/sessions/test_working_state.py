"""Recorded events change the state at once; invalid ones change nothing."""

from __future__ import annotations

import enum

import pytest

from holdfast import UnsupportedValueError
from holdfast.sessions import working_state
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test
from support.conversations import capture_state, list_contents, open_session, reopen_session


class Unknown:
    pass


class Word(str, enum.Enum):
    PLAN = "plan"


def test_an_agent_records_its_own_events(session):
    session.record("tool.called", {"tool": "search", "args": {"q": "x"}})
    session.record("tick")
    session.record("empty", {})
    session.record("number", 7)
    assert [(event.type, event.data) for event in session.events[1:]] == [
        ("tool.called", {"tool": "search", "args": {"q": "x"}}),
        ("tick", None),
        ("empty", {}),
        ("number", 7),
    ]
    assert all(event.changes == {"set": [], "delete": []} for event in session.events[1:])


def test_an_event_may_change_any_namespace(session):
    session.set("old", 1)
    session.record(
        "crm.synced",
        {"rows": 2},
        changes={
            "set": [("crm", "ann", {"id": 1}), ("state", "new", 2)],
            "delete": [("state", "old"), ("state", "never")],
        },
    )
    assert session.state == {"new": 2}
    assert session.snapshot().get("crm", "ann") == {"id": 1}
    assert session.events[-1].changes["set"][0] == ("crm", "ann", {"id": 1})


def test_changes_of_messages_update_the_message_count(session):
    for number in range(3):
        session.add_message("user", number)
    edited = [("messages", "000000000001", {"content": "edited"})]
    session.record("edited", changes={"set": edited, "delete": [("messages", "000000000002")]})
    assert list_contents(session) == [0, "edited"]
    assert session.message_count == 2
    session.add_message("user", "next")
    assert list_contents(session) == [0, "edited", "next"]
    session.record(
        "both",
        changes={
            "set": [("messages", "000000000009", {"content": 9})],
            "delete": [("messages", "000000000009")],
        },
    )
    assert session.message_count == 3


def test_data_and_changes_of_an_event_are_copied(session):
    data, value = {"args": [1]}, {"x": [1]}
    changes = {"set": [("state", "k", value)], "delete": []}
    session.record("tool.called", data, changes=changes)
    data["args"].append(2)
    value["x"].append(2)
    changes["set"].clear()
    assert session.events[-1].data == {"args": [1]}
    assert session.events[-1].changes["set"] == [("state", "k", {"x": [1]})]
    assert session.get("k") == {"x": [1]}


def test_unsupported_data_is_reported_with_its_path(session):
    before = capture_state(session)
    with pytest.raises(UnsupportedValueError) as caught:
        session.record("tool.called", {"args": [Unknown()]})
    assert caught.value.path == "$.data.args[0]"
    with pytest.raises(UnsupportedValueError) as caught:
        session.record("x", changes={"set": [("crm", "ann", {"y": Unknown()})], "delete": []})
    assert caught.value.path == "$.crm.ann.y"
    assert capture_state(session) == before


@pytest.mark.parametrize(
    ("type_", "error", "words"),
    [
        (None, TypeError, "event type must be a str"),
        (7, TypeError, "got 7"),
        ("", ValueError, "1 to 256 characters, got 0"),
        ("x" * 257, ValueError, "got 257"),
        ("\ud800", UnsupportedValueError, r"at \$\.type"),
    ],
)
def test_an_invalid_event_type_is_rejected(session, type_, error, words):
    before = capture_state(session)
    with pytest.raises(error, match=words):
        session.record(type_)
    assert capture_state(session) == before


BAD_CHANGES = {
    "no dict": [("set", [])],
    "an unknown part": {"set": [], "delete": [], "more": []},
    "a missing part": {"set": []},
    "a triple too short": {"set": [("state", "k")], "delete": []},
    "a namespace that is not a str": {"set": [(1, "k", 1)], "delete": []},
    "a key that is not a str": {"set": [("state", None, 1)], "delete": []},
    "a pair that is none": {"set": [], "delete": [("state",)]},
    "a pair of no texts": {"set": [], "delete": [(1, 2)]},
    "a key to set that is not text": {"set": [("state", "\ud800", 1)], "delete": []},
    "a key to delete that is not text": {"set": [], "delete": [("state", "\ud800")]},
    "a namespace to delete from that is not text": {"set": [], "delete": [("\ud800", "k")]},
    "a status that is none": {"set": [("session", "status", "odd")], "delete": []},
    "the second of two": {"set": [("state", "good", 1), ("state", 7, 1)], "delete": []},
}


@pytest.mark.parametrize("name", BAD_CHANGES)
@async_test
async def test_invalid_changes_are_rejected_and_change_nothing(name):
    session = await open_session(MemoryStateStore())
    before = capture_state(session)
    with pytest.raises((TypeError, ValueError)):
        session.record("x", changes=BAD_CHANGES[name])
    assert capture_state(session) == before
    await session.commit()


def test_an_event_type_that_is_an_enum_becomes_a_plain_str(session):
    session.record(Word.PLAN)
    assert type(session.events[-1].type) is str
    assert session.events[-1].type == "plan"


def test_message_numbers_start_at_0_after_a_long_conversation_is_cleared(session, monkeypatch):
    monkeypatch.setattr(working_state, "MAX_STEPS_BACK", 10)
    for number in range(40):
        session.add_message("user", number)
    session.clear_messages()
    session.add_message("user", "again")
    assert session._store.keys("messages") == ["000000000000"]


@async_test
async def test_message_numbers_are_the_same_in_the_next_process():
    session = await open_session(MemoryStateStore())
    session.record("note", changes={"set": [("messages", "note", {"content": "x"})], "delete": []})
    session.add_message("user", "first")
    await session.commit()
    other = await reopen_session(session)
    assert session._store.keys("messages") == ["000000000000", "note"]
    assert other.message_count == session.message_count == 2
    assert other._working.next_message == session._working.next_message == 1
