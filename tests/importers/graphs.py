"""Graphs whose threads LangGraph's own savers store, and checks of the imported threads."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import operator
from typing import Annotated, Any, TypedDict

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    HumanMessage,
    RemoveMessage,
    ToolMessage,
)
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, Send, interrupt
from pydantic import BaseModel

import holdfast
import holdfast.importers
from holdfast.adapters.langgraph import HoldfastSaver
from support.async_tests import run_async


class Talk(TypedDict, total=False):
    messages: Annotated[list, add_messages]
    notes: Annotated[list, operator.add]
    step: int


class Inner(TypedDict, total=False):
    messages: Annotated[list, add_messages]
    secret: str


def make_config(thread="t1", **more):
    return {"configurable": {"thread_id": thread, **more}}


def call(state):
    tool_call = {"name": "weather", "args": {"city": "Oslo"}, "id": "call_1"}
    return {"messages": [AIMessage("", tool_calls=[tool_call])], "notes": ["called"], "step": 1}


def use(state):
    allowed = interrupt({"question": "may I look?"})
    result = ToolMessage(f"sun ({allowed})", tool_call_id="call_1")
    return {"messages": [result], "notes": ["used"], "step": 2}


def think(state):
    return {"messages": [AIMessage("It is sunny.")], "secret": "a plan"}


def ask(state):
    return {"messages": [AIMessage(f"You said {interrupt('sure?')}.")]}


def build(saver):
    """Build a graph with a tool call that asks first, and a subgraph."""
    inner = StateGraph(Inner).add_node("think", think).add_edge(START, "think").compile()
    graph = StateGraph(Talk).add_node("call", call).add_node("use", use).add_node("inner", inner)
    graph.add_edge(START, "call").add_edge("call", "use").add_edge("use", "inner")
    return graph.compile(checkpointer=saver)


def build_nested(saver):
    """Build a graph with a subgraph that asks."""
    inner = StateGraph(Inner).add_node("think", think).add_node("ask", ask)
    inner.add_edge(START, "think").add_edge("think", "ask")
    graph = StateGraph(Talk).add_node("call", call).add_node("inner", inner.compile())
    return graph.add_edge(START, "call").add_edge("call", "inner").compile(checkpointer=saver)


def run_conversation(saver, thread="t1"):
    """Run a conversation: interrupt, resume, remove a message, and branch off the interrupt."""
    graph = build(saver)
    graph.invoke({"messages": [HumanMessage("How is the weather?")]}, make_config(thread))
    asked = graph.get_state(make_config(thread))
    graph.invoke(Command(resume="yes"), make_config(thread))
    first = graph.get_state(make_config(thread)).values["messages"][0]
    graph.update_state(make_config(thread), {"messages": [RemoveMessage(first.id)]})
    graph.invoke(Command(resume="only today"), asked.config)


def wait(saver, thread="waiting"):
    """Run a conversation up to an interrupt."""
    build(saver).invoke({"messages": [HumanMessage("And now?")]}, make_config(thread))


def wait_in_subgraph(saver, thread="nested"):
    """Run a conversation up to an interrupt in a subgraph."""
    build_nested(saver).invoke({"messages": [HumanMessage("And here?")]}, make_config(thread))


# -------------------------------------------------------------------------------------- values


class Plan(BaseModel):
    goal: str


@dataclasses.dataclass
class Card:
    number: int


class Things(TypedDict, total=False):
    messages: Annotated[list, add_messages]
    items: Annotated[list, operator.add]
    plan: Plan
    when: dt.datetime
    price: decimal.Decimal
    tags: set
    work: list


ALLOWED = [Plan, Card]


def fill(state):
    return {
        "messages": [ChatMessage("hm", role="critic", id="2"), AIMessageChunk("part", id="3")],
        "items": [Card(7), *({"n": n, "card": Card(n)} for n in range(20))],
        "plan": Plan(goal="x"),
        "when": dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
        "price": decimal.Decimal("1.50"),
        "tags": {1, 2},
    }


def build_typed(saver):
    """Build a graph whose state has objects of many types, and tasks that were sent."""
    graph = StateGraph(Things).add_node("fill", fill)
    graph.add_node("worker", lambda piece: {"items": [piece]})
    graph.add_conditional_edges("fill", lambda _: [Send("worker", Card(1)), Send("worker", 2)])
    return graph.add_edge(START, "fill").compile(checkpointer=saver)


def run_typed(saver, thread="typed"):
    """Run a graph with objects in its state."""
    build_typed(saver).invoke({"messages": [HumanMessage("hi", id="1")]}, make_config(thread))


def join(items, writes):
    return [*items, *(item for write in writes for item in write)]


class Deltas(TypedDict):
    items: Annotated[list[Any], DeltaChannel(join, snapshot_frequency=3)]


def build_deltas(saver):
    """Build a graph with a channel that is stored as its changes."""
    graph = StateGraph(Deltas).add_node("a", lambda state: {"items": ["a"]})
    return graph.add_edge(START, "a").compile(checkpointer=saver)


def run_deltas(saver, thread="deltas"):
    """Run a graph with a delta channel, and branch off."""
    graph = build_deltas(saver)
    for number in range(4):
        graph.invoke({"items": [str(number)]}, make_config(thread))
    old = [state for state in graph.get_state_history(make_config(thread)) if not state.next][2]
    graph.invoke({"items": ["branch"]}, old.config)


def fail(state):
    raise OSError("no network")


def build_failing(saver):
    """Build a graph whose second node fails."""
    graph = StateGraph(Talk).add_node("call", call).add_node("fail", fail)
    return graph.add_edge(START, "call").add_edge("call", "fail").compile(checkpointer=saver)


def run_failing(saver, thread="failed"):
    """Run a graph that fails."""
    try:
        build_failing(saver).invoke({"messages": []}, make_config(thread))
    except OSError:
        return
    raise AssertionError("the graph did not fail")


# -------------------------------------------------------------------------------------- checks

THREADS = {
    "t1": (run_conversation, build),
    "waiting": (wait, build),
    "nested": (wait_in_subgraph, build_nested),
    "typed": (run_typed, build_typed),
    "deltas": (run_deltas, build_deltas),
    "failed": (run_failing, build_failing),
}
"""How each thread is written, and the graph that it belongs to."""


def write_threads(saver):
    """Run all graphs, each in its thread."""
    for thread, (run, _) in THREADS.items():
        run(saver, thread)


def import_documents(store, *documents):
    """Import documents and save their snapshots, as the command line does."""

    async def work():
        manager = holdfast.SnapshotManager(store)
        for each in documents:
            result = await manager.import_session(each)
            assert result.created
            await holdfast.importers.save_snapshots(manager, each, result)

    run_async(work())


def check_thread(saver, document, thread):
    """Check that HoldfastSaver has an imported thread as the saver that wrote it has it."""
    store = holdfast.open_state_store("memory:")
    import_documents(store, document)
    with HoldfastSaver(store, allowed_types=ALLOWED) as ours:
        check_checkpoints(saver, ours, thread)
        graph = THREADS[thread][1]
        check_states(graph(saver), graph(ours), thread)
        check_verified(store, document)


def check_checkpoints(theirs, ours, thread):
    """Check every checkpoint of a thread, in lists and by its id."""
    expected = list(theirs.list(make_config(thread)))
    assert len(expected) > 2
    assert list(ours.list(make_config(thread))) == expected
    for each in expected:
        assert ours.get_tuple(each.config) == each
    assert ours.get_tuple(make_config(thread)) == theirs.get_tuple(make_config(thread))


def check_states(theirs, ours, thread):
    """Check the states of a thread as a graph sees them."""
    expected = theirs.get_state(make_config(thread), subgraphs=True)
    assert ours.get_state(make_config(thread), subgraphs=True) == expected
    history = list(theirs.get_state_history(make_config(thread)))
    assert list(ours.get_state_history(make_config(thread))) == history


def check_verified(store, document):
    """Check the log and snapshots of an imported thread, and that it is exported as it came."""

    async def work():
        session = await holdfast.Session.open(
            store, agent_id=document.agent_id, session_id=document.session_id
        )
        assert (await session.verify()).ok
        exported = await holdfast.SnapshotManager(store).export_session(
            document.agent_id, document.session_id
        )
        assert exported.digest == document.digest

    run_async(work())


def read_values(values):
    """Return the values of a graph without random ids."""
    return {
        **values,
        "messages": [(type(each), each.content) for each in values.get("messages", [])],
        "__interrupt__": [each.value for each in values.get("__interrupt__", [])],
    }


def check_imports(*documents):
    """Check that documents become sessions that verify, and that are exported as they came."""

    async def work():
        async with holdfast.open_state_store("memory:") as store:
            manager = holdfast.SnapshotManager(store)
            for each in documents:
                result = await manager.import_session(each)
                assert result.created
                assert result.events_restored == len(each.events)
                session = await holdfast.Session.open(
                    store, agent_id=each.agent_id, session_id=each.session_id, scope=each.scope
                )
                assert (await session.verify()).ok
                again = await manager.export_session(each.agent_id, each.session_id)
                assert again.digest == each.digest
                assert manager.from_dict(again.to_dict()).digest == each.digest

    run_async(work())
