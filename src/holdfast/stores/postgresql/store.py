"""PostgreSQL: one row per key, and one statement or transaction per operation.

The store leaves nothing in a session (no prepared statements, settings or locks), so it works
behind a pooler that switches connections between transactions.
"""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from hashlib import sha256

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo, timeout_from_conninfo
from psycopg.rows import TupleRow
from psycopg.sql import SQL, Composed, Identifier

from holdfast.errors import ConflictError, StateStoreError, short_repr
from holdfast.stores.backend import etag_mismatch_error, key_exists_error, new_etag
from holdfast.stores.base import Etags
from holdfast.stores.entries import Condition, Entry, Put
from holdfast.stores.postgresql import statements, write_tokens
from holdfast.stores.postgresql.errors import explain_error, format_error
from holdfast.stores.postgresql.pool import ConnectionPool, PooledConnection
from holdfast.stores.postgresql.statements import (
    condition_columns,
    index_key,
    join_key,
    sanitize_etag,
    split_key,
)
from holdfast.stores.postgresql.write_tokens import TABLE_SUFFIX, WriteTokens
from holdfast.stores.remote import PATIENCE, TIMEOUT, RemoteStateStore
from holdfast.stores.urls import StoreURL
from holdfast.stores.validation import KeyRange

TABLE = "holdfast_entries"
POOL = 10
DAY = 86_400
# Taken to create a table, so that two stores do not create it at the same time.
LOCK = int.from_bytes(sha256(b"holdfast: make the table").digest()[:8], "big", signed=True)


