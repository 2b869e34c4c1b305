"""The default backend: one SQLite file, used by any number of threads and processes at once.

Write-ahead log with ``synchronous=FULL``: a write is on disk when its call returns, and readers
never wait for writers. All writes of a store use one thread and one connection, because SQLite has
one writer at a time; reads use a few others. Between processes SQLite's lock decides, with a wait
of up to ``timeout`` seconds.
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
BATCH_SIZE = 500
RECLAIM_INTERVAL = 64

# Rows are stored in the order of their numbers. Small rows fill pages well next to each other, but
# badly next to large ones: so large and small rows have separate ranges of numbers.
LARGE = 1024
FIRST_SMALL = 1 << 40
NEXT_LARGE = f"SELECT coalesce(max(rowid), 0) + 1 FROM entries WHERE rowid < {FIRST_SMALL}"  # noqa: S608
NEXT_SMALL = f"SELECT max(coalesce(max(rowid), 0), {FIRST_SMALL}) + 1 FROM entries"  # noqa: S608
INSERT = "INSERT INTO entries (rowid, key, etag, value) VALUES (({next}), ?, ?, ?) ON CONFLICT "
REPLACE = "(key) DO UPDATE SET etag = excluded.etag, value = excluded.value"
DELETE_MATCH = "DELETE FROM entries WHERE key = ? AND etag = ?"

HINTS = {
    sqlite3.SQLITE_BUSY: "another process holds its lock; retry, or wait longer with ?timeout=",
    sqlite3.SQLITE_FULL: "the disk is full; free some space and retry",
    sqlite3.SQLITE_READONLY: "the file or its folder is not writable; check its owner and mode, "
    "and whether its disk is mounted read-only",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; check that its folder exists and is yours",
    sqlite3.SQLITE_PERM: "permission denied; check its owner and mode",
    sqlite3.SQLITE_NOTADB: "it is not a SQLite database; choose another path",
    sqlite3.SQLITE_TOOBIG: "the value exceeds SQLite's limit of 1 GB",
    sqlite3.SQLITE_IOERR: "the disk failed or is full; check the system's log",
}


class SqliteStateStore(Backend):
    """A store in one SQLite file, which is created with its folders on the first write.

    Every acknowledged write is durable, and ``put_many`` is atomic. For local disks only: SQLite's
    locks are not safe on network file systems.
    """

    atomic_put_many = True
    conditional_put_many = True
    atomic_get_many = True
    runs_inline = True

    def __init__(self, path: str | os.PathLike[str], *, timeout: float = TIMEOUT) -> None:
        self.display_url = f"sqlite:///{os.fspath(path)}"
        self._connections = Connections(path, self.display_url, timeout)
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

    async def _put_many(
        self, puts: Sequence[Put], conditions: Sequence[Condition] = ()
    ) -> list[str]:
        def write(database: sqlite3.Connection) -> list[str]:
            with transaction(database):
                for condition in conditions:
                    etag = read_etag(database, condition.key)
                    if etag != condition.etag:
                        raise etag_mismatch_error(condition.key, condition.etag, etag)
                return [write_entry(database, put) for put in puts]

        return await self._write(write)

    async def _delete(self, key: str, if_match: str | None) -> bool:
        def delete(database: sqlite3.Connection) -> bool:
            with transaction(database):
                etag = read_etag(database, key)
                if if_match is not None and etag != if_match:
                    raise etag_mismatch_error(key, if_match, etag)
                database.execute("DELETE FROM entries WHERE key = ?", (key,))
            return etag is not None

        return await self._write(delete, deletes=True)

    async def _page(self, key_range: KeyRange, count: int) -> Sequence[str]:
        def read(database: sqlite3.Connection) -> list[str]:
            above = ">" if key_range.exclusive else ">="
            query = f"SELECT key FROM entries WHERE key {above} ?"  # noqa: S608
            bounds: list[str | int] = [key_range.low]
            if key_range.high is not None:
                query += " AND key < ?"
                bounds.append(key_range.high)
            query += " ORDER BY key LIMIT ?"
            return [key for (key,) in database.execute(query, [*bounds, count])]

        return await self._read(read, [])

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
        def close() -> None:
            if self._process != os.getpid():
                return  # everything belongs to the parent
            self._readers.shutdown()
            with suppress(RuntimeError):  # already shut down, by a close that was cancelled
                self._writer.submit(self._connections.reclaim_all_space)
            self._writer.shutdown()
            self._connections.close()

        await asyncio.to_thread(close)

    async def _read(self, work: Callable[[sqlite3.Connection], T], default: T) -> T:
        """Run work on a connection for reading, or return the default if there is no database."""

        def run() -> T:
            with self._explain_errors(), self._connections.reading() as database:
                return default if database is None else work(database)

        return await self._run(run, writes=False)

    async def _write(self, work: Callable[[sqlite3.Connection], T], *, deletes: bool = False) -> T:
        def run() -> T:
            with self._explain_errors():
                database = self._connections.writing()
                answer = work(database)
                self._connections.writing()  # raises if the file was removed or replaced
                self._writes += 1
                if deletes or self._writes % RECLAIM_INTERVAL == 0:
                    reclaim_space(database)
                return answer

        return await self._run(run, writes=True)

    async def _run(self, run: Callable[[], T], *, writes: bool) -> T:
        if self._process != os.getpid():
            self._start_threads()  # a parent's threads do not survive a fork

        def work() -> T:
            with self._connections.in_use():
                return run()

        if RUN_INLINE.get():
            return work()
        threads = self._writer if writes else self._readers
        try:
            return await asyncio.get_running_loop().run_in_executor(threads, work)
        except RuntimeError:
            self._check_open()  # another thread may have closed the store just now
            raise

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            code = primary_code(error)
            if code == sqlite3.SQLITE_CORRUPT:
                raise IntegrityError(
                    f"{self.display_url} is damaged ({error}); restore it from a backup, or save "
                    "what is readable with the command .recover of the sqlite3 shell"
                ) from error
            if code == sqlite3.SQLITE_CANTOPEN and self._connections.is_in_read_only_folder():
                code = sqlite3.SQLITE_READONLY
            hint = HINTS.get(code, "see SQLite's documentation of this error")
            raise StateStoreError(
                f"{self.display_url}: {error}: {hint}",
                transient=code == sqlite3.SQLITE_BUSY,
                # A write that failed at its end may still be in the log.
                unknown=code == sqlite3.SQLITE_IOERR,
            ) from error
        except OverflowError as error:
            hint = HINTS[sqlite3.SQLITE_TOOBIG]
            raise StateStoreError(f"{self.display_url}: {error}: {hint}") from error
        except OSError as error:
            raise explain_os_error(error, self.display_url) from error


def write_entry(database: sqlite3.Connection, put: Put) -> str:
    """Write one entry and return its etag.

    Raises:
        ConflictError: The condition of the put does not hold.

    """
    etag = new_etag()
    insert = INSERT.format(next=NEXT_LARGE if len(put.value) > LARGE else NEXT_SMALL)
    if put.if_match is not None:
        if not database.execute(DELETE_MATCH, (put.key, put.if_match)).rowcount:
            raise etag_mismatch_error(put.key, put.if_match, read_etag(database, put.key))
        # A new row, because a small value in the place of a large one leaves its page half empty.
        database.execute(f"{insert} DO NOTHING", (put.key, etag, put.value))
    elif put.if_absent:
        if not database.execute(f"{insert} DO NOTHING", (put.key, etag, put.value)).rowcount:
            raise key_exists_error(put.key)
    else:
        database.execute(insert + REPLACE, (put.key, etag, put.value))
    return etag


def read_etag(database: sqlite3.Connection, key: str) -> str | None:
    """Return the etag of a key, or None."""
    row = database.execute("SELECT etag FROM entries WHERE key = ?", (key,)).fetchone()
    return None if row is None else row[0]


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
