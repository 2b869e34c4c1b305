"""Which values a checkpoint may hold, and that nothing is loaded that the user did not choose."""

from __future__ import annotations

import collections
import datetime as dt
import enum
import importlib.util
import pickle
import sys
import uuid
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Optional, Union

import pytest

pytest.importorskip("agent_framework")

from agent_framework import (
    AgentExecutorRequest,
    AgentExecutorResponse,
    AgentResponse,
    AgentResponseUpdate,
    AgentSession,
    ChatResponse,
    Content,
    Message,
    WorkflowCheckpoint,
    WorkflowCheckpointException,
    WorkflowErrorDetails,
    WorkflowEvent,
    WorkflowMessage,
    WorkflowRunState,
)
from pydantic import BaseModel, Field, PrivateAttr, computed_field

from adapters.agent_framework.workflows import exact
from holdfast import Session, UnsupportedValueError
from holdfast.adapters.agent_framework import HoldfastCheckpointStorage
from holdfast.adapters.agent_framework.codec import find_type
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test


class Mood(enum.Enum):
    GOOD = "good"


@dataclass(frozen=True)
class Line:
    item: str
    mood: Mood = Mood.GOOD


@dataclass
class Basket:
    lines: list[Line] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)


class Guest(BaseModel):
    name: str
    born: dt.date | None = None


class Plain:
    """Not data."""

    def __init__(self, x=1):
        self.x = x

    def __eq__(self, other):
        return type(other) is Plain and other.x == self.x

    __hash__ = None


HELLO = Message(
    "user",
    [
        "Hello",
        Content.from_function_call("call_1", "look", arguments={"a": [1, None]}),
        Content.from_function_result("call_1", result="yes"),
        Content.from_data(b"\x00\x01", "image/png"),
    ],
    author_name="me",
    message_id="m1",
    additional_properties={"x": {"y": [1.5]}},
)
EVENT = WorkflowEvent.request_info("r1", "asker", {"q": 1}, dict)
SAMPLES = {
    "plain": {"a": [1, 2.5, None, True, "é", b"bytes"], 1: (2, {3}), "big": 2**100},
    "exact": [dt.datetime(2026, 1, 1, tzinfo=dt.UTC), uuid.UUID(int=1), Decimal("1.10")],
    "message": HELLO,
    "content": Content.from_text("hi"),
    "nested": ({"m": [HELLO]}, frozenset({1})),
    "request": AgentExecutorRequest([HELLO], should_respond=False),
    "response": AgentExecutorResponse(
        "writer", AgentResponse(messages=[HELLO], response_id="r", usage_details={"x": 1}), [HELLO]
    ),
    "update": AgentResponseUpdate(contents=[Content.from_text("a")], role="assistant"),
    "chat": ChatResponse(messages=[HELLO], model="m"),
    "event": EVENT,
    "typed": WorkflowEvent.request_info("r2", "asker", "text", list[str | None]),
    "error": WorkflowErrorDetails("ValueError", "bad", extra={"a": 1}),
    "workflow message": WorkflowMessage(HELLO, "a", "b", original_request_info_event=EVENT),
    "checkpoint": WorkflowCheckpoint(
        "inner", "hash", state={"deep": [HELLO] * 9}, timestamp="2026-01-01", checkpoint_id="in"
    ),
    "state": WorkflowRunState.IDLE,
    "own key": {"agent_framework": "list", "space": "somewhere"},
    "long": [{"agent_framework": number, "items": list(range(10))} for number in range(12)],
    "session": AgentSession(session_id="s1"),
    "type": str,
}


async def round_trip(value, key="v", **options):
    """Store a value, and return what another storage loads."""
    store = MemoryStateStore()
    checkpoint = WorkflowCheckpoint("flow", "hash", state={key: value})
    await HoldfastCheckpointStorage(store, **options).save(checkpoint)
    found = await HoldfastCheckpointStorage(store, **options).load(checkpoint.checkpoint_id)
    return found.state[key]


