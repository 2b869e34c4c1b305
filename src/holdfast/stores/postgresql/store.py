"""PostgreSQL: one row per key, and one statement or transaction per operation.

The store leaves nothing in a session (no prepared statements, settings or locks), so it works
behind a pooler that switches connections between transactions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo, timeout_from_conninfo

from holdfast.errors import StateStoreError, short_repr
from holdfast.stores.backend import etag_mismatch_error
from holdfast.stores.base import Etags
from holdfast.stores.batch_write import BatchWrite, new_token
from holdfast.stores.entries import Condition, Entry, Put
from holdfast.stores.notification import encode_notification
from holdfast.stores.postgresql.client import LOCK, PostgresClient
from holdfast.stores.postgresql.connection import Connection, pack_int8, pack_texts
from holdfast.stores.postgresql.errors import explain_error, format_error
from holdfast.stores.postgresql.listener import PostgresListener
from holdfast.stores.postgresql.pool import BlockingPool, ConnectionPool, LoopPool
from holdfast.stores.postgresql.statements import (
    DONE_SUFFIX,
    Statements,
    index_key,
    join_key,
    sanitize_etag,
    split_key,
)
from holdfast.stores.postgresql.writes import WriteRequest, write_alone
from holdfast.stores.remote import PATIENCE, TIMEOUT, RemoteStateStore
from holdfast.stores.urls import StoreURL
from holdfast.stores.validation import KeyRange

TABLE = "holdfast_entries"
POOL = 10
DAY = 86_400


class PostgresStateStore(RemoteStateStore[PostgresClient]):
    """A store in a table of a PostgreSQL database, version 13 or later.

    A write is durable and visible when its call returns, unless the server is configured otherwise
    (``fsync``, ``synchronous_commit``). ``put_many`` is one transaction. ``get_many`` and each page
    of a listing are consistent. A value has at most 1 GB. The table and that of the write tokens
    are created on first use, if the role may; existing ones are used as they are.
    """

    atomic_put_many = True
    conditional_put_many = True
    atomic_get_many = True
    runs_inline = True
    failures = (psycopg.Error,)

    def __init__(
        self,
        url: StoreURL,
        conninfo: str,
        *,
        table: str = TABLE,
        pool: int = POOL,
        timeout: float = TIMEOUT,
        patience: float = PATIENCE,
        notify: bool = True,
    ) -> None:
        super().__init__(url, timeout=timeout, patience=patience)
        self._conninfo = conninfo
        self._name = table
        self._statements = Statements(parse_table_name(table), notifies=notify)
        self._pool_size = pool
        self.wakes_other_processes = notify

    def _create_listener(self) -> PostgresListener:
        return PostgresListener(
            self.display_url,
            self._conninfo,
            self._statements,
            timeout=self._timeout,
            explain=self._explain_briefly,
        )

    async def _connect(self) -> PostgresClient:
        pool = LoopPool(
            self.display_url, self._conninfo, size=self._pool_size, timeout=self._timeout
        )
        await pool.open()
        return await self._prepare(pool)

    async def _connect_inline(self) -> PostgresClient:
        return await self._prepare(
            BlockingPool(
                self.display_url, self._conninfo, size=self._pool_size, timeout=self._timeout
            )
        )

    async def _prepare(self, pool: ConnectionPool) -> PostgresClient:
        try:
            async with pool.connection() as connection:
                await self._create_tables(connection)
        except BaseException:
            await pool.close()
            raise
        return PostgresClient(pool, self._statements)

    async def _disconnect(self, client: PostgresClient) -> None:
        await client.pool.close()

    async def _create_tables(self, connection: Connection) -> None:
        # Only if missing, because a role may be allowed to use tables but not to create them.
        create = self._statements.create
        for (name,) in await connection.run(self._statements.missing, pack_texts(list(create))):
            table = (name or b"").decode()
            try:
                await connection.run_script(
                    f"SELECT pg_advisory_xact_lock({LOCK}); {create[table]}"
                )
            except psycopg.errors.InsufficientPrivilege as error:
                raise StateStoreError(
                    f"{self.display_url}: there is no table {table}, and the role may not create "
                    f"it: {format_error(error)}; grant it CREATE on the schema, or create "
                    f"{self._name} and {self._name}{DONE_SUFFIX} with another role and grant it "
                    "SELECT, INSERT, UPDATE and DELETE on them"
                ) from error

    async def _get(self, key: str) -> Entry | None:
        return (await self._get_many([key])).get(key)

    async def _get_many(self, keys: Sequence[str]) -> dict[str, Entry]:
        return await self._run(lambda client, _unsure: client.reads.submit(keys))

    async def _page(self, key_range: KeyRange, count: int) -> Sequence[str]:
        # The next key after one is that with the lowest character added.
        low = key_range.low + "\0" if key_range.exclusive else key_range.low
        statement, bounds = self._statements.page, [low]
        if key_range.high is not None:
            statement, bounds = self._statements.page_below, [low, key_range.high]
        heads = [part.encode() for bound in bounds for part in split_key(bound)]

        async def read(pool: ConnectionPool) -> list[str]:
            async with pool.connection() as connection:
                rows = await connection.run(statement, *heads[:2], pack_int8(count), *heads[2:])
            return [join_key(head.decode(), tail.decode()) for head, tail in rows]

        return await self._run(lambda client, _unsure: read(client.pool))

    async def _put(self, put: Put) -> str:
        return (await self._put_many([put]))[0]

    async def _put_many(self, puts: Sequence[Put], conditions: Sequence[Condition] = ()) -> Etags:
        batch = BatchWrite.create(puts, conditions)
        request = WriteRequest(batch)

        async def write(connection: Connection) -> bool:
            conflict = await write_alone(connection, self._statements, request)
            if conflict is not None:
                raise conflict
            return True

        async def attempt(client: PostgresClient, unsure: bool) -> None:  # noqa: FBT001 - called by _run
            if unsure:
                await client.repeat_write(batch.token, write)
            else:
                await client.writes.submit(request)

        await self._run(attempt, writes=True)
        return batch.etags

    async def _delete(self, key: str, if_match: str | None) -> bool:
        head, digest, _ = index_key(key)
        token = new_token()
        expected = "" if if_match is None else sanitize_etag(if_match)
        values = [head, digest, expected.encode(), token.encode()]
        if self._statements.notifies:
            values.append(encode_notification([key]))

        async def delete(connection: Connection) -> bool:
            rows = await connection.run(self._statements.delete, *values)
            found = rows[0][0].decode() if rows else None
            if if_match is not None and found != if_match:
                raise etag_mismatch_error(key, if_match, found)
            return found is not None

        async def attempt(client: PostgresClient, unsure: bool) -> bool:  # noqa: FBT001 - called by _run
            if unsure:
                return await client.repeat_write(token, delete)
            async with client.pool.connection() as connection:
                await client.sweep(connection)
                return await delete(connection)

        return await self._run(attempt, writes=True)

    def _explain_error(self, error: Exception) -> StateStoreError:
        return explain_error(error, self._name, self.display_url)


def parse_table_name(table: str) -> list[str]:
    """Return the parts of a table's name: its schema, if any, and its own name.

    Raises:
        StateStoreError: The name is invalid.

    """
    word = "[A-Za-z_][A-Za-z0-9_]"
    # PostgreSQL names have 63 characters, and the table of write tokens adds a suffix.
    if not re.fullmatch(rf"({word}{{0,62}}\.)?{word}{{0,{62 - len(DONE_SUFFIX)}}}", table):
        raise StateStoreError(
            "option table of the postgresql URL must be at most 58 letters, digits and _, "
            f"optionally after a schema and a dot, got {short_repr(table)}"
        )
    return table.split(".")


def build_conninfo(url: StoreURL, timeout: float) -> str:
    """Return the connection string for libpq. A secret."""
    settings = {
        "connect_timeout": min(math.ceil(timeout), DAY),
        **conninfo_to_dict(url.text(scheme="postgresql")),
        "client_encoding": "UTF8",
    }
    timeout_from_conninfo(settings)
    return make_conninfo("", **settings)


def open_url(url: StoreURL) -> PostgresStateStore:
    """Open ``postgresql://user:password@host:port/database``; other options are libpq's."""
    timeout = url.take_number("timeout", TIMEOUT, least=0.01)
    patience = url.take_number("patience", PATIENCE)
    pool = url.take_count("pool", POOL, least=1)
    table = url.take("table") or TABLE
    notify = url.take_flag("notify", default=True)
    try:
        conninfo = build_conninfo(url, timeout)
    except psycopg.Error as error:
        raise StateStoreError(
            f"invalid URL {url}: {url.mask(format_error(error))}; the store's own options are "
            "notify, pool, table, timeout and patience, and all others are libpq's, such as sslmode"
        ) from None
    return PostgresStateStore(
        url, conninfo, table=table, pool=pool, timeout=timeout, patience=patience, notify=notify
    )
