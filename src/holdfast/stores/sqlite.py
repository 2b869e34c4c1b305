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
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import local
from typing import TypeVar
from urllib.parse import quote

from holdfast.errors import IntegrityError, StateStoreError
from holdfast.stores.backend import Backend, already_there, new_etag, not_matching
from holdfast.stores.contract import Entry, Put
from holdfast.stores.gate import Span
from holdfast.stores.local import explained, make_folder
from holdfast.stores.urls import StoreURL

T = TypeVar("T")

TIMEOUT = 30.0
READERS = 4
VERSION = 1
APPLICATION = 0x486F6C64
AT_ONCE = 500
SPARE_PAGES = 1024

# Connections of a parent process. To close one in the child would drop the parent's locks.
INHERITED: list[sqlite3.Connection] = []

SCHEMA = f"""
CREATE TABLE entries (key TEXT NOT NULL PRIMARY KEY, etag TEXT NOT NULL, value BLOB NOT NULL);
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {VERSION};
"""
IDENTITY = """
SELECT user_version, application_id, (SELECT count(*) FROM sqlite_master)
FROM pragma_user_version, pragma_application_id
"""
PUT = """
INSERT INTO entries (key, etag, value) VALUES (?, ?, ?)
ON CONFLICT (key) DO UPDATE SET etag = excluded.etag, value = excluded.value
"""
PUT_ABSENT = "INSERT INTO entries (key, etag, value) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
PUT_MATCH = "UPDATE entries SET etag = ?, value = ? WHERE key = ? AND etag = ?"

