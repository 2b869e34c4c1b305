"""Connections to a SQLite file: one a thread, and never to a file that is not there any more."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Condition, local
from urllib.parse import quote

from holdfast.errors import StateStoreError
from holdfast.process_fork import ForkAware
from holdfast.stores.local import make_folder

VERSION = 1
APPLICATION = 0x486F6C64
SPARE_PAGES = 1024
LONGEST_TIMEOUT = 2_000_000.0  # SQLite counts milliseconds in 31 bits
LARGEST_LOG = 16 * 1024 * 1024  # bytes that the write-ahead log keeps on the disk when it is empty

SCHEMA = f"""
CREATE TABLE entries (key TEXT NOT NULL PRIMARY KEY, etag TEXT NOT NULL, value BLOB NOT NULL);
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {VERSION};
"""
IDENTITY = """
SELECT user_version, application_id, (SELECT count(*) FROM sqlite_master)
FROM pragma_user_version, pragma_application_id
"""

# Connections that a parent was using for too long when it forked.
INHERITED: list[sqlite3.Connection] = []


class Connections(ForkAware):
    """The connections of one process to one file.

    SQLite allows no connection to be carried through a fork: its memory would say in the child what
    the parent had locked. So a fork waits until no connection is in use, and closes all of them;
    both processes connect again.
    """

    def __init__(self, path: str | os.PathLike[str], place: str, timeout: float) -> None:
        # Absolute from the start, as the working folder may change before the last connection.
        self.path = Path(path).absolute()
        self.place = place
        self.timeout = min(timeout, LONGEST_TIMEOUT)
        self.process = os.getpid()
        self._own = local()  # of each thread: its connection
        self._file: tuple[int, int] | None = None  # the one that the first connection was to
        self._connections: list[sqlite3.Connection] = []
        self._change = Condition()
        self._uses = 0
        self._is_forking = False
        super().__init__()

    def close(self) -> None:
        """Close all. The last one folds the write-ahead log into the database."""
        for database in self._connections:
            database.close()
        self._connections.clear()
        self._own = local()

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep the process from forking during the block."""
        with self._change:
            while self._is_forking:
                self._change.wait()
            self._uses += 1
        try:
            yield
        finally:
            with self._change:
                self._uses -= 1
                self._change.notify_all()

    def before_fork(self, end: float) -> None:
        """Wait until no connection is in use, and close all."""
        with self._change:
            self._is_forking = True
            while self._uses and (left := end - time.monotonic()) > 0:
                self._change.wait(left)
            if not self._uses:
                self.close()

    def after_fork_in_parent(self) -> None:
        """Go on, with new connections."""
        with self._change:
            self._is_forking = False
            self._change.notify_all()

    def after_fork_in_child(self) -> None:
        """Start without any connection."""
        # Those that were in use for too long are never used here, nor closed: SQLite would act on
        # what the parent has locked.
        INHERITED.extend(self._connections)
        self.process = os.getpid()
        self._own = local()
        self._connections = []
        self._change = Condition()
        self._uses = 0
        self._is_forking = False

    def writing(self) -> sqlite3.Connection:
        """The connection of this thread; the first one makes the database."""
        own = self._kept()
        if own is None:
            make_folder(self.path.parent)
            with self._connected("rwc") as own:
                self._prepare(own)
            self._own.database = own
        return own

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection | None]:
        """The connection of this thread, or None where nothing is yet: reading makes no files."""
        own = self._kept()
        if own is not None:
            yield own
        elif file_identity(self.path) is None:
            yield None
        else:
            database, lasting = self._first_reading()
            if lasting:
                self._own.database = database
            try:
                yield database if lasting or self._checked_version(database) else None
            finally:
                if not lasting:
                    self._connections.remove(database)
                    database.close()

    def _first_reading(self) -> tuple[sqlite3.Connection, bool]:
        """A new connection, and whether it is good for more than one call."""
        for mode in ("rw", "ro"):
            try:
                with self._connected(mode) as database:
                    version = self._checked_version(database)
            except sqlite3.OperationalError as error:
                if primary_code(error) not in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
                    raise
            else:
                return database, version > 0
        # A folder that cannot be written: its database can be read as it lies there, if no log
        # belongs to it. Such a connection sees no later change.
        wal = Path(f"{self.path}-wal")
        if wal.exists() and wal.stat().st_size:
            raise StateStoreError(
                f"{self.place} was not closed, and its folder cannot be written, which reading it "
                "needs then: see its owner and mode"
            )
        with self._connected("ro&immutable=1") as database:
            return database, False

    def is_out_of_reach(self) -> bool:
        """Whether the database is in a folder that cannot be written, as its log would be."""
        return os.access(self.path, os.F_OK) and not os.access(self.path.parent, os.W_OK)

    def _kept(self) -> sqlite3.Connection | None:
        """The connection that this thread has, if it is to the file that is there now."""
        if self._file is not None and self._file != file_identity(self.path):
            # The log beside it belongs to the former file, and would be folded into the new one.
            raise self._replaced()
        own: sqlite3.Connection | None = getattr(self._own, "database", None)
        return own

    def _replaced(self) -> StateStoreError:
        return StateStoreError(
            f"{self.place} was removed or replaced while in use: close all stores that have it "
            f"open, remove {self.path.name}-wal and {self.path.name}-shm, if they are there, and "
            "open it again"
        )

    @contextmanager
    def _connected(self, mode: str) -> Iterator[sqlite3.Connection]:
        """A new connection, which is kept unless the block fails."""
        before = self._file or file_identity(self.path)
        database = sqlite3.connect(
            f"file:{quote(str(self.path))}?mode={mode}",
            uri=True,
            timeout=self.timeout,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            database.execute("PRAGMA synchronous = FULL")
            database.execute(f"PRAGMA journal_size_limit = {LARGEST_LOG}")
            file = file_identity(self.path)
            if file is None or before not in (None, file):
                raise self._replaced()
            yield database
        except BaseException:
            database.close()
            raise
        self._file = file
        self._connections.append(database)

    def give_all_back(self) -> None:
        """Shorten the file by all that is unused, where this thread has a connection."""
        if hasattr(self._own, "database"):
            reclaim_space(self._own.database, at_once=True)

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
        end = time.monotonic() + self.timeout
        while True:
            try:
                database.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if primary_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > end:
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


def file_identity(path: Path) -> tuple[int, int] | None:
    """Which file a path leads to, or None."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


@contextmanager
def transaction(database: sqlite3.Connection, begin: str = "BEGIN IMMEDIATE") -> Iterator[None]:
    """All of a block or nothing, holding the one lock for writing from its beginning."""
    database.execute(begin)
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        # A full disk may have rolled it back already.
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def reclaim_space(database: sqlite3.Connection, *, at_once: bool = False) -> None:
    """Shorten the file, a little at a time, once a quarter of it is unused."""
    # What was asked for is done already, so nobody waits for a lock here, or hears of a failure.
    with suppress(sqlite3.Error):
        (free,) = database.execute("PRAGMA freelist_count").fetchone()
        if free < (1 if at_once else SPARE_PAGES):
            return
        (pages,) = database.execute("PRAGMA page_count").fetchone()
        if free * 4 <= pages:
            return
        (timeout,) = database.execute("PRAGMA busy_timeout").fetchone()
        database.execute("PRAGMA busy_timeout = 0")
        try:
            # As a script: it frees a page a step, and execute would take the first step alone.
            database.executescript(f"PRAGMA incremental_vacuum({free if at_once else free // 4})")
        finally:
            database.execute(f"PRAGMA busy_timeout = {timeout}")


def primary_code(error: sqlite3.Error) -> int:
    """SQLite's code of an error, without its refinement."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
