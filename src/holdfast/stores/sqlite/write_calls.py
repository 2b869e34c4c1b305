"""The calls that write, and how several of them become the statements of one transaction.

The etags that the calls depend on are read first. Then the calls are decided one after the other,
each on what the ones before it leave, as if each had a transaction of its own, and what they change
is written at the end. So a call that conflicts has written nothing that had to be undone, and a
group takes few statements.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from typing import TypeAlias, TypeVar

from holdfast.errors import ConflictError
from holdfast.stores.backend import check_condition, etag_mismatch_error, new_etag
from holdfast.stores.base import Condition, Put

T = TypeVar("T")
Row: TypeAlias = tuple[int, str, str | None, bytes]

# Rows are stored in the order of their numbers. Small rows fill pages well next to each other, but
# badly next to large ones: so large and small rows have separate ranges of numbers.
LARGE = 1024
FIRST_SMALL = 1 << 40
LAST_ROWS = f"""
SELECT (SELECT max(rowid) FROM entries WHERE rowid < {FIRST_SMALL}),
(SELECT max(rowid) FROM entries)"""  # noqa: S608
REPLACE = "DO UPDATE SET etag = excluded.etag, value = excluded.value"
# With a new number, because a small value in the place of a large one leaves its page half empty.
MOVE = f"{REPLACE}, rowid = excluded.rowid"
# Keys or rows of a statement. SQLite compiles each number of them once for a connection.
CHUNK = 16


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
        "size",
    )

    def __init__(
        self, puts: Sequence[Put], conditions: Sequence[Condition] = (), *, deletes: bool = False
    ) -> None:
        self.puts = puts
        self.conditions = conditions
        self.deletes = deletes
        self.size = sum([len(put.value) for put in puts])
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
        """Whether nobody waits for the call, so that it is not to be started."""
        return self.is_abandoned if self.future is None else self.future.cancelled()

    def list_conditional_keys(self) -> Iterator[str]:
        """Yield the keys whose etags decide the outcome."""
        for condition in self.conditions:
            yield condition.key
        for put in self.puts:
            if put.if_absent or put.if_match is not None or self.deletes:
                yield put.key

    def check(self, etags: dict[str, str | None]) -> None:
        """Check the conditions.

        Raises:
            ConflictError: A condition does not hold.

        """
        for condition in self.conditions:
            etag = etags.get(condition.key)
            if etag != condition.etag:
                raise etag_mismatch_error(condition.key, condition.etag, etag)
        for put in self.puts:
            check_condition(put, etags.get(put.key))


def apply_calls(database: sqlite3.Connection, calls: Sequence[WriteCall]) -> None:
    """Write what the calls change, within a transaction, and set their results and conflicts."""
    keys = dict.fromkeys(key for call in calls for key in call.list_conditional_keys())
    etags, rows = read_etags(database, list(keys))
    changes: dict[str, Put | None] = {}
    for call in calls:
        try:
            call.check(etags)
        except ConflictError as error:
            call.error = error
            continue
        call.error = None
        if call.deletes:
            key = call.puts[0].key
            etag = etags[key]
            call.result = [] if etag is None else [etag]
            etags[key] = changes[key] = None
        else:
            call.result = [new_etag() for _ in call.puts]
            for put, etag in zip(call.puts, call.result, strict=True):
                etags[put.key] = etag
                changes[put.key] = put
    write_changes(database, changes, etags, rows)


class NextRows:
    """The numbers of new rows."""

    __slots__ = ("large", "small")

    def __init__(self, last_large: int | None, last: int | None) -> None:
        self.large = last_large or 0
        self.small = max(last or 0, FIRST_SMALL)

    def take(self, value: bytes) -> int:
        """Return the number of a new row with this value."""
        if len(value) > LARGE:
            self.large += 1
            return self.large
        self.small += 1
        return self.small


def read_etags(
    database: sqlite3.Connection, keys: Sequence[str]
) -> tuple[dict[str, str | None], NextRows]:
    """Return the etag of each key, or None, and the numbers of new rows."""
    etags: dict[str, str | None] = {}
    for batch in split(keys) if keys else [keys]:
        # A single row: between two, another thread may keep the interpreter busy.
        last_large, last, *found = database.execute(select_statement(len(batch)), batch).fetchone()
        etags.update(zip(batch, found, strict=True))
    return etags, NextRows(last_large, last)


def write_changes(
    database: sqlite3.Connection,
    changes: dict[str, Put | None],
    etags: dict[str, str | None],
    rows: NextRows,
) -> None:
    """Write the last change of each key."""
    deleted: list[str] = []
    replaced: list[Row] = []
    moved: list[Row] = []
    for key, put in changes.items():
        if put is None:
            deleted.append(key)
        else:
            row = (rows.take(put.value), key, etags[key], put.value)
            (moved if put.if_absent or put.if_match is not None else replaced).append(row)
    for batch in split(deleted):
        database.execute(delete_statement(len(batch)), batch)
    for action, written in ((REPLACE, replaced), (MOVE, moved)):
        for part in split(written):
            database.execute(insert_statement(len(part)) + action, [*chain(*part)])


def split(items: Sequence[T]) -> Iterable[Sequence[T]]:
    """Return the items in chunks."""
    return (items[start : start + CHUNK] for start in range(0, len(items), CHUNK))


@cache
def select_statement(count: int) -> str:
    """Return the query of the last rows and of the etags of some keys."""
    return LAST_ROWS + ", (SELECT etag FROM entries WHERE key = ?)" * count  # noqa: S608


@cache
def delete_statement(count: int) -> str:
    """Return the statement that deletes some keys."""
    return f"DELETE FROM entries WHERE key IN ({','.join('?' * count)})"  # noqa: S608


@cache
def insert_statement(count: int) -> str:
    """Return the statement that writes some rows, without what it does if a key exists."""
    rows = ",".join(["(?, ?, ?, ?)"] * count)
    return f"INSERT INTO entries (rowid, key, etag, value) VALUES {rows} ON CONFLICT (key) "  # noqa: S608
