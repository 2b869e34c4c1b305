"""Differences of states, and JSON Patches from one to the other."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.documents.encode import encode_state
from holdfast.documents.json_diff import (
    Difference,
    diff_states,
    escape_pointer,
    make_patch,
    make_state_patch,
)
from support.sample_documents import freeze
from support.sample_values import text, values

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.0, 1.0, 1.5]) | text,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(text | st.sampled_from(["a/b", "~", "~1", ""]), inner, max_size=4)
    ),
    max_leaves=12,
)


def apply_patch(tree, operations):
    """Apply a JSON Patch (RFC 6902)."""
    tree = {"": copy.deepcopy(tree)}
    for operation in operations:
        *way, last = ("" + operation["path"]).split("/")
        steps = [step.replace("~1", "/").replace("~0", "~") for step in [*way, last]]
        at = tree
        for step in steps[:-1]:
            at = at[int(step)] if isinstance(at, list) else at[step]
        name = steps[-1]
        if isinstance(at, list):
            if operation["op"] == "add":
                at.insert(len(at) if name == "-" else int(name), operation["value"])
            elif operation["op"] == "remove":
                del at[int(name)]
            else:
                at[int(name)] = operation["value"]
        elif operation["op"] == "remove":
            del at[name]
        else:
            assert (name in at) == (operation["op"] == "replace")
            at[name] = operation["value"]
    return tree[""]


def dump_json(tree):
    """Return JSON text, in which 1, 1.0 and true differ."""
    return json.dumps(tree, sort_keys=True)


@given(JSON, JSON)
def test_applying_a_patch_gives_the_other_value(before, after):
    assert dump_json(apply_patch(before, make_patch(before, after))) == dump_json(after)


@given(JSON)
def test_the_patch_of_equal_values_is_empty(tree):
    assert list(make_patch(tree, copy.deepcopy(tree))) == []


def test_a_patch_contains_only_differences():
    before = {"plan": {"step": 3, "notes": ["a", "b"]}, "gone": 1, "same": [1, 2]}
    after = {"plan": {"step": 4, "notes": ["a", "c", "d"]}, "same": [1, 2], "new": None}
    assert list(make_patch(before, after)) == [
        {"op": "remove", "path": "/gone"},
        {"op": "replace", "path": "/plan/step", "value": 4},
        {"op": "replace", "path": "/plan/notes/1", "value": "c"},
        {"op": "add", "path": "/plan/notes/-", "value": "d"},
        {"op": "add", "path": "/new", "value": None},
    ]
    assert list(make_patch([1, 2, 3], [1])) == [
        {"op": "remove", "path": "/2"},
        {"op": "remove", "path": "/1"},
    ]


@pytest.mark.parametrize(("name", "shown"), [("a/b", "a~1b"), ("~", "~0"), ("~1", "~01"), ("", "")])
def test_names_are_escaped_in_pointers(name, shown):
    assert escape_pointer(name) == shown


def test_differences_are_sorted_by_entry():
    base = freeze(("state", "b", 1), ("state", "c", {"x": (1, 2)}), ("z", "same", 1))
    later = freeze(("state", "a", b"x"), ("state", "c", {"x": (1, 3)}), ("z", "same", 1))
    added, removed, changed = diff_states(later, base)
    assert added == Difference("state", "a", "added", None, b"x")
    assert added.fields == [{"op": "add", "path": "", "value": {"$bytes": "eA=="}}]
    assert removed == Difference("state", "b", "removed", 1, None)
    assert removed.fields == [{"op": "remove", "path": ""}]
    assert changed == Difference("state", "c", "changed", {"x": (1, 2)}, {"x": (1, 3)})
    assert changed.fields == [{"op": "replace", "path": "/x/$tuple/1", "value": 3}]
    assert diff_states(later, later) == []


ENTRIES = st.dictionaries(
    st.tuples(st.sampled_from(["messages", "state", "session", "other"]), text), values, max_size=5
)


@given(ENTRIES, ENTRIES)
def test_applying_a_state_patch_gives_the_other_document(before, after):
    base, later = (freeze(*((*pair, value) for pair, value in e.items())) for e in (before, after))
    document = {"state": encode_state(base), "more": 1}
    found = apply_patch(document, make_state_patch(later, base))
    assert dump_json(found) == dump_json({"state": encode_state(later), "more": 1})
