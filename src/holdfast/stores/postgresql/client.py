"""The connections of one event loop, and the calls that are sent together over them.

Every write has a token, which is the same for all its attempts, and inserts it into a table in the
same statement. By it a retry knows that an earlier attempt succeeded. Tokens are unique there, so
of two attempts the server rolls one back, even if the first was delayed and arrives last.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import psycopg

from holdfast.errors import ConflictError
from holdfast.stores.call_queue import CallQueue, Take
from holdfast.stores.entries import Entry
from holdfast.stores.postgresql.connection import (
    BYTEA_ARRAY,
    TEXT_ARRAY,
    Connection,
    pack_array,
    pack_int8,
)
from holdfast.stores.postgresql.pool import ConnectionPool
from holdfast.stores.postgresql.statements import Statements, index_key, name_lock
from holdfast.stores.postgresql.writes import GroupRule, WriteRequest, run_writes

# Of the statements that only one store may run at a time: creating tables, deleting tokens.
LOCK = name_lock("holdfast: make the table")
SWEEP_INTERVAL = 500
"""Writes of an event loop between two deletions of old tokens."""
MAX_KEYS = 256
"""The most keys of calls that read together. A larger call is sent alone."""


class PostgresClient:
    """A pool, and the queues of reads and writes."""

    def __init__(self, pool: ConnectionPool, statements: Statements) -> None:
        self.pool = pool
        self._statements = statements
        self._writes = 0
        self._next_sweep = 0
        self.reads = CallQueue[Sequence[str], dict[str, Entry]](self._read, max_lanes=pool.size)
        self.writes = CallQueue[WriteRequest, None](self._write, max_lanes=pool.size)

    async def _read(self, take: Take[Sequence[str]]) -> Sequence[dict[str, Entry]]:
        count = 0

        def accept(keys: Sequence[str]) -> bool:
            nonlocal count
            if count and count + len(keys) > MAX_KEYS:
                return False
            count += len(keys)
            return True

        async with self.pool.connection() as connection:
            calls = take(accept)
            wanted = list(dict.fromkeys(key for keys in calls for key in keys))
            heads, digests, _ = zip(*map(index_key, wanted), strict=True) if wanted else ([],) * 3
            rows = await connection.run(
                self._statements.get,
                pack_array(TEXT_ARRAY, heads),
                pack_array(BYTEA_ARRAY, digests),
            )
        found = {
            wanted[int.from_bytes(number) - 1]: Entry(value, etag.decode())
            for number, etag, value in rows
        }
        return [{key: found[key] for key in keys if key in found} for keys in calls]

    async def _write(
        self, take: Take[WriteRequest]
    ) -> Sequence[ConflictError | psycopg.Error | None]:
        async with self.pool.connection() as connection:
            requests = take(GroupRule().accept)
            await self.sweep(connection, len(requests))
            return await run_writes(connection, self._statements, requests)

    async def repeat_write(
        self, token: str, write: Callable[[Connection], Awaitable[bool]]
    ) -> bool:
        """Write again after an attempt with an unknown outcome; return whether any of them wrote.

        The earlier attempt may still be under way, and finish before this one or after it.

        Raises:
            ConflictError: No attempt wrote.

        """
        async with self.pool.connection() as connection:
            if await self._find_token(connection, token):
                return True
            try:
                wrote = await write(connection)
            except psycopg.errors.UniqueViolation as error:
                if error.diag.table_name != self._statements.token_table:
                    raise
                return True
            except ConflictError:
                if await self._find_token(connection, token):
                    return True
                raise
            return wrote or await self._find_token(connection, token)

    async def _find_token(self, connection: Connection, token: str) -> bool:
        return bool(await connection.run(self._statements.find_token, token.encode()))

    async def sweep(self, connection: Connection, writes: int = 1) -> None:
        """Delete old tokens, at the first of every ``SWEEP_INTERVAL`` writes."""
        if self._writes >= self._next_sweep:
            self._next_sweep = self._writes + SWEEP_INTERVAL
            await connection.run(self._statements.delete_tokens, pack_int8(LOCK))
        self._writes += writes
