"""PostgreSQL: a table, a row a key, every operation one statement or one transaction.

A key is text in the order of code points (collation "C"). Text of PostgreSQL has no NUL, so the two
lowest characters are escaped in a way that keeps the order. A row of an index has 2,700 bytes at
most, so a key is kept as its first characters, its rest, and a digest of the rest, which stands for
it in the index.

Nothing is left in a session (no prepared statements, no settings, no locks), so that a pooler that
changes connections between transactions may stand in between.
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
from holdfast.stores.postgresql import write_tokens
from holdfast.stores.postgresql.errors import explain_error, format_error
from holdfast.stores.postgresql.pool import ConnectionPool, PooledConnection
from holdfast.stores.postgresql.write_tokens import WriteTokens
from holdfast.stores.remote import PATIENCE, TIMEOUT, RemoteStateStore
from holdfast.stores.urls import StoreURL
from holdfast.stores.validation import KeyRange

TABLE = "holdfast_entries"
POOL = 10
DAY = 86_400
HEAD = 500
"""Characters of a key in the index: 2,000 bytes at most, and the digest beside them."""

ESCAPES = {0: "\x01\x01", 1: "\x01\x02"}
# So that two who make a table at the same time do it one after the other.
LOCK = int.from_bytes(sha256(b"holdfast: make the table").digest()[:8], "big", signed=True)

CREATE_TABLE = SQL("""CREATE TABLE IF NOT EXISTS {table} (
    head text COLLATE "C" NOT NULL,
    tail_digest bytea NOT NULL,
    tail text COLLATE "C" NOT NULL,
    etag text NOT NULL,
    value bytea NOT NULL,
    PRIMARY KEY (head, tail_digest)
)""")
GET = SQL("SELECT etag, value FROM {table} WHERE head = %s AND tail_digest = %s")
GET_MANY = SQL(
    "SELECT head, tail, etag, value FROM {table} JOIN unnest(%s::text[], %s::bytea[]) "
    "AS wanted (head, tail_digest) USING (head, tail_digest)"
)
# The rows of conditions are locked until the commit, so that nothing deletes or replaces one before
# it (FOR KEY SHARE would let an update through). Before anything is written, and in the order of
# keys; batches that share conditions do not wait for each other. Where one needs what another
# writes and the other way round, PostgreSQL ends the circle, and the one that it ends is retried.
HOLD = (
    "SELECT etag FROM {table} JOIN unnest(%s::text[], %s::bytea[], %s::text[]) "
    "AS needed (head, tail_digest, etag) USING (head, tail_digest, etag) "
    "ORDER BY head, tail_digest FOR SHARE OF {table}"
)
WITH_HELD = "WITH held AS MATERIALIZED (" + HOLD + ") "
ALL_HELD = "(SELECT count(*) FROM held) = cardinality(%s::text[])"
# {held} and {given} are these two where the write has conditions, and nothing and true elsewhere.
INSERT = (
    "{held}INSERT INTO {table} (head, tail_digest, tail, etag, value) "
    "SELECT %s::text, %s::bytea, %s::text, %s::text, %s::bytea WHERE {given} "
    "ON CONFLICT (head, tail_digest) "
)
PUT = SQL(INSERT + "DO UPDATE SET etag = excluded.etag, value = excluded.value")
PUT_ABSENT = SQL(INSERT + "DO NOTHING")
PUT_MATCH = SQL(
    "{held}UPDATE {table} SET etag = %s, value = %s "
    "WHERE head = %s AND tail_digest = %s AND etag = %s AND {given}"
)
DELETE = SQL("DELETE FROM {table} WHERE head = %s AND tail_digest = %s")
DELETE_MATCH = SQL("DELETE FROM {table} WHERE head = %s AND tail_digest = %s AND etag = %s")
PAGE = "SELECT head, tail FROM {table} WHERE (head, tail) {above} (%s, %s)"
# A limit that is known when the query is planned lets a table without statistics be sorted whole.
PAGE_END = " ORDER BY head, tail LIMIT (SELECT %s::bigint)"
PAGE_ALL = SQL(PAGE + PAGE_END)
PAGE_BELOW = SQL(PAGE + " AND (head, tail) < (%s, %s)" + PAGE_END)


def split_key(key: str) -> tuple[str, str]:
    """A key as the table has it: its first characters and its rest."""
    text = key.translate(ESCAPES)
    return text[:HEAD], text[HEAD:]


def join_key(head: str, tail: str) -> str:
    """The key of what the table has."""
    return (head + tail).replace("\x01\x01", "\x00").replace("\x01\x02", "\x01")


def index_key(key: str) -> tuple[str, bytes]:
    """What names a key in the index."""
    head, tail = split_key(key)
    return head, sha256(tail.encode()).digest() if tail else b""


class PostgresStateStore(RemoteStateStore[ConnectionPool]):
    """Keeps entries in a table of a PostgreSQL database, version 13 or later.

    A write is durable and seen by everybody when its call returns, unless the server was told
    otherwise (``fsync``, ``synchronous_commit``). ``put_many`` is one transaction. ``get_many`` and
    each page of a listing see one moment. A value has at most 1 GB. The table and that of its marks
    are made on first use, where the role may; those that are there are used as they are.
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
        self._marks = WriteTokens(names, LOCK)
        self._size = pool

    async def _connect(self) -> ConnectionPool:
        pool = ConnectionPool(self.place, self._conninfo, size=self._size, timeout=self._timeout)
        await pool.open()
        try:
            async with pool.connection() as connection:
                await self._make_tables(connection)
        except BaseException:
            await pool.close()
            raise
        return pool

    async def _disconnect(self, client: ConnectionPool) -> None:
        await client.close()

    async def _make_tables(self, connection: PooledConnection) -> None:
        # Looked for first, as a role without the right to make them may well have that to use them.
        making = {
            self._table.as_string(connection): CREATE_TABLE.format(table=self._table),
            self._marks.table.as_string(connection): write_tokens.CREATE_TABLE.format(
                done=self._marks.table
            ),
        }
        query = "SELECT name FROM unnest(%s::text[]) AS name WHERE to_regclass(name) IS NULL"
        missing = await (await connection.execute(query, [list(making)])).fetchall()
        try:
            async with connection.transaction() if missing else nullcontext():
                for (name,) in missing:
                    await connection.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
                    await connection.execute(making[name])
        except psycopg.errors.InsufficientPrivilege as error:
            raise StateStoreError(
                f"{self.place}: there is no table {name}, and the role may not make it: "
                f"{format_error(error)}. Grant it CREATE on the schema, or make both tables of a store "
                f"({self._name} and {self._name}{write_tokens.TABLE_SUFFIX}) as somebody else and grant it SELECT, "
                "INSERT, UPDATE and DELETE on them"
            ) from error

    async def _get(self, key: str) -> Entry | None:
        for etag, value in await self._read(GET, index_key(key)):
            return Entry(value, etag)
        return None

    async def _get_many(self, keys: Sequence[str]) -> dict[str, Entry]:
        columns = [list(column) for column in zip(*map(index_key, keys), strict=True)]
        rows = await self._read(GET_MANY, columns)
        return {join_key(head, tail): Entry(value, etag) for head, tail, etag, value in rows}

    async def _page(self, span: KeyRange, count: int) -> Sequence[str]:
        above = SQL(">" if span.exclusive else ">=")
        if span.high is None:
            rows = await self._read(PAGE_ALL, [*split_key(span.low), count], above=above)
        else:
            bounds = [*split_key(span.low), *split_key(span.high), count]
            rows = await self._read(PAGE_BELOW, bounds, above=above)
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
        statement, values = self._statement(put, etag, conditions)

        async def write(connection: PooledConnection, token: str) -> bool:
            if not await self._write(connection, statement, values, token):
                failed = await self._failed(connection, conditions)
                raise failed or await self._conflict(connection, put)
            return True

        await self._once(write)
        return etag

    async def _put_many(self, puts: Sequence[Put], conditions: Sequence[Condition] = ()) -> Etags:
        if len(puts) == 1:
            return [await self._put(puts[0], conditions)]
        etags = {put.key: new_etag() for put in puts}
        await self._once(
            lambda connection, token: self._batch(connection, puts, conditions, etags, token)
        )
        return list(etags.values())

    async def _delete(self, key: str, if_match: str | None) -> bool:
        query, values = DELETE.format(table=self._table), list[object](index_key(key))
        if if_match is not None:
            query = DELETE_MATCH.format(table=self._table)
            values.append(sanitize_etag(if_match))

        async def remove(connection: PooledConnection, token: str) -> bool:
            removed = await self._write(connection, query, values, token)
            if not removed and if_match is not None:
                raise etag_mismatch_error(key, if_match, await self._etag(connection, key))
            return removed

        return await self._once(remove)

    async def _once(self, write: Callable[[PooledConnection, str], Awaitable[bool]]) -> bool:
        """Do a write that marks itself with a token; whether it wrote, in any of its attempts."""
        token = secrets.token_hex(16)

        async def attempt(pool: ConnectionPool, unsure: bool) -> bool:  # noqa: FBT001 - as _run calls it
            async with pool.connection() as connection:
                if unsure and await self._marks.find(connection, token):
                    return True
                await self._marks.sweep(connection)
                # An earlier attempt may still be on its way, and be done before this one.
                try:
                    wrote = await write(connection, token)
                except psycopg.errors.UniqueViolation as error:
                    if not self._marks.refused(error):
                        raise
                    return True
                except ConflictError:
                    if unsure and await self._marks.find(connection, token):
                        return True
                    raise
                return wrote or (unsure and await self._marks.find(connection, token))

        return await self._run(attempt, writes=True)

    async def _write(
        self, connection: PooledConnection, query: Composed, values: Sequence[object], token: str
    ) -> bool:
        cursor = await connection.execute(self._marks.added_to(query), [*values, token])
        return cursor.rowcount > 0

    async def _batch(
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
                # First, so that of two attempts the second does nothing until the first is over.
                await connection.execute(
                    write_tokens.INSERT_TOKEN.format(done=self._marks.table), [token]
                )
                hold = SQL(HOLD).format(table=self._table)
                held = await connection.execute(hold, condition_columns(conditions))
                # In the same order for everybody, so that no two batches lock each other out.
                for put in sorted(puts, key=lambda put: put.key):
                    query, values = self._statement(put, etags[put.key])
                    cursors[put.key] = await connection.execute(query, values)
            if held.rowcount < len(conditions):
                failed = await self._failed(connection, conditions)
                if failed is not None:
                    raise failed
            for put in puts:
                if cursors[put.key].rowcount == 0:
                    raise await self._conflict(connection, put)
        return True

    def _statement(
        self, put: Put, etag: str, conditions: Sequence[Condition] = ()
    ) -> tuple[Composed, list[object]]:
        """What does a put, and its values. It counts no row where a condition does not hold."""
        values: list[object]
        if put.if_match is not None:
            statement = PUT_MATCH
            values = [etag, put.value, *index_key(put.key), sanitize_etag(put.if_match)]
        else:
            statement = PUT_ABSENT if put.if_absent else PUT
            values = [*index_key(put.key), split_key(put.key)[1], etag, put.value]
        if not conditions:
            return statement.format(table=self._table, held=SQL(""), given=SQL("true")), values
        held = SQL(WITH_HELD).format(table=self._table)
        columns = condition_columns(conditions)
        query = statement.format(table=self._table, held=held, given=SQL(ALL_HELD))
        return query, [*columns, *values, columns[-1]]

    async def _failed(
        self, connection: PooledConnection, conditions: Sequence[Condition]
    ) -> ConflictError | None:
        """The first condition that does not hold. One that did not hold never does again."""
        for condition in conditions:
            found = await self._etag(connection, condition.key)
            if found != condition.etag:
                return etag_mismatch_error(condition.key, condition.etag, found)
        return None

    async def _conflict(self, connection: PooledConnection, put: Put) -> ConflictError:
        if put.if_match is None:
            return key_exists_error(put.key)
        return etag_mismatch_error(put.key, put.if_match, await self._etag(connection, put.key))

    async def _etag(self, connection: PooledConnection, key: str) -> str | None:
        cursor = await connection.execute(GET.format(table=self._table), index_key(key))
        found = await cursor.fetchone()
        return None if found is None else str(found[0])

    def _explained(self, error: Exception) -> StateStoreError:
        return explain_error(self.place, self._name, error)


def condition_columns(conditions: Sequence[Condition]) -> list[object]:
    """Conditions as the columns that a statement takes: heads, digests, etags."""
    rows = [(*index_key(each.key), sanitize_etag(each.etag)) for each in conditions]
    return [[row[at] for row in rows] for at in range(3)]


def sanitize_etag(etag: str) -> str:
    """An etag to ask for. What this store cannot have given matches nothing, and may be no text."""
    return etag if re.fullmatch("[0-9a-f]+", etag) else "none"


def parse_table_name(table: str) -> list[str]:
    """The parts of a table's name: its schema, where it has one, and itself."""
    word = "[A-Za-z_][A-Za-z0-9_]"
    # PostgreSQL's names have 63 characters, and the table of marks adds to this one.
    if not re.fullmatch(
        rf"({word}{{0,62}}\.)?{word}{{0,{62 - len(write_tokens.TABLE_SUFFIX)}}}", table
    ):
        raise StateStoreError(
            "the option table of the postgresql URL is a name of at most 58 letters, digits and _, "
            f"after that of a schema and a dot if need be, not {short_repr(table)}"
        )
    return table.split(".")


def build_conninfo(url: StoreURL, timeout: float) -> str:
    """How libpq is told whom to connect to. A secret."""
    settings = {
        "connect_timeout": min(math.ceil(timeout), DAY),
        **conninfo_to_dict(url.text(scheme="postgresql")),
    }
    timeout_from_conninfo(settings)
    return make_conninfo("", **settings)


def open_url(url: StoreURL) -> PostgresStateStore:
    """``postgresql://user:password@host:port/database``; options that are not ours are libpq's."""
    timeout = url.take_number("timeout", TIMEOUT, least=0.01)
    patience = url.take_number("patience", PATIENCE)
    pool = url.take_count("pool", POOL, least=1)
    table = url.take("table") or TABLE
    try:
        conninfo = build_conninfo(url, timeout)
    except psycopg.Error as error:
        raise StateStoreError(
            f"the URL {url} cannot be used: {url.mask(format_error(error))}. The store's own options "
            "are pool, table, timeout and patience; all others are those of libpq, as sslmode"
        ) from None
    return PostgresStateStore(
        url, conninfo, table=table, pool=pool, timeout=timeout, patience=patience
    )
