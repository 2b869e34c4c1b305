"""Diffs and three-way merges."""

from __future__ import annotations

import copy
import pickle
import random

import pytest

import holdfast
from holdfast import MISSING, Conflict, ConflictError, Store, UnsupportedValueError

NOTHING = {"added": [], "removed": [], "changed": []}


def store_of(**entries: object) -> Store:
    store = Store()
    store.set_many(("n", key, value) for key, value in entries.items())
    return store


def test_equal_snapshots_have_no_diff():
    store = store_of(a=1, b={"x": 1, "y": 2})
    one = store.snapshot()
    store.set("n", "b", {"y": 2, "x": 1})
    other = store.snapshot()
    assert one.diff(one) == other.diff(one) == one.diff(other) == NOTHING
    assert other.changes(one) == {"set": [], "delete": []}
    assert one.digest == other.digest
    assert list(other.get("n", "b")) == ["y", "x"]


@pytest.mark.parametrize("value", [True, 1.0, "1", (1,), [1], b"1", None])
def test_values_of_different_types_differ(value):
    store = store_of(k=1)
    base = store.snapshot()
    store.set("n", "k", value)
    assert store.snapshot().diff(base)["changed"] == [("n", "k")]


def test_a_value_that_is_set_back_does_not_differ():
    store = store_of(k=[1], other=2)
    base = store.snapshot()
    store.set("n", "k", [2])
    store.snapshot()
    store.set("n", "k", [1])
    store.set("new", "k", 1)
    store.delete("new", "k")
    assert store.snapshot().diff(base) == NOTHING


def test_states_without_common_history_can_be_compared():
    one, other = Store(), Store()
    entries = [(f"n{at % 4}", f"k{at}", at) for at in range(1000)]
    one.set_many(entries)
    random.Random(1).shuffle(entries)
    other.set_many(entries)
    assert one.snapshot().diff(other.snapshot()) == NOTHING
    other.set("n1", "k1", "x")
    other.set("zz", "k", 1)
    other.delete("n2", "k2")
    assert other.snapshot().diff(one.snapshot()) == {
        "added": [("zz", "k")],
        "removed": [("n2", "k2")],
        "changed": [("n1", "k1")],
    }


@pytest.mark.parametrize(("few", "many"), [(1, 2000), (48, 49), (0, 5000), (40, 4000)])
def test_tries_of_different_shape_can_be_compared(few, many, hash_mask):
    if hash_mask != -1:
        many = min(many, 300)
    store = Store()
    store.set_many(("n", f"k{at}", at) for at in range(few))
    small = store.snapshot()
    store.set_many(("n", f"k{at}", at) for at in range(many))
    large = store.snapshot()
    new = sorted(("n", f"k{at}") for at in range(few, many))
    assert large.diff(small) == {"added": new, "removed": [], "changed": []}
    assert small.diff(large) == {"added": [], "removed": new, "changed": []}


def test_diffs_are_sorted_by_namespace_and_key():
    store = Store()
    base = store.snapshot()
    pairs = [(f"n{at % 300}", f"k{at}") for at in range(2000)]
    random.Random(2).shuffle(pairs)
    store.set_many((namespace, key, 1) for namespace, key in pairs)
    assert store.snapshot().diff(base)["added"] == sorted(pairs)


# ----------------------------------------------------------------------------------- merging


def make_branches(base: dict, ours: dict, theirs: dict):
    """Return our store, their store, and their common base."""
    store = store_of(**base)
    snapshot = store.snapshot()
    other = store.fork()
    for side, entries in ((store, ours), (other, theirs)):
        for key in base:
            if key not in entries:
                side.delete("n", key)
        side.set_many(("n", key, value) for key, value in entries.items())
    return store, other, snapshot


def read_content(store: Store) -> dict:
    return {key: store.get("n", key) for key in store.keys("n")}


def test_merge_combines_the_changes_of_both_sides():
    store, theirs, base = make_branches(
        {"same": 1, "a": 1, "b": 1, "gone": 1, "theirs gone": 1},
        {"same": 1, "a": 2, "b": 1, "theirs gone": 1, "new": [1]},
        {"same": 1, "a": 1, "b": 3, "gone": 1, "their new": {}},
    )
    result = store.merge(theirs, base)
    assert read_content(store) == {"same": 1, "a": 2, "b": 3, "new": [1], "their new": {}}
    assert result == {
        "added": [("n", "their new")],
        "removed": [("n", "theirs gone")],
        "changed": [("n", "b")],
    }


