"""The calls that write, and how several of them become the statements of one transaction.

The etags that the calls depend on are read first. Then the calls are decided one after the other,
each on what the ones before it leave, as if each had a transaction of its own, and what they change
is written at the end. So a call that conflicts has written nothing that had to be undone, and a
group takes few statements. A call that is alone usually takes one, which is its own transaction.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from typing import TypeVar

from holdfast.errors import ConflictError
from holdfast.stores.backend import check_condition, etag_mismatch_error, make_etags
from holdfast.stores.base import Condition, Put

T = TypeVar("T")

# Rows are stored in the order of their numbers. Small rows fill pages well next to each other, but
# badly next to large ones: so large and small rows have separate ranges of numbers.
LARGE = 1024
FIRST_SMALL = 1 << 40
LAST_LARGE = f"(SELECT max(rowid) FROM entries WHERE rowid < {FIRST_SMALL})"  # noqa: S608
LAST_SMALL = "(SELECT max(rowid) FROM entries)"
ETAG = "(SELECT etag FROM entries WHERE key = ?)"
# With a new number, because a small value in the place of a large one leaves its page half empty.
REPLACE = "DO UPDATE SET rowid = excluded.rowid, etag = excluded.etag, value = excluded.value"
# Keys or rows of a statement. SQLite compiles each number of them once for a connection.
CHUNK = 16
MAX_BYTES_ALONE = 256 * 1024


class WriteCall:
    """One call of ``put``, ``put_many`` or ``delete``, and its outcome when it is done.

    ``is_done`` is set last, by the thread that writes.
    """

    __slots__ = (
        "conditions",
        "deletes",
        "error",
        "future",
        "is_abandoned",
        "is_done",
        "puts",
        "result",
    )

    def __init__(
        self, puts: Sequence[Put], conditions: Sequence[Condition] = (), *, deletes: bool = False
    ) -> None:
        self.puts = puts
        self.conditions = conditions
        self.deletes = deletes
        self.future: asyncio.Future[list[str]] | None = None
        self.is_abandoned = False
        self.is_done = False
        self.result: list[str] = []
        self.error: Exception | None = None

    @classmethod
    def delete(cls, key: str, if_match: str | None) -> WriteCall:
        """Return a call that deletes a key. Its result is the key's etag, if it existed."""
        return cls([Put(key, b"", if_match)], deletes=True)

    def is_cancelled(self) -> bool:
        """Whether the caller gave up, so that the call must not be started."""
        return self.is_abandoned if self.future is None else self.future.cancelled()

    def apply(
        self, etags: dict[str, str | None], changes: dict[str, Put | None], new_etags: Iterator[str]
    ) -> None:
        """Check the conditions, and add what changes to the etags and the changes.

        Raises:
            ConflictError: A condition does not hold; nothing was added.

        """
        for condition in self.conditions:
            etag = etags[condition.key]
            if etag != condition.etag:
                raise etag_mismatch_error(condition.key, condition.etag, etag)
        for put in self.puts:
            if put.if_absent or put.if_match is not None:
                check_condition(put, etags[put.key])
        result: list[str] = []
        for put in self.puts:
            key = put.key
            if self.deletes:
                existing = etags[key]
                if existing is not None:
                    result.append(existing)
                etags[key] = changes[key] = None
            else:
                etags[key] = etag = next(new_etags)
                changes[key] = put
                result.append(etag)
        self.result = result
        self.error = None


def apply_calls(database: sqlite3.Connection, calls: Sequence[WriteCall]) -> None:
    """Write what the calls change, within a transaction, and set their results and conflicts."""
    keys: dict[str, None] = {}
    count = 0
    for call in calls:
        count += len(call.puts)
        for condition in call.conditions:
            keys[condition.key] = None
        for put in call.puts:
            if put.if_absent or put.if_match is not None or call.deletes:
                keys[put.key] = None
    last_large, last_small, etags = read_etags(database, list(keys))
    changes: dict[str, Put | None] = {}
    new_etags = make_etags(count)
    for call in calls:
        try:
            call.apply(etags, changes, new_etags)
        except ConflictError as error:
            call.error = error
    deleted: list[str] = []
    rows: list[tuple[int, str, str | None, bytes]] = []
    for key, change in changes.items():
        if change is None:
            deleted.append(key)
        elif len(change.value) > LARGE:
            last_large += 1
            rows.append((last_large, key, etags[key], change.value))
        else:
            last_small += 1
            rows.append((last_small, key, etags[key], change.value))
    for some in split(deleted):
        database.execute(delete_statement(len(some)), some)
    for part in split(rows):
        database.execute(insert_statement(len(part)), [*chain(*part)])


