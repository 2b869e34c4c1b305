"""Put, get, search and list, on every backend; and what is refused."""

from __future__ import annotations

import asyncio
import datetime as dt

import pytest
from langgraph.store.base import (
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
)

from holdfast import (
    IntegrityError,
    Session,
    SnapshotArchive,
    UnsupportedValueError,
    open_state_store,
)
from holdfast.adapters.langgraph import HoldfastStore
from support.async_tests import async_test

USER = ("users", "7")


@async_test
async def test_put_get_search_and_delete_on_every_backend(new_state_store):
    async with (
        HoldfastStore(new_state_store()) as memory,
        HoldfastStore(new_state_store()) as other,
    ):
        await memory.aput(USER, "food", {"likes": "soup", "level": 3})
        await memory.aput(USER, "color", {"likes": "blue", "level": 5})
        await other.aput((*USER, "notes"), "n/1 é", {"text": "called", "level": 9})
        await other.aput(("users", "70"), "food", {"likes": "fish"})
        await memory.aput(USER, "food", {"likes": "bread", "level": 4})

        item = await other.aget(USER, "food")
        assert (item.namespace, item.key, item.value) == (
            USER,
            "food",
            {"likes": "bread", "level": 4},
        )
        assert item.created_at < item.updated_at <= dt.datetime.now(dt.UTC)
        assert await asyncio.to_thread(other.get, USER, "food") == item
        assert await other.aget(USER, "absent") is None
        assert await other.aget(("nobody",), "food") is None

        found = await other.asearch(USER)
        assert [each.key for each in found] == ["food", "color", "n/1 é"]
        found = await other.asearch(("users",), filter={"level": {"$gte": 5}}, limit=1, offset=1)
        assert [(each.namespace, each.key) for each in found] == [((*USER, "notes"), "n/1 é")]
        assert len(await memory.asearch(())) == 4

        assert await memory.alist_namespaces() == [USER, (*USER, "notes"), ("users", "70")]
        assert await memory.alist_namespaces(prefix=USER, suffix=("*", "notes")) == [
            (*USER, "notes")
        ]
        await memory.adelete(("users", "70"), "food")
        await memory.adelete(("users", "70"), "absent")
        assert await other.alist_namespaces() == [USER, (*USER, "notes")]
        assert await other.alist_namespaces(max_depth=2) == [USER]


def test_blocking_and_async_calls_share_the_items(tmp_path):
    with HoldfastStore.from_url(f"sqlite:///{tmp_path}/memory.db") as memory:
        memory.put(USER, "food", {"likes": "soup"})

        @async_test
        async def check():
            assert (await memory.aget(USER, "food")).value == {"likes": "soup"}
            await memory.aput(USER, "food", {"likes": "bread"})

        check()
        assert memory.get(USER, "food").value == {"likes": "bread"}


def test_reads_of_a_batch_do_not_see_its_puts_and_the_last_put_counts(memory):
    memory.put(USER, "a", {"n": 1})
    results = memory.batch(
        [
            PutOp(USER, "a", {"n": 2}),
            GetOp(USER, "a"),
            PutOp(USER, "a", {"n": 3}),
            PutOp(USER, "b", {"n": 4}),
            PutOp(("x",), "b", {"n": 5}),
            SearchOp(()),
            ListNamespacesOp(),
            GetOp((), "a"),
        ]
    )
    assert results[1].value == {"n": 1}
    assert [each.value for each in results[5]] == [{"n": 1}]
    assert results[6] == [USER]
    assert [results[number] for number in (0, 2, 3, 4, 7)] == [None] * 5
    assert [each.value["n"] for each in memory.search(())] == [3, 4, 5]


def test_the_puts_of_a_namespace_are_one_commit(memory):
    memory.batch([PutOp(USER, f"{number}", {"n": number}) for number in range(5)])
    with pytest.raises(UnsupportedValueError, match="n"):
        memory.batch([PutOp(USER, "0", {"n": 9}), PutOp(USER, "9", {"n": object()})])
    assert [each.value["n"] for each in memory.search(USER)] == [0, 1, 2, 3, 4]


