"""Snapshots, restores, forks, transactions and digests."""

from __future__ import annotations

import gc
import hashlib
import time
import tracemalloc

import pytest

from holdfast import Snapshot, Store
from holdfast.state.trie import Branch, list_leaves
from holdfast.values import encode
from support.sample_values import run_with_hash_seeds


def make_store(count: int, namespaces: int = 1) -> Store:
    store = Store()
    store.set_many((f"n{at % namespaces}", f"k{at}", {"at": at}) for at in range(count))
    return store


def test_a_snapshot_is_immutable():
    store = make_store(500, 3)
    snapshot = store.snapshot()
    content = list(snapshot.items())
    for at in range(0, 500, 2):
        store.set(f"n{at % 3}", f"k{at}", "changed")
        store.delete(f"n{(at + 1) % 3}", f"k{at + 1}")
    store.set("new", "k", 1)
    assert list(snapshot.items()) == content
    assert len(snapshot) == 500
    store.clear()
    assert list(snapshot.items()) == content


def test_ids_increase_across_stores_and_parents_follow_the_lineage():
    store = Store()
    first = store.snapshot()
    second = store.snapshot()
    assert first.id < second.id
    assert (first.parent, second.parent) == (None, first.id)
    store.restore(first)
    branch = store.snapshot()
    assert branch.parent == first.id
    fork = store.fork()
    forked = fork.snapshot()
    assert forked.parent == branch.id
    assert forked.id > branch.id
    with pytest.raises(AttributeError):
        first.id = 5


def test_a_snapshot_has_the_time_it_was_taken():
    before = time.time()
    assert before <= Store().snapshot().timestamp <= time.time()


def test_a_store_can_be_restored_to_a_snapshot_of_another_store():
    one, other = make_store(100), make_store(10, 2)
    wanted = one.snapshot()
    former = other.snapshot()
    other.restore(wanted)
    other.set("n0", "k1", "changed")
    assert one.get("n0", "k1") == {"at": 1} == wanted.get("n0", "k1")
    assert len(other) == 100
    other.restore(former)
    assert other.snapshot().digest == former.digest


@pytest.mark.parametrize("wrong", [None, 3, "snapshot", Store(), {}])
def test_other_types_are_not_accepted_as_snapshots(wrong):
    store = make_store(3)
    snapshot = store.snapshot()
    for call in (store.restore, snapshot.diff, snapshot.changes):
        with pytest.raises(TypeError, match="Snapshot"):
            call(wrong)
    with pytest.raises(TypeError, match="Snapshot"):
        store.merge(snapshot, wrong)
    if not isinstance(wrong, Store):
        with pytest.raises(TypeError, match="Snapshot"):
            store.merge(wrong, snapshot)
    assert store.snapshot().digest == snapshot.digest


@pytest.mark.parametrize(("limit", "kept"), [(0, 0), (1, 1), (3, 3), (100, 5), (None, 5)])
def test_the_history_keeps_the_last_snapshots(limit, kept):
    store = Store(max_history=limit)
    taken = [store.snapshot() for _ in range(5)]
    assert store.history == taken[5 - kept :]
    store.history.clear()
    assert len(store.history) == kept
    assert store.max_history == store.fork().max_history == limit
    assert store.fork().history == []


def test_a_store_keeps_no_snapshots_by_default():
    store = Store()
    assert store.max_history == 0
    store.snapshot()
    assert store.history == []
    with store.transaction():
        store.snapshot()
    assert store.history == []
    with pytest.raises(AttributeError):
        store.max_history = 3


def test_an_unreferenced_snapshot_is_freed():
    store = Store(max_history=2)
    store.set("n", "k", "x")
    tracemalloc.start()
    for at in range(30):
        store.set("n", "k", f"{at}" * 50_000)
        store.snapshot()
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 5 * 2 * 50_000


def measure_allocation(call) -> int:
    gc.collect()
    tracemalloc.start()
    result = call()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del result
    return peak