@pytest.mark.parametrize("name", SAMPLES)
@async_test
async def test_data_and_the_objects_of_the_framework_come_back(name):
    value = SAMPLES[name]
    assert exact(await round_trip(value)) == exact(value)
    executors = {"writer": {"v": value}}
    assert exact(await round_trip(executors, "_executor_state")) == exact(executors)


@async_test
async def test_own_classes_are_stored_as_data_if_they_are_named():
    value = {
        "basket": Basket([Line("soup"), Line("tea", Mood.GOOD)], [HELLO]),
        "guest": Guest(name="Ada", born=dt.date(1815, 12, 10)),
        "wanted": Basket,
        "set": {Line("soup")},
    }
    types = [Basket, Line, Mood, Guest]
    found = await round_trip(value, types=types)
    assert found["guest"] == value["guest"]
    assert exact(found) == exact(value)


@async_test
async def test_a_field_that_was_added_to_a_class_has_its_default():
    store = MemoryStateStore()
    checkpoint = WorkflowCheckpoint("flow", "hash", state={"line": Line("soup")})
    await HoldfastCheckpointStorage(store, types=[Line, Mood]).save(checkpoint)

    @dataclass
    class Newer:
        item: str
        mood: Mood
        price: int = 5
        tags: list = field(default_factory=list)

    Newer.__module__, Newer.__qualname__ = Line.__module__, Line.__qualname__
    storage = HoldfastCheckpointStorage(store, types=[Newer, Mood])
    found = (await storage.load(checkpoint.checkpoint_id)).state["line"]
    assert found == Newer("soup", Mood.GOOD, 5, [])


REFUSED = {
    "object": (Plain(), "$.state.v"),
    "in a list": ([1, {"a": (Plain(),)}], "$.state.v[1].a[0]"),
    "in a message": (WorkflowMessage({"x": Plain()}, "a"), "$.state.v.data.x"),
    "dataclass": (Line("soup"), "$.state.v"),
    "subclass": (collections.OrderedDict(a=1), "$.state.v"),
    "in properties": (
        Message("user", ["hi"], additional_properties={"x": Plain()}),
        "$.state.v.additional_properties.x",
    ),
    "surrogate": ({"a": "\ud800"}, "$.state.v.a"),
    "surrogate in a key": ({"\ud800": list(range(10))}, "$.state.v['\\ud800']"),
    "function": (len, "$.state.v"),
}


@pytest.mark.parametrize("name", REFUSED)
@async_test
async def test_what_is_not_data_is_refused_with_its_path_and_nothing_is_written(name):
    value, path = REFUSED[name]
    storage = HoldfastCheckpointStorage(MemoryStateStore())
    with pytest.raises(UnsupportedValueError) as caught:
        await storage.save(WorkflowCheckpoint("flow", "hash", state={"v": value}))
    assert caught.value.path == path
    assert await storage.list_checkpoint_ids(workflow_name="flow") == []


@async_test
async def test_a_value_that_contains_itself_is_refused():
    value = []
    value.append({"value": value})
    with pytest.raises(UnsupportedValueError, match="contains itself"):
        await round_trip(value)


@async_test
async def test_objects_are_kept_as_bytes_if_the_user_wants_it():
    name = f"{Plain.__module__}:Plain"
    value = {"a": [Plain(2)], "b": collections.OrderedDict(x=1), "ok": 1}
    keep = {"opaque": "keep", "allowed_checkpoint_types": [name]}
    found = await round_trip(value, **keep)
    assert found == value
    assert type(found["b"]) is collections.OrderedDict
    odd = Message("user", ["hi"], additional_properties={"x": Plain(3)})
    assert (await round_trip(odd, **keep)).additional_properties == {"x": Plain(3)}
    with pytest.raises(WorkflowCheckpointException, match="blocked for type .*Plain"):
        await round_trip(value, opaque="keep")
    with pytest.raises(UnsupportedValueError, match="not pickled by the framework"):
        await round_trip(lambda: None, opaque="keep")


class Renamed(BaseModel):
    name: str = Field(alias="userName")

    @computed_field
    @property
    def length(self) -> int:
        return len(self.name)


class Adult(Guest):
    age: int = 18


class Table(BaseModel):
    guest: Guest
    note: str = Field(default="", exclude=True)
    _seen: int = PrivateAttr(default=0)


