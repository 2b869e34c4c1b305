"""Values of many types for the state of graphs, and a way to compare them exactly."""

from __future__ import annotations

import datetime as dt
import enum
import uuid
from collections import OrderedDict, deque
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.types import Interrupt, Send
from pydantic import BaseModel


@dataclass
class Point:
    x: int
    label: Any = None


class Order(BaseModel):
    name: str
    items: list[Any] = []


class Color(enum.Enum):
    RED = "red"


class Mood(enum.StrEnum):
    CALM = "calm"


class Pair(NamedTuple):
    left: Any
    right: Any


ALLOWED = [(kind.__module__, kind.__name__) for kind in (Point, Order, Color, Mood, Pair)]
ZONE = dt.timezone(dt.timedelta(hours=2))

PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, 1, 1.0, 0.0, -0.0, True, 2**64 - 1, -(2**63)]),
    st.floats(allow_nan=False),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.sampled_from(
        [
            dt.datetime(2026, 1, 2, 3, 4, 5, 6),
            dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
            dt.datetime(2026, 1, 2, tzinfo=ZONE),
            dt.date(2026, 1, 2),
            dt.timedelta(days=1, microseconds=3),
            Decimal("1.50"),
            uuid.UUID(int=7),
        ]
    ),
)


def objects(inner):
    """Objects that hold other values."""
    return st.one_of(
        st.builds(Point, st.integers(0, 9), inner),
        st.builds(Order, name=st.text(max_size=3), items=st.lists(inner, max_size=2)),
        st.builds(Pair, inner, inner),
        st.builds(Send, st.just("node"), inner),
        st.builds(Interrupt, inner, id=st.just("an-id")),
        st.builds(deque, st.lists(inner, max_size=2)),
        st.builds(OrderedDict, st.just([("k", 1)])),
        st.sampled_from([Color.RED, Mood.CALM, Document(page_content="p", metadata={"a": 1})]),
    )


def holders(inner):
    return st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.sampled_from(["a", "role", "langchain", "content"]), inner, max_size=3),
        st.dictionaries(st.sampled_from([1, 2.5, "1"]), inner, max_size=2),
        objects(inner),
    )


VALUES = st.recursive(PLAIN, holders, max_leaves=5)

CALL = {"name": "tables", "args": {"day": "monday"}, "id": "call", "type": "tool_call"}
MESSAGES = st.one_of(
    st.builds(HumanMessage, st.text(max_size=5), id=st.text(max_size=2)),
    st.builds(HumanMessage, st.just([{"type": "text", "text": "part"}, "bare"])),
    st.builds(AIMessage, st.text(max_size=5), tool_calls=st.sampled_from([[], [CALL]])),
    st.builds(
        AIMessage,
        st.just("x"),
        additional_kwargs=st.dictionaries(st.just("k"), PLAIN),
        response_metadata=st.dictionaries(st.just("m"), VALUES),
        usage_metadata=st.just({"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}),
    ),
    st.builds(SystemMessage, st.text(max_size=5), name=st.sampled_from([None, "n"])),
    st.builds(
        ToolMessage,
        st.text(max_size=5),
        tool_call_id=st.just("call"),
        status=st.sampled_from(["success", "error"]),
        artifact=PLAIN,
    ),
    st.builds(ChatMessage, st.just("c"), role=st.just("critic")),
    st.builds(AIMessageChunk, st.just("c")),
    st.builds(HumanMessage, st.just("e"), odd=PLAIN),
)
SAMPLES = st.one_of(VALUES, MESSAGES, st.lists(MESSAGES, max_size=3))


def exact(value):
    """A value as its types and contents; tuples are lists, as LangGraph loads them as such."""
    if isinstance(value, BaseModel):
        return type(value), exact({**value.__dict__, **(value.__pydantic_extra__ or {})})
    if isinstance(value, dict):
        return type(value), [(exact(key), exact(item)) for key, item in value.items()]
    if type(value) in (list, tuple):
        return list, [exact(item) for item in value]
    if isinstance(value, list | tuple | deque):
        return type(value), [exact(item) for item in value]
    if isinstance(value, Send):
        return Send, value.node, exact(value.arg)
    if isinstance(value, Point):
        return Point, value.x, exact(value.label)
    if isinstance(value, Interrupt):
        return Interrupt, value.id, exact(value.value)
    return type(value), repr(value)
