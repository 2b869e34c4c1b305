"""Code as users write it. It is not run: mypy, strict, must find it right."""

from __future__ import annotations

import datetime as dt
from typing import Any, assert_type

import holdfast


class Money:
    def __init__(self, cents: int) -> None:
        self.cents = cents


def a_users_program() -> None:
    store = holdfast.Store(max_history=10)
    store.set("workflow", "onboarding", {"step": 3, "at": dt.datetime.now(dt.UTC)})
    assert_type(store.get("workflow", "onboarding"), Any)
    assert_type(store.delete("workflow", "onboarding"), bool)
    assert_type(("workflow", "k") in store, bool)
    assert_type(store.keys("workflow"), list[str])
    store.set_many([("n", "k", 1), ("n", "other", [None])])
    assert_type(store.get_many([("n", "k")]), list[Any])

    snapshot: holdfast.Snapshot = store.snapshot()
    assert_type(snapshot.id, int)
    assert_type(snapshot.parent, int | None)
    assert_type(snapshot.keys, list[tuple[str, str]])
    assert_type(snapshot.digest, str)
    assert_type(store.history, list[holdfast.Snapshot])
    difference: holdfast.Diff = store.snapshot().diff(snapshot)
    assert_type(difference["added"], list[tuple[str, str]])
    changes: holdfast.Changes = store.snapshot().changes(snapshot)
    store.apply(changes)

    with store.transaction() as inside:
        assert_type(inside, holdfast.Store)
    store.merge(store.fork(), snapshot, on_conflict="ours")
    store.merge(snapshot, snapshot, on_conflict=decide)
    holdfast.register_type(
        Money, name="money", encode=lambda money: money.cents, decode=lambda cents: Money(cents)
    )

    # What a type checker must refuse; an ignore that is not needed is an error of its own.
    store.set(7, "k", 1)  # type: ignore[arg-type]
    store.get("n", b"k")  # type: ignore[arg-type]
    store.restore("snapshot")  # type: ignore[arg-type]
    store.merge(snapshot, snapshot, on_conflict="mine")  # type: ignore[arg-type]
    holdfast.register_type(Money, name="money", encode=str, decode=str)  # type: ignore[arg-type]


def decide(conflict: holdfast.Conflict) -> object:
    assert_type(conflict.key, str)
    return holdfast.MISSING if conflict.ours is holdfast.MISSING else conflict.ours


async def a_users_store(store: holdfast.StateStore) -> None:
    async with holdfast.open_state_store("memory:") as opened:
        assert_type(opened, holdfast.StateStore)
    entry = await store.get("a")
    assert_type(entry, holdfast.Entry | None)
    assert_type(await store.get_many(["a"]), dict[str, holdfast.Entry])
    assert_type(await store.put("a", b"1", if_absent=True), str)
    assert_type(await store.put_many([holdfast.Put("a", b"1", if_match="e")]), list[str])
    assert_type(await store.delete("a", if_match="e"), bool)
    assert_type([key async for key in store.list("a/", start_after="a/b", limit=3)], list[str])
    assert_type(store.atomic_put_many, bool)
    await store.close()
