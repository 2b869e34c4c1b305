"""Many sessions that share a store: the interface of a contestant, and Holdfast."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

import holdfast
from benchmarks.peers.workload import Message


class Sessions(ABC):
    """Many sessions in one store."""

    most = 1000
    """The largest number of sessions that it can run."""

    @abstractmethod
    async def open(self, folder: Path, url: str, count: int) -> None:
        """Open the sessions."""

    @abstractmethod
    async def save(self, session: int, messages: Sequence[Message]) -> None:
        """Add messages to a session, durably."""

    @abstractmethod
    async def close(self) -> None:
        """Close the store."""


class HoldfastSessions(Sessions):
    """``Session.save`` of each."""

    async def open(self, folder: Path, url: str, count: int) -> None:
        self.store = holdfast.open_state_store(url or f"sqlite:///{folder}/ours.db")
        await self.store.put("setup", b"")  # creates the tables, as `setup` of a saver does
        self.sessions = [
            await holdfast.Session.open(self.store, agent_id="bot", session_id=f"ses_{number}")
            for number in range(count)
        ]

    async def save(self, session: int, messages: Sequence[Message]) -> None:
        for message in messages:
            self.sessions[session].add_message(**message)
        await self.sessions[session].save()

    async def close(self) -> None:
        await self.store.close()
