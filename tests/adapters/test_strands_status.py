"""The status of a session follows the runs of Strands agents and orchestrators."""

from __future__ import annotations

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("strands.storage.search")

from strands import Agent, tool
from strands.agent.conversation_manager import NullConversationManager
from strands.hooks import AfterToolCallEvent
from strands.multiagent import GraphBuilder, Swarm
from strands.session import SnapshotSessionManager
from strands.types.exceptions import StorageError

from adapters.scripted_strands import ScriptedModel, make_waiter, tables
from adapters.test_strands import KEPT, LATEST, encode_snapshot
from holdfast import Session, open_state_store
from holdfast.adapters.strands import HoldfastSessionManager, HoldfastStorage
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test

CALL = ("tables", "call_1", {"day": "monday"})
MANAGERS = [SnapshotSessionManager, HoldfastSessionManager]


class WatchingModel(ScriptedModel):
    """Records the status of the session at each call."""

    def __init__(self, store, *answers):
        super().__init__(*answers)
        self.store = store
        self.seen = []

    async def stream(self, *rest, **more):
        self.seen.append(await read_status(self.store))
        async for event in super().stream(*rest, **more):
            yield event


async def read_status(store, agent_id="waiter", scope="agent"):
    """Return the committed status of the session."""
    session = await Session.open(store, agent_id=agent_id, session_id="ses", scope=scope)
    return session.status


async def list_statuses(store, agent_id="waiter", scope="agent"):
    """Return every status that the session had, in order."""
    found = await Session.open(store, agent_id=agent_id, session_id="ses", scope=scope)
    seen = []
    async for event in found.events:
        sets = [value for space, key, value in event.changes["set"] if key == "status"]
        seen += [value for value in sets if not seen or seen[-1] != value]
    return seen


def make_agent(manager, *answers, model=None, tools=(tables,)):
    """Return an agent with a session manager."""
    return Agent(
        model=model or ScriptedModel(*answers),
        agent_id="waiter",
        tools=list(tools),
        session_manager=manager,
        conversation_manager=NullConversationManager(),
        callback_handler=None,
    )


@tool(context=True)
def pay(tool_context, amount: int) -> str:
    """Pay, after a person agreed."""
    return str(tool_context.interrupt("approve", reason=f"pay {amount}?"))


# ------------------------------------------------------------------------------ one agent


@pytest.mark.parametrize("manager", MANAGERS)
@async_test
async def test_a_finished_run_is_completed(manager, new_state_store):
    async with new_state_store() as store:
        storage = HoldfastStorage(store)
        await make_agent(manager("ses", storage=storage), CALL, "Two").invoke_async("A table?")
        assert await read_status(store) == "completed"
        await make_agent(manager("ses", storage=storage), "Bye").invoke_async("Thanks")
        assert await read_status(store) == "completed"
        assert (await storage.document("ses", "waiter")).state.status == "completed"


@async_test
async def test_a_run_that_saves_each_message_is_running():
    store = MemoryStateStore()
    model = WatchingModel(store, CALL, "Two")
    manager = SnapshotSessionManager(
        "ses", storage=HoldfastStorage(store), save_latest_on="message"
    )
    await make_agent(manager, model=model).invoke_async("A table?")
    assert model.seen == ["running", "running"]
    assert await list_statuses(store) == ["pending", "running", "completed"]


@async_test
async def test_our_manager_commits_the_start_of_a_run():
    store = MemoryStateStore()
    for answer in ("One", "Two"):
        model = WatchingModel(store, answer)
        manager = HoldfastSessionManager("ses", storage=HoldfastStorage(store))
        await make_agent(manager, model=model).invoke_async("Hello")
        assert model.seen == ["running"]
    found = await list_statuses(store)
    assert found == ["pending", "running", "completed", "running", "completed"]


@async_test
async def test_our_manager_saves_what_the_manager_of_strands_saves():
    storage = HoldfastStorage(MemoryStateStore())
    manager = HoldfastSessionManager("ses", storage=storage)
    agent = make_agent(manager, CALL, "Two")
    agent.state.set("guests", 2)
    await agent.invoke_async("A table?")
    (key,) = await storage.list()
    saved = json.loads(await storage.read(key))
    theirs = SnapshotSessionManager._capture(manager, agent).to_dict()
    assert list(saved) == list(theirs)
    assert json.dumps(saved["data"]) == json.dumps(theirs["data"])