def test_a_namespace_that_fails_does_not_affect_the_others(memory):
    puts = [PutOp((f"{number:02}",), "a", {"n": number}) for number in range(40)]
    puts[5] = PutOp(("05",), "a", {"n": object()})
    with pytest.raises(UnsupportedValueError, match="n"):
        memory.batch(puts)
    assert [each.value["n"] for each in memory.search((), limit=100)] == [
        number for number in range(40) if number != 5
    ]


def test_a_deleted_session_is_an_empty_namespace(memory):
    memory.put(USER, "a", {"n": 1})

    @async_test
    async def delete():
        await SnapshotArchive(memory.state_store).delete_session(session_id="users.7")

    delete()
    assert memory.get(USER, "a") is None
    assert memory.list_namespaces() == []
    memory.put(USER, "b", {"n": 2})
    assert [each.key for each in memory.search(())] == ["b"]
    assert [each.value for each in memory.history(USER, "a")] == []


def test_values_keep_their_types_and_are_copies(memory):
    value = {"when": dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "n": 2**80, "t": (1, b"x"), "": None}
    memory.put(USER, "a", value)
    value["n"] = 1
    found = memory.get(USER, "a")
    assert found.value == {**value, "n": 2**80}
    found.value["n"] = 3
    assert memory.get(USER, "a").value["n"] == 2**80
    assert isinstance(found.value["t"], tuple)


def test_a_namespace_is_an_ordinary_session(memory):
    memory.put(USER, "food", {"likes": "soup"})

    @async_test
    async def check():
        location = memory.location(USER)
        assert (location.session_id, location.scope_id) == ("users.7", "memory")
        session = await Session.open(
            memory.state_store, agent_id="memory", session_id="users.7", must_exist=True
        )
        assert session.state == {"food": {"likes": "soup"}}
        assert [event.type for event in session.events] == ["session.started", "memory.put"]
        mark = session.events[-1].seq
        session.set("by hand", {"n": 1})
        session.set("not an item", 5)
        await session.commit()
        assert [each.key for each in await memory.asearch(USER)] == ["by hand", "food"]
        assert await memory.alist_namespaces() == [USER]
        await session.restore(mark)
        assert [each.key for each in await memory.asearch(USER)] == ["food"]
        assert (await session.verify()).ok

    check()


def test_memories_of_other_agents_and_other_sessions_are_apart(memory):
    other = HoldfastStore(memory.state_store, agent_id="team")
    memory.put(USER, "a", {"n": 1})
    other.put(USER, "a", {"n": 2})
    other.put(("only",), "a", {"n": 3})

    @async_test
    async def talk():
        async with Session.open(
            memory.state_store, agent_id="memory", session_id="not..a.namespace"
        ) as session:
            session.add_message("user", "hello")

    talk()
    assert [each.value["n"] for each in memory.search(())] == [1]
    assert [each.value["n"] for each in memory.search(("users",))] == [1]
    assert memory.list_namespaces() == [USER]
    assert other.list_namespaces() == [("only",), USER]


def test_a_filter_compares_nested_values(memory):
    memory.put(USER, "a", {"n": 1, "tags": ["x", "y"], "in": {"deep": {"level": 3}}})
    memory.put(USER, "b", {"n": "2", "in": {"deep": {}}})
    memory.put(USER, "c", {})

    def keys(**wanted):
        return [each.key for each in memory.search(USER, filter=wanted)]

    assert keys(n={"$gt": 0, "$lte": 2}) == ["a", "b"]
    assert keys(n={"$ne": 1}) == ["b", "c"]
    assert keys(n={"$eq": 1}) == ["a"]
    assert keys(tags=["x", {"$ne": "z"}]) == ["a"]
    assert keys(**{"in": {"deep": {"level": {"$lt": 4}}}}) == ["a"]
    assert keys(n=None) == ["c"]