def test_the_same_change_on_both_sides_does_not_conflict():
    store, theirs, base = make_branches(
        {"a": 1, "gone": 1}, {"a": {"x": 1, "y": 2}, "new": 1}, {"a": {"y": 2, "x": 1}, "new": 1}
    )
    assert store.merge(theirs, base) == NOTHING


CONFLICTS = (
    {"both": 1, "we delete": 1, "they delete": 1, "fine": 1},
    {"both": 2, "they delete": 2, "new": "ours", "fine": 1},
    {"both": 3, "we delete": 3, "new": "theirs", "fine": 2},
)


def test_merge_raises_one_error_with_all_conflicts_and_changes_nothing():
    store, theirs, base = make_branches(*CONFLICTS)
    before = store.snapshot()
    with pytest.raises(ConflictError, match="n/both") as caught:
        store.merge(theirs, base)
    assert caught.value.conflicts == [
        ("n", "both"),
        ("n", "new"),
        ("n", "they delete"),
        ("n", "we delete"),
    ]
    assert store.snapshot().diff(before) == NOTHING


def test_the_conflict_message_is_truncated_but_not_the_list():
    base = {f"k{at}": 0 for at in range(9)}
    store, theirs, snapshot = make_branches(base, dict.fromkeys(base, 1), dict.fromkeys(base, 2))
    with pytest.raises(ConflictError, match="and 4 more") as caught:
        store.merge(theirs, snapshot)
    assert len(caught.value.conflicts) == 9


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("ours", {"both": 2, "they delete": 2, "new": "ours", "fine": 2}),
        ("theirs", {"both": 3, "we delete": 3, "new": "theirs", "fine": 2}),
    ],
)
def test_merge_can_choose_one_side(choice, expected):
    store, theirs, base = make_branches(*CONFLICTS)
    store.merge(theirs.snapshot(), base, on_conflict=choice)
    assert read_content(store) == expected
    assert len(store) == len(expected)


def test_a_function_resolves_each_conflict():
    store, theirs, base = make_branches(*CONFLICTS)
    asked: list[Conflict] = []

    def decide(conflict: Conflict) -> object:
        asked.append(conflict)
        if conflict.key == "both":
            return conflict.ours + conflict.theirs
        if conflict.key == "new":
            return MISSING
        if conflict.key == "they delete":
            return conflict.ours
        return ["decided"]

    result = store.merge(theirs, base, on_conflict=decide)
    assert read_content(store) == {"both": 5, "they delete": 2, "we delete": ["decided"], "fine": 2}
    assert result == {
        "added": [("n", "we delete")],
        "removed": [("n", "new")],
        "changed": [("n", "both"), ("n", "fine")],
    }
    assert asked[0] == Conflict("n", "both", base=1, ours=2, theirs=3)
    assert asked[1].base is MISSING
    assert asked[2].theirs is MISSING
    assert asked[3].ours is MISSING
    assert not MISSING
    assert repr(MISSING) == "MISSING"
    assert copy.deepcopy(asked[1]) == pickle.loads(pickle.dumps(asked[1])) == asked[1]
    assert copy.deepcopy(asked[1]).base is MISSING


def test_nothing_is_merged_if_the_function_fails():
    store, theirs, base = make_branches(*CONFLICTS)
    before = store.snapshot()
    with pytest.raises(ZeroDivisionError):
        store.merge(theirs, base, on_conflict=lambda conflict: 1 / 0)
    with pytest.raises(UnsupportedValueError, match="invalid value for namespace 'n', key 'both'"):
        store.merge(theirs, base, on_conflict=lambda conflict: object())
    assert store.snapshot().diff(before) == NOTHING
    store.set("n", "still", "works")


def test_an_unknown_resolution_is_rejected_even_without_conflicts():
    store, theirs, base = make_branches({}, {}, {})
    for wrong in ("mine", 5, None):
        with pytest.raises(ValueError, match="on_conflict must be"):
            store.merge(theirs, base, on_conflict=wrong)


def test_merging_a_store_with_itself_changes_nothing():
    store = store_of(a=1)
    base = store.snapshot()
    store.set("n", "a", 2)
    assert store.merge(store, base) == NOTHING


def test_errors_derive_from_holdfast_error_and_builtin_types():
    assert issubclass(holdfast.ConflictError, holdfast.HoldfastError)
    assert issubclass(holdfast.NotFoundError, KeyError)
    assert issubclass(holdfast.UnsupportedValueError, TypeError)
    assert issubclass(holdfast.InvalidDocumentError, ValueError)
    assert str(holdfast.NotFoundError("no such thing")) == "no such thing"
    assert holdfast.ConflictError("x").conflicts == []