@pytest.mark.parametrize("manager", MANAGERS)
@async_test
async def test_an_interrupted_run_waits_for_a_person(manager):
    store = MemoryStateStore()
    storage = HoldfastStorage(store)
    call = ("pay", "call_1", {"amount": 5})
    agent = make_agent(manager("ses", storage=storage), call, "Paid", tools=[pay])
    result = await agent.invoke_async("Pay, please")
    assert result.stop_reason == "interrupt"
    assert await read_status(store) == "waiting"
    (interrupt,) = result.interrupts
    answer = {"interruptResponse": {"interruptId": interrupt.id, "response": "yes"}}
    await agent.invoke_async([answer])
    assert await read_status(store) == "completed"


@pytest.mark.parametrize("when", ["invocation", "message", "trigger"])
@async_test
async def test_a_run_that_raised_has_failed_and_the_next_one_is_completed(when):
    store = MemoryStateStore()
    manager = HoldfastSessionManager("ses", storage=HoldfastStorage(store), save_latest_on=when)
    agent = make_agent(manager)
    with pytest.raises(IndexError):
        await agent.invoke_async("Hello")
    assert await read_status(store) == "failed"
    agent.model.answers.append("Welcome")
    await agent.invoke_async("Again")
    assert await read_status(store) == "completed"


@async_test
async def test_a_run_that_failed_is_not_completed_with_the_manager_of_strands():
    store = MemoryStateStore()
    with pytest.raises(IndexError):
        await make_waiter(HoldfastStorage(store)).invoke_async("Hello")
    assert await read_status(store) == "running"


@async_test
async def test_a_run_cancelled_by_its_task_or_the_agent_is_cancelled():
    store = MemoryStateStore()
    asked = asyncio.Event()

    class Slow(ScriptedModel):
        async def stream(self, *rest, **more):
            asked.set()
            await asyncio.sleep(60)
            yield {}

    manager = HoldfastSessionManager("ses", storage=HoldfastStorage(store))
    run = asyncio.create_task(make_agent(manager, model=Slow()).invoke_async("Hello"))
    await asked.wait()
    assert await read_status(store) == "running"
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert await read_status(store) == "cancelled"

    manager = HoldfastSessionManager("ses", storage=HoldfastStorage(store))
    agent = make_agent(manager, CALL, "Two")

    agent.add_hook(lambda _: agent.cancel(), AfterToolCallEvent)
    result = await agent.invoke_async("A table?")
    assert result.stop_reason == "cancelled"
    assert await read_status(store) == "cancelled"


def test_a_blocking_run_has_a_status():
    store = MemoryStateStore()
    agent = make_agent(HoldfastSessionManager("ses", storage=HoldfastStorage(store)), "Hi")
    agent("Hello")
    assert asyncio.run(read_status(store)) == "completed"
    with pytest.raises(IndexError):
        agent("Again")
    assert asyncio.run(read_status(store)) == "failed"


# --------------------------------------------------------------------------- orchestrators


def make_graph(agent, manager):
    """Return a graph of one agent."""
    builder = GraphBuilder()
    builder.add_node(agent, "cook")
    builder.set_graph_id("kitchen")
    builder.set_max_node_executions(5)
    builder.set_session_manager(manager)
    return builder.build()


@pytest.mark.parametrize("manager", MANAGERS)
@async_test
async def test_a_graph_is_completed_or_failed(manager):
    store = MemoryStateStore()
    storage = HoldfastStorage(store)
    await make_graph(make_waiter(None, "soup"), manager("ses", storage=storage)).invoke_async(
        "What?"
    )
    assert await read_status(store, "kitchen", "multi_agent") == "completed"
    assert "running" in await list_statuses(store, "kitchen", "multi_agent")
    with pytest.raises(IndexError):
        await make_graph(make_waiter(None), manager("ses", storage=storage)).invoke_async("What?")
    assert await read_status(store, "kitchen", "multi_agent") == "failed"


@pytest.mark.parametrize("manager", MANAGERS)
@async_test
async def test_a_graph_that_is_interrupted_waits(manager):
    store = MemoryStateStore()
    cook = make_agent(None, ("pay", "call_1", {"amount": 5}), "Paid", tools=[pay])
    graph = make_graph(cook, manager("ses", storage=HoldfastStorage(store)))
    result = await graph.invoke_async("Pay")
    assert await read_status(store, "kitchen", "multi_agent") == "waiting"
    (interrupt,) = result.interrupts
    await graph.invoke_async(
        [{"interruptResponse": {"interruptId": interrupt.id, "response": "yes"}}]
    )
    assert await read_status(store, "kitchen", "multi_agent") == "completed"


