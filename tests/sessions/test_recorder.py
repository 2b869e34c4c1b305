"""Messages and values are recorded as copies; invalid ones change nothing."""

from __future__ import annotations

import enum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import MISSING, Store, UnsupportedValueError
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test, run_async
from support.conversations import (
    capture_state,
    list_contents,
    list_types,
    open_session,
    reopen_session,
)
from support.sample_values import SAMPLES, is_identical, nest_lists, values


class Name(str):
    __slots__ = ()


class Word(str, enum.Enum):
    PLAN = "plan"
    RUNNING = "running"


class Unknown:
    pass


# ---------------------------------------------------------------------------------- messages


def test_a_message_has_a_role_a_content_and_other_fields(session):
    session.add_message("user", "hello", name="ann", metadata={"tokens": 3})
    assert session.messages == [
        {"role": "user", "content": "hello", "name": "ann", "metadata": {"tokens": 3}}
    ]
    assert session.message_count == 1
    assert list_types(session.events) == ["session.started", "message.appended"]


def test_the_content_of_a_message_may_be_a_list_of_parts(session):
    parts = [{"type": "text", "text": "see"}, {"type": "image", "data": b"\x89PNG"}]
    session.add_message("user", parts)
    session.add_message("assistant", None)
    assert [message["content"] for message in session.messages] == [parts, None]


def test_append_message_stores_any_dict(session):
    session.append_message({"type": "function_call", "call_id": "c1", "name": "search"})
    assert session.messages == [{"type": "function_call", "call_id": "c1", "name": "search"}]


def test_messages_stay_in_order(session):
    for number in range(120):
        session.add_message("user", number)
    assert list_contents(session) == list(range(120))


def test_messages_are_copied(session):
    parts = [{"type": "text", "text": "before"}]
    session.add_message("user", parts)
    parts[0]["text"] = "after"
    session.messages[0]["content"][0]["text"] = "after"
    assert session.messages[0]["content"] == [{"type": "text", "text": "before"}]


@pytest.mark.parametrize("role", [None, 7, ["user"]])
def test_an_invalid_role_is_rejected(session, role):
    before = capture_state(session)
    with pytest.raises(TypeError, match="message role must be a str"):
        session.add_message(role, "hello")
    assert capture_state(session) == before


def test_a_message_must_be_a_dict(session):
    with pytest.raises(TypeError, match="message must be a dict, got 'hello'"):
        session.append_message("hello")
    assert session.message_count == 0


def test_an_unsupported_value_in_a_message_is_reported_with_its_path(session):
    for number in range(3):
        session.add_message("user", str(number))
    before = capture_state(session)
    with pytest.raises(UnsupportedValueError, match=r"at \$\.messages\[3\]\.image$") as caught:
        session.add_message("user", "look", image=Unknown())
    assert caught.value.path == "$.messages[3].image"
    with pytest.raises(UnsupportedValueError) as caught:
        session.add_message("user", [{"type": "text"}, {"image": {1, Unknown()}}])
    assert caught.value.path.startswith("$.messages[3].content[1].image")
    assert capture_state(session) == before
    session.add_message("user", "go on")
    assert list_contents(session)[3] == "go on"


def test_pop_message_removes_the_last_message_and_returns_it(session):
    session.add_message("user", "first")
    session.add_message("assistant", "second", model="m")
    assert session.pop_message() == {"role": "assistant", "content": "second", "model": "m"}
    assert list_contents(session) == ["first"]
    assert session.message_count == 1
    assert list_types(session.events)[-1] == "message.removed"
    session.add_message("assistant", "third")
    assert list_contents(session) == ["first", "third"]


def test_pop_message_of_an_empty_conversation_records_nothing(session):
    before = capture_state(session)
    assert session.pop_message() is None
    assert capture_state(session) == before


def test_clear_messages_removes_all_messages_in_one_event(session):
    for number in range(5):
        session.add_message("user", number)
    session.set("kept", 1)
    session.clear_messages()
    assert session.messages == []
    assert session.message_count == 0
    assert session.get("kept") == 1
    assert list_types(session.events)[-1] == "message.removed"
    before = capture_state(session)
    session.clear_messages()
    assert capture_state(session) == before
    session.add_message("user", "again")
    assert list_contents(session) == ["again"]


# ------------------------------------------------------------------------------------ values


def test_values_are_set_read_and_deleted(session):
    session.set("plan", {"step": 1})
    session.set("tries", 3)
    assert session.get("plan") == {"step": 1}
    assert session.state == {"plan": {"step": 1}, "tries": 3}
    assert session.delete("plan") is True
    assert session.delete("plan") is False
    assert session.get("plan") is None
    assert session.get("plan", MISSING) is MISSING
    assert session.state == {"tries": 3}
    assert list_types(session.events)[1:] == ["state.set", "state.set", "state.deleted"]


