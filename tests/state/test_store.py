"""Entries, batches and invalid arguments."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

import holdfast
from holdfast import Store, UnsupportedValueError
from support.sample_values import SAMPLES, Colour, Name, is_identical, nest_lists


@pytest.fixture
def store() -> Store:
    store = Store()
    store.set("workflow", "onboarding", {"step": 3, "items": [1, 2]})
    return store


def is_unchanged(store: Store) -> bool:
    return store.snapshot().digest == before_digest and len(store) == 1


before = Store()
before.set("workflow", "onboarding", {"step": 3, "items": [1, 2]})
before_digest = before.snapshot().digest


@pytest.mark.parametrize("value", SAMPLES.values(), ids=SAMPLES)
def test_every_type_round_trips_through_the_store(value, store):
    store.set("n", "k", value)
    assert is_identical(store.get("n", "k"), value)
    assert is_identical(store.get_many([("n", "k")]), [value])
    assert is_identical(store.snapshot().get("n", "k"), value)


def test_values_are_copied_on_set_and_get(store):
    value = {"list": [1, {"deep": []}]}
    store.set("n", "k", value)
    value["list"][1]["deep"].append("after set")
    store.get("n", "k")["list"].append("after get")
    store.get_many([("n", "k")])[0]["list"].append("after get_many")
    snapshot = store.snapshot()
    snapshot.get("n", "k")["list"].append("after get of a snapshot")
    snapshot.changes(Store().snapshot())["set"][0][2]["list"] = "after changes"
    assert store.get("n", "k") == {"list": [1, {"deep": []}]}
    assert snapshot.get("n", "k") == {"list": [1, {"deep": []}]}


def test_none_is_a_value(store):
    store.set("n", "k", None)
    assert store.contains("n", "k")
    assert store.get("n", "k", default=1) is None


def test_any_text_can_be_a_namespace_or_key(store):
    for name in ["", " ", "/", "a/b", "..", "\x00", "\n", "Grüße 🦀", "x" * 10_000]:
        store.set(name, name, name)
        assert store.get(name, name) == name
        assert store.keys(name) == [name]
        assert store.delete(name, name)
    assert store.namespaces() == ["workflow"]


def test_a_str_subclass_as_key_becomes_a_plain_str(store):
    store.set(Colour.RED, Name("k"), 1)
    assert store.get("red", "k") == 1
    assert [type(name) for name in store.namespaces() + store.keys("red")] == [str] * 3
    assert store.snapshot().get(Colour.RED, Name("k")) == 1
    assert (Colour.RED, Name("k")) in store


def test_namespaces_are_separate(store):
    store.set("a", "bc", 1)
    store.set("ab", "c", 2)
    assert store.get("a", "bc") == 1
    assert store.get("ab", "c") == 2
    assert store.keys("a") == ["bc"]
    assert store.keys("none of these") == []


def test_size_bytes_is_the_size_of_the_encoded_values(store):
    store.clear()
    for value in ["x" * 10, "x" * 300, 5, {"a": [1, 2]}, None]:
        store.set("n", "k", value)
        store.set("n", "other", value)
        expected = 2 * len(holdfast.values.encode(value))
        assert store.snapshot().size_bytes == expected
    store.delete("n", "other")
    assert store.snapshot().size_bytes == 1
    store.delete("n", "k")
    assert store.snapshot().size_bytes == 0
    assert len(store.snapshot()) == len(store) == 0


CALLS: dict[str, Any] = {
    "set": lambda store, namespace, key: store.set(namespace, key, 1),
    "get": lambda store, namespace, key: store.get(namespace, key),
    "delete": lambda store, namespace, key: store.delete(namespace, key),
    "contains": lambda store, namespace, key: store.contains(namespace, key),
    "in": lambda store, namespace, key: (namespace, key) in store,
    "set_many": lambda store, namespace, key: store.set_many([(namespace, key, 1)]),
    "get_many": lambda store, namespace, key: store.get_many([(namespace, key)]),
    "snapshot.get": lambda store, namespace, key: store.snapshot().get(namespace, key),
    "snapshot.contains": lambda store, namespace, key: store.snapshot().contains(namespace, key),
    "snapshot in": lambda store, namespace, key: (namespace, key) in store.snapshot(),
}


@pytest.mark.parametrize("name", [None, 7, b"bytes", ["list"], 1.5])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_namespace_or_key_that_is_not_a_str_is_a_type_error(store, call, name):
    with pytest.raises(TypeError, match=f"namespace must be a str, got {type(name).__name__}"):
        call(store, name, "k")
    with pytest.raises(TypeError, match=f"key must be a str, got {type(name).__name__}"):
        call(store, "n", name)
    assert is_unchanged(store)


def test_keys_of_a_namespace_that_is_not_a_str_is_a_type_error(store):
    with pytest.raises(TypeError, match="namespace must be a str"):
        store.keys(3)


@pytest.mark.parametrize("pair", [("only one",), ("a", "b", "c"), "ab", 7, None, {"a": "b"}])
def test_anything_but_a_pair_is_a_type_error(store, pair):
    with pytest.raises(TypeError, match=r"\(namespace, key\) pair"):
        assert pair in store
    with pytest.raises(TypeError, match=r"\(namespace, key\) pair"):
        store.get_many([("n", "k"), pair])


def make_cycle() -> Any:
    loop: list[Any] = []
    loop.append({"again": loop})
    return loop


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ({"messages": [0, 0, 0, {"image": object()}]}, r"\$\.messages\[3\]\.image"),
        ({"name": "\ud800"}, r"lone surrogate.*\$\.name"),
        (make_cycle(), r"contains itself, at \$\[0\]\.again"),
        (nest_lists(100_000), "nested more than 128 levels"),
    ],
    ids=["unknown type", "surrogate", "loop", "deep"],
)
def test_an_unsupported_value_is_rejected_and_nothing_is_written(store, value, what):
    with pytest.raises(UnsupportedValueError, match=what) as caught:
        store.set("workflow", "onboarding", value)
    assert "'workflow'" in str(caught.value)
    assert "'onboarding'" in str(caught.value)
    with pytest.raises(UnsupportedValueError, match=f"item 1: .*{what}"):
        store.set_many([("n", "good", 1), ("n", "bad", value), ("n", "also good", 2)])
    assert is_unchanged(store)
    while isinstance(value, list) and value and value[0] is not value:
        value = value[0]


def test_a_key_with_a_lone_surrogate_is_rejected(store):
    for namespace, key in [("n", "\ud800"), ("\ud800", "k"), ("workflow", "k\udfff")]:
        with pytest.raises(UnsupportedValueError, match="surrogate"):
            store.set(namespace, key, 1)
        with pytest.raises(UnsupportedValueError, match="surrogate"):
            store.set_many([("good", "good", 1), (namespace, key, 1)])
    assert is_unchanged(store)
    assert store.namespaces() == ["workflow"]


@pytest.mark.parametrize("item", [("n", "k"), ("n", "k", 1, 2), "nkv", None, 5, ("n", 7, 1)])
def test_a_batch_with_an_invalid_item_writes_nothing(store, item):
    with pytest.raises(TypeError, match="item 1: "):
        store.set_many([("n", "good", 1), item])
    assert is_unchanged(store)


def test_a_batch_can_be_any_iterable_and_the_last_duplicate_wins(store):
    store.set_many(("n", f"k{at % 3}", at) for at in range(10))
    assert store.get_many(("n", f"k{at}") for at in range(3)) == [9, 7, 8]
    store.set_many([["n", "k0", "from a list"]])
    assert store.get("n", "k0") == "from a list"
    store.set_many([])
    assert store.get_many([]) == []


def test_a_batch_whose_iterable_raises_writes_nothing(store):
    def items():
        yield ("n", "k", 1)
        raise OSError

    with pytest.raises(OSError):
        store.set_many(items())
    assert is_unchanged(store)


def test_changes_can_be_applied_to_another_store(store):
    base = store.snapshot()
    other = store.fork()
    store.set("n", "k", (1, 2))
    store.delete("workflow", "onboarding")
    later = store.snapshot()
    other.apply(later.changes(base))
    assert other.snapshot().digest == later.digest
    with pytest.raises(TypeError, match="item 0"):
        other.apply({"set": [("n", 1, 2)], "delete": [("n", "k")]})
    with pytest.raises(TypeError, match="pair"):
        other.apply({"set": [("n", "x", 2)], "delete": ["n"]})
    for wrong in ({}, {"set": []}, {"set": [], "delete": [], "more": []}):
        with pytest.raises(TypeError, match="changes must be a dict"):
            other.apply(wrong)
    assert other.snapshot().digest == later.digest


def test_an_invalid_max_history_is_rejected():
    with pytest.raises(ValueError, match="max_history must be 0 or more"):
        Store(max_history=-1)
    with pytest.raises(TypeError):
        Store(max_history="3")


def test_copy_forks_a_store_and_pickle_fails(store):
    for other in (copy.copy(store), copy.deepcopy(store), copy.deepcopy({"s": store})["s"]):
        other.set("n", "k", 1)
        assert not store.contains("n", "k")
        assert other.contains("workflow", "onboarding")
    snapshot = store.snapshot()
    assert copy.copy(snapshot) is copy.deepcopy(snapshot) is snapshot
    for thing in (store, snapshot):
        with pytest.raises(TypeError, match="cannot pickle"):
            pickle.dumps(thing)


def test_error_messages_stay_short_and_tolerate_failing_reprs(store):
    class Bad:
        def __repr__(self) -> str:
            raise OSError

    with pytest.raises(TypeError, match="namespace must be a str, got int: <int>"):
        store.set(10**5000, "k", 1)
    with pytest.raises(TypeError, match="key must be a str, got Bad: <Bad"):
        store.get("n", Bad())
    for call in (store.set_many, store.get_many):
        with pytest.raises(TypeError, match="expected a") as caught:
            call([("a", "b", "x" * 10**6, "extra")])
        assert len(str(caught.value)) < 200
    with pytest.raises(TypeError, match="changes must be a dict") as caught:
        store.apply({"a": "x" * 10**6})
    assert len(str(caught.value)) < 300


def test_repr_shows_entries_and_bytes(store):
    assert repr(store) == "<Store: 1 entries, 16 bytes>"
    snapshot = store.snapshot()
    assert repr(snapshot) == f"<Snapshot {snapshot.id}: 1 entries, 16 bytes>"
