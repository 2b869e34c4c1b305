"""Marks of done writes: how a retry knows that an earlier attempt was done, whatever came after.

Each write has a token that is the same on all its attempts, and a write that is done has put its
token into a table of its own, in the same statement or transaction. The token is unique there, so
that of two attempts one is undone by the server even where the first was slow and came last.
"""

from __future__ import annotations

import psycopg
from psycopg.sql import SQL, Composed, Identifier

from holdfast.stores.postgresql.pool import PooledConnection

TABLE_SUFFIX = "_done"
"""What the name of the table of marks adds to that of the entries."""

SWEEP_INTERVAL = 500
"""Writes of a store from one removal of old marks to the next."""

# The second index is for the removal. Not named, so that its name is never in use already.
CREATE_TABLE = SQL("""CREATE TABLE IF NOT EXISTS {done} (
    token text PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (at, token)
)""")
INSERT_TOKEN = SQL("INSERT INTO {done} (token) VALUES (%s)")
WRITE_WITH_TOKEN = SQL(
    "WITH wrote AS ({write} RETURNING 1) INSERT INTO {done} (token) SELECT %s::text FROM wrote"
)
FIND_TOKEN = SQL("SELECT 1 FROM {done} WHERE token = %s")
# One at a time, so that two do not wait for each other, and not too many at once.
DELETE_OLD_TOKENS = SQL("""WITH turn AS MATERIALIZED (SELECT pg_try_advisory_xact_lock(%s) AS ours),
old AS MATERIALIZED (
    SELECT token FROM {done}, turn WHERE ours AND at < now() - interval '1 hour'
    ORDER BY at LIMIT 2000
)
DELETE FROM {done} AS kept USING old WHERE kept.token = old.token""")


class WriteTokens:
    """The table of marks beside a table of entries."""

    def __init__(self, names: list[str], lock: int) -> None:
        self.names = [*names[:-1], names[-1] + TABLE_SUFFIX]
        self.table = Identifier(*self.names)
        self._lock = lock
        self._writes = 0

    def added_to(self, write: Composed) -> Composed:
        """A statement that writes, made to mark what it has done.

        Its last value is the token. It counts a row where it wrote, as without the mark.
        """
        return WRITE_WITH_TOKEN.format(write=write, done=self.table)

    async def find(self, connection: PooledConnection, token: str) -> bool:
        """Whether the write with this token was done."""
        cursor = await connection.execute(FIND_TOKEN.format(done=self.table), [token])
        return await cursor.fetchone() is not None

    async def sweep(self, connection: PooledConnection) -> None:
        """Remove old marks, at the first write and now and then. Call it before a write."""
        if self._writes % SWEEP_INTERVAL == 0:
            await connection.execute(DELETE_OLD_TOKENS.format(done=self.table), [self._lock])
        self._writes += 1

    def refused(self, error: psycopg.errors.UniqueViolation) -> bool:
        """Whether it is the mark that is there already: an earlier attempt was done meanwhile."""
        return error.diag.table_name == self.names[-1]
