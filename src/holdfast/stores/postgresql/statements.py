"""The SQL statements of a PostgreSQL store, and how keys appear in them.

Keys are text in code point order (collation "C"). PostgreSQL text cannot contain NUL, so the two
lowest characters are escaped in a way that keeps the order. An index row has at most 2,700 bytes,
so a key is stored as its first characters, the rest, and a digest of the rest for the index.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256

from psycopg.sql import SQL

from holdfast.stores.entries import Condition

HEAD = 500
"""Characters of a key in the index: at most 2,000 bytes, next to the digest."""

ESCAPES = {0: "\x01\x01", 1: "\x01\x02"}

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
# Lock the rows of conditions until the commit, so that no other writer deletes or replaces one (FOR
# KEY SHARE would allow an update). They are locked before anything is written, and in key order, so
# batches that share conditions do not wait for each other. If two batches each need what the other
# writes, PostgreSQL detects the deadlock, and the batch that it aborts is retried.
HOLD = (
    "SELECT etag FROM {table} JOIN unnest(%s::text[], %s::bytea[], %s::text[]) "
    "AS needed (head, tail_digest, etag) USING (head, tail_digest, etag) "
    "ORDER BY head, tail_digest FOR SHARE OF {table}"
)
WITH_HELD = "WITH held AS MATERIALIZED (" + HOLD + ") "
ALL_HELD = "(SELECT count(*) FROM held) = cardinality(%s::text[])"
# {held} and {given} are these two if the write has conditions, and otherwise empty and true.
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
# In a subquery: with a limit known when planning, a table without statistics is sorted completely.
PAGE_END = " ORDER BY head, tail LIMIT (SELECT %s::bigint)"
PAGE_ALL = SQL(PAGE + PAGE_END)
PAGE_BELOW = SQL(PAGE + " AND (head, tail) < (%s, %s)" + PAGE_END)


def split_key(key: str) -> tuple[str, str]:
    """Return the head and the tail of a key, as stored in the table."""
    text = key.translate(ESCAPES)
    return text[:HEAD], text[HEAD:]


def join_key(head: str, tail: str) -> str:
    """Return the key of a head and a tail."""
    return (head + tail).replace("\x01\x01", "\x00").replace("\x01\x02", "\x01")


def index_key(key: str) -> tuple[str, bytes]:
    """Return the head and the digest of a key, which identify its row."""
    head, tail = split_key(key)
    return head, sha256(tail.encode()).digest() if tail else b""


def condition_columns(conditions: Sequence[Condition]) -> list[object]:
    """Return conditions as the columns of ``HOLD``: heads, digests, etags."""
    rows = [(*index_key(each.key), sanitize_etag(each.etag)) for each in conditions]
    return [[row[at] for row in rows] for at in range(3)]


def sanitize_etag(etag: str) -> str:
    """Return an etag for a query. One that is not from this store matches nothing."""
    return etag if re.fullmatch("[0-9a-f]+", etag) else "none"
