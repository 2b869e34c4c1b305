"""The SQLiteSession of the OpenAI Agents SDK: many in one file, which append messages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agents.memory import SQLiteSession

from benchmarks.peers.many_sessions import Sessions
from benchmarks.peers.workload import Message


class OpenAISessions(Sessions):
    """``add_items`` of each, in one file. Each has its own connections."""

    most = 100

    async def open(self, folder: Path, url: str, count: int) -> None:  # noqa: ARG002
        self.sessions = [SQLiteSession(f"ses_{at}", folder / "openai.db") for at in range(count)]

    async def save(self, session: int, messages: Sequence[Message]) -> None:
        items: list[Any] = list(messages)
        await self.sessions[session].add_items(items)

    async def close(self) -> None:
        for session in self.sessions:
            session.close()
