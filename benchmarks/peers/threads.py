"""Threads of a small agent with message objects, as most LangGraph users have them.

A turn is a user message, a model that calls a tool, and the tool: two nodes, and a small dict.
Each contestant is a saver on an empty folder; several threads run in it, one after the other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from pathlib import Path
from typing import Any

import aiosqlite
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph

from benchmarks.peers.graphs import postgres_saver, sqlite_saver
from benchmarks.peers.workload import Turn
from holdfast.adapters.langgraph import HoldfastSaver

Saver = BaseCheckpointSaver[Any]


class AgentState(MessagesState):
    """A conversation and a plan."""

    plan: dict[str, Any]


def thread_config(thread: str, **more: Any) -> RunnableConfig:
    """Return the config of a thread."""
    return {"configurable": {"thread_id": thread, "checkpoint_ns": "", **more}}


class AgentGraph:
    """The agent, with its turns scripted."""

    def __init__(self, saver: Saver) -> None:
        self.saver = saver
        builder: Any = StateGraph(AgentState)
        builder.add_node("model", self.model)
        builder.add_node("tool", self.tool)
        builder.add_edge(START, "model")
        builder.add_edge("model", "tool")
        builder.add_edge("tool", END)
        self.graph = builder.compile(checkpointer=saver)

    def model(self, _: object) -> dict[str, Any]:
        """Return a call of the tool."""
        turn = self.now
        call = {"name": "search", "args": {"step": turn.plan["step"]}, "id": self.call_id}
        return {
            "messages": [AIMessage(turn.messages[1]["content"], tool_calls=[call])],
            "plan": turn.plan,
        }

    def tool(self, _: object) -> dict[str, Any]:
        """Return the result of the tool."""
        return {
            "messages": [ToolMessage(self.now.messages[2]["content"], tool_call_id=self.call_id)]
        }

    def _begin(self, turn: Turn) -> dict[str, Any]:
        self.now = turn
        self.call_id = f"call_{turn.plan['step']:06}"
        return {"messages": [HumanMessage(turn.messages[0]["content"])]}

    def turn(self, thread: str, turn: Turn, **options: Any) -> None:
        """Take one turn."""
        self.graph.invoke(self._begin(turn), thread_config(thread), **options)

    async def aturn(self, thread: str, turn: Turn, **options: Any) -> None:
        """Take one turn in an event loop."""
        await self.graph.ainvoke(self._begin(turn), thread_config(thread), **options)


# ------------------------------------------------------------------------------------- savers


@contextmanager
def memory_saver(_folder: str, _url: str) -> Iterator[Saver]:
    """Open InMemorySaver: the limit."""
    yield InMemorySaver()


@contextmanager
def our_saver(folder: str, url: str) -> Iterator[Saver]:
    """Open our saver on SQLite, or on the database of a URL."""
    with HoldfastSaver.from_url(url or f"sqlite:///{folder}/state.db") as saver:
        yield saver


@asynccontextmanager
async def async_sqlite_saver(folder: str, _: str) -> AsyncIterator[Saver]:
    """Open AsyncSqliteSaver with every commit synced."""
    async with aiosqlite.connect(Path(folder) / "checkpoints.db") as connection:
        await connection.execute("PRAGMA synchronous = FULL")
        yield AsyncSqliteSaver(connection)


@asynccontextmanager
async def async_postgres_saver(_: str, url: str) -> AsyncIterator[Saver]:
    """Open AsyncPostgresSaver as its documentation does."""
    async with AsyncPostgresSaver.from_conn_string(url) as saver:
        await saver.setup()
        yield saver


@asynccontextmanager
async def async_memory_saver(_folder: str, _url: str) -> AsyncIterator[Saver]:
    """Open InMemorySaver: the limit."""
    yield InMemorySaver()


@asynccontextmanager
async def our_async_saver(folder: str, url: str) -> AsyncIterator[Saver]:
    """Open our saver on SQLite, or on the database of a URL."""
    async with HoldfastSaver.from_url(url or f"sqlite:///{folder}/state.db") as saver:
        yield saver


Open = Callable[[str, str], AbstractContextManager[Saver]]
AsyncOpen = Callable[[str, str], AbstractAsyncContextManager[Saver]]
THREAD_SAVERS: dict[str, dict[str, Open]] = {
    "sqlite": {"peer": sqlite_saver, "holdfast": our_saver, "limit": memory_saver},
    "postgresql": {"peer": postgres_saver, "holdfast": our_saver},
}
ASYNC_SAVERS: dict[str, dict[str, AsyncOpen]] = {
    "sqlite": {
        "peer": async_sqlite_saver,
        "holdfast": our_async_saver,
        "limit": async_memory_saver,
    },
    "postgresql": {"peer": async_postgres_saver, "holdfast": our_async_saver},
}
