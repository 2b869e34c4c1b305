"""Connections to a SQLite file: one that writes, some that read, none to a replaced file."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Condition
from typing import Any, TypeVar
from urllib.parse import quote

from holdfast.errors import StateStoreError
from holdfast.process_fork import ForkAware
from holdfast.stores.local import make_folder

T = TypeVar("T")

VERSION = 1
APPLICATION_ID = 0x486F6C64
SPARE_PAGES = 1024
MAX_TIMEOUT = 2_000_000.0  # SQLite counts milliseconds in 31 bits
MAX_LOG_BYTES = 16 * 1024 * 1024  # of the write-ahead log on disk when it is empty
READERS = 4  # threads of calls that are not inline
MAX_IDLE_READERS = 8
MAX_STATEMENTS = 256  # that a connection keeps compiled
BUSY_PAUSE = 0.01  # seconds

SCHEMA = f"""
CREATE TABLE entries (key TEXT NOT NULL PRIMARY KEY, etag TEXT NOT NULL, value BLOB NOT NULL);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {VERSION};
"""
IDENTITY = """
SELECT user_version, application_id, (SELECT count(*) FROM sqlite_master)
FROM pragma_user_version, pragma_application_id
"""

# Connections that were in use for too long when the parent forked.
INHERITED: list[sqlite3.Connection] = []


class Connections(ForkAware):
    """The connections of one process to one file: one that writes, and some that read.

    SQLite does not support using a connection after a fork: the child would have the parent's view
    of its locks. So a fork waits until no connection is in use and closes all of them; both
    processes connect again.
    """

    def __init__(self, path: Path, display_url: str, timeout: float) -> None:
        self.path = path
        self._path_text = str(self.path)
        self.display_url = display_url
        self.timeout = min(timeout, MAX_TIMEOUT)
        self._file: tuple[int, int] | None = None  # the file of the first connection
        self._writer: sqlite3.Connection | None = None
        self._idle_readers: list[sqlite3.Connection] = []
        self.readers = ThreadPoolExecutor(READERS, "holdfast-sqlite-read")
        self._connections: list[sqlite3.Connection] = []
        self._change = Condition()
        self._uses = 0
        self._is_forking = False
        super().__init__()

    def close(self) -> None:
        """Close all connections when none is in use. The last one merges the log into the file."""
        self.readers.shutdown()
        with self._change:
            while self._uses:
                self._change.wait()
            self._close_all()

    def _close_all(self) -> None:
        for database in self._connections:
            database.close()
        self._connections.clear()
        self._idle_readers.clear()
        self._writer = None

    def begin_use(self) -> None:
        """Keep the process from forking until ``end_use``. Waits if it is about to fork."""
        with self._change:
            while self._is_forking:
                self._change.wait()
            self._uses += 1

    def end_use(self) -> None:
        """Allow the process to fork."""
        with self._change:
            self._uses -= 1
            if not self._uses:
                self._change.notify_all()

    def before_fork(self, end: float) -> None:
        """Wait until no connection is in use, and close all."""
        with self._change:
            self._is_forking = True
            while self._uses and (left := end - time.monotonic()) > 0:
                self._change.wait(left)
            if not self._uses:
                self._close_all()

    def after_fork_in_parent(self) -> None:
        """Allow new connections."""
        with self._change:
            self._is_forking = False
            self._change.notify_all()

    def after_fork_in_child(self) -> None:
        """Start without any connection."""
        # Connections still in use are neither used nor closed here: SQLite would act on the
        # parent's locks.
        INHERITED.extend(self._connections)
        self.readers = ThreadPoolExecutor(READERS, "holdfast-sqlite-read")
        self._writer = None
        self._idle_readers = []
        self._connections = []
        self._change = Condition()
        self._uses = 0
        self._is_forking = False

    def writing(self) -> sqlite3.Connection:
        """Return the connection that writes, and create the database if needed.

        Only one thread may call this and use the connection at a time.

        Raises:
            StateStoreError: The file was replaced, or is not a database of this Holdfast.

        """
        self.check_file()
        if self._writer is None:
            make_folder(self.path.parent)
            with self._connect("rwc") as database:
                self._prepare(database)
                database.execute("PRAGMA busy_timeout = 0")
            self._writer = database
        return self._writer

    def begin(self, database: sqlite3.Connection) -> None:
        """Begin a transaction that writes; wait for other processes up to ``timeout`` seconds."""
        try:
            database.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if primary_code(error) != sqlite3.SQLITE_BUSY:
                raise
            database.execute(f"PRAGMA busy_timeout = {int(self.timeout * 1000)}")
            try:
                database.execute("BEGIN IMMEDIATE")
            finally:
                database.execute("PRAGMA busy_timeout = 0")

    def read_idle(self, query: str, values: Sequence[str | int]) -> list[Any] | None:
        """Return the rows of a query that takes no longer than waking a thread would.

        None if a thread has to find out: no connection is idle, the process is about to fork, or
        the query fails. Readers do not wait for locks by themselves, so this does not block.
        """
        with self._change:
            if self._is_forking or not self._idle_readers:
                return None
            database = self._idle_readers.pop()
            self._uses += 1
        try:
            return None if self.is_file_replaced() else database.execute(query, values).fetchall()
        except (sqlite3.Error, OSError):
            return None
        finally:
            self._idle_readers.append(database)
            self.end_use()

    def read(self, work: Callable[[sqlite3.Connection], T], default: T) -> T:
        """Run work on a connection that reads, or return the default if there is no database.

        It is run again while another process recovers or closes the database, for ``timeout``
        seconds: nothing else blocks a reader.

        Raises:
            StateStoreError: The file was replaced, or is not a database of this Holdfast.

        """
        end = time.monotonic() + self.timeout
        while True:
            try:
                with self._reading() as database:
                    return default if database is None else work(database)
            except sqlite3.OperationalError as error:
                if primary_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                    raise
                time.sleep(BUSY_PAUSE)

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection | None]:
        """Yield a connection that reads, or None if there is no database; creates no files.

        Raises:
            StateStoreError: The file was replaced, or is not a database of this Holdfast.

        """
        self.begin_use()
        try:
            self.check_file()
            try:
                database, reusable = self._idle_readers.pop(), True
            except IndexError:
                if file_identity(self._path_text) is None:
                    yield None
                    return
                database, reusable = self._connect_for_reading()
            try:
                yield database if reusable or self._read_version(database) else None
            finally:
                if reusable and len(self._idle_readers) < MAX_IDLE_READERS:
                    self._idle_readers.append(database)
                else:
                    self._connections.remove(database)
                    database.close()
        finally:
            self.end_use()

    def _connect_for_reading(self) -> tuple[sqlite3.Connection, bool]:
        """Return a new connection, and whether it can be used for more than one call."""
        for mode in ("rw", "ro"):
            try:
                with self._connect(mode) as database:
                    version = self._read_version(database)
            except sqlite3.OperationalError as error:
                if primary_code(error) not in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
                    raise
            else:
                return database, version > 0
        # The folder is not writable. Without a write-ahead log the database can be read as it is,
        # but such a connection sees no later changes.
        wal = Path(f"{self.path}-wal")
        if wal.exists() and wal.stat().st_size:
            raise StateStoreError(
                f"{self.display_url} was not closed, and reading it then needs a writable folder; "
                "check the folder's owner and mode"
            )
        with self._connect("ro&immutable=1") as database:
            return database, False

    def is_in_read_only_folder(self) -> bool:
        """Whether the database exists in a folder that is not writable."""
        return os.access(self.path, os.F_OK) and not os.access(self.path.parent, os.W_OK)

    def check_file(self) -> None:
        """Check that the file is still the one of the first connection.

        Raises:
            StateStoreError: The file was removed or replaced.

        """
        if self.is_file_replaced():
            # The write-ahead log belongs to the former file and would be merged into the new one.
            raise self._replaced_error()

    def is_file_replaced(self) -> bool:
        """Whether the file is not that of the first connection any more."""
        return self._file not in (None, file_identity(self._path_text))

    def _replaced_error(self) -> StateStoreError:
        return StateStoreError(
            f"{self.display_url} was removed or replaced while in use; close all stores on it, "
            f"remove {self.path.name}-wal and {self.path.name}-shm if they exist, and open it again"
        )

    @contextmanager
    def _connect(self, mode: str) -> Iterator[sqlite3.Connection]:
        """Yield a new connection, which is closed if the block fails."""
        before = self._file or file_identity(self._path_text)
        database = sqlite3.connect(
            f"file:{quote(str(self.path))}?mode={mode}",
            uri=True,
            timeout=self.timeout if mode == "rwc" else 0,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=MAX_STATEMENTS,
        )
        try:
            database.execute("PRAGMA synchronous = FULL")
            database.execute(f"PRAGMA journal_size_limit = {MAX_LOG_BYTES}")
            file = file_identity(self._path_text)
            if file is None or before not in (None, file):
                raise self._replaced_error()
            yield database
        except BaseException:
            database.close()
            raise
        self._file = file
        self._connections.append(database)

    def reclaim_all_space(self) -> None:
        """Remove all unused pages from the file, if there is a connection that writes."""
        if self._writer is not None:
            reclaim_space(self._writer, everything=True)

    def _prepare(self, database: sqlite3.Connection) -> None:
        if self._read_version(database) == VERSION:
            return
        database.execute("PRAGMA auto_vacuum = INCREMENTAL")
        self._enable_wal(database)
        with transaction(database):
            if self._read_version(database) == 0:
                for statement in SCHEMA.split(";"):
                    database.execute(statement)

    def _enable_wal(self, database: sqlite3.Connection) -> None:
        """Enable the write-ahead log. SQLite itself does not wait for others that do the same."""
        end = time.monotonic() + self.timeout
        while True:
            try:
                database.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if primary_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                    raise
                time.sleep(BUSY_PAUSE)

    def _read_version(self, database: sqlite3.Connection) -> int:
        """Return the format version of the database, 0 if it is empty.

        Raises:
            StateStoreError: It belongs to another application or a newer Holdfast.

        """
        # One statement, because another process may be creating the tables.
        version, application, tables = database.execute(IDENTITY).fetchone()
        if application != APPLICATION_ID and (tables or version or application):
            raise StateStoreError(
                f"{self.display_url} is a database of another application; choose another path"
            )
        if version > VERSION:
            raise StateStoreError(
                f"{self.display_url} was written by a newer Holdfast (format {version}, supported "
                f"up to {VERSION}); upgrade Holdfast"
            )
        return int(version)


def file_identity(path: str) -> tuple[int, int] | None:
    """Return the device and inode of a path, or None if it does not exist."""
    try:
        status = os.stat(path)  # noqa: PTH116 - called twice per write
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


@contextmanager
def transaction(database: sqlite3.Connection, begin: str = "BEGIN IMMEDIATE") -> Iterator[None]:
    """Commit the block as one transaction, or roll it back. By default, lock for writing first."""
    database.execute(begin)
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        # SQLite may have rolled back by itself, as on a full disk.
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def reclaim_space(database: sqlite3.Connection, *, everything: bool = False) -> None:
    """Shrink the file step by step, once a quarter of it is unused."""
    # The caller's write is already done, so failures are not reported. The connection that writes
    # does not wait for locks by itself.
    with suppress(sqlite3.Error):
        (free,) = database.execute("PRAGMA freelist_count").fetchone()
        if free < (1 if everything else SPARE_PAGES):
            return
        (pages,) = database.execute("PRAGMA page_count").fetchone()
        if free * 4 <= pages:
            return
        # As a script: each step frees one page, and execute would run the first step only.
        database.executescript(f"PRAGMA incremental_vacuum({free if everything else free // 4})")


def primary_code(error: sqlite3.Error) -> int:
    """Return SQLite's primary result code of an error."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
