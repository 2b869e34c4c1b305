"""Values in LangGraph's databases are decoded, and nothing that they name is imported."""

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

import holdfast
import holdfast.importers
from holdfast.adapters.langgraph import BlockedTypeWarning, HoldfastSaver
from holdfast.errors import InvalidDocumentError
from holdfast.importers.langgraph_serde import Extension, ExtensionSerializer, Serde
from importers.graphs import import_documents

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
CALL = {"name": "add", "args": {"a": 1}, "id": "c", "type": "tool_call"}

NATIVE = {
    "none": None,
    "bytes": b"\x00\xff",
    "text": "ü",
    "number": 2**63,
    "keys": {1: {"a": 1.5}},
    "datetime": MOMENT,
    "naive": dt.datetime(2026, 1, 2),
    "date": dt.date(2026, 1, 2),
    "time": dt.time(3, 4, 5, 6),
    "zoned": dt.time(3, tzinfo=dt.UTC),
    "timedelta": dt.timedelta(1, 2, 3),
    "uuid": ID,
    "decimal": decimal.Decimal("1.50"),
    "set": {1, 2},
    "frozenset": frozenset("ab"),
    "human": HumanMessage("hi", id="1", name="Ada"),
    "ai": AIMessage([{"type": "text", "text": "yo"}], tool_calls=[CALL]),
    "system": SystemMessage("obey", additional_kwargs={"__openai_role__": "developer"}),
    "tool": ToolMessage("4", tool_call_id="c", status="error", artifact={"raw": MOMENT}),
}


def encode(value):
    return JsonPlusSerializer().dumps_typed(value)


@pytest.mark.parametrize("name", NATIVE)
def test_messages_and_native_types_are_decoded(name):
    value = NATIVE[name]
    found = Serde().decode(*encode(value), "a row")
    assert found == value
    assert type(found) is type(value)


OPAQUE = {
    "set of tuples": {(1, 2)},
    "deque": deque([1, 2]),
    "regex": re.compile("a.b"),
    "path": pathlib.Path("/a/b"),
    "array": np.array([[1, 2]], dtype="<i4"),
    "pydantic": Plan(goal="x", steps=[1]),
    "dataclass": Card(7),
    "namedtuple": Point(1, 2),
    "enum": Color.RED,
    "send": Send("node", {"a": 1}),
    "interrupt": Interrupt({"ask": 1}, id="i1"),
    "chunk": AIMessageChunk("y"),
    "function": FunctionMessage("4", name="add"),
    "chat": ChatMessage("hm", role="critic"),
    "message with an object": HumanMessage("x", additional_kwargs={"path": pathlib.Path("/a")}),
}


@pytest.mark.parametrize("name", OPAQUE)
@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: {"a": [1, v, MOMENT, HumanMessage("x")]}])
def test_other_objects_stay_bytes_that_langgraph_decodes(name, wrap):
    encoded = encode(wrap(OPAQUE[name]))
    found = Serde().decode(*encoded, "a row")
    inner = found if isinstance(found, Extension) else found["a"][1]
    assert type(inner) is Extension
    again = ExtensionSerializer().dumps_typed(found)
    loaded = [repr(JsonPlusSerializer().loads_typed(each)) for each in (again, encoded)]
    assert loaded[0] == loaded[1]


def test_an_object_that_stays_bytes_shows_its_type_and_content():
    found = Serde().decode(*encode(Plan(goal="x", steps=[1])), "a row")
    assert repr(found) == "Plan({'goal': 'x', 'steps': [1]})"
    assert (
        repr(Serde().decode("msgpack", pack_extension(99, b"abc"), "a row"))
        == "Extension(99, 3 bytes)"
    )


def test_messages_in_the_json_of_old_versions_are_decoded():
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
    found = Serde().decode("json", text.encode(), "a row")
    assert found["messages"] == [HumanMessage("hi", id="1")]
    assert found["when"] == MOMENT


@pytest.mark.parametrize("names", [None, [], 5, [5], "text"])
def test_json_that_only_starts_like_a_langchain_object_is_unchanged(names):
    tree = {"lc": 1, "type": "constructor", "id": names, "args": []}
    assert Serde().decode("json", json.dumps(tree), "a row") == tree
    tree = {"lc": 1, "type": "constructor", "id": ["a", "b"], "args": 5}
    assert Serde().decode("json", json.dumps(tree), "a row") == tree


# ---------------------------------------------------------------------------------------- hostile


