"""LangGraph's savers, called with `put` alone: one checkpoint per turn, without a graph."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from psycopg.rows import dict_row

from benchmarks.peers.workload import Contestant, Message, Turn

THREAD: RunnableConfig = {"configurable": {"thread_id": "ses_1", "checkpoint_ns": ""}}


def make_config(snapshot_id: str | None) -> RunnableConfig:
    """Return the config of a checkpoint, or of the latest."""
    if snapshot_id is None:
        return THREAD
    return {"configurable": {**THREAD["configurable"], "checkpoint_id": snapshot_id}}


class SaverPut(Contestant):
    """Calls any LangGraph saver. Subclasses create it in ``open``."""

    saver: BaseCheckpointSaver[Any]

    def begin(self, saver: BaseCheckpointSaver[Any]) -> None:
        """Start with an empty state."""
        self.saver = saver
        self.config = THREAD
        self.messages: list[Message] = []
        self.versions: dict[str, Any] = {}

    async def turn(self, turn: Turn) -> None:
        self.messages += turn.messages
        for channel in ("messages", "plan"):
            before = self.versions.get(channel)
            self.versions[channel] = self.saver.get_next_version(before, None)
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"messages": self.messages, "plan": turn.plan}
        checkpoint["channel_versions"] = dict(self.versions)
        metadata: Any = {"source": "loop", "step": turn.plan["step"], "parents": {}}
        self.config = self.saver.put(self.config, checkpoint, metadata, dict(self.versions))

    async def mark(self) -> str:
        return str(self.config["configurable"]["checkpoint_id"])

    async def load(self, snapshot_id: str | None) -> Sequence[Any]:
        found = self.saver.get_tuple(make_config(snapshot_id))
        if found is None:
            raise LookupError(snapshot_id)
        messages: list[Message] = found.checkpoint["channel_values"]["messages"]
        return messages

    async def ids(self) -> Sequence[str]:
        return [str(found.checkpoint["id"]) for found in self.saver.list(THREAD)]


def open_database(folder: Path) -> sqlite3.Connection:
    """Return a connection for SqliteSaver, with every commit synced."""
    connection = sqlite3.connect(folder / "checkpoints.db", check_same_thread=False)
    connection.execute("PRAGMA synchronous = FULL")
    return connection


class SqliteSaverPut(SaverPut):
    """On SQLite."""

    async def open(self) -> None:
        self.connection = open_database(self.folder)
        self.begin(SqliteSaver(self.connection))

    async def close(self) -> None:
        self.connection.close()


class PostgresSaverPut(SaverPut):
    """On PostgreSQL, in its own database."""

    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(folder)
        self.url = url

    async def open(self) -> None:
        # As `from_conn_string` connects.
        self.connection = psycopg.connect(
            self.url, autocommit=True, prepare_threshold=0, row_factory=dict_row
        )
        saver = PostgresSaver(self.connection)
        saver.setup()
        self.begin(saver)

    async def size(self) -> int:
        return measure_database(self.url)

    async def close(self) -> None:
        self.connection.close()


def measure_database(url: str) -> int:
    """Return the bytes of a PostgreSQL database beyond an empty one."""
    query = "SELECT pg_database_size(current_database()), pg_database_size('template1')"
    with psycopg.connect(url) as connection:
        row = connection.execute(query).fetchone()
    if row is None:
        raise LookupError("PostgreSQL gave no size")
    return int(row[0]) - int(row[1])
