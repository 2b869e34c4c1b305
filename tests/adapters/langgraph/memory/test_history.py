"""Every memory has a history: versions, earlier times, restores, and the command line."""

from __future__ import annotations

import datetime as dt

import pytest
from langgraph.store.base import InvalidNamespaceError

from holdfast import NotFoundError, RetentionPolicy, Session, SnapshotArchive
from holdfast.adapters.langgraph import HoldfastStore
from holdfast.console_script import main
from support.async_tests import async_test

USER = ("users", "7")


@pytest.fixture
def times(memory):
    """The times after each of three versions of an item and a deletion."""
    found = []
    for value in ({"n": 1}, {"n": 2}, None, {"n": 3}):
        if value is None:
            memory.delete(USER, "a")
        else:
            memory.put(USER, "a", value)
        found.append(dt.datetime.now(dt.UTC))
    memory.put(USER, "b", {"n": 9})
    return found


def test_the_versions_of_an_item(memory, times):
    versions = memory.history(USER, "a")
    assert [(each.type, each.value) for each in versions] == [
        ("memory.put", {"n": 1}),
        ("memory.put", {"n": 2}),
        ("memory.deleted", None),
        ("memory.put", {"n": 3}),
    ]
    assert [each.seq for each in versions] == [2, 3, 4, 5]
    assert all(each.at <= time for each, time in zip(versions, times, strict=True))
    assert memory.history(USER, "absent") == []
    assert memory.history(("nobody",), "a") == []


def test_an_item_at_an_earlier_time_or_event(memory, times):
    values = [memory.get_at(USER, "a", each) for each in times]
    assert [each and each.value for each in values] == [{"n": 1}, {"n": 2}, None, {"n": 3}]
    assert memory.get_at(USER, "a", times[1].isoformat()).value == {"n": 2}
    assert memory.get_at(USER, "a", 2).value == {"n": 1}
    assert memory.get_at(USER, "a", times[0] - dt.timedelta(days=1)) is None
    with pytest.raises(NotFoundError, match="no event 99"):
        memory.get_at(USER, "a", 99)
    with pytest.raises(ValueError, match="time zone"):
        memory.get_at(USER, "a", dt.datetime(2026, 1, 1))
    with pytest.raises(TypeError, match="at must be a datetime"):
        memory.get_at(USER, "a", None)
    with pytest.raises(ValueError, match="at must be an ISO 8601 time.*'yesterday'"):
        memory.get_at(USER, "a", "yesterday")
    with pytest.raises(InvalidNamespaceError, match="tuple"):
        memory.history("users", "a")


def test_restore_an_item(memory, times):
    assert memory.restore(USER, "a", times[1]).value == {"n": 2}
    assert memory.get(USER, "a").value == {"n": 2}
    assert memory.get(USER, "b").value == {"n": 9}
    assert memory.restore(USER, "a", 4) is None
    assert memory.get(USER, "a") is None
    assert memory.history(USER, "a")[-1].type == "memory.restored"


def test_restore_a_namespace(memory, times):
    memory.put((*USER, "below"), "a", {"n": 1})
    memory.restore_namespace(USER, times[0])
    assert [(each.key, each.value) for each in memory.search(USER)] == [
        ("a", {"n": 1}),
        ("a", {"n": 1}),
    ]
    memory.restore_namespace(USER, times[0] - dt.timedelta(days=1))
    assert memory.list_namespaces() == [(*USER, "below")]


def test_pruned_versions_are_missing(memory, times):
    @async_test
    async def prune():
        session = await Session.open(memory.state_store, agent_id="memory", session_id="users.7")
        await session.save()
        session.set("c", {"n": 4})
        await session.save()
        await SnapshotArchive(memory.state_store).prune(
            location=session.location, policy=RetentionPolicy(last=1)
        )

    prune()
    assert memory.history(USER, "a") == []
    assert memory.get(USER, "a").value == {"n": 3}
    with pytest.raises(NotFoundError, match="pruned"):
        memory.get_at(USER, "a", times[0])


def run(*arguments):
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert not ended.value.code


def test_the_command_line_compares_and_restores_memories(tmp_path, capsys):
    url = f"sqlite:///{tmp_path}/memory.db"
    with HoldfastStore.from_url(url) as memory:
        memory.put(USER, "food", {"likes": "soup"})
        memory.put(USER, "food", {"likes": "bread"})
    run("state", "diff", "users.7@2", "users.7@3", "--store", url)
    assert "bread" in capsys.readouterr().out
    run("state", "restore", "users.7@2", "--store", url, "--yes")
    with HoldfastStore.from_url(url) as memory:
        assert memory.get(USER, "food").value == {"likes": "soup"}
        assert memory.list_namespaces() == [USER]


def test_a_value_that_is_no_item_ends_the_history_of_an_item(memory):
    memory.put(USER, "a", {"n": 1})

    @async_test
    async def overwrite():
        session = await Session.open(memory.state_store, agent_id="memory", session_id="users.7")
        async with session:
            session.set("a", 5)

    overwrite()
    assert memory.get(USER, "a") is None
    assert [each.value for each in memory.history(USER, "a")] == [{"n": 1}, None]
