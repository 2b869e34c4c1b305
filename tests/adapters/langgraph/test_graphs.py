"""Graphs run on the saver as on LangGraph's own."""

from __future__ import annotations

import asyncio
import operator
import threading
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, SystemMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Command, interrupt

from adapters.langgraph.graphs import (
    ScriptedModel,
    Steps,
    Talk,
    at,
    build_agent,
    build_deltas,
    build_fan_out,
    build_steps,
    chain,
    one,
    two,
    user_message,
)
from holdfast import open_state_store
from holdfast.adapters.langgraph import HoldfastSaver
from support.async_tests import async_test


@pytest.fixture(params=["ours", "theirs"])
def any_saver(request, saver):
    """Runs a test on LangGraph's own saver too, as the reference."""
    return saver if request.param == "ours" else InMemorySaver()


def texts(state):
    return [message.content for message in state["messages"]]


# ------------------------------------------------------------------------------- conversations


def test_a_conversation_with_tools_continues_over_several_runs(any_saver):
    graph = build_agent(any_saver)
    for number, day in enumerate(("monday", "sunday")):
        ended = graph.invoke({**user_message(day, str(number)), "plan": {"turn": number}}, at())
    assert texts(ended)[4:] == [
        *("sunday", "", "two tables on sunday", "There are two tables on sunday.")
    ]
    kept = graph.get_state(at()).values
    assert kept == ended
    assert kept["messages"][5].tool_calls[0]["args"] == {"day": "sunday"}
    assert [type(message) for message in kept["messages"]] == [
        type(message) for message in ended["messages"]
    ]


@async_test
async def test_async_graphs_run_and_stream():
    async with HoldfastSaver(open_state_store("memory:")) as saver:
        graph = build_agent(saver)
        await graph.ainvoke(user_message("monday", "1"), at())
        seen = [
            tuple(update)
            async for update in graph.astream(
                user_message("sunday", "2"), at(), stream_mode="updates"
            )
        ]
        assert seen == [("model",), ("tool",), ("model",)]
        assert len((await graph.aget_state(at())).values["messages"]) == 8


def test_a_blocking_and_an_async_graph_share_a_thread(saver):
    graph = build_agent(saver)
    graph.invoke(user_message("monday", "1"), at())
    asyncio.run(graph.ainvoke(user_message("tuesday", "2"), at()))
    graph.invoke(user_message("sunday", "3"), at())
    assert texts(graph.get_state(at()).values)[::4] == ["monday", "tuesday", "sunday"]


def test_messages_are_removed_and_edited_by_their_ids(any_saver):
    graph = chain(MessagesState, lambda_("edit", lambda state: {"messages": todo.pop()})).compile(
        checkpointer=any_saver
    )
    todo = [
        [RemoveMessage(REMOVE_ALL_MESSAGES), SystemMessage("new", id="s")],
        [HumanMessage("edited", id="3")],
        [RemoveMessage("0"), RemoveMessage("18")],
        [],
    ]
    first = [HumanMessage(f"number {number}", id=str(number)) for number in range(20)]
    graph.invoke({"messages": first}, at())
    assert texts(graph.invoke({"messages": []}, at())) == [
        f"number {number}" for number in range(20) if number not in (0, 18)
    ]
    assert texts(graph.invoke({"messages": []}, at()))[2] == "edited"
    assert texts(graph.get_state(at()).values)[1:4] == ["number 2", "edited", "number 4"]
    graph.invoke({"messages": []}, at())
    assert texts(graph.get_state(at()).values) == ["new"]
    lengths = [len(state.values["messages"]) for state in graph.get_state_history(at())]
    assert lengths == [1, *[18] * 6, *[20] * 4, 0]


def lambda_(name, function):
    function.__name__ = name
    return function


@pytest.mark.parametrize("count", [3, 40])
def test_messages_changed_in_place_and_returned_are_stored(any_saver, count):
    def edit(state):
        first = state["messages"][0]
        first.content += "!"
        first.additional_kwargs["edited"] = True
        return {"messages": [first]}

    graph = chain(MessagesState, edit).compile(checkpointer=any_saver)
    graph.invoke({"messages": [HumanMessage("m", id=str(each)) for each in range(count)]}, at())
    graph.invoke({"messages": []}, at())
    kept = graph.get_state(at()).values["messages"]
    assert kept[0] == HumanMessage("m!!", id="0", additional_kwargs={"edited": True})
    assert len(kept) == count


# ---------------------------------------------------------------------------------- interrupts


def test_several_interrupts_of_one_node_are_resumed_in_order(any_saver):
    def asks(state):
        return {"log": [interrupt("name?"), interrupt("age?")]}

    graph = chain(Steps, one, asks).compile(checkpointer=any_saver)
    graph.invoke({"log": []}, at())
    assert graph.get_state(at()).interrupts[0].value == "name?"
    graph.invoke(Command(resume="Ada"), at())
    assert graph.get_state(at()).interrupts[0].value == "age?"
    assert graph.invoke(Command(resume=36), at())["log"] == ["one", "Ada", 36]


