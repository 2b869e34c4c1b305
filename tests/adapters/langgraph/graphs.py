"""Graphs without a model: conversations, interrupts, delta channels and fan-out."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Send, interrupt


def at(thread_id="t", **more):
    """The config of a thread or checkpoint."""
    return {"configurable": {"thread_id": thread_id, **more}}


class Steps(TypedDict):
    """The state of the nodes below."""

    log: Annotated[list[Any], operator.add]


def chain(state, *nodes):
    """A graph that runs functions, or graphs with a name, in order."""
    builder = StateGraph(state)
    before = START
    for node in nodes:
        name = getattr(node, "__name__", None) or node.name
        builder.add_node(name, node)
        builder.add_edge(before, name)
        before = name
    builder.add_edge(before, END)
    return builder


def one(state):
    return {"log": ["one"]}


def asking(state):
    return {"log": [f"answer {interrupt('really?')}"]}


def two(state):
    return {"log": ["two"]}


def build_steps(checkpointer, **options):
    """Two steps with an interrupt between them."""
    return chain(Steps, one, asking, two).compile(checkpointer=checkpointer, **options)


# ------------------------------------------------------------------------------- conversations


def tables(day):
    """The tool."""
    return f"two tables on {day}"


class ScriptedModel:
    """A scripted model that calls the tool, then answers with its result."""

    def __init__(self):
        self.calls = 0

    def model(self, state):
        self.calls += 1
        last = state["messages"][-1]
        if isinstance(last, ToolMessage):
            return {"messages": [AIMessage(f"There are {last.content}.", id=f"a{last.id}")]}
        call = {"name": "tables", "args": {"day": last.content}, "id": f"call-{last.id}"}
        return {"messages": [AIMessage("", tool_calls=[call], id=f"c{last.id}")]}

    def tool(self, state):
        (call,) = state["messages"][-1].tool_calls
        answer = tables(**call["args"])
        return {"messages": [ToolMessage(answer, tool_call_id=call["id"], id=f"r{call['id']}")]}


def route(state):
    """The node after the model."""
    return "tool" if state["messages"][-1].tool_calls else END


class Talk(MessagesState):
    """A conversation and a plan."""

    plan: dict[str, Any]


def build_agent(checkpointer, script=None, state=Talk):
    """An agent with a tool."""
    script = script or ScriptedModel()
    builder = StateGraph(state)
    builder.add_node("model", script.model)
    builder.add_node("tool", script.tool)
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", route, ["tool", END])
    builder.add_edge("tool", "model")
    return builder.compile(checkpointer=checkpointer)


def user_message(words, id_):
    """The input of one user message."""
    return {"messages": [HumanMessage(words, id=id_)]}


# ------------------------------------------------------------------------------- delta channels


def join(items, writes):
    """The reducer of the delta channel."""
    return [*items, *(item for write in writes for item in write)]


def build_deltas(checkpointer, frequency=100):
    """A graph with a delta channel."""
    channel = DeltaChannel(join, snapshot_frequency=frequency)
    state = TypedDict("Delta", {"log": Annotated[list[Any], channel]})  # noqa: UP013
    return chain(state, one, two).compile(checkpointer=checkpointer)


# ------------------------------------------------------------------------------------- fan-out


class Spread(TypedDict):
    """Pieces of work and their results."""

    work: list[Any]
    done: Annotated[list[Any], operator.add]


def build_fan_out(checkpointer, worker):
    """A graph that runs one task per piece of work in parallel."""
    builder = StateGraph(Spread)
    builder.add_node("plan", lambda state: {})
    builder.add_node("worker", worker)
    builder.add_edge(START, "plan")
    builder.add_conditional_edges(
        "plan", lambda state: [Send("worker", piece) for piece in state["work"]], ["worker"]
    )
    builder.add_edge("worker", END)
    return builder.compile(checkpointer=checkpointer)