@pytest.mark.parametrize("operation", ["snapshot", "fork", "restore"])
def test_a_snapshot_takes_constant_memory(operation):
    small, large = make_store(10), make_store(100_000)
    costs = []
    for store in (small, large):
        store.snapshot()
        target = store.snapshot()
        call = (
            (lambda s=store, t=target: s.restore(t))
            if operation == "restore"
            else getattr(store, operation)
        )
        call()
        costs.append(measure_allocation(call))
    assert costs[1] <= costs[0] + 600


def collect_node_ids(node: object) -> set[int]:
    found = {id(node)}
    if isinstance(node, Branch):
        for child in node.children:
            found |= collect_node_ids(child)
    return found


def test_a_write_after_a_snapshot_copies_only_its_path():
    store = make_store(100_000)
    before = store.snapshot()
    store.set("n0", "k77", "changed")
    after = store.snapshot()
    old = next(iter(list_leaves(before._root.root)))["n0"].root
    new = next(iter(list_leaves(after._root.root)))["n0"].root
    assert 1 <= len(collect_node_ids(new) - collect_node_ids(old)) <= 4
    assert after.diff(before) == {"added": [], "removed": [], "changed": [("n0", "k77")]}


def test_a_write_of_an_equal_value_copies_nothing():
    store = make_store(1000)
    before = store.snapshot()
    store.set("n0", "k7", {"at": 7})
    store.set_many([("n0", "k8", {"at": 8})])
    assert store.snapshot()._root is before._root


def test_the_digest_depends_only_on_the_content():
    one, other = Store(), Store()
    entries = [(f"n{at % 7}", f"k{at}", {"a": at, "b": [at]}) for at in range(300)]
    one.set_many(entries)
    for namespace, key, value in reversed(entries):
        other.set(namespace, "temporary", 1)
        other.set(namespace, key, "other")
        other.set(namespace, key, dict(reversed(value.items())))
    for namespace in other.namespaces():
        other.delete(namespace, "temporary")
    assert one.snapshot().digest == other.snapshot().digest
    one.set("n0", "k0", {"a": 0, "b": [0.0]})
    assert one.snapshot().digest != other.snapshot().digest


def test_the_digest_distinguishes_names_and_values():
    seen = set()
    for entries in (
        [],
        [("a", "b", "c")],
        [("a", "c", "b")],
        [("ab", "", "c")],
        [("", "ab", "c")],
        [("a", "b", ["c"])],
        [("a", "b", None)],
        [("a", "b", "c"), ("a", "c", "c")],
        [("a", "b", "c"), ("b", "b", "c")],
    ):
        store = Store()
        store.set_many(entries)
        seen.add(store.snapshot().digest)
    assert len(seen) == 9


PROGRAM = """
import holdfast
store = holdfast.Store()
for at in range(200):
    store.set(f"n{at % 5}", f"k{at}", {"set": {"a", "b", at}, "t": (at,), "f": 0.1})
print(store.snapshot().digest)
"""


def test_the_digest_is_stable_across_processes():
    assert run_with_hash_seeds(PROGRAM) == {
        "sha256:d8b568065339e4baef23235a02484f73a31a76673655250985043e21308e5f1e"
    }


def test_the_digest_matches_the_specification():
    store = Store()
    store.set("b", "k", -1)
    store.set("a", "k", {"y": 1, "x": [True], "z": (None,)})
    packed = bytes.fromhex(
        "93 a161 a16b 83 a178 91c3 a179 01 a17a d510 91c0"  # ["a", "k", {"x", "y", "z"}]
        "93 a162 a16b ff"  # ["b", "k", -1]
    )
    assert store.snapshot().digest == "sha256:" + hashlib.sha256(packed).hexdigest()


def test_the_digest_of_a_large_state_matches_the_specification():
    snapshot = make_store(5000, 3).snapshot()
    sha = hashlib.sha256()
    for namespace, key, value in snapshot.items():
        sha.update(b"\x93" + encode(namespace) + encode(key) + encode(value))
    assert snapshot.digest == "sha256:" + sha.hexdigest()


def test_the_digest_is_computed_once():
    snapshot = make_store(10).snapshot()
    assert snapshot.digest is snapshot.digest


