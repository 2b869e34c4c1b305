"""Graphs without a network, whose threads are read back, and what LangGraph itself says of them."""

from __future__ import annotations

import asyncio
import operator
from typing import Annotated, TypedDict

from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, interrupt

import holdfast


class Talk(TypedDict, total=False):
    messages: Annotated[list, add_messages]
    notes: Annotated[list, operator.add]
    step: int


class Inner(TypedDict, total=False):
    messages: Annotated[list, add_messages]
    secret: str


def config(thread="t1", **more):
    return {"configurable": {"thread_id": thread, **more}}


def call(state):
    wanted = [{"name": "weather", "args": {"city": "Oslo"}, "id": "call_1"}]
    return {"messages": [AIMessage("", tool_calls=wanted)], "notes": ["called"], "step": 1}


def use(state):
    allowed = interrupt({"question": "may I look?"})
    said = ToolMessage(f"sun ({allowed})", tool_call_id="call_1")
    return {"messages": [said], "notes": ["used"], "step": 2}


def think(state):
    return {"messages": [AIMessage("It is sunny.")], "secret": "a plan"}


def build(saver):
    """A graph with a tool call that asks first, and a subgraph."""
    inner = StateGraph(Inner).add_node("think", think).add_edge(START, "think").compile()
    graph = StateGraph(Talk).add_node("call", call).add_node("use", use).add_node("inner", inner)
    graph.add_edge(START, "call").add_edge("call", "use").add_edge("use", "inner")
    return graph.compile(checkpointer=saver)


def talk(saver, thread="t1"):
    """A whole conversation: asked, interrupted, resumed, forgotten in part, and gone back in."""
    graph = build(saver)
    graph.invoke({"messages": [HumanMessage("How is the weather?")]}, config(thread))
    asked = graph.get_state(config(thread))
    graph.invoke(Command(resume="yes"), config(thread))
    first = graph.get_state(config(thread)).values["messages"][0]
    graph.update_state(config(thread), {"messages": [RemoveMessage(first.id)]})
    graph.invoke(Command(resume="only today"), asked.config)
    return graph


def interrupted(saver, thread="waiting"):
    """A conversation that waits for an answer."""
    build(saver).invoke({"messages": [HumanMessage("And now?")]}, config(thread))


def plain(message):
    """What both sides say of a message."""
    if isinstance(message, dict):
        kind, calls = message["langchain"], message.get("tool_calls", [])
        return kind, message["content"], message.get("id"), calls, message.get("tool_call_id")
    kind, calls = type(message).__name__, getattr(message, "tool_calls", [])
    return kind, message.content, message.id, calls, getattr(message, "tool_call_id", None)


def check_history(saver, document, thread="t1"):
    """Check that the session has the history that LangGraph lists, checkpoint by checkpoint."""
    listed = sorted(saver.list(config(thread)), key=lambda each: each.checkpoint["id"])
    steps = [each for each in holdfast.replay(document) if each.event.type == "checkpoint.imported"]
    assert len(steps) == len(listed) > 0
    for step, there in zip(steps, listed, strict=True):
        names = there.config["configurable"]
        assert step.event.data["checkpoint_id"] == names["checkpoint_id"]
        assert step.event.data["checkpoint_ns"] == names["checkpoint_ns"]
        assert step.event.at.isoformat() == there.checkpoint["ts"]
        parent = there.parent_config and there.parent_config["configurable"]["checkpoint_id"]
        assert step.event.data["parent_checkpoint_id"] == parent
        assert step.event.data["metadata"] == there.metadata
        values = dict(there.checkpoint["channel_values"])
        ns = names["checkpoint_ns"]
        space = f"langgraph/graph/{ns}/messages" if ns else "messages"
        kept = [plain(value) for _, _, value in step.after.items(space)]
        assert kept == [plain(each) for each in values.pop("messages", [])]
        spaces = [f"langgraph/graph/{ns}"] if ns else ["langgraph", "state"]
        own = {key: value for name in spaces for _, key, value in step.after.items(name)}
        assert own.keys() == values.keys()
        for key in ("notes", "step", "secret"):
            assert own.get(key) == values.get(key)


def check_imports(*documents):
    """Check that documents become sessions that verify, and give the same documents again."""

    async def whole():
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

    asyncio.run(whole())
