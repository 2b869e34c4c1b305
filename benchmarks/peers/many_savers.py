"""LangGraph's async savers: a checkpoint of each thread per turn, without a graph."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from benchmarks.peers.many_sessions import Sessions
from benchmarks.peers.workload import Message


class SaverThreads(Sessions):
    """``aput`` of a LangGraph saver, with the messages so far of each thread."""

    async def open(self, folder: Path, url: str, count: int) -> None:
        self.stack = AsyncExitStack()
        self.saver = await self.open_saver(folder, url)
        await self.saver.setup()
        self.threads = [
            {"configurable": {"thread_id": f"ses_{number}", "checkpoint_ns": ""}}
            for number in range(count)
        ]
        self.messages: list[list[Message]] = [[] for _ in range(count)]
        self.versions: list[Any] = [None] * count

    @abstractmethod
    async def open_saver(self, folder: Path, url: str) -> Any:
        """Return a saver that is closed with ``stack``."""

    async def save(self, session: int, messages: Sequence[Message]) -> None:
        self.messages[session] += messages
        version = self.saver.get_next_version(self.versions[session], None)
        self.versions[session] = version
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"messages": self.messages[session]}
        checkpoint["channel_versions"] = {"messages": version}
        step = len(self.messages[session]) // len(messages)
        metadata = {"source": "loop", "step": step, "parents": {}}
        self.threads[session] = await self.saver.aput(
            self.threads[session], checkpoint, metadata, {"messages": version}
        )

    async def close(self) -> None:
        await self.stack.aclose()


class SqliteThreads(SaverThreads):
    """On SQLite, with every commit synced."""

    async def open_saver(self, folder: Path, url: str) -> Any:  # noqa: ARG002
        saver = await self.stack.enter_async_context(
            AsyncSqliteSaver.from_conn_string(f"{folder}/checkpoints.db")
        )
        await saver.conn.execute("PRAGMA synchronous = FULL")
        return saver