def test_items_are_yielded_in_order():
    snapshot = make_store(120, 2).snapshot()
    items = list(snapshot.items())
    assert [(namespace, key) for namespace, key, _ in items] == snapshot.keys
    assert snapshot.keys == sorted(snapshot.keys)
    assert {(n, k): v for n, k, v in items}["n1", "k3"] == {"at": 3}


def test_a_snapshot_supports_contains_and_len():
    snapshot = make_store(3).snapshot()
    assert ("n0", "k1") in snapshot
    assert ("n0", "k9") not in snapshot
    assert snapshot.contains("n0", "k1")
    assert not snapshot.contains("other", "k1")


def test_a_fork_is_independent():
    store = make_store(300)
    fork = store.fork()
    again = fork.fork()
    store.set("n0", "k1", "store")
    fork.set("n0", "k1", "fork")
    again.delete("n0", "k1")
    assert store.get("n0", "k1") == "store"
    assert fork.get("n0", "k1") == "fork"
    assert again.get("n0", "k1") is None
    assert (len(store), len(fork), len(again)) == (300, 300, 299)


# ------------------------------------------------------------------------------ transactions


def test_a_failed_transaction_is_rolled_back():
    store = make_store(200)
    before = store.snapshot()
    with pytest.raises(ZeroDivisionError), store.transaction() as inside:
        assert inside is store
        store.set("n0", "k1", "changed")
        store.delete("n0", "k2")
        store.set("new", "k", 1)
        store.set_many([("n0", "k3", 3)])
        store.clear()
        assert len(store) == 0
        store.restore(make_store(3).snapshot())
        raise ZeroDivisionError
    after = store.snapshot()
    assert after.digest == before.digest
    assert (len(after), after.size_bytes) == (len(before), before.size_bytes)
    assert after.parent == before.id
    assert after.diff(before) == {"added": [], "removed": [], "changed": []}


def test_a_successful_transaction_is_kept():
    store = Store()
    with store.transaction():
        store.set("n", "k", 1)
    assert store.get("n", "k") == 1


def test_a_failed_inner_transaction_rolls_back_only_its_own_writes():
    store = Store()
    with store.transaction():
        store.set("n", "outer", 1)
        with pytest.raises(ValueError), store.transaction():
            store.set("n", "inner", 2)
            raise ValueError
        store.set("n", "after", 3)
    assert store.keys("n") == ["after", "outer"]


def test_snapshots_of_a_failed_transaction_do_not_enter_the_history():
    store = Store(max_history=2)
    kept = [store.snapshot(), store.snapshot()]
    with pytest.raises(KeyError), store.transaction():
        taken = [store.snapshot() for _ in range(3)]
        assert store.history == taken[-2:]
        raise KeyError
    assert store.history == kept
    with store.transaction():
        first = store.snapshot()
        with pytest.raises(KeyError), store.transaction():
            store.snapshot()
            raise KeyError
        second = store.snapshot()
    assert store.history == [first, second]
    assert second.parent == first.id


def test_a_snapshot_taken_in_a_transaction_stays_valid():
    store = make_store(100)
    inside: list[Snapshot] = []
    with pytest.raises(ValueError), store.transaction():
        store.set("n0", "k1", "inside")
        inside.append(store.snapshot())
        raise ValueError
    store.set("n0", "k1", "after")
    store.set("n0", "k2", "after")
    assert inside[0].get("n0", "k1") == "inside"
    assert inside[0].get("n0", "k2") == {"at": 2}


def test_namespaces_can_be_listed_and_counted():
    store = Store()
    store.set_many([("a", "x", 1), ("a", "y", 2), ("b", "x", 3)])
    snapshot = store.snapshot()
    assert list(snapshot.items("a")) == [("a", "x", 1), ("a", "y", 2)]
    assert list(snapshot.items("none")) == []
    assert snapshot.values("a") == [1, 2]
    assert snapshot.values("none") == []
    assert snapshot.count("a") == 2
    assert snapshot.count("none") == 0
    with pytest.raises(TypeError, match="namespace"):
        snapshot.count(7)
    with pytest.raises(TypeError):
        snapshot.values(7)
