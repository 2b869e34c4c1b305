"""The SQL statements of a PostgreSQL store, and how keys appear in them.

Keys are text in code point order (collation "C"). PostgreSQL text cannot contain NUL, so the two
lowest characters are escaped in a way that keeps the order. An index row has at most 2,700 bytes,
so a key is stored as its first characters, the rest, and a digest of the rest for the index.
"""

from __future__ import annotations

import re
from hashlib import sha256

from psycopg.sql import SQL, Composable, Identifier, Literal

from holdfast.stores.postgresql.connection import (
    BYTEA,
    BYTEA_ARRAY,
    INT4_ARRAY,
    INT8,
    TEXT,
    TEXT_ARRAY,
    Statement,
)

DONE_SUFFIX = "_done"
"""What the name of the table of write tokens adds to that of the entries."""

HEAD = 500
"""Characters of a key in the index: at most 2,000 bytes, next to the digest."""

ETAG = re.compile("[0-9a-f]+")
ESCAPES = {0: "\x01\x01", 1: "\x01\x02"}

CREATE_ENTRIES = """CREATE TABLE IF NOT EXISTS {entries} (
    head text COLLATE "C" NOT NULL,
    tail_digest bytea NOT NULL,
    tail text COLLATE "C" NOT NULL,
    etag text NOT NULL,
    value bytea NOT NULL,
    PRIMARY KEY (head, tail_digest)
)"""
# The second index is for the deletion. It has no name, so it cannot clash with an existing one.
CREATE_TOKENS = """CREATE TABLE IF NOT EXISTS {tokens} (
    token text PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (at, token)
)"""
MISSING = """SELECT name FROM unnest($1::text[]) AS name WHERE to_regclass(name) IS NULL"""

# A lateral query with a limit is never turned into a join that reads the whole table.
GET = """SELECT wanted.number, entry.etag, entry.value
FROM unnest($1::text[], $2::bytea[]) WITH ORDINALITY AS wanted (head, tail_digest, number),
LATERAL (
    SELECT etag, value FROM {entries}
    WHERE head = wanted.head AND tail_digest = wanted.tail_digest LIMIT 1
) AS entry"""

# Several calls of put or put_many in one transaction. Each row of the arrays is a condition or a
# put of a call, in the order of keys; no two calls have a row in common that one of them writes.
#
# First all rows are locked until the commit, so that no other writer deletes or replaces one. As
# every writer locks in the order of keys, no two writers wait for each other. A lock waits for a
# concurrent writer and then returns the newest etag. Calls with a condition that does not hold
# write nothing, and their conflicts are returned. A key that did not exist is inserted: if another
# writer was faster, the unique index aborts the whole statement, and the calls are sent again.
WRITE = """WITH step AS MATERIALIZED (
    SELECT given.*, (
        SELECT entry.etag FROM {entries} AS entry
        WHERE entry.head = given.head AND entry.tail_digest = given.tail_digest FOR UPDATE
    ) AS found
    FROM unnest(
        $1::text[], $2::bytea[], $3::text[], $4::int4[], $5::text[], $6::text[], $7::bytea[]
    ) WITH ORDINALITY AS given (head, tail_digest, tail, call, expected, etag, value, number)
), conflict AS MATERIALIZED (
    SELECT number, call, found FROM step WHERE CASE expected
        WHEN '' THEN false
        WHEN 'absent' THEN found IS NOT NULL
        ELSE found IS DISTINCT FROM expected
    END
), put AS MATERIALIZED (
    SELECT * FROM step WHERE etag <> '' AND call <> ALL (ARRAY(SELECT call FROM conflict))
), inserted AS (
    INSERT INTO {entries} (head, tail_digest, tail, etag, value)
    SELECT head, tail_digest, tail, etag, value FROM put WHERE found IS NULL
), updated AS (
    INSERT INTO {entries} (head, tail_digest, tail, etag, value)
    SELECT head, tail_digest, tail, etag, value FROM put WHERE found IS NOT NULL
    ON CONFLICT (head, tail_digest) DO UPDATE SET etag = excluded.etag, value = excluded.value
), token AS (
    INSERT INTO {tokens} (token)
    SELECT token FROM {written} WHERE CASE
        WHEN call - 1 = ANY (ARRAY(SELECT call FROM conflict)) THEN false ELSE {notify}
    END
)
SELECT number, found FROM conflict"""

# The tokens of the calls, and their notifications.
WRITTEN = """unnest($8::text[]) WITH ORDINALITY AS written (token, call)"""
WRITTEN_NOTIFIED = """unnest($8::text[], $9::text[])
    WITH ORDINALITY AS written (token, notification, call)"""

# Returns the etag that was found. An empty $3 is no condition.
DELETE = """WITH held AS MATERIALIZED (
    SELECT etag FROM {entries} WHERE head = $1 AND tail_digest = $2 FOR UPDATE
), deleted AS (
    DELETE FROM {entries} WHERE head = $1 AND tail_digest = $2
    AND EXISTS (SELECT 1 FROM held WHERE $3 IN ('', held.etag)) RETURNING 1
), token AS (
    INSERT INTO {tokens} (token) SELECT $4 FROM deleted WHERE {notify}
)
SELECT etag FROM held"""

