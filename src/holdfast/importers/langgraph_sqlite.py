"""Threads in the SQLite database of LangGraph's ``SqliteSaver``.

The file is opened for reading alone, and what it says of itself (views, functions in its schema) is
not trusted.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from holdfast.errors import InvalidDocumentError
from holdfast.importers import langgraph_thread
from holdfast.importers.langgraph_serde import Serde
from holdfast.importers.langgraph_thread import Checkpoint, Database, Row
from holdfast.importers.source import Source

NAME = "langgraph-sqlite"
MAX_VALUE_BYTES = 1 << 28
"""Bytes of one value of a row."""
MAGIC = b"SQLite format 3\x00"
COLUMNS = {
    "checkpoints": {
        "thread_id",
        "checkpoint_ns",
        "checkpoint_id",
        "parent_checkpoint_id",
        "type",
        "checkpoint",
        "metadata",
    },
    "writes": {
        "thread_id",
        "checkpoint_ns",
        "checkpoint_id",
        "task_id",
        "idx",
        "channel",
        "type",
        "value",
    },
}
SELECT = (
    "SELECT checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata "
    "FROM checkpoints WHERE thread_id = ? "
)
WRITES = (
    "SELECT task_id, channel, type, value FROM writes "
    "WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ? ORDER BY "
)


def recognises(source: Source) -> bool:
    """Whether it is a SQLite database; reading it tells whether it is the checkpointer's."""
    return source.path is not None and source.start.startswith(MAGIC)


def read(source: Source) -> Any:
    """One thread as a document, or all of them as a list."""
    if not source.start.startswith(MAGIC):
        raise InvalidDocumentError(f"{source.name} is no SQLite database")
    with open_database(source) as connection:
        if not has_tables(connection):
            raise InvalidDocumentError(
                f"{source.name} is a SQLite database of something else: it has no tables of "
                "LangGraph's SqliteSaver (checkpoints, writes)"
            )
        connection.execute("BEGIN")  # so that all is read as it was at one moment
        return langgraph_thread.read(source, SqliteDatabase(source.name, connection), NAME)


@contextmanager
def open_database(source: Source) -> Iterator[sqlite3.Connection]:
    """The database, to be read."""
    path = Path(str(source.path)).absolute()
    mode = "immutable=1" if is_closed(path, source.start) else "mode=ro"
    try:
        with closing(
            sqlite3.connect(f"file:{quote(str(path))}?{mode}", uri=True, isolation_level=None)
        ) as connection:
            connection.setlimit(
                sqlite3.SQLITE_LIMIT_LENGTH, min(source.limits.max_bytes, MAX_VALUE_BYTES)
            )
            connection.text_factory = decode_text
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA query_only = ON")
            yield connection
    except (sqlite3.Error, UnicodeDecodeError) as error:  # its messages have names of its own
        raise InvalidDocumentError(
            f"{source.name} cannot be read as a SQLite database: {error}"
        ) from error


def decode_text(data: bytes) -> str | bytes:
    """A text; its bytes where it is none, which is then damage in a row that can be named."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def is_closed(path: Path, start: bytes) -> bool:
    """Whether nobody has the database open: its writer would have a journal beside it.

    A reader of one in WAL mode would otherwise leave files behind, or fail in a folder that it may
    not write to.
    """
    in_wal_mode = start[18:20] == b"\x02\x02"
    return in_wal_mode and not path.with_name(path.name + "-wal").exists()


def has_tables(connection: sqlite3.Connection) -> bool:
    """Whether the tables are there, and are tables."""
    for table, columns in COLUMNS.items():
        kinds = connection.execute("SELECT type FROM sqlite_master WHERE name = ?", (table,))
        if kinds.fetchone() != ("table",):
            return False
        if not columns <= list_columns(connection, table):
            return False
    return True


def list_columns(connection: sqlite3.Connection, table: str) -> set[str]:
    """The names of a table's columns."""
    rows = connection.execute("SELECT name FROM pragma_table_info(?)", (table,))
    return {name for (name,) in rows}


class SqliteDatabase(Database):
    """The tables of ``SqliteSaver``."""

    def __init__(self, name: str, connection: sqlite3.Connection) -> None:
        self.name = name
        self._connection = connection
        self._serde = Serde()
        # Older versions have no path. It is the order in which LangGraph applies them.
        has_path = "task_path" in list_columns(connection, "writes")
        self._writes = WRITES + ("task_path, task_id, idx" if has_path else "task_id, idx")

    def threads(self) -> list[str]:
        """The ids of all threads."""
        rows = self._connection.execute("SELECT DISTINCT thread_id FROM checkpoints ORDER BY 1")
        found = [row[0] for row in rows]
        if not all(isinstance(each, str) for each in found):
            raise InvalidDocumentError(
                f"{self.name} is damaged: it has a thread id that is no text"
            )
        return found

    def parents(self, thread: str) -> set[tuple[str, str]]:
        """Namespaces and ids of the checkpoints that others follow."""
        query = "SELECT checkpoint_ns, parent_checkpoint_id FROM checkpoints WHERE thread_id = ?"
        return set(self._connection.execute(query, (thread,)))

    def last(self, thread: str) -> Checkpoint | None:
        """The newest checkpoint of the graph itself."""
        query = SELECT + "AND checkpoint_ns = '' ORDER BY checkpoint_id DESC LIMIT 1"
        return next(self._rows(query, thread), None)

    def checkpoints(self, thread: str) -> Iterator[Checkpoint]:
        """All checkpoints of a thread, the oldest first."""
        return self._rows(SELECT + "ORDER BY checkpoint_id, checkpoint_ns", thread)

    def _rows(self, query: str, thread: str) -> Iterator[Checkpoint]:
        for ns, id_, parent, type_, data, metadata in self._connection.execute(query, (thread,)):
            row = Row(thread, ns, id_, parent, None, None)
            tree = self._serde.value(type_, data, row.where)
            found = (
                {}
                if metadata is None
                else self._serde.json(metadata, f"the metadata of {row.where}")
            )
            writes = self._connection.execute(self._writes, (thread, ns, id_)).fetchall()
            yield Row(thread, ns, id_, parent, tree, found, writes).read()
