"""Read the PostgreSQL database of LangGraph's ``PostgresSaver``.

Everything is read in one read-only transaction. Channel values are in a table of their own, by
version; only versions that changed since the previous checkpoint are fetched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, LiteralString

from holdfast.documents.document import Document
from holdfast.errors import InvalidDocumentError, StateStoreError
from holdfast.extras import require_extra
from holdfast.importers.langgraph_database import (
    CheckpointRow,
    Database,
    DatabaseCheckpoint,
    ValueDecoder,
    parse_json,
)
from holdfast.importers.source import Source
from holdfast.stores.urls import StoreURL

if TYPE_CHECKING:
    from psycopg import Connection

NAME = "langgraph-postgres"
SCHEME = re.compile(r"postgres(?:ql)?://", re.IGNORECASE)
CONNECT_TIMEOUT = 10
TABLES = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")
CHECKPOINTS: LiteralString = (
    "SELECT checkpoint_ns, checkpoint_id, parent_checkpoint_id, checkpoint::text, metadata::text "
    "FROM checkpoints WHERE thread_id = %s ORDER BY checkpoint_id, checkpoint_ns"
)
BLOBS: LiteralString = (
    "SELECT channel, version, type, blob FROM checkpoint_blobs "
    "JOIN unnest(%s::text[], %s::text[]) AS wanted (channel, version) USING (channel, version) "
    "WHERE thread_id = %s AND checkpoint_ns = %s"
)
WRITES: LiteralString = (
    "SELECT task_id, {path}, channel, type, blob FROM checkpoint_writes "
    "WHERE thread_id = %s AND checkpoint_ns = %s AND checkpoint_id = %s "
    'ORDER BY {path} COLLATE "C", task_id COLLATE "C", idx'
)
HAS_PATH: LiteralString = (
    "SELECT FROM pg_attribute WHERE attrelid = 'checkpoint_writes'::regclass "
    "AND attname = 'task_path'"
)


def recognises(source: Source) -> bool:
    """Return whether this is the URL of a PostgreSQL database."""
    return source.url is not None and SCHEME.match(source.url) is not None


def read(source: Source) -> Document | list[Document]:
    """Return one thread as a document, or all of them as a list.

    Raises:
        InvalidDocumentError: The database has no tables of PostgresSaver, or is damaged.
        MissingExtraError: The extra ``langgraph`` or ``postgresql`` is not installed.
        NotFoundError: It has no such thread.
        StateStoreError: The server cannot be reached, or refuses the query.

    """
    if source.url is None:
        raise InvalidDocumentError(
            f"{source.name} is not a database URL such as postgresql://host/database"
        )
    with require_extra("postgresql"):
        import psycopg  # noqa: PLC0415
    url = StoreURL(source.url)
    try:
        with psycopg.connect(source.url, connect_timeout=CONNECT_TIMEOUT) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            validate_tables(source.name, connection)
            with require_extra("langgraph"):
                from holdfast.importers.langgraph_thread import read_threads  # noqa: PLC0415
            return read_threads(source, lambda decoder: PostgresDatabase(connection, decoder), NAME)
    except psycopg.Error as error:
        problem = " ".join((error.diag.message_primary or str(error)).split())
        raise StateStoreError(f"cannot read {source.name}: {url.mask(problem)}") from error


def validate_tables(name: str, connection: Connection[Any]) -> None:
    """Raise InvalidDocumentError if a table of PostgresSaver is missing."""
    missing = [
        table
        for table in TABLES
        if connection.execute("SELECT to_regclass(%s)", (table,)).fetchone() == (None,)
    ]
    if missing:
        raise InvalidDocumentError(
            f"{name} is a database without the tables of LangGraph's PostgresSaver "
            f"({', '.join(missing)}); check the database and schema in the URL"
        )


class PostgresDatabase(Database):
    """The tables of ``PostgresSaver``."""

    def __init__(self, connection: Connection[Any], decoder: ValueDecoder) -> None:
        self._connection = connection
        self._decoder = decoder
        # LangGraph orders writes by this column, which old databases lack.
        has_path = connection.execute(HAS_PATH).fetchone() is not None
        path: LiteralString = "task_path" if has_path else "''"
        self._writes = WRITES.replace("{path}", path)

    def threads(self) -> list[str]:
        """Return the ids of all threads."""
        query = "SELECT DISTINCT thread_id FROM checkpoints ORDER BY 1"
        return [row[0] for row in self._connection.execute(query)]

    def checkpoints(self, thread: str) -> Iterator[DatabaseCheckpoint]:
        """Yield the checkpoints of a thread, oldest first."""
        blobs = ChannelBlobs(self._connection, self._decoder, thread)
        # All rows at once: large values are in the blobs.
        for ns, id_, parent, text, metadata in self._connection.execute(CHECKPOINTS, (thread,)):
            row = CheckpointRow(thread, ns, id_, parent)
            tree = parse_json(text, row.where)
            if isinstance(tree, dict):
                inline = tree.get("channel_values") or {}
                tree["channel_values"] = {**inline, **blobs.load(ns, tree, row.where)}
            writes = self._connection.execute(self._writes, (thread, ns, id_)).fetchall()
            yield row.to_checkpoint(
                tree,
                row.parse_metadata(metadata),
                [row.to_write(self._decoder, columns) for columns in writes],
            )


class ChannelBlobs:
    """The channel values of a thread; the versions of the previous checkpoint are cached."""

    def __init__(self, connection: Connection[Any], decoder: ValueDecoder, thread: str) -> None:
        self._connection = connection
        self._decoder = decoder
        self._thread = thread
        self._cache: dict[str, dict[str, tuple[str, Any]]] = {}

    def load(self, ns: str, tree: dict[str, Any], where: str) -> dict[str, Any]:
        """Return the channel values of a checkpoint that are stored as blobs."""
        versions = tree.get("channel_versions")
        if not isinstance(versions, dict):
            raise InvalidDocumentError(f"{where} is damaged: channel_versions must be an object")
        wanted = {channel: str(version) for channel, version in versions.items()}
        cache = self._cache.setdefault(ns, {})
        new = [
            (channel, version)
            for channel, version in wanted.items()
            if channel not in cache or cache[channel][0] != version
        ]
        fetched = dict(new and self._fetch(ns, new, where))
        for channel, version in new:
            cache[channel] = (version, fetched.get(channel, ABSENT))
        return {name: cache[name][1] for name in wanted if cache[name][1] is not ABSENT}

    def _fetch(
        self, ns: str, wanted: list[tuple[str, str]], where: str
    ) -> Iterator[tuple[str, Any]]:
        channels, versions = map(list, zip(*wanted, strict=True))
        rows = self._connection.execute(BLOBS, (channels, versions, self._thread, ns))
        for channel, version, encoding, blob in rows:
            if encoding != "empty":
                name = f"channel {channel} (version {version}) of {where}"
                yield channel, self._decoder.decode(encoding, blob, name)


ABSENT = object()
