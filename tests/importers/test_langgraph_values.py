"""Values of checkpoints: plain data of whatever LangGraph writes, and nothing is imported."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import json
import pathlib
import pickle
import re
import sqlite3
import sys
import uuid
from collections import deque, namedtuple
from contextlib import closing, suppress

import numpy as np
import ormsgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Interrupt, Send
from pydantic import BaseModel

import holdfast.importers
from holdfast.errors import InvalidDocumentError
from holdfast.extras import MissingExtraError
from holdfast.importers.langgraph_serde import Serde

DATABASE = "checkpoints.sqlite"
MOMENT = dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC)
ID = uuid.uuid4()


class Plan(BaseModel):
    goal: str
    steps: list[int]


@dataclasses.dataclass
class Card:
    number: int


class Color(enum.Enum):
    RED = "red"


Point = namedtuple("Point", "x y")

KEPT = {
    "none": (None, None),
    "bytes": (b"\x00\xff", b"\x00\xff"),
    "text": ("ü", "ü"),
    "number": (2**63, 2**63),
    "keys": ({1: {"a": 1.5}}, {1: {"a": 1.5}}),
    "tuple": ((1, 2), [1, 2]),
    "datetime": (MOMENT, MOMENT),
    "naive": (dt.datetime(2026, 1, 2), dt.datetime(2026, 1, 2)),
    "date": (dt.date(2026, 1, 2), dt.date(2026, 1, 2)),
    "time": (dt.time(3, 4, 5, 6), dt.time(3, 4, 5, 6)),
    "zoned": (dt.time(3, tzinfo=dt.UTC), dt.time(3, tzinfo=dt.UTC)),
    "timedelta": (dt.timedelta(1, 2, 3), dt.timedelta(1, 2, 3)),
    "uuid": (ID, ID),
    "decimal": (decimal.Decimal("1.50"), decimal.Decimal("1.50")),
    "set": ({1, 2}, {1, 2}),
    "frozenset": (frozenset("ab"), frozenset("ab")),
    "set of tuples": ({(1, 2)}, [[1, 2]]),
    "deque": (deque([1, 2]), [1, 2]),
    "regex": (re.compile("a.b"), ["a.b", 32]),
    "pydantic": (Plan(goal="x", steps=[1]), {"goal": "x", "steps": [1]}),
    "dataclass": (Card(7), {"number": 7}),
    "namedtuple": (Point(1, 2), {"x": 1, "y": 2}),
    "enum": (Color.RED, "red"),
    "send": (Send("node", {"a": 1}), ["node", {"a": 1}]),
}


@pytest.mark.parametrize("name", KEPT)
def test_a_value_is_what_it_was_made_of(name):
    value, kept = KEPT[name]
    found = Serde().value(*JsonPlusSerializer().dumps_typed(value), "a row")
    assert found == kept
    assert type(found) is type(kept)
    holdfast.Store().set("state", "x", found)


def test_paths_arrays_and_interrupts_are_plain_data():
    def read(value):
        return Serde().value(*JsonPlusSerializer().dumps_typed(value), "a row")

    assert read(pathlib.Path("/a/b")) == "/a/b"
    array = read(np.array([[1, 2]], dtype="<i4"))
    assert array == {
        "dtype": "<i4",
        "shape": [1, 2],
        "order": "C",
        "data": bytes([1, 0, 0, 0, 2, 0, 0, 0]),
    }
    assert read(Interrupt({"ask": 1}, id="i1"))["value"] == {"ask": 1}


@pytest.mark.parametrize(
    ("message", "role"),
    [
        (HumanMessage("hi", id="1", name="Ada"), "user"),
        (AIMessage([{"type": "text", "text": "yo"}], usage_metadata=None), "assistant"),
        (AIMessageChunk("y"), "assistant"),
        (SystemMessage("be kind"), "system"),
        (SystemMessage("obey", additional_kwargs={"__openai_role__": "developer"}), "developer"),
        (ToolMessage("4", tool_call_id="c", status="error", artifact={"raw": 0}), "tool"),
        (FunctionMessage("4", name="add"), "function"),
        (ChatMessage("hm", role="critic"), "critic"),
    ],
)
def test_a_message_has_a_role_and_all_that_is_not_empty(message, role):
    found = Serde().value(*JsonPlusSerializer().dumps_typed(message), "a row")
    assert found["role"] == role
    assert found["langchain"] == type(message).__name__
    said = {key: value for key, value in message.model_dump().items() if value and key != "type"}
    assert said.items() <= found.items()


def test_messages_in_the_json_of_older_versions_are_messages():
    text = json.dumps(
        {
            "messages": [
                {
                    "lc": 1,
                    "type": "constructor",
                    "id": ["langchain", "schema", "messages", "HumanMessage"],
                    "kwargs": {"content": "hi", "type": "human", "id": "1"},
                }
            ],
            "when": {
                "lc": 2,
                "type": "constructor",
                "id": ["datetime", "datetime"],
                "method": "fromisoformat",
                "args": [MOMENT.isoformat()],
            },
        }
    )
    found = Serde().value("json", text.encode(), "a row")
    assert found["messages"] == [
        {"role": "user", "content": "hi", "id": "1", "langchain": "HumanMessage"}
    ]
    assert found["when"] == MOMENT


@pytest.mark.parametrize("names", [None, [], 5, [5], "text"])
def test_an_object_that_only_begins_like_one_of_langchain_is_kept_as_it_is(names):
    tree = {"lc": 1, "type": "constructor", "id": names, "args": []}
    assert Serde().value("json", json.dumps(tree), "a row") == tree
    tree = {"lc": 1, "type": "constructor", "id": ["a", "b"], "args": 5}
    assert Serde().value("json", json.dumps(tree), "a row") == tree


# ---------------------------------------------------------------------------------------- hostile


def packed(code, value):
    return ormsgpack.packb(
        ormsgpack.Ext(code, value if isinstance(value, bytes) else ormsgpack.packb(value))
    )


def hostile(target):
    """Values that make the file of this name if anything in them is called."""
    command = f"touch {target}"
    yield packed(0, ["os", "system", command])
    yield packed(1, ["os", "system", [command]])
    yield packed(2, ["subprocess", "run", {"args": command, "shell": True}])
    yield packed(3, ["pathlib", "Path", str(target), "touch"])
    yield packed(4, ["subprocess", "Popen", {"args": command, "shell": True}])
    yield packed(5, ["os", "system", {"command": command}, "model_validate_json"])
    yield packed(0, ["antigravity", "fly", 1])
    yield packed(7, packed(0, ["os", "system", command]))


def test_nothing_that_a_value_names_is_called_or_imported(tmp_path):
    target = tmp_path / "touched"
    modules = {"antigravity"}
    assert not modules & sys.modules.keys()
    for data in hostile(target):
        Serde().value("msgpack", data, "a row")
    text = {"lc": 2, "type": "constructor", "id": ["os", "system"], "args": [f"touch {target}"]}
    assert Serde().value("json", json.dumps(text), "a row") == f"touch {target}"
    assert not target.exists()
    assert not modules & sys.modules.keys()


def test_secrets_of_the_environment_are_not_put_into_data(monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_TEST", "s3cret")
    tree = {"lc": 1, "type": "secret", "id": ["SECRET_OF_THE_TEST"]}
    assert Serde().value("json", json.dumps(tree), "a row") == tree


class Touch:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return pathlib.Path.touch, (pathlib.Path(self.path),)


def test_a_pickle_is_refused_and_not_loaded(tmp_path):
    target = tmp_path / "touched"
    with pytest.raises(InvalidDocumentError, match="a row is a pickle"):
        Serde().value("pickle", pickle.dumps(Touch(target)), "a row")
    assert not target.exists()


def nested_extensions(depth):
    data = b"\x01"
    for _ in range(depth):
        data = packed(7, data)
    return data


@pytest.mark.parametrize(
    "data",
    [
        b"\x91" * 10_000 + b"\x00",
        nested_extensions(500),
        packed(5, b"\xc1"),
        packed(5, [1, 2, 3]),
        packed(5, ["os"]),
        packed(6, [1]),
        packed(0, {"a": 1}),
        b"\xdd\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\xa2\xff\xfe",
        b"",
    ],
)
def test_malformed_bytes_are_one_error_that_names_the_row(data):
    with pytest.raises(InvalidDocumentError, match="^a row is damaged"):
        Serde().value("msgpack", data, "a row")


def test_an_extension_that_nobody_knows_is_kept_as_its_bytes():
    assert Serde().value("msgpack", packed(99, b"abc"), "a row") == {"ext": 99, "data": b"abc"}


def write_value(data):
    """A database whose only checkpoint has these bytes as the value of its only channel."""
    config = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    with SqliteSaver.from_conn_string(DATABASE) as saver:
        saver.put(config, empty_checkpoint(), {"source": "input", "step": -1}, {})
    tree = ormsgpack.packb({"v": 4, "ts": MOMENT.isoformat(), "id": "1"})
    values = ormsgpack.packb("channel_values") + b"\x81\xa1x" + data
    with closing(sqlite3.connect(DATABASE)) as connection, connection:
        whole = bytes([tree[0] + 1]) + tree[1:] + values
        connection.execute("UPDATE checkpoints SET checkpoint = ?, checkpoint_id = 'c1'", (whole,))


def test_hostile_values_in_a_database_become_plain_values(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    target = tmp_path / "touched"
    write_value(packed(0, ["os", "system", f"touch {target}"]))
    (document,) = holdfast.importers.read(DATABASE)
    assert document.state.values == {"x": f"touch {target}"}
    assert not target.exists()


def test_a_value_that_no_session_can_keep_names_its_checkpoint(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_value(b"\x91" + packed(7, b"\x01"))
    with pytest.raises(InvalidDocumentError, match="checkpoint c1 of the thread t cannot be kept"):
        holdfast.importers.read(DATABASE)


def test_without_the_package_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "langgraph.checkpoint.serde.jsonplus", None)
    with pytest.raises(MissingExtraError, match=r"holdfast\[langgraph\]"):
        Serde()


def test_a_package_that_cannot_be_strict_is_refused(monkeypatch):
    class Lenient:
        def __init__(self, *, pickle_fallback=False):
            pass

    monkeypatch.setattr("langgraph.checkpoint.serde.jsonplus.JsonPlusSerializer", Lenient)
    with pytest.raises(MissingExtraError, match="needs a newer langgraph-checkpoint"):
        Serde()


@given(st.data())
def test_bytes_that_were_changed_are_read_or_refused(data):
    value = {"a": [AIMessage("x", id="1"), Plan(goal="g", steps=[1]), {1, 2}, MOMENT], "b": ID}
    changed = bytearray(JsonPlusSerializer().dumps_typed(value)[1])
    for _ in range(data.draw(st.integers(1, 5))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    with suppress(InvalidDocumentError):
        Serde().value("msgpack", bytes(changed), "a row")
