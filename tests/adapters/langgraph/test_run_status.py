"""The status of a thread follows the run of its graph."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.channels import EphemeralValue, LastValue
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.pregel import NodeBuilder, Pregel
from langgraph.types import Command, Send, interrupt

from adapters.langgraph.graphs import at, build_steps, chain
from holdfast import Session
from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.adapters.langgraph.checkpoint import status_after
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test


class Log(TypedDict):
    log: Annotated[list[Any], operator.add]


async def statuses(saver):
    """All statuses of the session, in order."""
    session = await Session.open(saver.state_store, agent_id="langgraph", session_id="t")
    seen = []
    async for event in session.events:
        sets = [value for _, key, value in event.changes["set"] if key == "status"]
        seen += [value for value in sets if not seen or seen[-1] != value]
    assert seen[-1] == session.status
    return seen


def node(name):
    def run(state):
        return {"log": [name]}

    run.__name__ = name
    return run


def joined(saver, **options):
    """A graph that joins two branches of different length."""
    builder = StateGraph(Log)
    for name in ("a", "b", "b2"):
        builder.add_node(name, node(name))
    builder.add_node("end", node("end"), **options)
    builder.add_edge(START, "a")
    builder.add_edge(START, "b")
    builder.add_edge("b", "b2")
    builder.add_edge(["a", "b2"], "end")
    builder.add_edge("end", END)
    return builder.compile(checkpointer=saver)


def sending(saver):
    """A graph that sends two tasks."""
    builder = StateGraph(Log)
    builder.add_node("plan", node("plan"))
    builder.add_node("work", node("work"))
    builder.add_conditional_edges(START, lambda _: "plan")
    builder.add_conditional_edges("plan", lambda _: [Send("work", {}), Send("work", {})], ["work"])
    return builder.compile(checkpointer=saver)


def looping(saver):
    """A node that returns to itself by a command."""

    def again(state):
        return Command(update={"log": ["x"]}, goto=END if len(state["log"]) > 2 else "again")

    builder = StateGraph(Log)
    builder.add_node("again", again, destinations=("again", END))
    builder.add_edge(START, "again")
    return builder.compile(checkpointer=saver)


def nested(saver):
    """A graph in a node of another."""
    inner = chain(Log, node("x"), node("y")).compile()
    inner.name = "inner"
    return chain(Log, node("before"), inner, node("after")).compile(checkpointer=saver)


def deferred(saver):
    """The last node only runs when nothing else is left to run."""
    return joined(saver, defer=True)


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("make", [joined, deferred, sending, looping, nested])
@async_test
async def test_a_thread_is_completed_after_its_last_checkpoint(make, durability):
    saver = HoldfastSaver(MemoryStateStore())
    graph = make(saver)
    for _ in range(2):
        await graph.ainvoke({"log": ["in"]}, at(), durability=durability)
        assert (await statuses(saver))[-1] == "completed"
    if durability != "exit":
        assert await statuses(saver) == ["running", "completed"] * 2
    states = [state async for state in graph.aget_state_history(at())]
    assert len(states) > 1
    for state in states:
        found = await saver.aget_tuple(state.config)
        assert status_after(found.checkpoint) == ("running" if state.next else "completed")


@async_test
async def test_a_waiting_or_failed_thread_is_completed_after_it_continues():
    saver = HoldfastSaver(MemoryStateStore())
    graph = build_steps(saver)
    await graph.ainvoke({"log": ["in"]}, at())
    assert await statuses(saver) == ["running", "waiting"]
    await graph.ainvoke(Command(resume="yes"), at())
    assert await statuses(saver) == ["running", "waiting", "running", "completed"]

    fails = [True]

    def fail(state):
        if fails:
            raise ValueError(fails.pop())
        return {"log": ["done"]}

    saver = HoldfastSaver(MemoryStateStore())
    graph = chain(Log, fail).compile(checkpointer=saver)
    with pytest.raises(ValueError, match="True"):
        await graph.ainvoke({"log": ["in"]}, at())
    assert await statuses(saver) == ["running", "failed"]
    await graph.ainvoke(None, at())
    assert await statuses(saver) == ["running", "failed", "completed"]


@async_test
async def test_an_entrypoint_waits_and_is_completed():
    saver = HoldfastSaver(MemoryStateStore())

    @task
    async def work(number):
        return number + 1

    @entrypoint(checkpointer=saver)
    async def flow(number):
        return [await work(number), interrupt("really?")]

    await flow.ainvoke(1, at())
    assert await statuses(saver) == ["running", "waiting"]
    assert await flow.ainvoke(Command(resume="yes"), at()) == [2, "yes"]
    assert await statuses(saver) == ["running", "waiting", "completed"]


@async_test
async def test_updating_the_state_sets_the_status():
    saver = HoldfastSaver(MemoryStateStore())
    graph = build_steps(saver)
    await graph.aupdate_state(at(), {"log": ["x"]}, as_node="one")
    assert await statuses(saver) == ["running"]
    await graph.aupdate_state(at(), {"log": ["x"]}, as_node="two")
    assert await statuses(saver) == ["running", "completed"]


@async_test
async def test_a_hand_built_pregel_stays_running():
    saver = HoldfastSaver(MemoryStateStore())
    graph = Pregel(
        nodes={
            "one": NodeBuilder().subscribe_only("a").do(lambda x: x).write_to("b"),
            "two": NodeBuilder().subscribe_only("b").do(lambda x: x).write_to("c"),
        },
        channels={"a": EphemeralValue(str), "b": LastValue(str), "c": LastValue(str)},
        input_channels="a",
        output_channels="c",
        checkpointer=saver,
    )
    assert await graph.ainvoke("x", at()) == "x"
    assert await statuses(saver) == ["running"]