# A condition that is always true and sends a notification, when the transaction commits. PostgreSQL
# serializes the commits that send any, so nothing is sent unless a store listens: it holds the lock
# (listener.py). The lock is tried and given back in one expression, so that it is never kept.
NOTIFY = """CASE
    WHEN (SELECT CASE
        WHEN pg_try_advisory_lock({lock}) THEN pg_advisory_unlock({lock}) ELSE false
    END) THEN true
    ELSE pg_notify({channel}, {notification}) IS NOT NULL
END"""

FIND_DONE = """SELECT 1 FROM {tokens} WHERE token = $1"""
# One writer at a time, so that two do not wait for each other, and a limited number at once.
SWEEP_DONE = """WITH turn AS MATERIALIZED (SELECT pg_try_advisory_xact_lock($1) AS ours),
old AS MATERIALIZED (
    SELECT token FROM {tokens}, turn WHERE ours AND at < now() - interval '1 hour'
    ORDER BY at LIMIT 2000
)
DELETE FROM {tokens} WHERE token = ANY (ARRAY(SELECT token FROM old))"""

# The limit is a subquery, because with a limit known when planning, a table without statistics is
# sorted completely.
PAGE = """SELECT head, tail FROM {entries} WHERE (head, tail) >= ($1, $2)
ORDER BY head, tail LIMIT (SELECT $3::bigint)"""
PAGE_BELOW = """SELECT head, tail FROM {entries} WHERE (head, tail) >= ($1, $2)
AND (head, tail) < ($4, $5) ORDER BY head, tail LIMIT (SELECT $3::bigint)"""


class Statements:
    """The statements of a store, whose table has this name, with its schema if any.

    Those that write notify the stores that listen on the ``channel``, unless ``notifies`` is False.
    """

    def __init__(self, names: list[str], *, notifies: bool = True) -> None:
        self.entry_table, self.token_table = names[-1], names[-1] + DONE_SUFFIX
        self.notifies = notifies
        self.channel = self.entry_table
        self.listener_lock = name_lock(f"holdfast: listen to {self.channel}")
        entries, tokens = Identifier(*names), Identifier(*names[:-1], self.token_table)
        self.get = Statement.build("read", GET, TEXT_ARRAY, BYTEA_ARRAY, entries=entries)
        self.write = Statement.build(
            "write",
            WRITE,
            *(TEXT_ARRAY, BYTEA_ARRAY, TEXT_ARRAY, INT4_ARRAY),
            *(TEXT_ARRAY, TEXT_ARRAY, BYTEA_ARRAY, TEXT_ARRAY),
            *((TEXT_ARRAY,) if notifies else ()),
            entries=entries,
            tokens=tokens,
            written=SQL(WRITTEN_NOTIFIED if notifies else WRITTEN),
            notify=self._notify(SQL("notification")),
        )
        self.delete = Statement.build(
            "write",
            DELETE,
            *(TEXT, BYTEA, TEXT, TEXT),
            *((TEXT,) if notifies else ()),
            entries=entries,
            tokens=tokens,
            notify=self._notify(SQL("$5")),
        )
        self.page = Statement.build("page", PAGE, TEXT, TEXT, INT8, entries=entries)
        self.page_below = Statement.build(
            "page", PAGE_BELOW, TEXT, TEXT, INT8, TEXT, TEXT, entries=entries
        )
        self.find_token = Statement.build("find", FIND_DONE, TEXT, tokens=tokens)
        self.delete_tokens = Statement.build("sweep", SWEEP_DONE, INT8, tokens=tokens)
        self.missing = Statement.build("missing", MISSING, TEXT_ARRAY)
        self.create = {
            entries.as_string(): SQL(CREATE_ENTRIES).format(entries=entries).as_string(),
            tokens.as_string(): SQL(CREATE_TOKENS).format(tokens=tokens).as_string(),
        }

    def _notify(self, notification: SQL) -> Composable:
        if not self.notifies:
            return SQL("true")
        return SQL(NOTIFY).format(
            lock=Literal(self.listener_lock),
            channel=Literal(self.channel),
            notification=notification,
        )


def name_lock(name: str) -> int:
    """Return the number of an advisory lock."""
    return int.from_bytes(sha256(name.encode()).digest()[:8], "big", signed=True)


def split_key(key: str) -> tuple[str, str]:
    """Return the head and the tail of a key, as stored in the table."""
    text = key.translate(ESCAPES) if "\x00" in key or "\x01" in key else key
    return text[:HEAD], text[HEAD:]


def join_key(head: str, tail: str) -> str:
    """Return the key of a head and a tail."""
    return (head + tail).replace("\x01\x01", "\x00").replace("\x01\x02", "\x01")


def index_key(key: str) -> tuple[bytes, bytes, bytes]:
    """Return the head of a key and the digest of its tail, which identify its row, and the tail."""
    head, tail = split_key(key)
    if not tail:
        return head.encode(), b"", b""
    end = tail.encode()
    return head.encode(), sha256(end).digest(), end


def sanitize_etag(etag: str) -> str:
    """Return an etag for a query. One that is not from this store matches nothing."""
    return etag if ETAG.fullmatch(etag) else "none"
