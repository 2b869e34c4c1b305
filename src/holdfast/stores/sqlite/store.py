"""The default backend: one SQLite file, used by any number of threads and processes at once.

Write-ahead log with ``synchronous=FULL``: a write is on disk when its call returns, and readers
never wait for writers. All writes of a process use one connection, because SQLite has one writer at
a time, and those that are queued share a transaction. Reads use a few others, in threads unless
they are small. Between processes SQLite's lock decides, with a wait of up to ``timeout`` seconds.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Coroutine, Sequence
from contextlib import nullcontext
from functools import cache
from typing import Any, TypeVar

from holdfast.errors import IntegrityError
from holdfast.stores.backend import Backend
from holdfast.stores.base import Condition, Entry, Put
from holdfast.stores.local import RUN_INLINE
from holdfast.stores.sqlite.connections import transaction
from holdfast.stores.sqlite.errors import EXPLAINED, explain_error
from holdfast.stores.sqlite.group_commit import release_queue, share_queue
from holdfast.stores.sqlite.write_calls import WriteCall
from holdfast.stores.urls import StoreURL, StoreURLError, suggest_url
from holdfast.stores.validation import KeyRange

T = TypeVar("T")

TIMEOUT = 30.0
BATCH_SIZE = 500

# Reads of few keys and of values up to this size run in the event loop: a thread takes longer.
FEW = 16
SMALL = 64 * 1024


class SqliteStateStore(Backend):
    """A store in one SQLite file, which is created with its folders on the first write.

    Every acknowledged write is durable, and ``put_many`` is atomic. For local disks only: SQLite's
    locks are not safe on network file systems.
    """

    atomic_put_many = True
    conditional_put_many = True
    atomic_get_many = True
    runs_inline = True
    is_local = True

    def __init__(self, path: str | os.PathLike[str], *, timeout: float = TIMEOUT) -> None:
        self.display_url = f"sqlite:///{os.fspath(path)}"
        self._group_commit = share_queue(path, self.display_url, timeout, user=self)
        self._connections = self._group_commit.connections

    async def _get(self, key: str) -> Entry | None:
        return (await self._get_many([key])).get(key)

    async def _get_many(self, keys: Sequence[str]) -> dict[str, Entry]:
        if len(keys) <= FEW:
            rows = self._connections.read_idle(select_small(len(keys)), keys)
            if rows is not None and all(value is not None for _, value, _ in rows):
                return {key: Entry(value, etag) for key, value, etag in rows}

        def read(database: sqlite3.Connection) -> dict[str, Entry]:
            entries = {}
            with transaction(database, "BEGIN") if len(keys) > BATCH_SIZE else nullcontext():
                for start in range(0, len(keys), BATCH_SIZE):
                    batch = keys[start : start + BATCH_SIZE]
                    marks = ",".join("?" * len(batch))
                    query = f"SELECT key, value, etag FROM entries WHERE key IN ({marks})"  # noqa: S608
                    for key, value, etag in database.execute(query, batch):
                        entries[key] = Entry(value, etag)
            return entries

        return await self._read(read, {})

    async def _put(self, put: Put) -> str:
        return (await self._put_many([put]))[0]

    def _put_many(
        self, puts: Sequence[Put], conditions: Sequence[Condition] = ()
    ) -> Coroutine[Any, Any, list[str]]:
        return self._write(WriteCall(puts, conditions))

    async def _delete(self, key: str, if_match: str | None) -> bool:
        return bool(await self._write(WriteCall.delete(key, if_match)))

    async def _page(self, key_range: KeyRange, count: int) -> Sequence[str]:
        above = ">" if key_range.exclusive else ">="
        query = f"SELECT key FROM entries WHERE key {above} ?"  # noqa: S608
        bounds: list[str | int] = [key_range.low]
        if key_range.high is not None:
            query += " AND key < ?"
            bounds.append(key_range.high)
        query += " ORDER BY key LIMIT ?"

        def read(database: sqlite3.Connection) -> list[str]:
            return [key for (key,) in database.execute(query, [*bounds, count])]

        limit = min(count, FEW)
        rows = self._connections.read_idle(query, [*bounds, limit])
        if rows is None or len(rows) == limit < count:
            return await self._read(read, [])
        return [key for (key,) in rows]

    async def _check(self) -> list[str]:
        def read(database: sqlite3.Connection) -> list[str]:
            # Also finds an index that lacks rows and so hides their entries.
            return [line for (line,) in database.execute("PRAGMA integrity_check")]

        try:
            lines = await self._read(read, ["ok"])
        except IntegrityError as error:
            return [str(error)]
        return [] if lines == ["ok"] else [f"{self.display_url}: {line}" for line in lines]

    async def _close(self) -> None:
        await asyncio.to_thread(release_queue, self._group_commit, self)

    async def _write(self, call: WriteCall) -> list[str]:
        if RUN_INLINE.get():
            return self._group_commit.run(call)
        try:
            return await self._group_commit.submit(call)
        except RuntimeError:
            self._check_open()  # another thread may have closed the store just now
            raise

    async def _read(self, work: Callable[[sqlite3.Connection], T], default: T) -> T:
        """Run work on a connection that reads, or return the default if there is no database."""

        def run() -> T:
            try:
                return self._connections.read(work, default)
            except EXPLAINED as error:
                raise explain_error(error, self._connections) from error

        if RUN_INLINE.get():
            return run()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._connections.readers, run)
        except RuntimeError:
            self._check_open()
            raise


@cache
def select_small(count: int) -> str:
    """Return the query of some entries, in which large values are null."""
    marks = ",".join("?" * count)
    value = f"CASE WHEN length(value) <= {SMALL} THEN value END"
    return f"SELECT key, {value}, etag FROM entries WHERE key IN ({marks})"  # noqa: S608


def open_url(url: StoreURL) -> SqliteStateStore:
    """Open ``sqlite:///state.db`` in the working folder, or ``sqlite:////var/lib/state.db``."""
    path = url.path[1:]
    if not str(url).startswith("sqlite:///") or path in ("", ":memory:"):
        suggestion = suggest_url((url.parts.netloc + url.path).lstrip("/"))
        raise StoreURLError(
            f"{url} does not name a file; write three slashes and a path as in sqlite:///state.db, "
            "four for an absolute path, or memory: for a store in memory",
            suggestion="memory:" if path == ":memory:" else suggestion,
        )
    store = SqliteStateStore(path, timeout=url.take_number("timeout", TIMEOUT))
    url.reject_unknown_options(("timeout",))
    return store
