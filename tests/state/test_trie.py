"""Compare a trie with a dict, with hashes that collide in some or all bits."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Store
from holdfast.state.trie import (
    EMPTY_LEAF,
    MAX_LEAF_SIZE,
    NEEDS_NEW_NODE,
    Branch,
    Trie,
    bit,
    collect_entries,
    compare_nodes,
    copy_trie,
    hash_key,
    is_empty,
    lookup,
    new_trie,
    owned_leaf,
    remove_key,
    set_in_place,
)


def put(trie: Trie, key: str, value: object) -> None:
    if set_in_place(trie, hash_key(key), key, value) is NEEDS_NEW_NODE:
        is_new = lookup(trie, hash_key(key), key) is None
        owned_leaf(trie, hash_key(key), for_new_key=is_new)[key] = value


def check_node(node: object, depth: int = 0, prefix: int = 0) -> None:
    """Check that every entry is where its hash leads, and that no branch should be a leaf."""
    if not isinstance(node, Branch):
        assert len(node) <= MAX_LEAF_SIZE or depth >= 10
        for key in node:
            assert hash_key(key) & ((1 << (6 * depth)) - 1) == prefix
        return
    assert len(collect_entries(node)) > 0
    for slot, child in enumerate(node.children):
        if child is EMPTY_LEAF:
            assert not (node.owned >> slot) & 1
        check_node(child, depth + 1, prefix | slot << (6 * depth))


def test_bit_is_correct_for_all_64_slots():
    for slot in range(64):
        assert bit(slot, 1) & (2**64 - 1) == 1 << slot


def test_a_trie_behaves_like_a_dict(hash_mask):
    rng = random.Random(hash_mask)
    trie, model = new_trie(1), {}
    names = [f"key {at}" for at in range(400)]
    for step in range(6000):
        key = rng.choice(names)
        # Fill in the first third, mix, then empty.
        if rng.random() < (0.9, 0.5, 0.05)[step // 2000]:
            put(trie, key, step)
            model[key] = step
        else:
            assert remove_key(trie, hash_key(key), key) == model.pop(key, None)
        if step % 500 == 0:
            check_node(trie.root)
            assert collect_entries(trie.root) == model
            assert all(lookup(trie, hash_key(name), name) == model.get(name) for name in names)
    for key in list(model):
        assert remove_key(trie, hash_key(key), key) == model.pop(key)
        check_node(trie.root)
    assert is_empty(trie)
    assert trie.root is EMPTY_LEAF
    assert not EMPTY_LEAF


def test_frozen_versions_do_not_change(hash_mask):
    rng = random.Random(7)
    trie, model = new_trie(0), {}
    versions = []
    for owner in range(1, 60):
        versions.append((trie, dict(model)))
        trie = copy_trie(trie, owner)
        for _ in range(rng.choice([0, 1, 30])):
            key = f"key {rng.randrange(300)}"
            if rng.random() < 0.6:
                put(trie, key, owner)
                model[key] = owner
            else:
                remove_key(trie, hash_key(key), key)
                model.pop(key, None)
    for frozen, content in versions:
        assert collect_entries(frozen.root) == content
    for old, old_content in versions[::7]:
        for new, new_content in versions[::5]:
            found: list = []
            compare_nodes(new.root, old.root, found)
            assert {key: (value, former) for key, value, former in found} == {
                key: (new_content.get(key), old_content.get(key))
                for key in new_content.keys() | old_content.keys()
                if new_content.get(key) is not old_content.get(key)
            }


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 200)), max_size=400))
def test_any_sequence_of_operations_matches_a_dict(steps):
    trie, model = new_trie(1), {}
    for is_put, number in steps:
        key = f"{number}"
        if is_put:
            put(trie, key, number)
            model[key] = number
        else:
            remove_key(trie, hash_key(key), key)
            model.pop(key, None)
    check_node(trie.root)
    assert collect_entries(trie.root) == model


def test_set_in_place_refuses_to_create_a_node():
    trie = new_trie(1)
    assert set_in_place(trie, hash_key("a"), "a", 1) is NEEDS_NEW_NODE
    put(trie, "a", 1)
    assert set_in_place(trie, hash_key("a"), "a", 2) == 1
    assert set_in_place(trie, hash_key("b"), "b", 2) is None
    assert set_in_place(trie, hash_key("ü"), "ü", 2) is NEEDS_NEW_NODE
    frozen = copy_trie(trie, 2)
    assert set_in_place(frozen, hash_key("a"), "a", 2) == 2
    assert set_in_place(frozen, hash_key("a"), "a", 3) is NEEDS_NEW_NODE
    assert set_in_place(frozen, hash_key("c"), "c", 3) is NEEDS_NEW_NODE
    assert collect_entries(trie.root) == {"a": 2, "b": 2}


@pytest.mark.parametrize("with_snapshots", [False, True])
def test_an_emptied_store_is_as_small_as_a_new_one(hash_mask, with_snapshots):
    store = Store(max_history=0)
    pairs = [(f"n{at % 3}", f"k{at}") for at in range(3000 if hash_mask == -1 else 300)]
    store.set_many((namespace, key, 1) for namespace, key in pairs)
    random.Random(3).shuffle(pairs)
    for at, (namespace, key) in enumerate(pairs):
        if with_snapshots and at % 100 == 0:
            store.snapshot()
        assert store.delete(namespace, key)
    assert len(store) == 0
    assert store.namespaces() == []
    assert store._live.root.root is EMPTY_LEAF
