"""Strands agents with Holdfast sessions, with the real package and a scripted model."""

from __future__ import annotations

import pytest

pytest.importorskip("strands")

from strands.multiagent import GraphBuilder
from strands.session import SnapshotSessionManager

from adapters.scripted_strands import make_waiter
from holdfast import (
    BlockingSession,
    Catalog,
    NotFoundError,
    Session,
    SnapshotManager,
    open_state_store,
)
from holdfast.adapters.strands import HoldfastStorage
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test, run_async
from support.subprocesses import run_python

CALL = ("tables", "call_1", {"day": "monday"})


def always(**_):
    return True


def list_texts(agent):
    return [part["text"] for each in agent.messages for part in each["content"] if "text" in part]


def snapshot_key(snapshot_id):
    folder = "session/ses/scopes/agent/waiter/snapshots/immutable_history"
    return f"{folder}/snapshot_{snapshot_id}.json"


def test_an_agent_resumes_on_every_backend(new_state_store):
    store = new_state_store()
    agent = make_waiter(HoldfastStorage(store), CALL, "Two tables", snapshot_trigger=always)
    agent.state.set("guests", 2)
    agent("A table?")
    resumed = make_waiter(HoldfastStorage(store), "You are welcome")
    assert resumed.messages == agent.messages
    assert resumed.state.get() == {"guests": 2}
    resumed("Thanks")
    assert list_texts(make_waiter(HoldfastStorage(store))) == [
        "A table?",
        "Two tables",
        "Thanks",
        "You are welcome",
    ]
    run_async(store.close())


@async_test
async def test_an_agent_is_stored_as_a_holdfast_session():
    store = MemoryStateStore()
    agent = make_waiter(HoldfastStorage(store), CALL, "Two tables")
    agent.state.set("guests", 2)
    await agent.invoke_async("A table?")
    assert await Catalog(store).agents() == ["waiter"]
    session = await Session.open(store, agent_id="waiter", session_id="ses", must_exist=True)
    assert session.messages == agent.messages
    assert session.state == {"guests": 2}
    assert session.unfinished == []
    assert (await session.verify()).ok


@async_test
async def test_the_document_of_an_agent_has_its_messages_and_values():
    storage = HoldfastStorage(MemoryStateStore())
    agent = make_waiter(storage, "Welcome", CALL, "Two", snapshot_trigger=always)
    agent.state.set("guests", 2)
    await agent.invoke_async("Hello")
    (first,) = await agent._session_manager.list_snapshot_ids(agent)
    await agent.invoke_async("A table?")
    now = await storage.document("ses", "waiter")
    then = await storage.document("ses", "waiter", snapshot_id=first)
    assert now.state.messages == agent.messages
    assert (len(then.state.messages), then.state.values) == (2, {"guests": 2})
    assert now.events[0].type == "session.started"
    with pytest.raises(NotFoundError):
        await storage.document("ses", "cook")


@async_test
async def test_strands_restores_snapshots_of_its_history():
    storage = HoldfastStorage(MemoryStateStore())
    agent = make_waiter(storage, "one", "two", "three", snapshot_trigger=always)
    manager = agent._session_manager
    for word in ("1", "2", "3"):
        await agent.invoke_async(word)
    ids = await manager.list_snapshot_ids(agent)
    assert len(ids) == 3
    assert await manager.list_snapshot_ids(agent, limit=1, start_after=ids[0]) == ids[1:2]
    assert await manager.restore_snapshot(agent, snapshot_id=ids[0])
    assert list_texts(agent) == ["1", "one"]
    assert await manager.restore_snapshot(agent)
    assert list_texts(agent) == ["1", "one", "2", "two", "3", "three"]


@async_test
async def test_a_checkpoint_does_not_change_the_latest():
    storage = HoldfastStorage(MemoryStateStore())
    agent = make_waiter(storage, "one", "two", save_latest_on="trigger")
    await agent.invoke_async("1")
    checkpoint = await agent._session_manager.save_snapshot(agent, is_latest=False)
    assert list_texts(make_waiter(storage)) == []
    await agent._session_manager.save_snapshot(agent, is_latest=True)
    await agent.invoke_async("2")
    later = await agent._session_manager.save_snapshot(agent, is_latest=False)
    assert list_texts(make_waiter(storage)) == ["1", "one"]
    assert await agent._session_manager.list_snapshot_ids(agent) == [checkpoint, later]


def test_an_agent_resumes_from_a_state_that_holdfast_restored():
    store = MemoryStateStore()
    agent = make_waiter(HoldfastStorage(store), "one", "two", snapshot_trigger=always)
    agent("1")
    agent("2")
    (first, _) = run_async(agent._session_manager.list_snapshot_ids(agent))
    session = BlockingSession.open(store, agent_id="waiter", session_id="ses")
    session.restore(first)
    resumed = make_waiter(HoldfastStorage(store), "other")
    assert list_texts(resumed) == ["1", "one"]
    resumed("3")
    assert list_texts(make_waiter(HoldfastStorage(store))) == ["1", "one", "3", "other"]
    saved = session.save()
    assert run_async(HoldfastStorage(store).read(snapshot_key(saved.snapshot_id)))
    assert session.verify().ok


