"""One LangGraph graph on several savers, each opened with nothing in memory."""

from __future__ import annotations

import operator
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph

from benchmarks.peers.langgraph_saver import THREAD
from benchmarks.peers.workload import Message, Turn
from holdfast.adapters.langgraph import HoldfastSaver

Saver = BaseCheckpointSaver[Any]


class State(TypedDict):
    """The state, with messages as an append-only list."""

    messages: Annotated[list[Message], operator.add]
    plan: dict[str, Any]


class Graph:
    """A user message goes in, and one node answers."""

    def __init__(self, saver: Saver) -> None:
        self.saver = saver
        builder: Any = StateGraph(State)
        builder.add_node("answer", self.answer)
        builder.add_edge(START, "answer")
        builder.add_edge("answer", END)
        self.graph = builder.compile(checkpointer=saver)

    def answer(self, _: object) -> dict[str, Any]:
        """Return what the assistant and its tool say."""
        return {"messages": self.now.messages[1:], "plan": self.now.plan}

    def turn(self, turn: Turn) -> None:
        """Run one invocation."""
        self.now = turn
        self.graph.invoke({"messages": turn.messages[:1]}, THREAD)

    def latest(self) -> list[Message]:
        """Return the messages of the latest checkpoint."""
        found = self.saver.get_tuple(THREAD)
        if found is None:
            raise LookupError("the thread is not there")
        messages: list[Message] = found.checkpoint["channel_values"]["messages"]
        return messages


@contextmanager
def sqlite_saver(folder: str, _: str) -> Iterator[Saver]:
    """Open SqliteSaver with every commit synced."""
    connection = sqlite3.connect(Path(folder) / "checkpoints.db", check_same_thread=False)
    connection.execute("PRAGMA synchronous = FULL")
    try:
        yield SqliteSaver(connection)
    finally:
        connection.close()


@contextmanager
def postgres_saver(_: str, url: str) -> Iterator[Saver]:
    """Open PostgresSaver as its documentation does."""
    with PostgresSaver.from_conn_string(url) as saver:
        saver.setup()
        yield saver


@contextmanager
def swarmstate_saver(folder: str, _: str) -> Iterator[Saver]:
    """Open swarmstate's saver on its disk store, which does not sync each save."""
    from swarmstate.backends.disk import DiskStore  # noqa: PLC0415 - optional
    from swarmstate.integrations.langgraph import SwarmStateSaver  # noqa: PLC0415

    store: Any = DiskStore(str(Path(folder) / "swarmstate.db"))
    try:
        yield SwarmStateSaver(store)
    finally:
        store.close()


@contextmanager
def ours_on_sqlite(folder: str, _: str) -> Iterator[Saver]:
    """Open our saver on SQLite."""
    with HoldfastSaver.from_url(f"sqlite:///{folder}/state.db") as saver:
        yield saver


@contextmanager
def ours_on_postgres(_: str, url: str) -> Iterator[Saver]:
    """Open our saver on PostgreSQL."""
    with HoldfastSaver.from_url(url) as saver:
        yield saver


@dataclass(frozen=True, slots=True)
class Kind:
    """A saver, and its database."""

    database: str
    make: Callable[[str, str], AbstractContextManager[Saver]]
    needs: str = "langgraph"

    def is_there(self) -> bool:
        """Return whether its package is installed."""
        return find_spec(self.needs) is not None


SAVERS = {
    "SqliteSaver": Kind("sqlite", sqlite_saver),
    "swarmstate saver": Kind("sqlite", swarmstate_saver, "swarmstate"),
    "holdfast, sqlite": Kind("sqlite", ours_on_sqlite),
    "PostgresSaver": Kind("postgresql", postgres_saver),
    "holdfast, postgresql": Kind("postgresql", ours_on_postgres),
}


@contextmanager
def open_graph(saver: str, folder: str, url: str) -> Iterator[Graph]:
    """Open a graph on a saver by name."""
    with SAVERS[saver].make(folder, url) as found:
        yield Graph(found)
