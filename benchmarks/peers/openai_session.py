"""The SQLiteSession of the OpenAI Agents SDK, which appends messages.

It stores neither a dict nor snapshots. It does less than every other contestant and is close to the
limit of SQLite. It uses a write-ahead log with ``synchronous=FULL``, as we do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agents.memory import SQLiteSession

from benchmarks.peers.workload import Contestant, Turn


class OpenAISession(Contestant):
    """Appends only."""

    has_snapshots = False

    async def open(self) -> None:
        self.session = SQLiteSession("ses_1", self.folder / "session.db")

    async def turn(self, turn: Turn) -> None:
        items: list[Any] = list(turn.messages)
        await self.session.add_items(items)

    async def mark(self) -> str:
        raise NotImplementedError("it has no snapshots")

    async def load(self, snapshot_id: str | None) -> Sequence[Any]:  # noqa: ARG002
        return await self.session.get_items()

    async def ids(self) -> Sequence[str]:
        raise NotImplementedError("it has no snapshots")

    async def close(self) -> None:
        self.session.close()
