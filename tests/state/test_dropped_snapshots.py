"""A snapshot that nothing refers to any more costs the next write no copies."""

from __future__ import annotations

from holdfast import Store


def new_store() -> Store:
    store = Store(max_history=0)
    for number in range(200):
        store.set("n", f"key-{number}", number)
    return store


def is_copied_by_a_write(store: Store) -> bool:
    root = store._live.root
    store.set("n", "key-7", "written")
    return store._live.root is not root


def test_a_dropped_snapshot_costs_no_copy():
    store = new_store()
    store.snapshot()
    assert not is_copied_by_a_write(store)
    for _ in range(3):
        store.snapshot()
    assert not is_copied_by_a_write(store)


def test_a_retained_snapshot_does_not_change():
    store = new_store()
    held = store.snapshot()
    store.snapshot()
    assert is_copied_by_a_write(store)
    assert held.get("n", "key-7") == 7
    assert store.get("n", "key-7") == "written"


def test_a_snapshot_that_is_dropped_after_a_write_has_no_effect():
    store = new_store()
    held = store.snapshot()
    store.set("n", "key-1", "a")
    del held
    later = store.snapshot()
    store.set("n", "key-1", "b")
    assert later.get("n", "key-1") == "a"


def test_an_older_snapshot_keeps_its_state_when_a_newer_one_is_dropped():
    store = new_store()
    older = store.snapshot()
    store.set("n", "key-1", "a")
    store.snapshot()
    store.set("n", "key-1", "b")
    store.set("n", "key-2", "b")
    store.delete("n", "key-3")
    assert [older.get("n", f"key-{number}") for number in (1, 2, 3)] == [1, 2, 3]


def test_two_snapshots_of_one_state():
    store = new_store()
    first, second = store.snapshot(), store.snapshot()
    assert first is not second
    assert first.id < second.id
    del first
    assert is_copied_by_a_write(store)
    assert second.get("n", "key-7") == 7


def test_a_store_that_was_restored_to_a_dropped_snapshot_does_not_change():
    store, other = new_store(), Store(max_history=0)
    other.restore(store.snapshot())
    fork = store.fork()
    other.set("n", "key-1", "other")  # copies the root, and shares the other nodes
    fork.set("n", "key-2", "fork")
    for number in range(200):
        store.set("n", f"key-{number}", "written")
    assert other.get("n", "key-1") == "other"
    assert fork.get("n", "key-2") == "fork"
    assert [other.get("n", f"key-{number}") for number in range(2, 200)] == list(range(2, 200))
    assert [fork.get("n", f"key-{number}") for number in range(3, 200)] == list(range(3, 200))


def test_items_of_a_dropped_snapshot_do_not_change():
    store = new_store()
    items = store.snapshot().items()
    first = next(items)
    for number in range(200):
        store.set("n", f"key-{number}", "written")
    assert sorted(value for _, _, value in [first, *items]) == list(range(200))


def test_a_merge_reads_the_other_store_as_it_was():
    base = new_store()
    origin = base.snapshot()
    ours, theirs = base.fork(), base.fork()
    for number in range(3):
        ours.set("n", f"key-{number}", "ours")
        theirs.set("n", f"key-{number}", "theirs")

    def resolve(conflict):
        for number in range(3):
            theirs.set("n", f"key-{number}", "late")
        return conflict.theirs

    ours.merge(theirs, origin, on_conflict=resolve)
    assert [ours.get("n", f"key-{number}") for number in range(3)] == ["theirs"] * 3


def test_a_failed_transaction_restores_what_was_there():
    store = new_store()
    store.snapshot()
    try:
        with store.transaction():
            store.snapshot()
            store.set("n", "key-1", "a")
            raise KeyError
    except KeyError:
        pass
    assert store.get("n", "key-1") == 1