def test_parallel_interrupts_are_resumed_by_id(any_saver):
    graph = build_fan_out(any_saver, lambda piece: {"done": [[piece, interrupt(piece)]]})
    graph.invoke({"work": ["a", "b", "c"]}, at())
    asked = graph.get_state(at()).interrupts
    assert sorted(each.value for each in asked) == ["a", "b", "c"]
    graph.invoke(Command(resume={each.id: each.value * 2 for each in asked[:2]}), at())
    (left,) = graph.get_state(at()).interrupts
    ended = graph.invoke(Command(resume={left.id: left.value * 2}), at())
    assert ended["done"] == [["a", "aa"], ["b", "bb"], ["c", "cc"]]


@pytest.mark.parametrize("where", ["interrupt_before", "interrupt_after"])
def test_a_graph_stops_at_static_interrupts(any_saver, where):
    graph = chain(Steps, one, two).compile(checkpointer=any_saver, **{where: ["one"]})
    graph.invoke({"log": []}, at())
    assert graph.get_state(at()).next == (("one",) if where.endswith("before") else ("two",))
    assert graph.invoke(None, at())["log"] == ["one", "two"]


# ------------------------------------------------------------------------------------ subgraphs


def nested(saver, inner_saver):
    inner = build_steps(inner_saver)
    inner.name = "inner"
    return chain(Steps, one, inner).compile(checkpointer=saver)


@pytest.mark.parametrize("inner", [None, True], ids=["its parent's", "its own"])
def test_a_subgraph_is_resumed_from_an_interrupt(any_saver, inner):
    graph = nested(any_saver, inner)
    graph.invoke({"log": ["in"]}, at())
    waiting = graph.get_state(at(), subgraphs=True)
    (task,) = waiting.tasks
    assert task.state.next == ("asking",)
    assert task.state.values["log"] == ["in", "one", "one"]
    assert task.state.config["configurable"]["checkpoint_ns"].startswith("inner")
    graph.update_state(task.state.config, {"log": ["by hand"]}, as_node="one")
    ended = graph.invoke(Command(resume="yes"), at())
    assert ended["log"][-3:] == ["by hand", "answer yes", "two"]
    states = list(graph.get_state_history(at()))
    assert [state.next for state in states] == [(), ("inner",), ("one",), ("__start__",)]


def test_a_subgraph_with_its_own_checkpoints_remembers_between_runs(any_saver):
    def remembering(state):
        return {"seen": ["here"]}

    class Inner(TypedDict):
        log: Annotated[list[Any], operator.add]
        seen: Annotated[list[str], operator.add]

    inner = chain(Inner, remembering).compile(checkpointer=True)
    inner.name = "inner"
    graph = chain(Steps, inner).compile(checkpointer=any_saver)
    for _ in range(3):
        graph.invoke({"log": []}, at())
    kept = graph.get_state(at(checkpoint_ns="inner"))
    assert kept.values["seen"] == ["here"] * 3


# -------------------------------------------------------------------------- failures, durability


def test_finished_tasks_are_not_repeated_after_another_task_failed(any_saver):
    ran: list[str] = []
    broken = {"b"}
    lock = threading.Barrier(3, timeout=20)

    def worker(piece):
        if len(ran) < 3:
            ran.append(piece)
            lock.wait()
        else:
            ran.append(piece)
        if piece in broken:
            raise OSError(f"no {piece} today")
        return {"done": [piece]}

    graph = build_fan_out(any_saver, worker)
    with pytest.raises(OSError, match="no b today"):
        graph.invoke({"work": ["a", "b", "c"]}, at(), durability="sync")
    state = graph.get_state(at())
    assert {task.name: task.error is not None for task in state.tasks if task.error}
    done = len([task for task in state.tasks if task.result])
    broken.clear()
    assert graph.invoke(None, at())["done"] == ["a", "b", "c"]
    assert len(ran) == 3 + 3 - done


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_every_durability_stores_the_final_state(any_saver, durability):
    graph = build_agent(any_saver)
    for number in range(3):
        graph.invoke(user_message("monday", str(number)), at(), durability=durability)
    kept = graph.get_state(at())
    assert len(kept.values["messages"]) == 12
    count = len(list(graph.get_state_history(at())))
    assert count == (3 if durability == "exit" else 15)
    failing = chain(Steps, one, lambda_("fails", lambda state: 1 / 0)).compile(
        checkpointer=any_saver
    )
    with pytest.raises(ZeroDivisionError):
        failing.invoke({"log": ["in"]}, at("f"), durability=durability)
    kept = failing.get_state(at("f"))
    assert (kept.values["log"], kept.next) == (["in", "one"], ("fails",))


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("frequency", [1, 3, 100])
def test_delta_channels_grow_with_every_durability(any_saver, durability, frequency):
    graph = build_deltas(any_saver, frequency)
    expected: list[Any] = []
    for number in range(5):
        expected += [number, "one", "two"]
        ended = graph.invoke({"log": [number]}, at(), durability=durability)
        assert ended["log"] == expected == graph.get_state(at()).values["log"]


def test_a_command_jumps_to_a_node_and_updates_the_state(any_saver):
    builder = StateGraph(Talk)
    builder.add_node("model", ScriptedModel().model, destinations=("next",))
    builder.add_node("jump", lambda state: Command(goto="next", update={"plan": {"jumped": True}}))
    builder.add_node("next", lambda state: {"messages": [AIMessage("end", id="e")]})
    builder.add_edge(START, "jump")
    builder.add_edge("next", END)
    graph = builder.compile(checkpointer=any_saver)
    ended = graph.invoke(user_message("monday", "1"), at())
    assert ended == graph.get_state(at()).values
    assert ended["plan"] == {"jumped": True}