@pytest.mark.parametrize("name", SAMPLES)
def test_values_keep_their_type(session, name):
    session.set("value", SAMPLES[name])
    assert is_identical(session.get("value"), SAMPLES[name])


@async_test
async def test_values_of_all_types_are_durable():
    session = await open_session(MemoryStateStore())
    for name, value in SAMPLES.items():
        session.set(name, value)
        session.add_message("user", value)
    await session.commit()
    other = await reopen_session(session)
    assert is_identical(other.state, {name: SAMPLES[name] for name in sorted(SAMPLES)})
    assert is_identical(list_contents(other), list(SAMPLES.values()))


def test_values_are_copied(session):
    plan = {"steps": ["a"]}
    session.set("plan", plan)
    plan["steps"].append("b")
    session.get("plan")["steps"].append("c")
    session.state["plan"]["steps"].append("d")
    assert session.get("plan") == {"steps": ["a"]}


def test_setting_an_equal_value_records_nothing(session):
    session.set("plan", {"a": 1, "b": [2]})
    before = capture_state(session)
    session.set("plan", {"b": [2], "a": 1})
    assert capture_state(session) == before


@pytest.mark.parametrize(("one", "other"), [(1, True), (1, 1.0), ([1], (1,)), ("a", b"a")])
def test_setting_an_equal_value_of_another_type_is_a_change(session, one, other):
    session.set("x", one)
    session.set("x", other)
    assert is_identical(session.get("x"), other)
    assert list_types(session.events)[1:] == ["state.set", "state.set"]


def test_an_unsupported_value_is_reported_with_its_path(session):
    session.set("plan", 1)
    before = capture_state(session)
    with pytest.raises(UnsupportedValueError, match=r"\$\.state\.plan\.steps\[1\]") as caught:
        session.set("plan", {"steps": [1, Unknown()]})
    assert caught.value.path == "$.state.plan.steps[1]"
    with pytest.raises(UnsupportedValueError) as caught:
        session.set("plan", Unknown())
    assert caught.value.path == "$.state.plan"
    assert capture_state(session) == before


@pytest.mark.parametrize("key", [None, 7, b"plan", ("a",)])
def test_the_key_of_a_value_must_be_a_str(session, key):
    before = capture_state(session)
    with pytest.raises(TypeError, match="key must be a str"):
        session.set(key, 1)
    for read in (session.get, session.delete):
        with pytest.raises(TypeError, match="must be a str"):
            read(key)
    assert capture_state(session) == before


def test_a_key_that_cannot_be_encoded_is_rejected(session):
    before = capture_state(session)
    with pytest.raises(UnsupportedValueError, match="lone surrogate"):
        session.set("\ud800", 1)
    assert session.delete("\ud800") is False
    assert capture_state(session) == before


@pytest.mark.parametrize("key", [Name("plan"), Word.PLAN], ids=["str subclass", "enum"])
@async_test
async def test_a_value_key_that_is_a_str_subclass_becomes_a_plain_str(key):
    session = await open_session(MemoryStateStore())
    session.set(key, 1)
    await session.commit()
    assert (await reopen_session(session)).state == {"plan": 1}
    assert session.delete(key)
    session.record("x", changes={"set": [("state", key, 2)], "delete": [(key, key)]})
    await session.commit()
    assert (await reopen_session(session)).state == {"plan": 2}


@pytest.mark.parametrize("depth", [124, 125, 128])
@async_test
async def test_whatever_can_be_recorded_can_be_committed(depth):
    session = await open_session(MemoryStateStore())
    try:
        session.set("deep", nest_lists(depth))
        session.add_message("user", nest_lists(depth - 1))
        session.record("deep", nest_lists(depth))
    except UnsupportedValueError as refused:
        assert "nested more than" in str(refused)  # noqa: PT017 - refusing it is as good as taking it
    session.set("shallow", 1)
    await session.commit()
    assert (await reopen_session(session)).get("shallow") == 1


@given(st.lists(st.tuples(st.sampled_from("abc"), st.none() | values), max_size=12))
def test_values_behave_like_a_dict(steps):
    async def work():
        session = await open_session(MemoryStateStore())
        model = {}
        for key, value in steps:
            if value is None:
                assert session.delete(key) == (key in model)
                model.pop(key, None)
            else:
                session.set(key, value)
                model[key] = value
        return session, model

    session, model = run_async(work())
    # By digest: setting an equal dict keeps the first order of its keys.
    expected = Store()
    expected.set("session", "status", "pending")
    expected.set_many(("state", key, value) for key, value in model.items())
    assert session.snapshot().digest == expected.snapshot().digest
    assert list(session.state) == sorted(model)
