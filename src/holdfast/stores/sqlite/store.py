"""The embedded default: one SQLite file, used by any number of threads and processes at once.

Write-ahead log with ``synchronous=FULL``: a write is on the disk when its call returns, and readers
never wait for writers. All writes of a store go through one thread and one connection, as SQLite
has one writer at a time anyway; reads have a few of their own. Between processes SQLite's lock
decides, waited for up to ``timeout`` seconds.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from typing import TypeVar

from holdfast.errors import IntegrityError, StateStoreError
from holdfast.stores.backend import Backend, etag_mismatch_error, key_exists_error, new_etag
from holdfast.stores.base import Condition, Entry, Put
from holdfast.stores.local import RUN_INLINE, explain_os_error
from holdfast.stores.sqlite.connections import (
    Connections,
    primary_code,
    reclaim_space,
    transaction,
)
from holdfast.stores.urls import StoreURL, StoreURLError, suggest_url
from holdfast.stores.validation import KeyRange

T = TypeVar("T")

TIMEOUT = 30.0
READERS = 4
AT_ONCE = 500

# Rows are kept in the order of their numbers. Small ones after one another fill a page, and a large
# one between each two would leave most of every page empty: so both are numbered for themselves.
LARGE = 1024
SMALL_FROM = 1 << 40
NEXT_LARGE = f"SELECT coalesce(max(rowid), 0) + 1 FROM entries WHERE rowid < {SMALL_FROM}"  # noqa: S608
NEXT_SMALL = f"SELECT max(coalesce(max(rowid), 0), {SMALL_FROM}) + 1 FROM entries"  # noqa: S608
INSERT = "INSERT INTO entries (rowid, key, etag, value) VALUES (({next}), ?, ?, ?) ON CONFLICT "
REPLACE = "(key) DO UPDATE SET etag = excluded.etag, value = excluded.value"
REMOVE_MATCH = "DELETE FROM entries WHERE key = ? AND etag = ?"

HINTS = {
    sqlite3.SQLITE_BUSY: "another process holds its lock: try again, or wait longer with ?timeout=",
    sqlite3.SQLITE_FULL: "the disk is full: make room and try again",
    sqlite3.SQLITE_READONLY: "the file or its folder cannot be written: see its owner and mode, "
    "and whether its disk is mounted read-only",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened: see whether its folder exists and is yours",
    sqlite3.SQLITE_PERM: "this user has no right to it: see its owner and mode",
    sqlite3.SQLITE_NOTADB: "it is no SQLite database: choose another path",
    sqlite3.SQLITE_TOOBIG: "the value is larger than the 1 GB that SQLite can keep",
    sqlite3.SQLITE_IOERR: "the disk failed or is full: see the system's log",
}


class SqliteStateStore(Backend):
    """Keeps entries in one SQLite file, made with its folders on the first write.

    Durable at every acknowledged write, ``put_many`` all or nothing. For local disks: SQLite's
    locks are not safe on network file systems.
    """

    atomic_put_many = True
    conditional_put_many = True
    atomic_get_many = True

    def __init__(self, path: str | os.PathLike[str], *, timeout: float = TIMEOUT) -> None:
        self.place = f"sqlite:///{os.fspath(path)}"
        self._connections = Connections(path, self.place, timeout)
        self._writes = 0
        self._start_threads()

    def _start_threads(self) -> None:
        self._process = os.getpid()
        self._writer = ThreadPoolExecutor(1, "holdfast-sqlite-write")
        self._readers = ThreadPoolExecutor(READERS, "holdfast-sqlite-read")

    async def _get(self, key: str) -> Entry | None:
        return (await self._get_many([key])).get(key)

    async def _get_many(self, keys: Sequence[str]) -> dict[str, Entry]:
        def read(database: sqlite3.Connection) -> dict[str, Entry]:
            found = {}
            with transaction(database, "BEGIN") if len(keys) > AT_ONCE else nullcontext():
                for start in range(0, len(keys), AT_ONCE):
                    some = keys[start : start + AT_ONCE]
                    marks = ",".join("?" * len(some))
                    query = f"SELECT key, value, etag FROM entries WHERE key IN ({marks})"  # noqa: S608
                    for key, value, etag in database.execute(query, some):
                        found[key] = Entry(value, etag)
            return found

        return await self._read(read, {})

    async def _put(self, put: Put) -> str:
        return (await self._put_many([put]))[0]

    async def _put_many(
        self, puts: Sequence[Put], conditions: Sequence[Condition] = ()
    ) -> list[str]:
        def write(database: sqlite3.Connection) -> list[str]:
            with transaction(database):
                for condition in conditions:
                    found = read_etag(database, condition.key)
                    if found != condition.etag:
                        raise etag_mismatch_error(condition.key, condition.etag, found)
                return [write_entry(database, put) for put in puts]

        return await self._write(write)

    async def _delete(self, key: str, if_match: str | None) -> bool:
        def remove(database: sqlite3.Connection) -> bool:
            with transaction(database):
                found = read_etag(database, key)
                if if_match is not None and found != if_match:
                    raise etag_mismatch_error(key, if_match, found)
                database.execute("DELETE FROM entries WHERE key = ?", (key,))
            return found is not None

        return await self._write(remove, removes=True)

    async def _page(self, span: KeyRange, count: int) -> Sequence[str]:
        def read(database: sqlite3.Connection) -> list[str]:
            query = f"SELECT key FROM entries WHERE key {'>' if span.exclusive else '>='} ?"  # noqa: S608
            bounds: list[str | int] = [span.low]
            if span.high is not None:
                query += " AND key < ?"
                bounds.append(span.high)
            query += " ORDER BY key LIMIT ?"
            return [key for (key,) in database.execute(query, [*bounds, count])]

        return await self._read(read, [])

    async def _check(self) -> list[str]:
        def read(database: sqlite3.Connection) -> list[str]:
            # Also that each index has every row: one that lacks some hides their entries.
            return [line for (line,) in database.execute("PRAGMA integrity_check")]

        try:
            found = await self._read(read, ["ok"])
        except IntegrityError as error:
            return [str(error)]
        return [] if found == ["ok"] else [f"{self.place}: {line}" for line in found]

    async def _close(self) -> None:
        def close() -> None:
            if self._process != os.getpid():
                return  # all of it is the parent's
            self._readers.shutdown()
            with suppress(RuntimeError):  # closed before, by a call that was cancelled
                self._writer.submit(self._connections.give_all_back)
            self._writer.shutdown()
            self._connections.close()

        await asyncio.to_thread(close)

    async def _read(self, work: Callable[[sqlite3.Connection], T], nothing: T) -> T:
        def run() -> T:
            with self._explaining(), self._connections.reading() as database:
                return nothing if database is None else work(database)

        return await self._in_thread(run, writes=False)

    async def _write(self, work: Callable[[sqlite3.Connection], T], *, removes: bool = False) -> T:
        def run() -> T:
            with self._explaining():
                database = self._connections.writing()
                answer = work(database)
                self._connections.writing()  # which refuses, if the file is not there any more
                self._writes += 1
                if removes or self._writes % 64 == 0:
                    reclaim_space(database)
                return answer

        return await self._in_thread(run, writes=True)

    async def _in_thread(self, run: Callable[[], T], *, writes: bool) -> T:
        if self._process != os.getpid():
            self._start_threads()  # a parent's do not survive a fork

        def work() -> T:
            with self._connections.in_use():
                return run()

        if RUN_INLINE.get():
            return work()
        threads = self._writer if writes else self._readers
        try:
            return await asyncio.get_running_loop().run_in_executor(threads, work)
        except RuntimeError:
            self._check_open()  # it was closed by another thread in this moment
            raise

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            code = primary_code(error)
            if code == sqlite3.SQLITE_CORRUPT:
                raise IntegrityError(
                    f"{self.place} is damaged ({error}): restore it from a backup, or save what "
                    "can be read with the command .recover of the sqlite3 shell"
                ) from error
            if code == sqlite3.SQLITE_CANTOPEN and self._connections.is_out_of_reach():
                code = sqlite3.SQLITE_READONLY
            hint = HINTS.get(code, "see SQLite's documentation of this error")
            raise StateStoreError(
                f"{self.place}: {error}: {hint}",
                transient=code == sqlite3.SQLITE_BUSY,
                # What failed at the end of a write may be in the log all the same.
                unknown=code == sqlite3.SQLITE_IOERR,
            ) from error
        except OverflowError as error:
            hint = HINTS[sqlite3.SQLITE_TOOBIG]
            raise StateStoreError(f"{self.place}: {error}: {hint}") from error
        except OSError as error:
            raise explain_os_error(error, self.place) from error


def write_entry(database: sqlite3.Connection, put: Put) -> str:
    """The etag of one write, done in one statement, or its conflict."""
    etag = new_etag()
    insert = INSERT.format(next=NEXT_LARGE if len(put.value) > LARGE else NEXT_SMALL)
    if put.if_match is not None:
        if not database.execute(REMOVE_MATCH, (put.key, put.if_match)).rowcount:
            raise etag_mismatch_error(put.key, put.if_match, read_etag(database, put.key))
        # Anew rather than in its place: a small one there would leave its page half empty.
        database.execute(f"{insert} DO NOTHING", (put.key, etag, put.value))
    elif put.if_absent:
        nothing = f"{insert} DO NOTHING"
        if not database.execute(nothing, (put.key, etag, put.value)).rowcount:
            raise key_exists_error(put.key)
    else:
        database.execute(insert + REPLACE, (put.key, etag, put.value))
    return etag


def read_etag(database: sqlite3.Connection, key: str) -> str | None:
    """The etag that a key has, or None."""
    row = database.execute("SELECT etag FROM entries WHERE key = ?", (key,)).fetchone()
    return None if row is None else row[0]


def open_url(url: StoreURL) -> SqliteStateStore:
    """``sqlite:///state.db`` in the working folder, ``sqlite:////var/lib/state.db`` anywhere."""
    path = url.path[1:]
    if not str(url).startswith("sqlite:///") or path in ("", ":memory:"):
        meant = suggest_url((url.parts.netloc + url.path).lstrip("/"))
        raise StoreURLError(
            f"{url} names no file: three slashes and a path in the working folder, as in "
            "sqlite:///state.db, or four for an absolute one. For a store in memory: memory:",
            meant="memory:" if path == ":memory:" else meant,
        )
    store = SqliteStateStore(path, timeout=url.take_number("timeout", TIMEOUT))
    url.reject_unknown_options(("timeout",))
    return store
