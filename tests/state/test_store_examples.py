"""The public API of Store and Snapshot, method by method."""

from __future__ import annotations

import time

import pytest

import holdfast


def test_store_and_snapshot_api():
    store = holdfast.Store()
    store.set("workflow", "onboarding", {"step": 3})
    assert store.get("workflow", "onboarding") == {"step": 3}
    assert store.delete("workflow", "onboarding") is True
    assert store.delete("workflow", "onboarding") is False
    assert store.get("workflow", "onboarding") is None
    assert store.get("workflow", "onboarding", default=7) == 7

    store.set("workflow", "k", 1)
    assert store.contains("workflow", "k")
    assert ("workflow", "k") in store
    assert store.keys("workflow") == ["k"]
    assert store.namespaces() == ["workflow"]
    assert len(store) == 1
    store.clear()
    assert len(store) == 0

    store.set_many([("a", "x", 1), ("b", "y", 2)])
    assert store.get_many([("b", "y"), ("a", "missing"), ("a", "x")]) == [2, None, 1]

    before = time.time()
    snap = store.snapshot()
    assert isinstance(snap.id, int)
    assert before <= snap.timestamp <= time.time()
    assert snap.parent is None
    assert snap.size_bytes == 2
    assert snap.keys == [("a", "x"), ("b", "y")]
    assert len(snap) == 2
    assert snap.get("a", "x") == 1
    assert snap.get("a", "missing", default="no") == "no"
    assert snap.namespaces() == ["a", "b"]

    store.set("a", "x", 10)
    store.set("a", "new", 11)
    store.delete("b", "y")
    later = store.snapshot()
    assert later.id > snap.id
    assert later.parent == snap.id
    assert later.diff(snap) == {
        "added": [("a", "new")],
        "removed": [("b", "y")],
        "changed": [("a", "x")],
    }
    assert later.changes(snap) == {
        "set": [("a", "new", 11), ("a", "x", 10)],
        "delete": [("b", "y")],
    }
    assert later.digest.startswith("sha256:")
    assert later.digest != snap.digest

    store.restore(snap)
    assert store.get_many([("a", "x"), ("a", "new"), ("b", "y")]) == [1, None, 2]
    assert store.snapshot().digest == snap.digest

    other = store.fork()
    other.set("a", "x", 5)
    assert store.get("a", "x") == 1

    with pytest.raises(RuntimeError), store.transaction():
        store.set("a", "x", 99)
        raise RuntimeError
    assert store.get("a", "x") == 1

    base = store.snapshot()
    theirs = store.fork()
    theirs.set("a", "theirs", 1)
    store.set("a", "ours", 2)
    store.merge(theirs, base, on_conflict="raise")
    assert store.keys("a") == ["ours", "theirs", "x"]
    assert store.max_history == 0
    assert store.history == []
    keeping = holdfast.Store(max_history=None)
    assert keeping.snapshot() in keeping.history
