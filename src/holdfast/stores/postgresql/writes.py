"""Writes that are sent together: one statement and one transaction for several calls."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

import psycopg

from holdfast.errors import ConflictError
from holdfast.stores.batch_write import BatchWrite
from holdfast.stores.notification import encode_notification
from holdfast.stores.postgresql.connection import (
    BYTEA_ARRAY,
    INT4_ARRAY,
    LENGTH,
    TEXT_ARRAY,
    Connection,
    pack_array,
)
from holdfast.stores.postgresql.statements import Statements, index_key, sanitize_etag

MAX_ROWS = 512
MAX_BYTES = 1_000_000
"""The most that calls which share a statement write together. A larger call is sent alone."""
ATTEMPTS = 8
# Of the columns of a row: head, digest, tail, call, expected etag, etag, value.
ARRAYS = (
    *(TEXT_ARRAY, BYTEA_ARRAY, TEXT_ARRAY, INT4_ARRAY),
    *(TEXT_ARRAY, TEXT_ARRAY, BYTEA_ARRAY),
)


class WriteRequest:
    """A batch as rows of the statement.

    A row has head, digest and tail of the key, the expected etag, the new etag and the value. Those
    of the conditions come first, as in the numbers of ``BatchWrite.conflict``.
    """

    def __init__(self, batch: BatchWrite) -> None:
        self.batch = batch
        self.read = {condition.key for condition in batch.conditions}
        self.written = {put.key for put in batch.puts}
        self.size = sum(len(put.value) for put in batch.puts)
        self.rows = [
            (*index_key(each.key), sanitize_etag(each.etag).encode(), b"", b"")
            for each in batch.conditions
        ]
        for put, etag in zip(batch.puts, batch.etags, strict=True):
            expected = b"absent" if put.if_absent else b""
            if put.if_match is not None:
                expected = sanitize_etag(put.if_match).encode()
            self.rows.append((*index_key(put.key), expected, etag.encode(), put.value))


class GroupRule:
    """Whether a request may join a group: it is not too large, and shares no key that is written.

    So the outcome is the same as if the calls had been made one after the other.
    """

    def __init__(self) -> None:
        self._read: set[str] = set()
        self._written: set[str] = set()
        self._rows = 0
        self._size = 0

    def accept(self, request: WriteRequest) -> bool:
        """Tell whether the request joins the group; the first always does."""
        if self._rows and (
            self._rows + len(request.rows) > MAX_ROWS
            or self._size + request.size > MAX_BYTES
            or not self._written.isdisjoint(request.written)
            or not self._written.isdisjoint(request.read)
            or not self._read.isdisjoint(request.written)
        ):
            return False
        self._rows += len(request.rows)
        self._size += request.size
        self._read |= request.read
        self._written |= request.written
        return True


async def run_writes(
    connection: Connection, statements: Statements, requests: Sequence[WriteRequest]
) -> list[ConflictError | psycopg.Error | None]:
    """Write the batches that do not conflict, and return None or its error for each.

    If the statement fails, each call is sent alone, so that one does not fail the others.

    Raises:
        psycopg.Error: The connection was lost.

    """
    if len(requests) > 1:
        try:
            return await write_group(connection, statements, requests)
        except psycopg.Error:
            if not connection.is_idle:
                raise
    outcomes: list[ConflictError | psycopg.Error | None] = []
    for request in requests:
        try:
            outcomes.append(await write_alone(connection, statements, request))
        except psycopg.Error as error:
            outcomes.append(error)
    return outcomes


async def write_alone(
    connection: Connection, statements: Statements, request: WriteRequest
) -> ConflictError | psycopg.Error | None:
    """Write a batch, again if a concurrent writer created one of its keys; return its conflict.

    Raises:
        psycopg.Error: It failed. A ``UniqueViolation`` of the table of tokens means that an earlier
            attempt succeeded.

    """
    for _ in range(ATTEMPTS):
        try:
            return (await write_group(connection, statements, [request]))[0]
        except psycopg.errors.UniqueViolation as error:
            if error.diag.table_name != statements.entry_table:
                raise
            failure = error
    raise failure


async def write_group(
    connection: Connection, statements: Statements, requests: Sequence[WriteRequest]
) -> list[ConflictError | psycopg.Error | None]:
    """Write batches in one statement, and return the conflict of each, or None."""
    rows = [
        (*row[:3], LENGTH.pack(call), *row[3:], call, number)
        for call, request in enumerate(requests)
        for number, row in enumerate(request.rows)
    ]
    rows.sort(key=itemgetter(0, 1))
    columns = zip(*rows, strict=True)
    tokens = [request.batch.token.encode() for request in requests]
    conflicts: list[ConflictError | psycopg.Error | None] = [None] * len(requests)
    firsts: dict[int, int] = {}
    values = [*map(pack_array, ARRAYS, columns), pack_array(TEXT_ARRAY, tokens)]
    if statements.notifies:
        written = ([put.key for put in request.batch.puts] for request in requests)
        values.append(pack_array(TEXT_ARRAY, list(map(encode_notification, written))))
    for at, found in await connection.run(statements.write, *values):
        call, number = rows[int.from_bytes(at or b"") - 1][-2:]
        if number <= firsts.setdefault(call, number):
            firsts[call] = number
            conflicts[call] = requests[call].batch.conflict(number, found and found.decode())
    return conflicts
