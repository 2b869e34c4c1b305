"""Compare a store with plain dicts, for any sequence of operations, forks and hash collisions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from holdfast import ConflictError, Snapshot, Store
from holdfast.state.trie import EMPTY_LEAF, HASHING, Branch, hash_key
from holdfast.values import encode
from support.sample_values import is_identical

Model = dict[tuple[str, str], Any]

namespaces = st.sampled_from(["messages", "state", "", "ñ"])
names = st.integers(0, 400).map("k{}".format) | st.sampled_from(["", "é", "🦀", "long" * 50])
content = st.one_of(
    st.integers(-3, 3),
    st.sampled_from(
        [None, "text", b"bytes", 1.5, (1, 2), [1, 2], {"a": 1, "b": 2}, {"b": 2, "a": 1}]
    ),
    st.lists(st.integers(0, 2), max_size=3),
)
entries = st.tuples(namespaces, names, content)


class Twin:
    """A store and the dict that it must equal."""

    def __init__(self, store: Store, model: Model) -> None:
        self.store = store
        self.model = model


def is_different(a: Any, b: Any) -> bool:
    """Return whether values differ as the store compares them: by type, but not by key order."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a != b
    return not is_identical(a, b)


def expected_diff(later: Model, base: Model) -> dict[str, list[tuple[str, str]]]:
    return {
        "added": sorted(later.keys() - base.keys()),
        "removed": sorted(base.keys() - later.keys()),
        "changed": sorted(k for k in later.keys() & base.keys() if is_different(later[k], base[k])),
    }


