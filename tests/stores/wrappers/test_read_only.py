"""Read-only stores."""

from __future__ import annotations

import pytest

from holdfast import Put, StateStoreError
from holdfast.stores.memory import MemoryStateStore
from holdfast.stores.sqlite import SqliteStateStore
from holdfast.stores.wrappers.read_only import ReadOnlyStateStore
from support.async_tests import run_async


@pytest.fixture(params=["memory", "sqlite"])
def inner(request, tmp_path):
    if request.param == "memory":
        store = MemoryStateStore()
    else:
        store = SqliteStateStore(tmp_path / "state.db")
    run_async(store.put_many([Put(key, key.encode()) for key in "abc"]))
    yield store
    run_async(store.close())


def test_reads_are_those_of_the_inner_store(inner):
    store = ReadOnlyStateStore(inner)

    async def read():
        assert await store.get("a") == await inner.get("a")
        assert await store.get("z") is None
        assert await store.get_many(list("abz")) == await inner.get_many(list("ab"))
        assert [key async for key in store.list(start_after="a", limit=1)] == ["b"]

    run_async(read())
    assert not store.writable
    assert inner.writable
    assert (store.durable, store.shared) == (inner.durable, inner.shared)


def test_every_write_is_rejected_and_nothing_changes(inner):
    store = ReadOnlyStateStore(inner)
    before = run_async(inner.get_many(list("abcd")))
    for call in (
        lambda: store.put("a", b"new"),
        lambda: store.put("d", b"new", if_absent=True),
        lambda: store.put_many([Put("a", b"new")]),
        lambda: store.put_many([]),
        lambda: store.delete("a"),
        lambda: store.delete("z"),
    ):
        with pytest.raises(StateStoreError, match="is read-only.*without read_only") as caught:
            run_async(call())
        assert not caught.value.transient
    assert run_async(inner.get_many(list("abcd"))) == before


def test_invalid_input_is_rejected_as_by_any_store(inner):
    store = ReadOnlyStateStore(inner)
    for call in (
        lambda: store.put("", b"1"),
        lambda: store.put("a", "text"),
        lambda: store.put_many([Put("a", b"1"), Put("a", b"2")]),
        lambda: store.delete(7),
        lambda: store.delete("a", if_match=7),
        lambda: store.get(""),
    ):
        with pytest.raises((TypeError, ValueError)):
            run_async(call())


def test_closing_it_closes_the_inner_store(inner):
    store = ReadOnlyStateStore(inner)
    run_async(store.close())
    with pytest.raises(StateStoreError, match="closed"):
        run_async(store.get("a"))