class PostgresStateStore(RemoteStateStore[ConnectionPool]):
    """A store in a table of a PostgreSQL database, version 13 or later.

    A write is durable and visible when its call returns, unless the server is configured otherwise
    (``fsync``, ``synchronous_commit``). ``put_many`` is one transaction. ``get_many`` and each page
    of a listing are consistent. A value has at most 1 GB. The table and that of the write tokens
    are created on first use, if the role may; existing ones are used as they are.
    """

    atomic_put_many = True
    conditional_put_many = True
    atomic_get_many = True
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
    ) -> None:
        super().__init__(url, timeout=timeout, patience=patience)
        self._conninfo = conninfo
        self._name = table
        names = parse_table_name(table)
        self._table = Identifier(*names)
        self._tokens = WriteTokens(names, LOCK)
        self._pool_size = pool

    async def _connect(self) -> ConnectionPool:
        pool = ConnectionPool(
            self.display_url, self._conninfo, size=self._pool_size, timeout=self._timeout
        )
        await pool.open()
        try:
            async with pool.connection() as connection:
                await self._create_tables(connection)
        except BaseException:
            await pool.close()
            raise
        return pool

    async def _disconnect(self, client: ConnectionPool) -> None:
        await client.close()

    async def _create_tables(self, connection: PooledConnection) -> None:
        # Only if missing, because a role may be allowed to use tables but not to create them.
        tables = {
            self._table.as_string(connection): statements.CREATE_TABLE.format(table=self._table),
            self._tokens.table.as_string(connection): write_tokens.CREATE_TABLE.format(
                done=self._tokens.table
            ),
        }
        query = "SELECT name FROM unnest(%s::text[]) AS name WHERE to_regclass(name) IS NULL"
        missing = await (await connection.execute(query, [list(tables)])).fetchall()
        try:
            async with connection.transaction() if missing else nullcontext():
                for (name,) in missing:
                    await connection.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
                    await connection.execute(tables[name])
        except psycopg.errors.InsufficientPrivilege as error:
            raise StateStoreError(
                f"{self.display_url}: there is no table {name}, and the role may not create it: "
                f"{format_error(error)}; grant it CREATE on the schema, or create {self._name} and "
                f"{self._name}{TABLE_SUFFIX} with another role and grant it SELECT, INSERT, UPDATE "
                "and DELETE on them"
            ) from error

    async def _get(self, key: str) -> Entry | None:
        for etag, value in await self._read(statements.GET, index_key(key)):
            return Entry(value, etag)
        return None

    async def _get_many(self, keys: Sequence[str]) -> dict[str, Entry]:
        columns = [list(column) for column in zip(*map(index_key, keys), strict=True)]
        rows = await self._read(statements.GET_MANY, columns)
        return {join_key(head, tail): Entry(value, etag) for head, tail, etag, value in rows}

    async def _page(self, key_range: KeyRange, count: int) -> Sequence[str]:
        above = SQL(">" if key_range.exclusive else ">=")
        low = split_key(key_range.low)
        if key_range.high is None:
            rows = await self._read(statements.PAGE_ALL, [*low, count], above=above)
        else:
            bounds = [*low, *split_key(key_range.high), count]
            rows = await self._read(statements.PAGE_BELOW, bounds, above=above)
        return [join_key(head, tail) for head, tail in rows]

    async def _read(self, statement: SQL, values: Sequence[object], **parts: SQL) -> list[TupleRow]:
        query = statement.format(table=self._table, **parts)

        async def fetch(pool: ConnectionPool) -> list[TupleRow]:
            async with pool.connection() as connection:
                cursor = await connection.execute(query, values, binary=True)
                return await cursor.fetchall()

        return await self._run(lambda pool, _unsure: fetch(pool))

    async def _put(self, put: Put, conditions: Sequence[Condition] = ()) -> str:
        etag = new_etag()
        query, values = self._put_query(put, etag, conditions)

        async def write(connection: PooledConnection, token: str) -> bool:
            if not await self._write(connection, query, values, token):
                failed = await self._failed_condition(connection, conditions)
                raise failed or await self._conflict(connection, put)
            return True

        await self._write_once(write)
        return etag

    async def _put_many(self, puts: Sequence[Put], conditions: Sequence[Condition] = ()) -> Etags:
        if len(puts) == 1:
            return [await self._put(puts[0], conditions)]
        etags = {put.key: new_etag() for put in puts}
        await self._write_once(
            lambda connection, token: self._write_batch(connection, puts, conditions, etags, token)
        )
        return list(etags.values())

    async def _delete(self, key: str, if_match: str | None) -> bool:
        query, values = statements.DELETE.format(table=self._table), list[object](index_key(key))
        if if_match is not None:
            query = statements.DELETE_MATCH.format(table=self._table)
            values.append(sanitize_etag(if_match))

        async def delete(connection: PooledConnection, token: str) -> bool:
            deleted = await self._write(connection, query, values, token)
            if not deleted and if_match is not None:
                raise etag_mismatch_error(key, if_match, await self._etag(connection, key))
            return deleted

        return await self._write_once(delete)

    async def _write_once(self, write: Callable[[PooledConnection, str], Awaitable[bool]]) -> bool:
        """Run a write with a token, and return whether any of its attempts wrote."""
        token = secrets.token_hex(16)

        async def attempt(pool: ConnectionPool, unsure: bool) -> bool:  # noqa: FBT001 - called by _run
            async with pool.connection() as connection:
                if unsure and await self._tokens.find(connection, token):
                    return True
                await self._tokens.sweep(connection)
                # An earlier attempt may still be under way and finish before this one.
                try:
                    wrote = await write(connection, token)
                except psycopg.errors.UniqueViolation as error:
                    if not self._tokens.is_duplicate(error):
                        raise
                    return True
                except ConflictError:
                    if unsure and await self._tokens.find(connection, token):
                        return True
                    raise
                return wrote or (unsure and await self._tokens.find(connection, token))

        return await self._run(attempt, writes=True)

    async def _write(
        self, connection: PooledConnection, query: Composed, values: Sequence[object], token: str
    ) -> bool:
        cursor = await connection.execute(self._tokens.add_to(query), [*values, token])
        return cursor.rowcount > 0

    async def _write_batch(
        self,
        connection: PooledConnection,
        puts: Sequence[Put],
        conditions: Sequence[Condition],
        etags: dict[str, str],
        token: str,
    ) -> bool:
        async with connection.transaction():
            cursors = {}
            async with connection.pipeline():
                # First, so that a second attempt waits here until the first is over.
                insert = write_tokens.INSERT_TOKEN.format(done=self._tokens.table)
                await connection.execute(insert, [token])
                hold = SQL(statements.HOLD).format(table=self._table)
                held = await connection.execute(hold, condition_columns(conditions))
                # In key order, so that no two batches deadlock.
                for put in sorted(puts, key=lambda put: put.key):
                    query, values = self._put_query(put, etags[put.key])
                    cursors[put.key] = await connection.execute(query, values)
            if held.rowcount < len(conditions):
                failed = await self._failed_condition(connection, conditions)
                if failed is not None:
                    raise failed
            for put in puts:
                if cursors[put.key].rowcount == 0:
                    raise await self._conflict(connection, put)
        return True

    def _put_query(
        self, put: Put, etag: str, conditions: Sequence[Condition] = ()
    ) -> tuple[Composed, list[object]]:
        """Return the query of a put, which writes no row if a condition fails, and its values."""
        values: list[object]
        if put.if_match is not None:
            statement = statements.PUT_MATCH
            values = [etag, put.value, *index_key(put.key), sanitize_etag(put.if_match)]
        else:
            statement = statements.PUT_ABSENT if put.if_absent else statements.PUT
            values = [*index_key(put.key), split_key(put.key)[1], etag, put.value]
        if not conditions:
            return statement.format(table=self._table, held=SQL(""), given=SQL("true")), values
        held = SQL(statements.WITH_HELD).format(table=self._table)
        columns = condition_columns(conditions)
        query = statement.format(table=self._table, held=held, given=SQL(statements.ALL_HELD))
        return query, [*columns, *values, columns[-1]]

    async def _failed_condition(
        self, connection: PooledConnection, conditions: Sequence[Condition]
    ) -> ConflictError | None:
        """Return the error of the first condition that does not hold, or None.

        A condition that failed never holds again, because etags are unique.
        """
        for condition in conditions:
            etag = await self._etag(connection, condition.key)
            if etag != condition.etag:
                return etag_mismatch_error(condition.key, condition.etag, etag)
        return None

    async def _conflict(self, connection: PooledConnection, put: Put) -> ConflictError:
        if put.if_match is None:
            return key_exists_error(put.key)
        return etag_mismatch_error(put.key, put.if_match, await self._etag(connection, put.key))

    async def _etag(self, connection: PooledConnection, key: str) -> str | None:
        query = statements.GET.format(table=self._table)
        row = await (await connection.execute(query, index_key(key))).fetchone()
        return None if row is None else str(row[0])

    def _explain_error(self, error: Exception) -> StateStoreError:
        return explain_error(error, self._name, self.display_url)