@async_test
async def test_models_come_back_or_are_refused():
    model, table = Renamed(userName="Ada"), Table(guest=Guest(name="Ada"))
    assert await round_trip([model, table], types=[Renamed, Table]) == [model, table]
    seen = table.model_copy()
    seen._seen = 1
    for lossy in (
        Table(guest=Adult(name="Ada")),
        Table(guest=Guest(name="Ada"), note="x"),
        Guest.model_construct(name=5),
        seen,
    ):
        with pytest.raises(UnsupportedValueError, match=r"does not come back .* at \$\.state\.v:"):
            await round_trip(lossy, types=[Table, Guest])


class Evil:
    def __reduce__(self):
        return (print, ("executed",))


@pytest.mark.parametrize("opaque", ["refuse", "keep"])
@async_test
async def test_pickled_bytes_in_the_store_are_not_executed(opaque, capsys):
    store = MemoryStateStore()
    storage = HoldfastCheckpointStorage(store, opaque=opaque)
    await storage.save(WorkflowCheckpoint("flow", "hash", checkpoint_id="c", state={"v": 1}))
    evil = {"agent_framework": "pickled", "type": "builtins:str", "data": pickle.dumps(Evil())}
    async with Session.open(store, agent_id="agent-framework", session_id="flow") as session:
        session.set("v", evil)
    wanted = UnsupportedValueError if opaque == "refuse" else WorkflowCheckpointException
    with pytest.raises(wanted):
        await storage.load("c")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "stored",
    [
        {"agent_framework": "os:system", "fields": {}},
        {"agent_framework": "Agent", "fields": {}},
        {"agent_framework": "type", "name": "antigravity:fly"},
        {"agent_framework": "type", "name": "os:system"},
    ],
)
@async_test
async def test_names_in_the_store_are_not_imported(stored):
    store = MemoryStateStore()
    storage = HoldfastCheckpointStorage(store)
    await storage.save(WorkflowCheckpoint("flow", "hash", checkpoint_id="c", state={"v": 1}))
    async with Session.open(store, agent_id="agent-framework", session_id="flow") as session:
        session.set("v", stored)
    with pytest.raises(UnsupportedValueError) as caught:
        await storage.load("c")
    assert caught.value.path == "$.state.v"
    assert "antigravity" not in sys.modules


@async_test
async def test_unions_of_types_come_back_equal():
    unions = [Optional[str], Union[list[int], str], int | None]  # noqa: UP007, UP045 - the subject
    assert await round_trip(unions) == unions


def test_a_lazy_module_is_not_executed(monkeypatch, tmp_path):
    (tmp_path / "lazy_example.py").write_text("raise RuntimeError('executed')")
    monkeypatch.syspath_prepend(tmp_path)
    spec = importlib.util.find_spec("lazy_example")
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "lazy_example", module)
    spec.loader.exec_module(module)
    assert find_type("lazy_example:Any", ()) is None


@async_test
async def test_keys_of_the_state_are_texts():
    for state, path in (
        ({1: 2}, "$.state.1"),
        ({"\ud800": 1}, "$.state[0]"),
        ({"_executor_state": {"\ud800": {"k": 1}}}, "$.executors['\\ud800']"),
    ):
        with pytest.raises(UnsupportedValueError) as caught:
            await HoldfastCheckpointStorage(MemoryStateStore()).save(
                WorkflowCheckpoint("flow", "hash", state=state)
            )
        assert caught.value.path == path


@dataclass
class Failure(Exception):
    code: int = 1


def test_invalid_options_are_refused():
    store = MemoryStateStore()
    with pytest.raises(ValueError, match='"refuse" or "keep"'):
        HoldfastCheckpointStorage(store, opaque="maybe")
    with pytest.raises(TypeError, match="dataclasses, enums or pydantic models"):
        HoldfastCheckpointStorage(store, types=[Plain])
    with pytest.raises(TypeError, match="dataclasses that are exceptions"):
        HoldfastCheckpointStorage(store, types=[Failure])
    with pytest.raises(ValueError, match="agent_id"):
        HoldfastCheckpointStorage(store, agent_id="")