def write_alone(database: sqlite3.Connection, call: WriteCall) -> bool:
    """Write one call with one statement; return False if nothing was written.

    That is so if a condition does not hold, and for a call that deletes, has many rows or
    conditions, or is large: SQLite copies the rows before it inserts them.
    """
    puts = call.puts
    if call.deletes or not 0 < len(puts) <= CHUNK or len(call.conditions) > CHUNK:
        return False
    if sum([len(put.value) for put in puts]) > MAX_BYTES_ALONE:
        return False
    expected: list[str | None] = []
    for condition in call.conditions:
        expected += (condition.key, condition.etag)
    for put in puts:
        if put.if_absent or put.if_match is not None:
            expected += (put.key, put.if_match)
    call.result = list(make_etags(len(puts)))
    rows: list[int | str | bytes | None] = []
    for number, (put, etag) in enumerate(zip(puts, call.result, strict=True), 1):
        is_large = len(put.value) > LARGE
        rows += (number if is_large else -number, put.key, etag, put.value)
    statement = insert_if_statement(len(puts), len(expected) // 2)
    return database.execute(statement, [*rows, *expected]).rowcount == len(puts)


def read_etags(
    database: sqlite3.Connection, keys: Sequence[str]
) -> tuple[int, int, dict[str, str | None]]:
    """Return the last number of a large and of a small row, and the etag of each key, or None."""
    etags: dict[str, str | None] = {}
    for some in split(keys) or [keys]:
        # A single row: between two, another thread may keep the interpreter busy.
        row = database.execute(select_statement(len(some)), some).fetchone()
        etags.update(zip(some, row[2:], strict=True))
    return row[0] or 0, max(row[1] or 0, FIRST_SMALL), etags


def split(items: Sequence[T]) -> Iterable[Sequence[T]]:
    """Return the items in chunks."""
    if len(items) <= CHUNK:
        return [items] if items else []
    return [items[start : start + CHUNK] for start in range(0, len(items), CHUNK)]


@cache
def select_statement(count: int) -> str:
    """Return the query of the last rows and of the etags of some keys."""
    return f"SELECT {LAST_LARGE}, {LAST_SMALL}" + f", {ETAG}" * count


@cache
def insert_if_statement(count: int, conditions: int) -> str:
    """Return the statement that writes some rows if some keys have the expected etags, or none."""
    rows = " UNION ALL ".join(["SELECT ? AS number, ? AS key, ? AS etag, ? AS value"] * count)
    holds = " AND ".join([f"{ETAG} IS ?"] * conditions)
    return f"""
        INSERT INTO entries (rowid, key, etag, value)
        WITH last AS (SELECT {LAST_LARGE} AS large, {LAST_SMALL} AS small)
        SELECT CASE WHEN number > 0 THEN coalesce(large, 0) + number
                    ELSE max(coalesce(small, 0), {FIRST_SMALL}) - number END, key, etag, value
        FROM ({rows}), last WHERE {holds or 1} ON CONFLICT (key) {REPLACE}"""  # noqa: S608


@cache
def delete_statement(count: int) -> str:
    """Return the statement that deletes some keys."""
    return f"DELETE FROM entries WHERE key IN ({','.join('?' * count)})"  # noqa: S608


@cache
def insert_statement(count: int) -> str:
    """Return the statement that writes some rows, which replace those with the same keys."""
    rows = ",".join(["(?, ?, ?, ?)"] * count)
    insert = f"INSERT INTO entries (rowid, key, etag, value) VALUES {rows}"  # noqa: S608
    return f"{insert} ON CONFLICT (key) {REPLACE}"
