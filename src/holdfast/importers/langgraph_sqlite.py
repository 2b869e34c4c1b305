"""Read the SQLite database of LangGraph's ``SqliteSaver``.

The file is opened read-only, and its schema (views, functions) is not trusted.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from holdfast.documents.document import Document
from holdfast.errors import InvalidDocumentError
from holdfast.extras import require_extra
from holdfast.importers.langgraph_database import (
    CheckpointRow,
    Database,
    DatabaseCheckpoint,
    ValueDecoder,
)
from holdfast.importers.source import Source

NAME = "langgraph-sqlite"
MAX_VALUE_BYTES = 1 << 28
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
CHECKPOINTS = (
    "SELECT checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata "
    "FROM checkpoints WHERE thread_id = ? ORDER BY checkpoint_id, checkpoint_ns"
)
WRITES = (
    "SELECT task_id, {path}, channel, type, value FROM writes "
    "WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ? ORDER BY {path}, task_id, idx"
)


def recognises(source: Source) -> bool:
    """Return whether this is a SQLite database; `read` checks whose it is."""
    return source.path is not None and source.start.startswith(MAGIC)


def read(source: Source) -> Document | list[Document]:
    """Return one thread as a document, or all of them as a list.

    Raises:
        InvalidDocumentError: The file is not a database of SqliteSaver, or is damaged.
        MissingExtraError: The extra ``langgraph`` is not installed.
        NotFoundError: It has no such thread.

    """
    if not source.start.startswith(MAGIC):
        raise InvalidDocumentError(f"{source.name} is not a SQLite database")
    with open_database(source) as connection:
        if not has_tables(connection):
            raise InvalidDocumentError(
                f"{source.name} is a SQLite database without the tables of LangGraph's SqliteSaver "
                "(checkpoints, writes)"
            )
        with require_extra("langgraph"):
            from holdfast.importers.langgraph_thread import read_threads  # noqa: PLC0415
        connection.execute("BEGIN")  # read everything from one state of the database
        return read_threads(
            source, lambda decoder: SqliteDatabase(source.name, connection, decoder), NAME
        )


@contextmanager
def open_database(source: Source) -> Iterator[sqlite3.Connection]:
    """Open the database read-only."""
    path = Path(str(source.path)).absolute()
    mode = "immutable=1" if is_closed(path, source.start) else "mode=ro"
    try:
        with closing(
            sqlite3.connect(f"file:{quote(str(path))}?{mode}", uri=True, isolation_level=None)
        ) as connection:
            limit = min(source.limits.max_bytes, MAX_VALUE_BYTES)
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, limit)
            connection.text_factory = decode_text
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA query_only = ON")
            yield connection
    except (sqlite3.Error, UnicodeDecodeError) as error:  # SQLite's messages may not be UTF-8
        raise InvalidDocumentError(
            f"{source.name} cannot be read as a SQLite database: {error}"
        ) from error


def decode_text(data: bytes) -> str | bytes:
    """Return text, or its bytes if it is not UTF-8, so that the damaged row can be named."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def is_closed(path: Path, start: bytes) -> bool:
    """Return whether a database in WAL mode is not open: a writer would have a WAL beside it.

    Opened in the ordinary way, such a database gets new files beside it, or fails to open in a
    folder that is not writable.
    """
    in_wal_mode = start[18:20] == b"\x02\x02"
    return in_wal_mode and not path.with_name(path.name + "-wal").exists()


def has_tables(connection: sqlite3.Connection) -> bool:
    """Return whether both tables exist with their columns, and are not views."""
    for table, columns in COLUMNS.items():
        kinds = connection.execute("SELECT type FROM sqlite_master WHERE name = ?", (table,))
        if kinds.fetchone() != ("table",):
            return False
        if not columns <= list_columns(connection, table):
            return False
    return True


def list_columns(connection: sqlite3.Connection, table: str) -> set[str]:
    """Return the names of a table's columns."""
    rows = connection.execute("SELECT name FROM pragma_table_info(?)", (table,))
    return {name for (name,) in rows}


class SqliteDatabase(Database):
    """The tables of ``SqliteSaver``."""

    def __init__(self, name: str, connection: sqlite3.Connection, decoder: ValueDecoder) -> None:
        self._name = name
        self._connection = connection
        self._decoder = decoder
        # LangGraph orders writes by this column, which old databases lack.
        has_path = "task_path" in list_columns(connection, "writes")
        self._writes = WRITES.format(path="task_path" if has_path else "''")

    def threads(self) -> list[str]:
        """Return the ids of all threads."""
        rows = self._connection.execute("SELECT DISTINCT thread_id FROM checkpoints ORDER BY 1")
        found = [row[0] for row in rows]
        if not all(isinstance(each, str) for each in found):
            raise InvalidDocumentError(f"{self._name} is damaged: thread ids must be text")
        return found

    def checkpoints(self, thread: str) -> Iterator[DatabaseCheckpoint]:
        """Yield the checkpoints of a thread, oldest first."""
        rows = self._connection.execute(CHECKPOINTS, (thread,))
        for ns, id_, parent, encoding, data, metadata in rows:
            row = CheckpointRow(thread, ns, id_, parent)
            tree = self._decoder.decode(encoding, data, row.where)
            writes = self._connection.execute(self._writes, (thread, ns, id_))
            yield row.to_checkpoint(
                tree,
                row.parse_metadata(metadata),
                [row.to_write(self._decoder, columns) for columns in writes],
            )
