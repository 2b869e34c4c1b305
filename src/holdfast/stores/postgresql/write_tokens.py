"""Tokens of completed writes, by which a retry knows that an earlier attempt succeeded.

Each write has a token that all its attempts share, and inserts it into a table in the same
statement or transaction. Tokens are unique there, so of two attempts the server rolls one back,
even if the first was delayed and arrives last.
"""

from __future__ import annotations

import psycopg
from psycopg.sql import SQL, Composed, Identifier

from holdfast.stores.postgresql.pool import PooledConnection

TABLE_SUFFIX = "_done"
"""What the name of this table adds to that of the entries."""

SWEEP_INTERVAL = 500
"""Writes of a store between two deletions of old tokens."""

# The second index is for the deletion. It has no name, so it cannot clash with an existing one.
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
# One writer at a time, so that two do not wait for each other, and a limited number at once.
DELETE_OLD_TOKENS = SQL("""WITH turn AS MATERIALIZED (SELECT pg_try_advisory_xact_lock(%s) AS ours),
old AS MATERIALIZED (
    SELECT token FROM {done}, turn WHERE ours AND at < now() - interval '1 hour'
    ORDER BY at LIMIT 2000
)
DELETE FROM {done} AS kept USING old WHERE kept.token = old.token""")


class WriteTokens:
    """The table of write tokens beside a table of entries."""

    def __init__(self, names: list[str], lock: int) -> None:
        self.names = [*names[:-1], names[-1] + TABLE_SUFFIX]
        self.table = Identifier(*self.names)
        self._lock = lock
        self._writes = 0

    def add_to(self, write: Composed) -> Composed:
        """Return a statement that writes and inserts the token, which is its last value.

        It reports one row if it wrote, as the statement itself does.
        """
        return WRITE_WITH_TOKEN.format(write=write, done=self.table)

    async def find(self, connection: PooledConnection, token: str) -> bool:
        """Whether the write with this token was applied."""
        cursor = await connection.execute(FIND_TOKEN.format(done=self.table), [token])
        return await cursor.fetchone() is not None

    async def sweep(self, connection: PooledConnection) -> None:
        """Delete old tokens, at the first of every ``SWEEP_INTERVAL`` writes."""
        if self._writes % SWEEP_INTERVAL == 0:
            await connection.execute(DELETE_OLD_TOKENS.format(done=self.table), [self._lock])
        self._writes += 1

    def is_duplicate(self, error: psycopg.errors.UniqueViolation) -> bool:
        """Whether the token already exists, because an earlier attempt succeeded."""
        return error.diag.table_name == self.names[-1]