def test_a_filter_compares_texts(memory):
    memory.put(USER, "a", {"on": "2026-01-31"})
    memory.put(USER, "b", {"on": "2026-02-01"})
    memory.put(USER, "c", {"on": 3})
    for bound, expected in (("2026-02-01", ["b"]), ("2026", ["a", "b"]), ("2", ["a", "b", "c"])):
        found = memory.search(USER, filter={"on": {"$gte": bound}})
        assert [each.key for each in found] == expected


@pytest.mark.parametrize(
    ("op", "error", "text"),
    [
        (PutOp((), "a", {}), InvalidNamespaceError, "at least one label"),
        (PutOp(("a.b",), "a", {}), InvalidNamespaceError, r"'a\.b'"),
        (PutOp(("x" * 300,), "a", {}), InvalidNamespaceError, "300 characters"),
        (PutOp(("a", "\ud800"), "a", {}), InvalidNamespaceError, "surrogate"),
        (GetOp("users", "a"), InvalidNamespaceError, "tuple"),
        (SearchOp(("a", 7)), InvalidNamespaceError, "label 7"),
        (PutOp(("a",), 7, {}), TypeError, "key must be a str"),
        (PutOp(("a",), "\ud800", {}), UnsupportedValueError, "surrogate"),
        (PutOp(("a",), "a", [1]), UnsupportedValueError, "mapping"),
        (PutOp(("a",), "a", {}, ttl=float("inf")), ValueError, "minutes"),
        (PutOp(("b",), "a", {}, ttl=1e300), ValueError, "minutes"),
        (SearchOp((), {"a": {"$in": [1]}}), ValueError, r"unknown operator '\$in'"),
        (SearchOp((), {"a": {"$gt": [1]}}), ValueError, r"\$gt compares numbers and texts"),
        (SearchOp((), [1]), TypeError, "filter must be a dict"),
        (SearchOp((), limit=-1), ValueError, "limit"),
        (ListNamespacesOp(max_depth=-1), ValueError, "max_depth"),
        (ListNamespacesOp((MatchCondition("infix", ("a",)),)), ValueError, "infix"),
        ("get", ValueError, "unknown operation 'get'"),
    ],
)
def test_invalid_operations_are_refused_and_nothing_is_written(memory, op, error, text):
    with pytest.raises(error, match=text):
        memory.batch([PutOp(("a",), "before", {}), op])
    assert memory.search(()) == []


def test_invalid_arguments_are_refused():
    with pytest.raises(TypeError, match="from_url"):
        HoldfastStore("sqlite:///memory.db")
    store = open_state_store("memory:")
    with pytest.raises(ValueError, match="agent_id"):
        HoldfastStore(store, agent_id="")
    with pytest.raises(TypeError, match="index must be a dict"):
        HoldfastStore(store, index={"dims": 3})
    with pytest.raises(TypeError, match="list of paths, got 'text'"):
        HoldfastStore(store, index={"dims": 3, "embed": len, "fields": "text"})
    with pytest.raises(TypeError, match="ttl must be a dict"):
        HoldfastStore(store, ttl=60)


def test_a_damaged_item_is_named_and_can_be_deleted(memory):
    memory.put(USER, "a", {"n": 1}, ttl=60)

    @async_test
    async def damage():
        async with Session.open(
            memory.state_store, agent_id="memory", session_id="users.7"
        ) as session:
            change = ("langgraph/memory/expiry", "a", {"at": "soon"})
            session.record("damaged", changes={"set": [change], "delete": []})

    damage()
    calls = (
        lambda: memory.get(USER, "a"),
        lambda: memory.search(()),
        memory.list_namespaces,
        memory.sweep_ttl,
    )
    for call in calls:
        with pytest.raises(IntegrityError, match=r"session users\.7: entry 'a'.*delete the item"):
            call()
    memory.delete(USER, "a")
    memory.put(USER, "a", {"n": 2})
    assert memory.get(USER, "a").value == {"n": 2}
