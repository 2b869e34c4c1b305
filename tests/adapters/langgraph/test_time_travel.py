"""Time travel: resuming, branching off and updating old checkpoints."""

from __future__ import annotations

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.types import Command

from adapters.langgraph.graphs import at, build_agent, build_deltas, build_steps, user_message
from holdfast.adapters.langgraph import HoldfastSaver
from support.async_tests import async_test


def history(graph, config):
    return [(state.next, state.values.get("log")) for state in graph.get_state_history(config)]


def test_a_graph_is_resumed_from_an_interrupt_by_another_saver(new_saver):
    graph = build_steps(new_saver())
    graph.invoke({"log": ["begin"]}, at())
    graph = build_steps(new_saver())  # as in another process
    waiting = graph.get_state(at())
    assert waiting.next == ("asking",)
    assert [each.value for each in waiting.interrupts] == ["really?"]
    assert graph.invoke(Command(resume="yes"), at()) == {
        "log": ["begin", "one", "answer yes", "two"]
    }
    assert history(build_steps(new_saver()), at()) == [
        ((), ["begin", "one", "answer yes", "two"]),
        (("two",), ["begin", "one", "answer yes"]),
        (("asking",), ["begin", "one"]),
        (("one",), ["begin"]),
        (("__start__",), []),
    ]


def test_a_graph_branches_off_an_old_checkpoint_and_the_old_branch_stays(new_local_saver):
    graph = build_steps(new_local_saver())
    graph.invoke({"log": ["begin"]}, at())
    graph.invoke(Command(resume="yes"), at())
    before = history(graph, at())
    asked = next(state for state in graph.get_state_history(at()) if state.next == ("asking",))

    graph = build_steps(new_local_saver())
    again = graph.invoke(None, asked.config)
    assert [each.value for each in again["__interrupt__"]] == ["really?"]
    assert graph.invoke(Command(resume="no"), at())["log"] == ["begin", "one", "answer no", "two"]
    assert history(graph, at())[-len(before) :] == before
    assert graph.get_state(asked.config).values == {"log": ["begin", "one"]}


def test_the_current_and_a_past_state_can_be_updated(new_local_saver):
    graph = build_steps(new_local_saver())
    graph.invoke({"log": ["begin"]}, at())
    graph.update_state(at(), {"log": ["by hand"]}, as_node="asking")
    assert graph.get_state(at()).next == ("two",)
    assert graph.invoke(None, at())["log"] == ["begin", "one", "by hand", "two"]

    first = next(state for state in graph.get_state_history(at()) if state.next == ("one",))
    forked = graph.update_state(first.config, {"log": ["instead"]}, as_node="one")
    graph = build_steps(new_local_saver())
    assert graph.get_state(forked).values["log"] == ["begin", "instead"]
    assert graph.get_state(at()).config == forked
    graph.invoke(None, forked)
    assert graph.invoke(Command(resume="so"), at())["log"] == [
        *("begin", "instead", "answer so", "two")
    ]


def test_nested_branches_are_independent(new_local_saver):
    graph = build_agent(new_local_saver())
    graph.invoke(user_message("monday", "1"), at())
    root = graph.get_state(at()).config
    ends = {}
    for day in ("tuesday", "sunday"):
        changed = graph.update_state(root, {"messages": [HumanMessage(day, id="1")], "plan": {}})
        ends[day] = graph.update_state(changed, {"messages": [AIMessage(day, id="z")]})
        for deeper in "ab":
            ends[day + deeper] = graph.update_state(ends[day], {"plan": {"way": deeper}})
    graph = build_agent(new_local_saver())
    for way, config in ends.items():
        day, deeper = way.rstrip("ab"), way.removeprefix("tuesday").removeprefix("sunday")
        values = graph.get_state(config).values
        assert [each.content for each in values["messages"]] == [
            *(day, "", "two tables on monday", "There are two tables on monday.", day)
        ]
        assert values["plan"] == ({"way": deeper} if deeper else {})
        chain = [config]
        while (parent := graph.get_state(chain[-1]).parent_config) is not None:
            chain.append(parent)
        assert root in chain
    assert graph.get_state(root).values["messages"][0].content == "monday"


def test_delta_channels_are_rebuilt_on_every_branch(new_durable_saver):
    graph = build_deltas(new_durable_saver(), frequency=4)
    for number in range(4):
        graph.invoke({"log": [number]}, at())
    states = list(build_deltas(new_durable_saver(), frequency=4).get_state_history(at()))
    assert [state.values["log"] for state in states if not state.next][::-1] == [
        [each for number in range(count) for each in (number, "one", "two")]
        for count in range(1, 5)
    ]
    old = next(state for state in states if state.values["log"][-1:] == [1])
    graph = build_deltas(new_durable_saver(), frequency=4)
    assert graph.invoke(None, old.config)["log"] == [0, "one", "two", 1, "one", "two"]
    assert graph.invoke({"log": ["other"]}, at())["log"][5:] == ["two", "other", "one", "two"]
    assert (
        build_deltas(new_durable_saver(), 4).get_state(states[0].config).values == states[0].values
    )


@async_test
async def test_async_graphs_can_branch_and_update_the_past():
    async with HoldfastSaver.from_url("memory:") as saver:
        graph = build_steps(saver)
        await graph.ainvoke({"log": ["begin"]}, at())
        await graph.ainvoke(Command(resume="yes"), at())
        states = [state async for state in graph.aget_state_history(at())]
        asked = next(state for state in states if state.next == ("asking",))
        async for _ in graph.astream(None, asked.config, stream_mode="updates"):
            pass
        ended = await graph.ainvoke(Command(resume="no"), at())
        assert ended["log"] == ["begin", "one", "answer no", "two"]
        await graph.aupdate_state(asked.config, {"log": ["by hand"]}, as_node="asking")
        assert (await graph.aget_state(at())).values["log"] == ["begin", "one", "by hand"]


@pytest.mark.parametrize("keep", ["keep_latest", "delete"])
def test_a_pruned_thread_continues(new_local_saver, keep):
    saver = new_local_saver()
    graph = build_steps(saver)
    for thread in "ab":
        graph.invoke({"log": ["begin"]}, at(thread))
    saver.prune(["a"], strategy=keep)
    graph = build_steps(new_local_saver())
    assert len(list(graph.get_state_history(at("a")))) == (keep == "keep_latest")
    assert len(list(graph.get_state_history(at("b")))) == 3
    if keep == "keep_latest":
        assert graph.invoke(Command(resume="yes"), at("a"))["log"][-2:] == ["answer yes", "two"]
