"""Hostile, damaged and unsupported data."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from types import ModuleType

import ormsgpack
import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from adapters.langgraph.graphs import Steps, at, build_steps, chain
from adapters.langgraph.samples import ALLOWED, Color, Mood, Order, Pair, Point
from holdfast import IntegrityError, Session, UnsupportedValueError, open_state_store
from holdfast.adapters.langgraph import BlockedTypeWarning, HoldfastSaver
from holdfast.errors import HoldfastError
from support.async_tests import run_async

OBJECTS = {"point": Point(1, "a"), "order": Order(name="b"), "color": Color.RED, "pair": Pair(1, 2)}


def put(saver, thread="t", **values):
    versions = dict.fromkeys(values, "00000001.0")
    checkpoint = {**empty_checkpoint(), "channel_values": values, "channel_versions": versions}
    config = at(thread, checkpoint_ns="")
    return saver.put(config, checkpoint, {"source": "loop", "step": 1}, versions)


def values(saver, thread="t"):
    return saver.get_tuple(at(thread)).checkpoint["channel_values"]


# --------------------------------------------------------------------------------- hostile data


def test_only_objects_of_allowed_types_are_built():
    with HoldfastSaver(open_state_store("memory:"), allowed_types=ALLOWED) as saver:
        put(saver, **OBJECTS, mood=[Mood.CALM])
        found = values(saver)
        assert found == {**OBJECTS, "mood": [Mood.CALM]}
        assert {name: type(each) for name, each in found.items()} == {
            **{name: type(each) for name, each in OBJECTS.items()},
            "mood": list,
        }
        assert type(found["mood"][0]) is Mood

        strict = HoldfastSaver(saver.state_store)
        with pytest.warns(BlockedTypeWarning):
            found = values(strict)
        assert not {type(each) for each in found.values()} & {Point, Order, Color, Pair, Mood}
        assert found["order"] == {"name": "b", "items": []}


HOSTILE = {
    "msgpack constructor": lambda: (
        "msgpack",
        ormsgpack.packb(ormsgpack.Ext(0, ormsgpack.packb(("evil_module", "Evil", "x")))),
    ),
    "msgpack pydantic": lambda: (
        "msgpack",
        ormsgpack.packb(
            ormsgpack.Ext(5, ormsgpack.packb(("evil_module", "Evil", {}, "model_validate_json")))
        ),
    ),
    "msgpack method": lambda: (
        "msgpack",
        ormsgpack.packb(ormsgpack.Ext(3, ormsgpack.packb(("evil_module", "Evil", "x", "make")))),
    ),
    "json": lambda: (
        "json",
        b'{"lc": 2, "type": "constructor", "id": ["evil_module", "Evil"], "kwargs": {}}',
    ),
    "json of langchain": lambda: (
        "json",
        b'{"lc": 1, "type": "constructor", "id": ["evil_module", "Evil"], "kwargs": {}}',
    ),
    "pickle": lambda: ("pickle", b"cevil_module\nEvil\n(tR."),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_nothing_that_the_data_names_is_imported(saver, tmp_path, monkeypatch, kind):
    (tmp_path / "evil_module.py").write_text(
        "import pathlib\npathlib.Path('was-imported').touch()\nclass Evil:\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    put(saver, plan="x")
    type_, data = HOSTILE[kind]()
    tamper(saver, "plan", {"langchain": "serialized", "type": type_, "data": data})
    with suppress(HoldfastError, BlockedTypeWarning):
        assert type(values(saver)["plan"]).__module__ != "evil_module"
    assert "evil_module" not in sys.modules
    assert not (tmp_path / "was-imported").exists()


def test_data_of_an_allowed_type_becomes_an_object(saver, monkeypatch):
    module = ModuleType("mild_module")
    exec("class Mild:\n    def __init__(self, x): self.x = x\n", module.__dict__)
    monkeypatch.setitem(sys.modules, "mild_module", module)
    put(saver, plan="x")
    data = ormsgpack.packb(ormsgpack.Ext(0, ormsgpack.packb(("mild_module", "Mild", "x"))))
    tamper(saver, "plan", {"langchain": "serialized", "type": "msgpack", "data": data})
    with pytest.warns(BlockedTypeWarning, match="mild_module.Mild"):
        assert values(saver)["plan"] == "x"
    allowing = HoldfastSaver(saver.state_store, allowed_types=[("mild_module", "Mild")])
    assert values(allowing)["plan"].x == "x"


def tamper(saver, channel, value):
    """Set a channel in the session, as anyone can who can write to the store."""

    async def change():
        async with Session.open(
            saver.state_store, agent_id="langgraph", session_id="t", must_exist=True
        ) as session:
            session.set(channel, value)

    run_async(change())


DECLARED = """
import sys
sys.path += {path}
from typing import TypedDict
from adapters.langgraph.graphs import at, chain
from adapters.langgraph.samples import Point
from holdfast.adapters.langgraph import BlockedTypeWarning, HoldfastSaver

def node(state):
    return {{"point": Point(1)}}

class State(TypedDict):
    point: Point

