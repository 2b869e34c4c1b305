"""Threads in the PostgreSQL database of LangGraph's ``PostgresSaver``.

Everything is read in one transaction that takes no writes. The values of channels are in a table of
their own, by version: of each version only what changed since the checkpoint before is fetched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, LiteralString

from holdfast.errors import InvalidDocumentError, StateStoreError
from holdfast.extras import require_extra
from holdfast.importers import langgraph_thread
from holdfast.importers.langgraph_serde import Serde
from holdfast.importers.langgraph_thread import Checkpoint, Database, Row
from holdfast.importers.source import Source
from holdfast.stores.urls import StoreURL

if TYPE_CHECKING:
    from psycopg import Connection

NAME = "langgraph-postgres"
SCHEME = re.compile(r"postgres(?:ql)?://", re.IGNORECASE)
CONNECT_TIMEOUT = 10
TABLES = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")
SELECT: LiteralString = (
    "SELECT checkpoint_ns, checkpoint_id, parent_checkpoint_id, checkpoint::text, metadata::text "
    "FROM checkpoints WHERE thread_id = %s "
)
BLOBS: LiteralString = (
    "SELECT channel, version, type, blob FROM checkpoint_blobs "
    "JOIN unnest(%s::text[], %s::text[]) AS wanted (channel, version) USING (channel, version) "
    "WHERE thread_id = %s AND checkpoint_ns = %s"
)
WRITES: LiteralString = (
    "SELECT task_id, channel, type, blob FROM checkpoint_writes "
    "WHERE thread_id = %s AND checkpoint_ns = %s AND checkpoint_id = %s ORDER BY "
)
HAS_PATH: LiteralString = (
    "SELECT FROM pg_attribute WHERE attrelid = 'checkpoint_writes'::regclass "
    "AND attname = 'task_path'"
)


def recognises(source: Source) -> bool:
    """Whether it is the URL of a PostgreSQL database."""
    return source.url is not None and SCHEME.match(source.url) is not None


def read(source: Source) -> Any:
    """One thread as a document, or all of them as a list."""
    if source.url is None:
        raise InvalidDocumentError(f"{source.name} is no URL, as in postgresql://host/database")
    with require_extra("postgresql"):
        import psycopg  # noqa: PLC0415 - an extra
    url = StoreURL(source.url)
    try:
        with psycopg.connect(source.url, connect_timeout=CONNECT_TIMEOUT) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            validate_tables(source.name, connection)
            return langgraph_thread.read(source, PostgresDatabase(source.name, connection), NAME)
    except psycopg.Error as error:
        told = " ".join((error.diag.message_primary or str(error)).split())
        raise StateStoreError(f"{source.name} cannot be read: {url.mask(told)}") from error


def validate_tables(name: str, connection: Connection[Any]) -> None:
    """Refuse a database of something else."""
    missing = [
        table
        for table in TABLES
        if connection.execute("SELECT to_regclass(%s)", (table,)).fetchone() == (None,)
    ]
    if missing:
        raise InvalidDocumentError(
            f"{name} is a database of something else: it has no tables of LangGraph's "
            f"PostgresSaver ({', '.join(missing)}). See the database and the schema of the URL"
        )


class PostgresDatabase(Database):
    """The tables of ``PostgresSaver``."""

    def __init__(self, name: str, connection: Connection[Any]) -> None:
        self.name = name
        self._connection = connection
        self._serde = Serde()
        # Older versions have no path. It is the order in which LangGraph applies them.
        has_path = connection.execute(HAS_PATH).fetchone() is not None
        order: LiteralString = 'task_path COLLATE "C", ' if has_path else ""
        self._writes: LiteralString = WRITES + order + 'task_id COLLATE "C", idx'

    def threads(self) -> list[str]:
        """The ids of all threads."""
        query = "SELECT DISTINCT thread_id FROM checkpoints ORDER BY 1"
        return [row[0] for row in self._connection.execute(query)]

    def parents(self, thread: str) -> set[tuple[str, str]]:
        """Namespaces and ids of the checkpoints that others follow."""
        query = "SELECT checkpoint_ns, parent_checkpoint_id FROM checkpoints WHERE thread_id = %s"
        return set(self._connection.execute(query, (thread,)))

    def last(self, thread: str) -> Checkpoint | None:
        """The newest checkpoint of the graph itself."""
        query = SELECT + "AND checkpoint_ns = '' ORDER BY checkpoint_id DESC LIMIT 1"
        return next(self._rows(query, thread), None)

    def checkpoints(self, thread: str) -> Iterator[Checkpoint]:
        """All checkpoints of a thread, the oldest first."""
        return self._rows(SELECT + "ORDER BY checkpoint_id, checkpoint_ns", thread)

    def _rows(self, query: LiteralString, thread: str) -> Iterator[Checkpoint]:
        blobs = ChannelBlobs(self._connection, self._serde, thread)
        # Checkpoints have no values of size in them, which are in the blobs.
        for ns, id_, parent, text, metadata_text in self._connection.execute(query, (thread,)):
            row = Row(thread, ns, id_, parent, None, None)
            tree = self._serde.json(text, row.where)
            metadata = self._serde.json(metadata_text, f"the metadata of {row.where}")
            if isinstance(tree, dict):
                inline = tree.get("channel_values") or {}
                tree["channel_values"] = {**inline, **blobs.at(ns, tree, row.where)}
            writes = self._connection.execute(self._writes, (thread, ns, id_)).fetchall()
            yield Row(thread, ns, id_, parent, tree, metadata, writes).read()


class ChannelBlobs:
    """The values of a thread's channels, of which the versions that were seen last are kept."""

    def __init__(self, connection: Connection[Any], serde: Serde, thread: str) -> None:
        self._connection = connection
        self._serde = serde
        self._thread = thread
        self._seen: dict[str, dict[str, tuple[str, Any]]] = {}

    def at(self, ns: str, tree: dict[str, Any], where: str) -> dict[str, Any]:
        """The values of a checkpoint."""
        versions = tree.get("channel_versions")
        if not isinstance(versions, dict):
            raise InvalidDocumentError(f"{where} is damaged: it has no versions of channels")
        wanted = {channel: str(version) for channel, version in versions.items()}
        seen = self._seen.setdefault(ns, {})
        new = [
            (channel, version)
            for channel, version in wanted.items()
            if channel not in seen or seen[channel][0] != version
        ]
        found = dict(new and self._fetch(ns, new, where))
        for channel, version in new:
            seen[channel] = (version, found.get(channel, ABSENT))
        return {name: seen[name][1] for name in wanted if seen[name][1] is not ABSENT}

    def _fetch(
        self, ns: str, wanted: list[tuple[str, str]], where: str
    ) -> Iterator[tuple[str, Any]]:
        channels, versions = map(list, zip(*wanted, strict=True))
        rows = self._connection.execute(BLOBS, (channels, versions, self._thread, ns))
        for channel, version, type_, blob in rows:
            if type_ != "empty":
                place = f"the channel {channel} (version {version}) of {where}"
                yield channel, self._serde.value(type_, blob, place)


ABSENT = object()