HINTS = {
    sqlite3.SQLITE_BUSY: "another process holds its lock: try again, or wait longer with ?timeout=",
    sqlite3.SQLITE_FULL: "the disk is full: make room and try again",
    sqlite3.SQLITE_READONLY: "the file or its folder cannot be written: see its owner and mode",
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

    def __init__(self, path: str | os.PathLike[str], *, timeout: float = TIMEOUT) -> None:
        self._path = Path(path)
        self.place = f"sqlite:///{self._path}"
        self._timeout = timeout
        self._connections: list[sqlite3.Connection] = []
        self._begin()

    def _begin(self) -> None:
        """Threads and connections of this process: what a parent had is of no use after a fork."""
        self._process = os.getpid()
        INHERITED.extend(self._connections)
        self._connections = []
        self._own = local()  # of each thread: its connection
        self._writer = ThreadPoolExecutor(1, "holdfast-sqlite-write")
        self._readers = ThreadPoolExecutor(READERS, "holdfast-sqlite-read")

    async def _get(self, key: str) -> Entry | None:
        return (await self._get_many([key])).get(key)

    async def _get_many(self, keys: Sequence[str]) -> dict[str, Entry]:
        def read(database: sqlite3.Connection) -> dict[str, Entry]:
            found = {}
            for start in range(0, len(keys), AT_ONCE):
                some = keys[start : start + AT_ONCE]
                marks = ",".join("?" * len(some))
                query = f"SELECT key, value, etag FROM entries WHERE key IN ({marks})"  # noqa: S608
                for key, value, etag in database.execute(query, some):
                    found[key] = Entry(value, etag)
            return found

        return await self._read(read, {})

    async def _put(self, put: Put) -> str:
        return await self._write(lambda database: written(database, put))

    async def _put_many(self, puts: Sequence[Put]) -> list[str]:
        def write(database: sqlite3.Connection) -> list[str]:
            with transaction(database):
                return [written(database, put) for put in puts]

        return await self._write(write)

    async def _delete(self, key: str, if_match: str | None) -> bool:
        def remove(database: sqlite3.Connection) -> bool:
            with transaction(database):
                found = etag_of(database, key)
                if if_match is not None and found != if_match:
                    raise not_matching(key, if_match, found)
                database.execute("DELETE FROM entries WHERE key = ?", (key,))
            give_space_back(database)
            return found is not None

        return await self._write(remove)

    async def _page(self, span: Span, count: int) -> Sequence[str]:
        def read(database: sqlite3.Connection) -> list[str]:
            query = f"SELECT key FROM entries WHERE key {'>' if span.exclusive else '>='} ?"  # noqa: S608
            bounds: list[str | int] = [span.low]
            if span.high is not None:
                query += " AND key < ?"
                bounds.append(span.high)
            query += " ORDER BY key LIMIT ?"
            return [key for (key,) in database.execute(query, [*bounds, count])]

        return await self._read(read, [])

    async def _close(self) -> None:
        def close() -> None:
            self._readers.shutdown()
            self._writer.shutdown()
            for connection in self._connections:
                connection.close()

        # The last to close folds the log into the database, which takes its time.
        await asyncio.to_thread(close)

    async def _read(self, work: Callable[[sqlite3.Connection], T], nothing: T) -> T:
        def run() -> T:
            with self._explaining():
                database = self._reading()
                return nothing if database is None else work(database)

        if self._process != os.getpid():
            self._begin()
        return await asyncio.get_running_loop().run_in_executor(self._readers, run)

    async def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        def run() -> T:
            with self._explaining():
                return work(self._writing())

        if self._process != os.getpid():
            self._begin()
        return await asyncio.get_running_loop().run_in_executor(self._writer, run)

    def _writing(self) -> sqlite3.Connection:
        """The connection of this thread; the first one makes the database."""
        if not hasattr(self._own, "database"):
            make_folder(self._path.absolute().parent)
            database = self._connect("rwc")
            self._prepare(database)
            self._own.database = database
        own: sqlite3.Connection = self._own.database
        return own

    def _reading(self) -> sqlite3.Connection | None:
        """The connection of this thread, or None where nothing is yet: reading makes no files."""
        if not hasattr(self._own, "database"):
            if not self._path.exists():
                return None
            try:
                database = self._connect("rw")
                version = self._checked_version(database)
            except sqlite3.OperationalError:
                # A database whose folder cannot be written can be read where no log is left to it.
                wal = Path(f"{self._path}-wal")
                if wal.exists() and wal.stat().st_size:
                    raise
                database = self._connect("ro&immutable=1")
                version = self._checked_version(database)
            if version == 0:
                self._connections.remove(database)
                database.close()
                return None
            self._own.database = database
        own: sqlite3.Connection = self._own.database
        return own

    def _connect(self, mode: str) -> sqlite3.Connection:
        path = quote(str(self._path.absolute()))
        connection = sqlite3.connect(
            f"file:{path}?mode={mode}",
            uri=True,
            timeout=self._timeout,
            isolation_level=None,
            check_same_thread=False,
        )
        self._connections.append(connection)
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    def _prepare(self, database: sqlite3.Connection) -> None:
        if self._checked_version(database) == VERSION:
            return
        database.execute("PRAGMA auto_vacuum = INCREMENTAL")
        self._use_log(database)
        with transaction(database):
            if self._checked_version(database) == 0:
                for statement in SCHEMA.split(";"):
                    database.execute(statement)

    def _use_log(self, database: sqlite3.Connection) -> None:
        """Turn the write-ahead log on. SQLite does not wait for others who do the same."""
        end = time.monotonic() + self._timeout
        while True:
            try:
                database.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if primary(error) != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                    raise
                time.sleep(0.01)

    def _checked_version(self, database: sqlite3.Connection) -> int:
        """The version of what is in the file, 0 where nothing is. What is not ours is refused."""
        # In one statement, as another process may be making the tables at this moment.
        version, application, tables = database.execute(IDENTITY).fetchone()
        if application != APPLICATION and (tables or version or application):
            raise StateStoreError(
                f"{self.place} is the database of another application: choose another path"
            )
        if version > VERSION:
            raise StateStoreError(
                f"{self.place} was made by a newer Holdfast (format {version}, known is "
                f"{VERSION}): upgrade this one"
            )
        return int(version)

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            code = primary(error)
            if code == sqlite3.SQLITE_CORRUPT:
                raise IntegrityError(
                    f"{self.place} is damaged ({error}): restore it from a backup, or save what "
                    "can be read with the command .recover of the sqlite3 shell"
                ) from error
            hint = HINTS.get(code, "see SQLite's documentation of this error")
            raise StateStoreError(
                f"{self.place}: {error}: {hint}", transient=code == sqlite3.SQLITE_BUSY
            ) from error
        except OSError as error:
            raise explained(error, self.place) from error


def written(database: sqlite3.Connection, put: Put) -> str:
    """The etag of one write, done in one statement, or its conflict."""
    etag = new_etag()
    if put.if_match is not None:
        values = (etag, put.value, put.key, put.if_match)
        if not database.execute(PUT_MATCH, values).rowcount:
            raise not_matching(put.key, put.if_match, etag_of(database, put.key))
    elif put.if_absent:
        if not database.execute(PUT_ABSENT, (put.key, etag, put.value)).rowcount:
            raise already_there(put.key)
    else:
        database.execute(PUT, (put.key, etag, put.value))
    return etag


def etag_of(database: sqlite3.Connection, key: str) -> str | None:
    """The etag that a key has, or None."""
    row = database.execute("SELECT etag FROM entries WHERE key = ?", (key,)).fetchone()
    return None if row is None else row[0]


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[None]:
    """All of a block or nothing, holding the one lock for writing from its beginning."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        # A full disk may have rolled it back already.
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def give_space_back(database: sqlite3.Connection) -> None:
    """Shorten the file, a little at a time, once a good part of it is unused."""
    free: int = database.execute("PRAGMA freelist_count").fetchone()[0]
    if free > SPARE_PAGES:
        pages: int = database.execute("PRAGMA page_count").fetchone()[0]
        if free * 4 > pages:
            # As a script: it frees a page a step, and execute would take the first step alone.
            database.executescript(f"PRAGMA incremental_vacuum({SPARE_PAGES // 2})")


def primary(error: sqlite3.Error) -> int:
    """SQLite's code of an error, without its refinement."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def open_url(url: StoreURL) -> SqliteStateStore:
    """``sqlite:///state.db`` in the working folder, ``sqlite:////var/lib/state.db`` anywhere."""
    path = url.path[1:]
    if not str(url).startswith("sqlite:///") or path in ("", ":memory:"):
        raise StateStoreError(
            f"{url} names no file: three slashes and a path in the working folder, as in "
            "sqlite:///state.db, or four for an absolute one. For a store in memory: memory:"
        )
    store = SqliteStateStore(path, timeout=url.take_number("timeout", TIMEOUT))
    url.refuse_rest(("timeout",))
    return store