graph = chain(State, node).compile(checkpointer=HoldfastSaver.from_url("memory:"))
graph.invoke({{}}, at())
assert graph.get_state(at()).values == {{"point": Point(1)}}
"""


def test_types_declared_by_a_graph_are_allowed_in_strict_mode():
    path = [each for each in sys.path if each.endswith("tests")]
    ran = subprocess.run(
        [sys.executable, "-c", DECLARED.format(path=path)],
        env={**os.environ, "LANGGRAPH_STRICT_MSGPACK": "true"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


def test_a_custom_serializer_is_used():
    class Counting(JsonPlusSerializer):
        count = 0

        def dumps_typed(self, obj):
            Counting.count += 1
            return super().dumps_typed(obj)

    with HoldfastSaver(open_state_store("memory:"), serde=Counting()) as saver:
        put(saver, plan=Point(1))
    assert Counting.count == 1


# --------------------------------------------------------------------------------- damaged data


@pytest.mark.parametrize(
    "value",
    [
        {"langchain": "serialized"},
        {"langchain": "serialized", "type": "msgpack", "data": b"\xc1broken"},
        {"langchain": "serialized", "type": "json", "data": b"{"},
        {"langchain": "serialized", "type": "unheard of", "data": b""},
        {"langchain": "serialized", "type": 5, "data": {}},
        {"langchain": "of a later version"},
        {"langchain": ["unhashable"]},
        {"langchain": "AIMessage", "content": 5},
        {"langchain": "ToolMessage"},
    ],
    ids=repr,
)
def test_a_damaged_value_raises_one_clear_error(saver, value):
    put(saver, plan="x")
    tamper(saver, "plan", value)
    for ask in (lambda: values(saver), lambda: list(saver.list(at()))):
        with pytest.raises(HoldfastError) as caught:
            ask()
        assert len(str(caught.value).splitlines()) == 1
        assert "thread t" in str(caught.value)


@pytest.mark.parametrize("entry", ["x", {}, {"id": 5}, {"id": "x"}])
def test_a_damaged_checkpoint_raises_an_integrity_error(saver, entry):
    put(saver, plan="x")

    async def change():
        async with Session.open(saver.state_store, agent_id="langgraph", session_id="t") as session:
            changes = {"set": [("langgraph", "checkpoint/", entry)], "delete": []}
            session.record("tampered", {}, changes=changes)

    run_async(change())
    for ask in (lambda: list(saver.list(at())), lambda: values(saver)):
        with pytest.raises(IntegrityError, match="checkpoint .*of thread t is damaged"):
            ask()
    writes = [("plan", "y")]
    config = at(checkpoint_id="x")
    for action in (lambda: put(saver, plan="y"), lambda: saver.put_writes(config, writes, "task")):
        with pytest.raises(IntegrityError, match="is not a checkpoint"):
            action()


@pytest.mark.parametrize("which", ["log", "snapshots/immutable_history"])
def test_a_damaged_entry_of_the_store_raises_an_integrity_error(saver, which):
    first = put(saver, plan="x")
    put(saver, plan="y")

    async def damage():
        store = saver.state_store
        keys = [key async for key in store.list("sessions/") if f"/{which}/" in key]
        assert keys
        for key in keys:
            entry = await store.get(key)
            await store.put(key, entry.value.replace(b"x", b"z")[:-9])

    run_async(damage())
    fresh = HoldfastSaver(saver.state_store)
    with pytest.raises(IntegrityError, match="sessions/t/"):
        fresh.get_tuple(first)


def test_a_session_that_is_not_a_thread_has_no_checkpoints(saver):
    async def talk():
        async with Session.open(saver.state_store, agent_id="langgraph", session_id="t") as session:
            session.add_message("user", "hello")

    run_async(talk())
    assert saver.get_tuple(at()) is None
    assert list(saver.list(None)) == []


# ----------------------------------------------------------------------------- unsupported data


@pytest.mark.parametrize(
    "value", [object(), lambda: 1, 2**80 * 1j], ids=["object", "lambda", "complex"]
)
def test_a_value_that_cannot_be_serialized_is_reported_with_its_channel(saver, value):
    def bad(state):
        return {"log": [value]}

    graph = chain(Steps, bad).compile(checkpointer=saver)
    with pytest.raises(UnsupportedValueError, match="'log' has a value.*serializer refuses"):
        graph.invoke({"log": []}, at())
    with pytest.raises(UnsupportedValueError, match="'plan' has a value"):
        put(saver, "u", plan=value)
    assert build_steps(saver).invoke({"log": ["fine"]}, at("u"))["log"] == ["fine", "one"]


# --------------------------------------------------------------------------- missing packages


@pytest.mark.parametrize(
    ("hide", "words"),
    [
        (
            "def version(name): raise m.PackageNotFoundError(name)",
            "pip install 'holdfast[langgraph]'",
        ),
        ("def version(name): return '1.0.0'", "1.0.0 is installed"),
    ],
)
def test_a_missing_or_old_langgraph_is_reported(hide, words):
    code = (
        f"import importlib.metadata as m\n{hide}\nm.version = version\n"
        "import holdfast.adapters.langgraph\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    last = ran.stderr.splitlines()[-1]
    assert last.startswith("holdfast.extras.MissingExtraError: ")
    assert words in last
    assert "holdfast[langgraph]" in last
