"""A checkpoint writes only what changed."""

from __future__ import annotations

from typing import Annotated, TypedDict

import pydantic
import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import MessagesState

from adapters.langgraph.graphs import at, build_agent, chain, user_message
from holdfast import Session
from holdfast.adapters.langgraph import HoldfastSaver
from support.async_tests import run_async


def contents(saver):
    async def read():
        store = saver.state_store
        keys = [key async for key in store.list("")]
        return {key: entry.value for key, entry in (await store.get_many(keys)).items()}

    return run_async(read())


def events(saver):
    async def read():
        session = await Session.open(saver.state_store, agent_id="langgraph", session_id="t")
        return [event async for event in session.events]

    return run_async(read())


class Puts:
    """Puts one checkpoint after another, as a running graph does."""

    def __init__(self, saver):
        self.saver = saver
        self.number = 0
        self.config = at(checkpoint_ns="")

    def put(self, **values):
        self.number += 1
        versions = dict.fromkeys(values, f"{self.number:08}.0")
        checkpoint = {
            **empty_checkpoint(),
            "id": f"1f1e0000-0000-6000-8000-{self.number:012}",
            "channel_values": values,
            "channel_versions": versions,
        }
        metadata = {"source": "loop", "step": self.number}
        self.config = self.saver.put(self.config, checkpoint, metadata, versions)
        return [(space, key) for space, key, _ in events(self.saver)[-1].changes["set"]]


@pytest.mark.parametrize("channel", ["messages", "items"])
@pytest.mark.parametrize("restarted", [False, True])
def test_only_new_items_of_a_list_are_written(saver, channel, restarted):
    puts = Puts(saver)
    items = [HumanMessage(f"number {number}", id=str(number)) for number in range(50)]
    puts.put(**{channel: items})
    if restarted:
        puts.saver = HoldfastSaver(saver.state_store)
    more = [AIMessage("new", id=f"n{number}") for number in range(3)]
    changed = puts.put(**{channel: [*items, *more]})
    assert [int(key) for space, key in changed if space != "langgraph"] == [50, 51, 52]


def test_only_an_edited_message_is_written(saver):
    puts = Puts(saver)
    items = [HumanMessage(f"number {number}", id=str(number)) for number in range(50)]
    puts.put(messages=items)
    items = [*items[:7], HumanMessage("other", id="7"), *items[8:]]
    assert [int(key) for space, key in puts.put(messages=items) if space == "messages"] == [7]
    assert puts.put(messages=list(items)) == [("langgraph", "checkpoint/")]
    puts.put(messages=items[:40])
    assert len(saver.get_tuple(at()).checkpoint["channel_values"]["messages"]) == 40


def test_equal_values_of_other_types_are_written(saver):
    puts = Puts(saver)
    for value in (1, True, 1.0, 0, False, -0.0, 0.0, "", None):
        puts.put(plan=value, messages=[value])
        found = HoldfastSaver(saver.state_store).get_tuple(at()).checkpoint["channel_values"]
        assert repr(found) == repr({"plan": value, "messages": [value]})


def test_the_size_of_a_turn_does_not_grow_with_the_conversation(saver):
    graph = build_agent(saver)
    sizes = []
    for number in range(60):
        graph.invoke({**user_message("monday", str(number)), "plan": {"turn": number}}, at())
        if number % 10 == 9:
            sizes.append(sum(map(len, contents(saver).values())))
    first, last = sizes[1] - sizes[0], sizes[-1] - sizes[-2]
    # Keyframes have the whole state, but are written only when the log has doubled.
    assert last < 2.5 * first


def test_changing_a_loaded_message_does_not_change_the_stored_one(saver):
    puts = Puts(saver)
    puts.put(messages=[HumanMessage("kept", id="1", additional_kwargs={"a": [1]})])
    for _ in range(2):
        (message,) = saver.get_tuple(at()).checkpoint["channel_values"]["messages"]
        assert message == HumanMessage("kept", id="1", additional_kwargs={"a": [1]})
        message.content = "scratched"
        message.additional_kwargs["a"].append(2)
        message.response_metadata["b"] = 1


@pytest.mark.parametrize("number", [-1, -7, 0])
def test_messages_changed_in_place_but_not_returned_are_stored(saver, number):
    def edit(state):
        state["messages"][number].content = "changed"
        return {}

    def add(state):
        return {"messages": [AIMessage("more", id="more")]}

    kept = {}
    for each in (saver, InMemorySaver()):
        graph = chain(MessagesState, edit, add).compile(checkpointer=each)
        first = [HumanMessage("m", id=str(number)) for number in range(40)]
        graph.update_state(at(), {"messages": first}, as_node="add")
        graph.invoke({"messages": []}, at(), durability="sync")
        messages = graph.get_state(at()).values["messages"]
        kept[each] = [message.content for message in messages].count("changed")
    assert list(kept.values()) == [1, 1]