def pack_extension(code, value):
    return ormsgpack.packb(
        ormsgpack.Ext(code, value if isinstance(value, bytes) else ormsgpack.packb(value))
    )


def make_hostile_values(target):
    """Return values that create a file of this name if anything in them is called."""
    command = f"touch {target}"
    yield pack_extension(0, ["os", "system", command])
    yield pack_extension(1, ["os", "system", [command]])
    yield pack_extension(2, ["subprocess", "run", {"args": command, "shell": True}])
    yield pack_extension(3, ["pathlib", "Path", str(target), "touch"])
    yield pack_extension(4, ["subprocess", "Popen", {"args": command, "shell": True}])
    yield pack_extension(5, ["os", "system", {"command": command}, "model_validate_json"])
    yield pack_extension(0, ["antigravity", "fly", 1])
    yield pack_extension(7, pack_extension(0, ["os", "system", command]))


def test_nothing_that_a_value_names_is_called_or_imported(tmp_path):
    target = tmp_path / "touched"
    modules = {"antigravity"}
    assert not modules & sys.modules.keys()
    for data in make_hostile_values(target):
        Serde().decode("msgpack", data, "a row")
    text = {"lc": 2, "type": "constructor", "id": ["os", "system"], "args": [f"touch {target}"]}
    assert Serde().decode("json", json.dumps(text), "a row") == f"touch {target}"
    assert not target.exists()
    assert not modules & sys.modules.keys()


def test_environment_variables_are_not_read(monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_TEST", "s3cret")
    tree = {"lc": 1, "type": "secret", "id": ["SECRET_OF_THE_TEST"]}
    assert Serde().decode("json", json.dumps(tree), "a row") == tree


class Touch:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return pathlib.Path.touch, (pathlib.Path(self.path),)


def test_a_pickle_is_refused_and_not_loaded(tmp_path):
    target = tmp_path / "touched"
    with pytest.raises(InvalidDocumentError, match="a row is a pickle"):
        Serde().decode("pickle", pickle.dumps(Touch(target)), "a row")
    assert not target.exists()


def nest_extensions(depth):
    value = 1
    for _ in range(depth):
        value = ormsgpack.Ext(0, ormsgpack.packb(["builtins", "set", value]))
    return ormsgpack.packb(value)


@pytest.mark.parametrize(
    "data",
    [
        b"\x91" * 10_000 + b"\x00",
        nest_extensions(500),
        pack_extension(5, b"\xc1"),
        pack_extension(5, ["os"]),
        pack_extension(0, {"a": 1}),
        b"\xdd\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\xa2\xff\xfe",
        b"",
    ],
)
def test_malformed_bytes_are_refused_with_the_row(data):
    with pytest.raises(InvalidDocumentError, match="^a row is damaged"):
        Serde().decode("msgpack", data, "a row")


def test_a_hostile_value_in_a_database_is_stored_as_bytes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    target = tmp_path / "touched"
    value = pack_extension(0, ["os", "system", f"touch {target}"])
    config = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    checkpoint = {**empty_checkpoint(), "channel_values": {"x": "VALUE"}}
    with SqliteSaver.from_conn_string(DATABASE) as saver:
        saver.put(config, checkpoint, {"source": "input", "step": -1}, {})
    with closing(sqlite3.connect(DATABASE)) as connection, connection:
        ((data,),) = connection.execute("SELECT checkpoint FROM checkpoints")
        data = data.replace(ormsgpack.packb("VALUE"), value)
        connection.execute("UPDATE checkpoints SET checkpoint = ?", (data,))
    (document,) = holdfast.importers.read(DATABASE)
    assert document.state.values["x"]["data"] == value
    with HoldfastSaver(holdfast.open_state_store("memory:")) as saver:
        import_documents(saver.state_store, document)
        with pytest.warns(BlockedTypeWarning, match="os.system"):
            found = saver.get_tuple(config).checkpoint["channel_values"]
    assert found == {"x": f"touch {target}"}
    assert not target.exists()


@given(st.data())
def test_modified_bytes_are_decoded_or_refused(data):
    value = {"a": [AIMessage("x", id="1"), Plan(goal="g", steps=[1]), {1, 2}, MOMENT], "b": ID}
    changed = bytearray(JsonPlusSerializer().dumps_typed(value)[1])
    for _ in range(data.draw(st.integers(1, 5))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    with suppress(InvalidDocumentError):
        Serde().decode("msgpack", bytes(changed), "a row")
