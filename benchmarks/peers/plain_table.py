"""A hand-written table with one JSON document per snapshot, and an index.

The limit for reading a history: it answers each question with one query in the calling thread, and
checks nothing.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import psycopg

SCHEMA = """
CREATE TABLE snapshots (
    agent TEXT, session TEXT, id TEXT, created TEXT, body TEXT, PRIMARY KEY (session, id)
);
CREATE TABLE sessions (agent TEXT, started TEXT, session TEXT);
CREATE INDEX newest ON sessions (agent, started);
"""
LATEST_SESSION = "SELECT session FROM sessions WHERE agent = ? ORDER BY started DESC LIMIT 1"
LATEST = "SELECT body FROM snapshots WHERE session = ? ORDER BY id DESC LIMIT 1"
ONE = "SELECT body FROM snapshots WHERE session = ? AND id = ?"
PAGE = "SELECT id, created FROM snapshots WHERE session = ? AND id > ? ORDER BY id LIMIT ?"
SESSIONS = "SELECT session, started FROM sessions WHERE agent = ? ORDER BY started DESC LIMIT ?"
Record = Sequence[Any]


class Database(Protocol):
    """A connection in autocommit mode."""

    def rows(self, query: str, values: Record) -> list[Any]: ...
    def insert(self, query: str, records: Iterable[Record]) -> None: ...
    def analyze(self) -> None: ...
    def close(self) -> None: ...


class OnSqlite:
    """The standard library's module."""

    def __init__(self, path: Path) -> None:
        self.base = sqlite3.connect(path, isolation_level=None)
        self.base.execute("PRAGMA journal_mode = WAL")
        self.base.executescript(SCHEMA)

    def rows(self, query: str, values: Record) -> list[Any]:
        return self.base.execute(query, values).fetchall()

    def insert(self, query: str, records: Iterable[Record]) -> None:
        self.base.execute("BEGIN")
        self.base.executemany(query, records)
        self.base.execute("COMMIT")

    def analyze(self) -> None:
        self.base.execute("ANALYZE")

    def close(self) -> None:
        self.base.close()


class OnPostgres:
    """One psycopg connection."""

    def __init__(self, url: str) -> None:
        self.base: psycopg.Connection[Any] = psycopg.connect(url, autocommit=True)
        # Compare text byte by byte, so that the index is used.
        self.base.execute(SCHEMA.replace(" TEXT", ' TEXT COLLATE "C"').encode())

    def rows(self, query: str, values: Record) -> list[Any]:
        return self.base.execute(query.replace("?", "%s").encode(), values).fetchall()

    def insert(self, query: str, records: Iterable[Record]) -> None:
        with self.base.transaction(), self.base.cursor() as cursor:
            cursor.executemany(query.replace("?", "%s").encode(), records)

    def analyze(self) -> None:
        self.base.execute("ANALYZE")

    def close(self) -> None:
        self.base.close()


class PlainTable:
    """The questions, on either database."""

    def __init__(self, database: Database, agent: str) -> None:
        self.database = database
        self.agent = agent

    def add_sessions(self, sessions: Iterable[str]) -> None:
        """Add sessions in the order they start."""
        started = [(self.agent, session, session) for session in sessions]
        self.database.insert("INSERT INTO sessions VALUES (?, ?, ?)", started)

    def add_snapshots(self, snapshots: Iterable[tuple[str, str, dict[str, Any]]]) -> None:
        """Add snapshots, each with session, id and state."""
        records = (
            (self.agent, session, id_, id_, json.dumps(state)) for session, id_, state in snapshots
        )
        self.database.insert("INSERT INTO snapshots VALUES (?, ?, ?, ?, ?)", records)

    async def page(self, session: str, limit: int) -> Sequence[Any]:
        """Return the first page of the metadata of a session's snapshots."""
        return self.database.rows(PAGE, (session, "", limit))

    async def ids(self, session: str, after: str, limit: int) -> Sequence[Any]:
        """Return the ids after one."""
        return [id_ for id_, _ in self.database.rows(PAGE, (session, after, limit))]

    async def sessions(self, limit: int) -> Sequence[Any]:
        """Return a page of the agent's sessions, newest first."""
        return self.database.rows(SESSIONS, (self.agent, limit))

    async def latest(self) -> dict[str, Any]:
        """Return the state of the latest snapshot of the latest session."""
        (session,) = self.database.rows(LATEST_SESSION, (self.agent,))[0]
        state: dict[str, Any] = json.loads(self.database.rows(LATEST, (session,))[0][0])
        return state

    async def one(self, session: str, id_: str) -> dict[str, Any]:
        """Return the state of one snapshot."""
        state: dict[str, Any] = json.loads(self.database.rows(ONE, (session, id_))[0][0])
        return state