class StoreMachine(RuleBasedStateMachine):
    mask = -1
    twins = Bundle("twins")
    frozen = Bundle("frozen")

    def __init__(self) -> None:
        super().__init__()
        HASHING.mask = self.mask
        self.all: list[Twin] = []
        self.snapshots: list[tuple[Snapshot, Model, str]] = []

    def teardown(self) -> None:
        try:
            for snapshot, model, digest in self.snapshots:
                self.equal(snapshot, model)
                assert snapshot.digest == digest
        finally:
            HASHING.mask = -1

    def equal(self, snapshot: Snapshot, model: Model) -> None:
        assert snapshot.keys == sorted(model)
        assert len(snapshot) == len(model)
        assert snapshot.size_bytes == sum(len(encode(value)) for value in model.values())
        assert snapshot.namespaces() == sorted({namespace for namespace, _ in model})
        for namespace, key, value in snapshot.items():
            assert is_identical(value, model[namespace, key])

    @initialize(target=twins)
    def first(self) -> Twin:
        twin = Twin(Store(), {})
        self.all.append(twin)
        return twin

    @rule(twin=twins, entry=entries)
    def set(self, twin: Twin, entry: tuple[str, str, Any]) -> None:
        namespace, key, value = entry
        twin.store.set(namespace, key, value)
        twin.model[namespace, key] = value
        assert is_identical(twin.store.get(namespace, key), value)

    @rule(twin=twins, batch=st.lists(entries, max_size=5))
    def set_many(self, twin: Twin, batch: list[tuple[str, str, Any]]) -> None:
        twin.store.set_many(batch)
        twin.model.update({(namespace, key): value for namespace, key, value in batch})

    @rule(twin=twins, namespace=namespaces, start=st.integers(0, 300), count=st.integers(1, 200))
    def fill(self, twin: Twin, namespace: str, start: int, count: int) -> None:
        for at in range(start, start + count):
            twin.store.set(namespace, f"k{at}", at)
            twin.model[namespace, f"k{at}"] = at

    @rule(twin=twins, namespace=namespaces, key=names)
    def delete(self, twin: Twin, namespace: str, key: str) -> None:
        assert twin.store.delete(namespace, key) == ((namespace, key) in twin.model)
        twin.model.pop((namespace, key), None)
        assert not twin.store.contains(namespace, key)

    @rule(twin=twins, namespace=namespaces, step=st.integers(1, 4))
    def empty(self, twin: Twin, namespace: str, step: int) -> None:
        for key in twin.store.keys(namespace)[::step]:
            assert twin.store.delete(namespace, key)
            del twin.model[namespace, key]

    @rule(twin=twins)
    def clear(self, twin: Twin) -> None:
        twin.store.clear()
        twin.model.clear()

    @rule(target=frozen, twin=twins)
    def snapshot(self, twin: Twin) -> tuple[Snapshot, Model]:
        snapshot = twin.store.snapshot()
        model = dict(twin.model)
        self.equal(snapshot, model)
        self.snapshots.append((snapshot, model, snapshot.digest))
        return snapshot, model

    @rule(twin=twins, saved=frozen)
    def restore(self, twin: Twin, saved: tuple[Snapshot, Model]) -> None:
        twin.store.restore(saved[0])
        twin.model = dict(saved[1])

    @rule(target=twins, twin=twins)
    def fork(self, twin: Twin) -> Twin:
        if len(self.all) >= 4:
            return twin
        other = Twin(twin.store.fork(), dict(twin.model))
        self.all.append(other)
        return other

    @rule(twin=twins, entry=entries, other=entries)
    def failed_transaction(self, twin: Twin, entry: Any, other: Any) -> None:
        with pytest.raises(LookupError), twin.store.transaction():
            twin.store.set(*entry)
            twin.store.delete(other[0], other[1])
            twin.store.set_many([other])
            raise LookupError

    @rule(one=frozen, other=frozen)
    def diff(self, one: tuple[Snapshot, Model], other: tuple[Snapshot, Model]) -> None:
        expected = expected_diff(one[1], other[1])
        assert one[0].diff(other[0]) == expected
        assert (one[0].digest == other[0].digest) == (not any(expected.values()))
        changes = one[0].changes(other[0])
        assert [(namespace, key) for namespace, key, _ in changes["set"]] == sorted(
            expected["added"] + expected["changed"]
        )
        assert changes["delete"] == expected["removed"]
        store = Store()
        store.restore(other[0])
        store.apply(changes)
        assert store.snapshot().digest == one[0].digest

    @rule(
        twin=twins,
        theirs=frozen,
        base=frozen,
        choice=st.sampled_from(["raise", "ours", "theirs", "both"]),
    )
    def merge(self, twin: Twin, theirs: Any, base: Any, choice: str) -> None:
        ours, target = twin.model, dict(twin.model)
        conflicts = []
        absent = object()
        for pair in theirs[1].keys() | base[1].keys():
            their, old, our = (side.get(pair, absent) for side in (theirs[1], base[1], ours))
            if not is_different(their, old) or not is_different(our, their):
                continue
            if is_different(our, old):
                conflicts.append(pair)
                if choice == "ours":
                    continue
                if choice == "both":
                    target[pair] = "decided"
                    continue
            if their is absent:
                target.pop(pair, None)
            else:
                target[pair] = their
        decide = (lambda conflict: "decided") if choice == "both" else choice
        if choice == "raise" and conflicts:
            with pytest.raises(ConflictError) as caught:
                twin.store.merge(theirs[0], base[0])
            assert caught.value.conflicts == sorted(conflicts)
            return
        result = twin.store.merge(theirs[0], base[0], on_conflict=decide)
        assert result == expected_diff(target, ours)
        twin.model = target

    @invariant()
    def the_structure_is_sound(self) -> None:
        for twin in self.all:
            assert len(twin.store) == len(twin.model)
            root = twin.store._live.root
            assert not EMPTY_LEAF
            if not twin.model:
                assert root.root is EMPTY_LEAF
            found = check_node(root.root, 0)
            assert found.keys() == {namespace for namespace, _ in twin.model}
            for namespace, trie in found.items():
                assert len(check_node(trie.root, 0)) == len(twin.store.keys(namespace))


def check_node(node: Any, depth: int) -> dict[str, Any]:
    """Return all entries under a node, checking that each is where its hash leads."""
    if not isinstance(node, Branch):
        return node
    found: dict[str, Any] = {}
    for slot, child in enumerate(node.children):
        below = check_node(child, depth + 1)
        assert all((hash_key(key) >> (6 * depth)) & 63 == slot for key in below)
        found.update(below)
    return found


@pytest.mark.parametrize("mask", [-1, 0, 0b111111, 0b1000001])
def test_a_store_behaves_like_plain_dicts(mask):
    class Machine(StoreMachine):
        pass

    Machine.mask = mask
    run_state_machine_as_test(
        Machine,
        settings=settings(stateful_step_count=40, max_examples=settings().max_examples // 2),
    )