def change_content(message):
    message.content += "!"


def change_deep(message):
    message.additional_kwargs["a"]["b"].append(3)


def change_beside(message):
    message.unheard_of = "here"


@pytest.mark.parametrize("change", [change_content, change_deep, change_beside])
@pytest.mark.parametrize("channel", ["messages", "items"])
def test_a_change_in_place_is_stored_before_its_writes_are_known(saver, channel, change):
    puts = Puts(saver)
    items = [
        HumanMessage("m", id=str(number), additional_kwargs={"a": {"b": [1, 2]}})
        for number in range(40)
    ]
    puts.put(**{channel: items})
    puts.put(**{channel: items})
    change(items[3])
    # As when LangGraph's threads come the other way round: the checkpoint, then what led to it.
    before = puts.config
    changed = [int(key) for space, key in puts.put(**{channel: items}) if space != "langgraph"]
    saver.put_writes(before, [(channel, [items[3]])], "task")
    assert changed == [3]
    kept = HoldfastSaver(saver.state_store).get_tuple(at()).checkpoint["channel_values"]
    assert kept[channel] == items


def test_equal_numbers_of_another_type_are_stored(saver):
    puts = Puts(saver)
    numbers = list(range(20))
    puts.put(items=numbers)
    numbers[1], numbers[2], numbers[3] = True, 2.0, 3
    changed = [int(key) for space, key in puts.put(items=numbers) if space != "langgraph"]
    assert changed == [1, 2]
    kept = saver.get_tuple(at()).checkpoint["channel_values"]["items"]
    assert [type(each) for each in kept[:4]] == [int, bool, float, int]


def test_items_of_other_types_are_compared_every_time(saver):
    class Doc(pydantic.BaseModel):
        text: str

    puts = Puts(saver)
    puts.saver = saver = HoldfastSaver(saver.state_store, allowed_types=[(__name__, "Doc")])
    docs = [Doc(text="a") for _ in range(20)]
    puts.put(items=docs)
    docs[5].text = "b"
    assert len([key for space, key in puts.put(items=docs) if space != "langgraph"]) == 1


@pytest.mark.parametrize("late", [False, True])
def test_writes_are_stored_as_they_were_when_written(saver, late):
    puts = Puts(saver)
    puts.put(log=["a"])
    before = puts.config
    if late:
        puts.put(log=["b"])
    wrote = {"role": "user", "content": ["as written"]}
    saver.put_writes(before, [("log", wrote)], "task")
    wrote["content"].append("later")
    for _ in range(2):
        ((_, _, value),) = saver.get_tuple(before).pending_writes
        assert value == {"role": "user", "content": ["as written"]}
        value["content"].append("by a reader")


class Incomparable(list):
    """A list whose ``==`` and ``!=`` raise, as those of arrays do."""

    def __eq__(self, other):
        raise ValueError("the truth value of an array is ambiguous")

    __ne__ = __eq__
    __hash__ = None


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize(
    ("one", "other"), [(1, True), (2.0, 2), (0.0, -0.0), ({"a": 1, "b": 2}, {"b": 2, "a": 1})]
)
def test_a_value_replaced_by_an_equal_one_of_another_type_is_stored(saver, durability, one, other):
    def change(state):
        return {"items": []}

    def swapped(left, right):
        return [{**each, "v": other} for each in left] if left else right

    State = TypedDict("State", {"items": Annotated[list[dict], swapped], "todo": list})  # noqa: UP013
    graph = chain(State, change).compile(checkpointer=saver)
    graph.update_state(at(), {"items": [{"n": n, "v": one} for n in range(20)]}, as_node="change")
    graph.invoke({"todo": []}, at(), durability=durability)
    kept = HoldfastSaver(saver.state_store).get_tuple(at()).checkpoint["channel_values"]["items"]
    assert {repr(each["v"]) for each in kept} == {repr(other)}


def test_values_that_cannot_be_compared_are_stored(saver):
    puts = Puts(saver)
    artifact = Incomparable([1.0, 2.0])
    puts.put(messages=[ToolMessage("done", tool_call_id="1", artifact=artifact)])
    many = [{"v": 1} for _ in range(20)]
    puts.put(items=many)
    many[3]["v"] = artifact
    puts.put(items=many)
    puts.put(items=many)
    found = saver.get_tuple(at()).checkpoint["channel_values"]["items"]
    assert list.__eq__(found[3]["v"], [1.0, 2.0])
