"""A whole LangGraph graph on SqliteSaver: a user message goes in, and one node answers.

LangGraph writes three checkpoints per turn: the input, the start, and the result of the node.
DeltaChannel, if the installed LangGraph has it, writes messages as differences.
"""

import operator
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph

from benchmarks.peers.langgraph_saver import THREAD, make_config, open_database
from benchmarks.peers.workload import Contestant, Message, Turn

Added = list[Message]


class Grown(TypedDict):
    """The state, with messages as an append-only list."""

    messages: Annotated[Added, operator.add]
    plan: dict[str, Any]


def fold_messages(messages: Added, writes: Sequence[Added]) -> Added:
    """Fold messages for DeltaChannel."""
    return [*messages, *(message for write in writes for message in write)]


def make_delta_state() -> Any:
    """Return the state with DeltaChannel. Raises ImportError if LangGraph is too old."""
    channel = import_module("langgraph.channels.delta").DeltaChannel(fold_messages)

    class Delta(TypedDict):
        messages: Annotated[Added, channel]
        plan: dict[str, Any]

    return Delta


class WholeGraph(Contestant):
    """One invocation per turn."""

    def __init__(self, folder: Path, state: Any = Grown) -> None:
        super().__init__(folder)
        self.state = state

    async def open(self) -> None:
        self.connection = open_database(self.folder)
        builder: Any = StateGraph(self.state)
        builder.add_node("answer", self.answer)
        builder.add_edge(START, "answer")
        builder.add_edge("answer", END)
        self.saver = SqliteSaver(self.connection)
        self.graph = builder.compile(checkpointer=self.saver)

    def answer(self, _: object) -> dict[str, Any]:
        """Return what the assistant and its tool say."""
        return {"messages": self.now.messages[1:], "plan": self.now.plan}

    async def turn(self, turn: Turn) -> None:
        self.now = turn
        self.graph.invoke({"messages": turn.messages[:1]}, THREAD)

    async def mark(self) -> str:
        return str(self.graph.get_state(THREAD).config["configurable"]["checkpoint_id"])

    async def load(self, snapshot_id: str | None) -> Sequence[Any]:
        messages: list[Message] = self.graph.get_state(make_config(snapshot_id)).values["messages"]
        return messages

    async def ids(self) -> Sequence[str]:
        return [str(found.checkpoint["id"]) for found in self.saver.list(THREAD)]

    async def close(self) -> None:
        self.connection.close()