@pytest.mark.parametrize("manager", MANAGERS)
@async_test
async def test_a_swarm_is_completed(manager):
    store = MemoryStateStore()
    cook = Agent(name="cook", model=ScriptedModel("soup"), callback_handler=None)
    swarm = Swarm(
        [cook], id="kitchen", session_manager=manager("ses", storage=HoldfastStorage(store))
    )
    await swarm.invoke_async("What is there?")
    assert await read_status(store, "kitchen", "multi_agent") == "completed"


@async_test
async def test_a_graph_whose_stream_is_closed_is_cancelled():
    store = MemoryStateStore()
    manager = HoldfastSessionManager("ses", storage=HoldfastStorage(store))
    stream = make_graph(make_waiter(None, "soup"), manager).stream_async("Hello")
    async for _ in stream:
        assert await read_status(store, "kitchen", "multi_agent") == "running"
        break
    await stream.aclose()
    assert await read_status(store, "kitchen", "multi_agent") == "cancelled"


@async_test
async def test_a_status_is_committed_after_a_cancelled_save():
    loop, release = asyncio.get_running_loop(), threading.Event()
    loop.set_default_executor(ThreadPoolExecutor(1))
    loop.run_in_executor(None, release.wait)
    store = MemoryStateStore()
    storage = HoldfastStorage(store)
    save = asyncio.create_task(storage.write(LATEST, encode_snapshot("hello")))
    await asyncio.sleep(0)
    save.cancel()
    with pytest.raises(asyncio.CancelledError):
        await save
    release.set()
    await storage.set_status("ses", "waiter", "cancelled")
    assert await read_status(store) == "cancelled"
    assert await list_statuses(store) == ["pending", "running", "cancelled"]
    assert await storage.read(LATEST) == encode_snapshot("hello")


# ------------------------------------------------------------------------------------ stored data


@async_test
async def test_a_status_is_written_with_the_snapshot_or_when_it_changes():
    store = MemoryStateStore()
    storage = HoldfastStorage(store)
    await storage.write(LATEST, encode_snapshot("hello"))
    segments = [key async for key in store.list() if "/log/" in key]
    assert len(segments) == 1
    assert await read_status(store) == "running"
    await storage.set_status("ses", "waiter", "running")
    assert [key async for key in store.list() if "/log/" in key] == segments
    await storage.set_status("ses", "waiter", "failed")
    assert len([key async for key in store.list() if "/log/" in key]) == 2
    assert await read_status(store) == "failed"
    assert await HoldfastStorage(store).read(LATEST) == encode_snapshot("hello")
    with pytest.raises(StorageError, match="set the status of 'ses'.*invalid status 'done'"):
        await storage.set_status("ses", "waiter", "done")


@async_test
async def test_a_status_after_a_checkpoint_does_not_change_the_latest():
    store = MemoryStateStore()
    storage = HoldfastStorage(store)
    await storage.write(LATEST, encode_snapshot("one"))
    await storage.write(KEPT[0], encode_snapshot("one", "two"))
    await storage.set_status("ses", "waiter", "failed")
    for each in (storage, HoldfastStorage(store)):
        assert await each.read(LATEST) == encode_snapshot("one")
        assert await each.list() == [KEPT[0], LATEST]
    assert await read_status(store) == "failed"


@async_test
async def test_bytes_that_are_not_a_snapshot_do_not_change_the_status():
    store = MemoryStateStore()
    storage = HoldfastStorage(store)
    await storage.write(LATEST, b"not json")
    assert await read_status(store) == "pending"
    assert await storage.read(LATEST) == b"not json"


@async_test
async def test_a_checkpoint_has_the_status_of_its_time(tmp_path):
    async with open_state_store(f"sqlite:///{tmp_path}/state.db") as store:
        manager = SnapshotSessionManager(
            "ses", storage=HoldfastStorage(store), snapshot_trigger=lambda **_: True
        )
        await make_agent(manager, CALL, "Two").invoke_async("A table?")
        session = await Session.open(store, agent_id="waiter", session_id="ses")
        (info,) = (await session.archive.list_snapshots(location=session.location)).snapshots
        assert info.status == "completed"
        assert (await session.verify()).ok


def test_our_manager_rejects_a_storage_with_a_namespace():
    storage = HoldfastStorage(MemoryStateStore())
    HoldfastSessionManager("ses", storage=storage.namespace("session"))
    with pytest.raises(ValueError, match="namespace 'team/' are not sessions"):
        HoldfastSessionManager("ses", storage=storage.namespace("team"))
    with pytest.raises(TypeError, match="must be a HoldfastStorage"):
        HoldfastSessionManager("ses", storage="memory:")
