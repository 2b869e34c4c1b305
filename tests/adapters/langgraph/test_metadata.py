"""Metadata comes back and is filtered as with LangGraph's own savers."""

from __future__ import annotations

import enum
import json
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver

from adapters.langgraph.graphs import at
from adapters.langgraph.samples import Point
from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.adapters.langgraph.checkpoint import to_json_value


@pytest.fixture
def savers():
    """LangGraph's own savers and ours."""
    with (
        SqliteSaver.from_conn_string(":memory:") as sqlite,
        HoldfastSaver.from_url("memory:") as ours,
    ):
        yield {"sqlite": sqlite, "memory": InMemorySaver(), "holdfast": ours}


def put(saver, thread="t", **metadata):
    checkpoint = {**empty_checkpoint(), "channel_values": {}, "channel_versions": {}}
    metadata = {"source": "loop", "step": 1, **metadata}
    return saver.put(at(thread, checkpoint_ns=""), checkpoint, metadata, {})


def count(saver, **filter_):
    return len(list(saver.list(at(), filter=filter_)))


def test_metadata_may_contain_writes(savers):
    writes = {"node": {"log": ["one"], "messages": None}}
    for name, saver in savers.items():
        put(saver, writes=writes)
        assert saver.get_tuple(at()).metadata["writes"] == writes, name


class Pair(NamedTuple):
    left: int
    right: int


class Mood(enum.StrEnum):
    CALM = "calm"


class Level(enum.IntEnum):
    HIGH = 3


def test_metadata_comes_back_as_from_json(savers):
    given_ = {
        "counts": (1, 2),
        "pair": Pair(1, (2, 3)),
        "deep": [{"tuple": ({"a": (1,)},)}],
        "keys": {2: "two", True: "yes", None: "no", 2.5: "half"},
        "mood": Mood.CALM,
        "level": Level.HIGH,
        "counters_since_delta_snapshot": {"log": (3, 4)},
    }
    kept = {}
    for name in ("sqlite", "holdfast"):
        put(savers[name], **given_)
        kept[name] = savers[name].get_tuple(at()).metadata
    assert kept["holdfast"] == kept["sqlite"]
    assert repr(kept["holdfast"]) == repr(kept["sqlite"])
    assert kept["holdfast"]["counts"] == [1, 2]


SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3)
)


@given(
    st.recursive(
        SCALARS,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.tuples(inner, inner)
            | st.dictionaries(SCALARS, inner, max_size=3)
        ),
        max_leaves=8,
    )
)
def test_metadata_values_are_normalized_as_json_would(value):
    assert repr(to_json_value(value)) == repr(json.loads(json.dumps(value)))


def test_objects_in_metadata_come_back_unchanged():
    allowed = [(Point.__module__, "Point")]
    with HoldfastSaver.from_url("memory:", allowed_types=allowed) as saver:
        put(saver, point=Point(1), when=(b"x", {1, 2}))
        found = saver.get_tuple(at()).metadata
        assert (found["point"], found["when"]) == (Point(1), [b"x", {1, 2}])


def test_a_filter_with_a_list_matches_a_tuple(savers):
    for name, saver in savers.items():
        put(saver, counts=(1, 2), nested={"of": (1, [2])})
        assert count(saver, counts=[1, 2]) == 1, name
        assert count(saver, counts=[1, 2, 3]) == 0, name
        assert count(saver, nested={"of": [1, [2]]}) == 1, name
    assert count(savers["holdfast"], counts=(1, 2)) == 1


@pytest.mark.parametrize(
    ("filter_", "found"),
    [
        ({"user.tier": "gold"}, 1),
        ({"user.tier": "silver"}, 0),
        ({"user.plan.seats": 3}, 1),
        ({"user.plan": {"seats": 3, "tags": ["a", "b"]}}, 1),
        ({"user.plan.tags": ["a", "b"]}, 1),
        ({"user.plan.is_trial": None}, 1),
        ({"user.active": True}, 1),
        ({"user.active": False}, 0),
        ({"user.name.first": "x"}, 0),
        ({"missing.path": None}, 1),
        ({"missing.path": "x"}, 0),
        ({"step": 1}, 1),
        ({"step": 1.0}, 1),
        ({"step": "1"}, 0),
        ({"user.tier": "gold", "source": "loop"}, 1),
        ({"user.tier": "gold", "source": "fork"}, 0),
    ],
    ids=str,
)
def test_a_filter_name_with_dots_is_a_path_as_in_sqlite_saver(savers, filter_, found):
    user = {
        "tier": "gold",
        "active": True,
        "name": "ada",
        "plan": {"seats": 3, "tags": ("a", "b")},
    }
    for name in ("sqlite", "holdfast"):
        put(savers[name], user=user)
        assert count(savers[name], **filter_) == found, name


def test_a_filter_name_with_dots_matches_a_key_of_that_name(savers):
    for name in ("memory", "holdfast"):
        put(savers[name], **{"user.tier": "gold"})
        assert count(savers[name], **{"user.tier": "gold"}) == 1, name
