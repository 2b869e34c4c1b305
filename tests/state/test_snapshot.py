"""Freezing, restoring, forking, undoing, and what is known about a frozen state."""

from __future__ import annotations

import gc
import hashlib
import tracemalloc

import pytest

from holdfast import Snapshot, Store
from holdfast.state.trie import Branch, list_leaves
from holdfast.values import encode
from support.sample_values import printed_under_any_hash_seed


def filled(count: int, namespaces: int = 1) -> Store:
    store = Store()
    store.set_many((f"n{at % namespaces}", f"k{at}", {"at": at}) for at in range(count))
    return store


def test_a_snapshot_never_changes():
    store = filled(500, 3)
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


def test_ids_grow_over_all_stores_and_parents_follow_the_line_of_descent():
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


def test_a_store_can_be_restored_to_a_snapshot_of_another_store():
    one, other = filled(100), filled(10, 2)
    wanted = one.snapshot()
    former = other.snapshot()
    other.restore(wanted)
    other.set("n0", "k1", "changed")
    assert one.get("n0", "k1") == {"at": 1} == wanted.get("n0", "k1")
    assert len(other) == 100
    other.restore(former)
    assert other.snapshot().digest == former.digest


@pytest.mark.parametrize("wrong", [None, 3, "snapshot", Store(), {}])
def test_what_is_not_a_snapshot_is_a_type_error(wrong):
    store = filled(3)
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


def test_a_store_keeps_no_snapshots_unless_it_is_asked_to():
    store = Store()
    assert store.max_history == 0
    store.snapshot()
    assert store.history == []
    with store.transaction():
        store.snapshot()
    assert store.history == []
    with pytest.raises(AttributeError):
        store.max_history = 3


def test_a_snapshot_that_nobody_holds_gives_its_memory_back():
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


def allocated_by(call) -> int:
    gc.collect()
    tracemalloc.start()
    result = call()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del result
    return peak


@pytest.mark.parametrize("operation", ["snapshot", "fork", "restore"])
def test_freezing_costs_the_same_at_ten_entries_and_at_a_hundred_thousand(operation):
    small, large = filled(10), filled(100_000)
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
        costs.append(allocated_by(call))
    assert costs[1] <= costs[0] + 600


def nodes(node: object) -> set[int]:
    found = {id(node)}
    if isinstance(node, Branch):
        for child in node.children:
            found |= nodes(child)
    return found


def test_a_write_after_a_snapshot_copies_only_the_path_to_it():
    store = filled(100_000)
    before = store.snapshot()
    store.set("n0", "k77", "changed")
    after = store.snapshot()
    old = next(iter(list_leaves(before._root.root)))["n0"].root
    new = next(iter(list_leaves(after._root.root)))["n0"].root
    assert 1 <= len(nodes(new) - nodes(old)) <= 4
    assert after.diff(before) == {"added": [], "removed": [], "changed": [("n0", "k77")]}


def test_a_write_of_an_equal_value_copies_nothing():
    store = filled(1000)
    before = store.snapshot()
    store.set("n0", "k7", {"at": 7})
    store.set_many([("n0", "k8", {"at": 8})])
    assert store.snapshot()._root is before._root


def test_the_digest_depends_on_the_content_alone():
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


def test_the_digest_tells_names_and_values_apart():
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


def test_the_digest_is_the_same_in_any_process_and_for_ever():
    assert printed_under_any_hash_seed(PROGRAM) == {
        "sha256:d8b568065339e4baef23235a02484f73a31a76673655250985043e21308e5f1e"
    }


def test_the_digest_is_what_the_specification_says():
    store = Store()
    store.set("b", "k", -1)
    store.set("a", "k", {"y": 1, "x": [True], "z": (None,)})
    packed = bytes.fromhex(
        "93 a161 a16b 83 a178 91c3 a179 01 a17a d510 91c0"  # ["a", "k", {"x", "y", "z"}]
        "93 a162 a16b ff"  # ["b", "k", -1]
    )
    assert store.snapshot().digest == "sha256:" + hashlib.sha256(packed).hexdigest()


def test_the_digest_of_a_large_state_is_that_of_its_parts_in_order():
    snapshot = filled(5000, 3).snapshot()
    sha = hashlib.sha256()
    for namespace, key, value in snapshot.items():
        sha.update(b"\x93" + encode(namespace) + encode(key) + encode(value))
    assert snapshot.digest == "sha256:" + sha.hexdigest()


def test_the_digest_is_computed_once():
    snapshot = filled(10).snapshot()
    assert snapshot.digest is snapshot.digest


def test_items_come_sorted_and_one_by_one():
    snapshot = filled(120, 2).snapshot()
    items = list(snapshot.items())
    assert [(namespace, key) for namespace, key, _ in items] == snapshot.keys
    assert snapshot.keys == sorted(snapshot.keys)
    assert {(n, k): v for n, k, v in items}["n1", "k3"] == {"at": 3}


def test_a_snapshot_knows_what_it_contains():
    snapshot = filled(3).snapshot()
    assert ("n0", "k1") in snapshot
    assert ("n0", "k9") not in snapshot
    assert snapshot.contains("n0", "k1")
    assert not snapshot.contains("other", "k1")


def test_a_fork_and_its_origin_do_not_see_each_other():
    store = filled(300)
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


def test_a_transaction_that_raises_leaves_no_trace():
    store = filled(200)
    before = store.snapshot()
    with pytest.raises(ZeroDivisionError), store.transaction() as inside:
        assert inside is store
        store.set("n0", "k1", "changed")
        store.delete("n0", "k2")
        store.set("new", "k", 1)
        store.set_many([("n0", "k3", 3)])
        store.clear()
        assert len(store) == 0
        store.restore(filled(3).snapshot())
        raise ZeroDivisionError
    after = store.snapshot()
    assert after.digest == before.digest
    assert (len(after), after.size_bytes) == (len(before), before.size_bytes)
    assert after.parent == before.id
    assert after.diff(before) == {"added": [], "removed": [], "changed": []}


def test_a_transaction_that_ends_well_stays():
    store = Store()
    with store.transaction():
        store.set("n", "k", 1)
    assert store.get("n", "k") == 1


def test_an_inner_transaction_undoes_only_its_own_writes():
    store = Store()
    with store.transaction():
        store.set("n", "outer", 1)
        with pytest.raises(ValueError), store.transaction():
            store.set("n", "inner", 2)
            raise ValueError
        store.set("n", "after", 3)
    assert store.keys("n") == ["after", "outer"]


def test_snapshots_of_a_transaction_enter_the_history_only_if_it_ends_well():
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


def test_a_snapshot_taken_in_a_transaction_outlives_its_end():
    store = filled(100)
    inside: list[Snapshot] = []
    with pytest.raises(ValueError), store.transaction():
        store.set("n0", "k1", "inside")
        inside.append(store.snapshot())
        raise ValueError
    store.set("n0", "k1", "after")
    store.set("n0", "k2", "after")
    assert inside[0].get("n0", "k1") == "inside"
    assert inside[0].get("n0", "k2") == {"at": 2}


def test_the_entries_of_one_namespace_are_listed_and_counted():
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