def parse_table_name(table: str) -> list[str]:
    """Return the parts of a table's name: its schema, if any, and its own name.

    Raises:
        StateStoreError: The name is invalid.

    """
    word = "[A-Za-z_][A-Za-z0-9_]"
    # PostgreSQL names have 63 characters, and the table of write tokens adds a suffix.
    if not re.fullmatch(rf"({word}{{0,62}}\.)?{word}{{0,{62 - len(TABLE_SUFFIX)}}}", table):
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
    }
    timeout_from_conninfo(settings)
    return make_conninfo("", **settings)


def open_url(url: StoreURL) -> PostgresStateStore:
    """Open ``postgresql://user:password@host:port/database``; other options are libpq's."""
    timeout = url.take_number("timeout", TIMEOUT, least=0.01)
    patience = url.take_number("patience", PATIENCE)
    pool = url.take_count("pool", POOL, least=1)
    table = url.take("table") or TABLE
    try:
        conninfo = build_conninfo(url, timeout)
    except psycopg.Error as error:
        raise StateStoreError(
            f"invalid URL {url}: {url.mask(format_error(error))}; the store's own options are "
            "pool, table, timeout and patience, and all others are libpq's, such as sslmode"
        ) from None
    return PostgresStateStore(
        url, conninfo, table=table, pool=pool, timeout=timeout, patience=patience
    )
