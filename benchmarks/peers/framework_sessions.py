"""Sessions of agent frameworks: one conversation after the other, in the framework's store or ours.

Only Holdfast's ``open`` is not timed, and what closes a session: an application opens its store
once. Everything else is what the framework itself calls.
"""

from __future__ import annotations

import os
import sqlite3
import uuid
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from agents.memory import SQLiteSession
from strands import Agent
from strands.session import SnapshotSessionManager
from strands.storage import LocalFileStorage
from strands.storage.storage import _NAMESPACED

import holdfast
from benchmarks.peers.strands_files import to_strands_message
from benchmarks.peers.workload import Turn
from holdfast.adapters.openai_agents import HoldfastSession
from holdfast.adapters.strands import HoldfastSessionManager, HoldfastStorage

FULL = 2
"""SQLite's ``synchronous=FULL``: each commit is synced to the disk."""


class FrameworkSessions(ABC):
    """Conversations of one framework in a folder."""

    async def open(self, folder: Path) -> None:
        """Open the store, which is not timed."""
        self.folder = folder

    async def prepare(self, name: str) -> None:  # noqa: B027 - most need nothing
        """Prepare a conversation; this is not timed."""

    @abstractmethod
    async def start(self, name: str) -> None:
        """Start a conversation."""

    @abstractmethod
    async def turn(self, turn: Turn) -> None:
        """Take one turn; it is durable when this returns."""

    @abstractmethod
    async def count(self) -> int:
        """Return the number of messages that are stored."""

    @abstractmethod
    async def close(self) -> None:
        """Close everything."""


class StoreMixin(FrameworkSessions):
    """A store of Holdfast on SQLite."""

    async def open(self, folder: Path) -> None:
        await super().open(folder)
        self.store = holdfast.open_state_store(f"sqlite:///{folder}/state.db")

    async def close(self) -> None:
        await self.store.close()


# ------------------------------------------------------------------------------ OpenAI Agents


class OpenAIAgents(FrameworkSessions):
    """What a runner does: it reads the conversation, and adds the items of the turn."""

    session: Any

    async def turn(self, turn: Turn) -> None:
        await self.session.get_items()
        await self.session.add_items(turn.messages)

    async def count(self) -> int:
        return len(await self.session.get_items())


class OpenAIOwn(OpenAIAgents):
    """``SQLiteSession`` with its own settings: a write-ahead log, synced on every commit."""

    async def open(self, folder: Path) -> None:
        await super().open(folder)
        self.sessions: list[SQLiteSession] = []
        database = sqlite3.connect(folder / "settings.db")
        database.execute("PRAGMA journal_mode=WAL")
        (level,) = database.execute("PRAGMA synchronous").fetchone()
        database.close()
        if level != FULL:
            raise SystemExit(f"SQLiteSession does not sync here: synchronous is {level}")

    async def start(self, name: str) -> None:
        self.session = SQLiteSession(name, self.folder / "openai.db")
        self.sessions.append(self.session)

    async def close(self) -> None:
        for session in self.sessions:
            session.close()


class OpenAIHoldfast(StoreMixin, OpenAIAgents):
    """``HoldfastSession``."""

    async def start(self, name: str) -> None:
        self.session = HoldfastSession(name, self.store)


# ----------------------------------------------------------------------------------- Strands


class StrandsAgents(FrameworkSessions):
    """The snapshot manager: after each turn it saves the whole agent."""

    storage: Any
    create_manager: type[SnapshotSessionManager] = SnapshotSessionManager

    async def prepare(self, name: str) -> None:
        self.manager = self.create_manager(name, storage=self.storage)
        self.agent = Agent(agent_id="bot", session_manager=self.manager, callback_handler=None)

    async def start(self, name: str) -> None:
        """Do nothing: creating the agent loaded its snapshot."""

    async def turn(self, turn: Turn) -> None:
        messages: list[Any] = [to_strands_message(message) for message in turn.messages]
        self.agent.messages.extend(messages)
        self.agent.state.set("plan", turn.plan)
        await self.manager.save_snapshot(self.agent, is_latest=True)

    async def count(self) -> int:
        self.agent.messages = []
        await self.manager.restore_snapshot(self.agent)
        return len(self.agent.messages)


class SyncedFileStorage(LocalFileStorage):
    """``LocalFileStorage`` that syncs each file before it is renamed; folders are not synced."""

    async def write(self, key: str, data: bytes) -> None:
        path = Path(self.base_dir, key)
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.parent / f".__strands_tmp_{uuid.uuid4().hex}"
        with new.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)

    def namespace(self, prefix: str) -> SyncedFileStorage:
        scoped: Any = SyncedFileStorage(super().namespace(prefix).base_dir)
        scoped._namespaced = _NAMESPACED
        return scoped  # type: ignore[no-any-return]


class StrandsOwn(StrandsAgents):
    """Files."""

    async def open(self, folder: Path) -> None:
        await super().open(folder)
        self.storage = SyncedFileStorage(str(folder))

    async def close(self) -> None:
        """Do nothing: a file is closed when it is written."""


class StrandsHoldfast(StoreMixin, StrandsAgents):
    """``HoldfastStorage`` with our manager."""

    create_manager = HoldfastSessionManager

    async def open(self, folder: Path) -> None:
        await super().open(folder)
        self.storage = HoldfastStorage(self.store)