def test_a_fork_at_a_checkpoint_is_another_strands_session():
    store = MemoryStateStore()
    agent = make_waiter(HoldfastStorage(store), "one", "two", snapshot_trigger=always)
    agent("1")
    agent("2")
    (first, _) = run_async(agent._session_manager.list_snapshot_ids(agent))
    session = BlockingSession.open(store, agent_id="waiter", session_id="ses")
    session.fork("ses_2", at=first)
    fork = make_waiter(HoldfastStorage(store), "three", session_id="ses_2")
    assert list_texts(fork) == ["1", "one"]
    fork("3")
    assert list_texts(make_waiter(HoldfastStorage(store), session_id="ses_2")) == [
        "1",
        "one",
        "3",
        "three",
    ]
    assert list_texts(make_waiter(HoldfastStorage(store))) == ["1", "one", "2", "two"]


@async_test
async def test_a_document_of_any_snapshot_is_imported_and_resumed():
    here, there = MemoryStateStore(), MemoryStateStore()
    agent = make_waiter(HoldfastStorage(here), "one", "two", snapshot_trigger=always)
    await agent.invoke_async("1")
    await agent.invoke_async("2")
    (first, _) = await agent._session_manager.list_snapshot_ids(agent)
    now = await HoldfastStorage(here).document("ses", "waiter")
    then = await HoldfastStorage(here).document("ses", "waiter", snapshot_id=first)
    manager = SnapshotManager(there)
    await manager.import_session(manager.from_dict(now.to_dict()), session_id="now")
    await manager.import_session(manager.from_dict(then.to_dict()), session_id="then")
    storage = HoldfastStorage(there)
    assert list_texts(make_waiter(storage, session_id="now")) == ["1", "one", "2", "two"]
    assert list_texts(make_waiter(storage, session_id="then")) == ["1", "one"]
    added = now.snapshot.diff(then.snapshot)["added"]
    assert added == [("messages", "000000000002"), ("messages", "000000000003")]


@async_test
async def test_deleting_a_session_deletes_all_of_it_and_nothing_else():
    store = MemoryStateStore()
    other = await Session.open(store, agent_id="other", session_id="apart")
    other.set("x", 1)
    await other.commit()
    before = [key async for key in store.list()]
    storage = HoldfastStorage(store)
    agent = make_waiter(storage, "one", "two", snapshot_trigger=always)
    await agent.invoke_async("1")
    await agent.invoke_async("2")
    await storage.write("context/ses/1", b"stash")
    await SnapshotSessionManager("ses", storage=storage).delete_session()
    assert [key async for key in store.list()] == before
    assert list_texts(make_waiter(storage)) == []


@async_test
async def test_deleting_a_session_keeps_other_agents():
    store = MemoryStateStore()
    other = await Session.open(store, agent_id="other", session_id="ses")
    other.record("noted", changes={"set": [("notes", "n", 1)], "delete": []})
    await other.commit()
    storage = HoldfastStorage(store)
    await make_waiter(storage, "one").invoke_async("1")
    await SnapshotSessionManager("ses", storage=storage).delete_session()
    assert await storage.list("") == []
    await other.reload()
    assert other.snapshot().get("notes", "n") == 1


@async_test
async def test_an_orchestrator_resumes_as_a_multi_agent_session():
    store = MemoryStateStore()

    def graph(*answers):
        builder = GraphBuilder()
        builder.add_node(make_waiter(None, *answers), "cook")
        builder.set_graph_id("kitchen")
        builder.set_max_node_executions(5)
        manager = SnapshotSessionManager("ses", storage=HoldfastStorage(store))
        builder.set_session_manager(manager)
        return builder.build()

    await graph("soup").invoke_async("What is there?")
    (key,) = await HoldfastStorage(store).list("session/ses/scopes/multiAgent/")
    assert key.endswith("/snapshots/snapshot_latest.json")
    (location,) = await Catalog(store).locations("ses")
    assert location.scope == "multi_agent"
    await graph("soup").invoke_async("Again")


# -------------------------------------------------------------------------------- after a crash

CRASHING = """
import asyncio, os, sys
import holdfast
from adapters.scripted_strands import make_waiter
from holdfast.adapters.strands import HoldfastStorage

storage = HoldfastStorage(holdfast.open_state_store(sys.argv[1]))
agent = make_waiter(storage, "Welcome", save_latest_on="message")
agent.state.set("guests", 2)
agent("Hello")
agent.model.stream = lambda *rest, **more: os._exit(137)
agent("A table?")
"""


def test_a_new_process_continues_after_a_crash(tmp_path):
    url = f"file://{tmp_path / 'state'}"
    ended = run_python(CRASHING, url)
    assert ended.returncode == 137, ended.stderr
    store = open_state_store(url)
    agent = make_waiter(HoldfastStorage(store), "Two")
    assert list_texts(agent) == ["Hello", "Welcome", "A table?"]
    assert agent.state.get() == {"guests": 2}
    agent("Are you there?")
    assert (
        run_async(SnapshotManager(store).export_session("waiter")).state.messages == agent.messages
    )
    run_async(store.close())
