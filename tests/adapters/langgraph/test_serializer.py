"""Only objects of allowed types are built from stored data; others cause a warning."""

from __future__ import annotations

import datetime as dt
import importlib
import uuid
import warnings

import ormsgpack
import pytest
from langchain_core.agents import AgentAction, AgentActionMessageLog, AgentFinish, AgentStep
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, RemoveMessage
from langchain_core.outputs import (
    ChatGeneration,
    ChatGenerationChunk,
    ChatResult,
    Generation,
    GenerationChunk,
    LLMResult,
    RunInfo,
)
from langchain_core.prompt_values import (
    ChatPromptValue,
    ChatPromptValueConcrete,
    ImagePromptValue,
    StringPromptValue,
)
from langchain_core.runnables import Runnable
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.store.base import Item, SearchItem
from langgraph.types import Command, Interrupt, Send
from pydantic import BaseModel

from adapters.langgraph.graphs import Steps, at, chain
from adapters.langgraph.samples import Mood, Order, Point
from adapters.langgraph.test_untrusted_data import put, values
from holdfast import open_state_store
from holdfast.adapters.langgraph import BlockedTypeWarning, HoldfastSaver
from holdfast.adapters.langgraph.codec import FRAMEWORK_TYPES, AllowlistSerializer, Codec
from holdfast.values.binary_encoding import decode

NOW = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
ACTION = AgentAction("search", {"query": "tables"}, "thinking")
STORED = {"namespace": ("a",), "key": "k", "value": {}, "created_at": NOW, "updated_at": NOW}
FRAMEWORK = [
    ACTION,
    AgentActionMessageLog(tool="t", tool_input="i", log="l", message_log=[AIMessage("m")]),
    AgentFinish({"output": "done"}, "log"),
    AgentStep(action=ACTION, observation="seen"),
    Generation(text="g"),
    GenerationChunk(text="g"),
    ChatGeneration(message=AIMessage("m")),
    ChatGenerationChunk(message=AIMessageChunk("m")),
    ChatResult(generations=[ChatGeneration(message=AIMessage("m"))]),
    LLMResult(generations=[[Generation(text="g")]]),
    RunInfo(run_id=uuid.UUID(int=7)),
    StringPromptValue(text="p"),
    ChatPromptValue(messages=[HumanMessage("h")]),
    ChatPromptValueConcrete(messages=[HumanMessage("h")]),
    ImagePromptValue(image_url={"url": "u"}),
    SearchItem(**STORED, score=0.5),
    Item(**STORED),
    Document(page_content="d"),
    RemoveMessage(id="x"),
    Send("node", {"a": 1}),
    Command(update={"a": 1}, goto="node"),
    Interrupt("really?", id="i"),
]


@pytest.mark.parametrize("value", FRAMEWORK, ids=lambda value: type(value).__name__)
def test_framework_types_come_back_as_from_langgraphs_saver(saver, value):
    stock = JsonPlusSerializer(allowed_msgpack_modules=True)
    expected = stock.loads_typed(stock.dumps_typed(value))
    put(saver, plan=value, items=[value])
    found = values(saver)
    for each in (found["plan"], found["items"][0]):
        assert type(each) is type(value)
        assert each == expected


def test_types_that_are_always_allowed_only_hold_data():
    assert {(type(each).__module__, type(each).__name__) for each in FRAMEWORK} >= FRAMEWORK_TYPES
    assert not any(map(callable, FRAMEWORK))
    for module, name in FRAMEWORK_TYPES:
        kind = getattr(importlib.import_module(module), name)
        assert issubclass(kind, BaseModel | Item)
        assert not issubclass(kind, Runnable)


def test_agent_actions_in_the_state_come_back(saver):
    def agent(state):
        return {"log": [ACTION]}

    def tool(state):
        assert isinstance(state["log"][-1], AgentAction)
        return {"log": [(state["log"][-1], "seen")]}

    graph = chain(Steps, agent, tool).compile(checkpointer=saver, interrupt_before=["tool"])
    graph.invoke({"log": []}, at())
    assert graph.invoke(None, at())["log"] == [ACTION, (ACTION, "seen")]


def test_a_blocked_type_is_warned_of_once_with_the_option_to_allow_it(saver):
    put(saver, order=Order(name="a"), more=[Order(name="b")], point=Point(1))
    with pytest.warns(BlockedTypeWarning) as caught:
        found = values(saver)
    assert found["order"] == {"name": "a", "items": []}
    texts = sorted(str(each.message) for each in caught)
    assert len(texts) == 2
    for text, name in zip(texts, ("Order", "Point"), strict=True):
        assert f"type 'adapters.langgraph.samples.{name}' is not allowed" in text
        assert f"allowed_types=[('adapters.langgraph.samples', '{name}')]" in text
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        values(saver)
        allowing = HoldfastSaver(
            saver.state_store, allowed_types=[("adapters.langgraph.samples", "Order"), Point]
        )
        assert values(allowing) == {
            "order": Order(name="a"),
            "more": [Order(name="b")],
            "point": Point(1),
        }


def test_the_blocked_type_warning_can_be_an_error(saver):
    put(saver, mood=Mood.CALM)
    with pytest.raises(BlockedTypeWarning, match="Mood"):
        values(saver)


EVIL = [
    ("langchain_core.documents.base", "Blob", {"path": "/etc/passwd"}),
    ("langchain_core.load.load", "loads", "{}"),
    ("langchain_core.prompts.prompt", "PromptTemplate", {"template": "{{ x }}"}),
    ("langchain_core.runnables.base", "RunnableLambda", "print"),
    ("langchain_core.utils.utils", "secret_from_env", "HOME"),
    ("langgraph.types", "RetryPolicy", {}),
    ("langgraph.types", "interrupt", "x"),
    ("builtins", "eval", "1"),
    ("os", "system", "true"),
    ("subprocess", "run", ["true"]),
    (5, ["x"], {}),
]


@pytest.mark.parametrize("code", range(6))
@pytest.mark.parametrize(("module", "name", "given"), EVIL, ids=repr)
def test_nothing_that_is_not_allowed_is_called(code, module, name, given):
    inner = ormsgpack.packb((module, name, given, "model_validate_json"))
    data = ormsgpack.packb(ormsgpack.Ext(code, inner))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert AllowlistSerializer().loads_typed(("msgpack", data)) == given


@pytest.mark.parametrize("type_", ["json", "pickle", "msgpack2", ""])
def test_unknown_encodings_are_refused(type_):
    message = b'{"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "X"]}'
    with pytest.raises(ValueError, match="unknown encoding"):
        AllowlistSerializer().loads_typed((type_, message))


def test_types_in_langgraphs_own_allowlist_are_built():
    with HoldfastSaver(open_state_store("memory:")) as saver:
        put(saver, point=Point(1))
        allowing = saver.with_allowlist([(Point.__module__, "Point")])
        assert values(allowing) == {"point": Point(1)}
        with pytest.warns(BlockedTypeWarning):
            values(saver)


@pytest.mark.parametrize("value", [b"ab", bytearray(b"ab"), [bytearray(b"ab")]])
def test_bytes_and_bytearrays_come_back(value):
    codec = Codec(AllowlistSerializer())
    found = codec.decode(decode(codec.encode(value, "a value").data))
    assert found == value
    assert type(found) is type(value)
