"""A connection that runs one statement at a time in one round trip.

psycopg connects and cancels. Statements are sent through its wrapper of libpq, with values that are
already in PostgreSQL's binary format, and the socket is watched all the time: psycopg's cursors and
its way of waiting take longer than the server takes for a small statement.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import Future as BlockingFuture
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from selectors import EVENT_READ, EVENT_WRITE
from struct import Struct
from typing import Any, LiteralString, Self

import psycopg
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.pq.abc import PGconn, PGresult
from psycopg.sql import SQL, Composable

TEXT, BYTEA, INT8 = 25, 17, 20
TEXT_ARRAY, BYTEA_ARRAY, INT4_ARRAY = 1009, 1001, 1007
ELEMENTS = {TEXT_ARRAY: TEXT, BYTEA_ARRAY: BYTEA, INT4_ARRAY: 23}
ARRAY = Struct(">iiIii")
LENGTH = Struct(">i")

# For one socket, poll needs no descriptor of its own as epoll does, and has no limit as select has.
SocketSelector = getattr(selectors, "PollSelector", selectors.SelectSelector)

CANCEL_TIMEOUT = 1.0
# A statement is planned once per connection, when the table may still be empty, and must be as good
# when it is large: every step that reads a table has to use its index.
SETTINGS = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "jit": "off",
}
# A pooler that switches servers between transactions gives its clients made-up process ids. Behind
# one, the session is not changed, and statements are planned each time.
CONFIGURE = """SELECT set_config(name, setting, false)
FROM unnest(%s::text[], %s::text[]) AS wanted (name, setting) WHERE pg_backend_pid() = %s"""


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement, its name on the server, and the types of its values.

    The name has a digest of the text, so that it never stands for another statement.
    """

    name: bytes
    text: bytes
    types: tuple[int, ...]

    @classmethod
    def build(
        cls, kind: LiteralString, text: LiteralString, *types: int, **names: Composable
    ) -> Self:
        """Return a statement for the given tables and other names."""
        query = SQL(text).format(**names).as_string().encode()
        return cls(f"holdfast_{sha256(query).hexdigest()[:16]}_{kind}".encode(), query, types)


class Connection(ABC):
    """A connection in autocommit mode."""

    def __init__(self, pgconn: PGconn, *, prepares: bool) -> None:
        self._pgconn = pgconn
        self._prepares = prepares
        self._prepared: set[bytes] = set()
        self._answer: asyncio.Future[PGresult] | BlockingFuture[PGresult] | None = None
        self._result: PGresult | None = None
        self._is_sending = False
        self._socket = pgconn.socket
        self.opened = self.used = time.monotonic()

    @property
    def is_idle(self) -> bool:
        """Whether it can run a statement, as far as is known."""
        return self._pgconn.transaction_status == TransactionStatus.IDLE

    def is_usable(self) -> bool:
        """Whether it is idle and the server did not close it since; sends nothing."""
        # Once for the server's last message, and once for the end of the connection.
        self._receive()
        if self._socket >= 0:
            self._receive()
        return self.is_idle

    def close(self) -> None:
        """Close the connection. A statement that is on its way fails."""
        if self._socket >= 0:
            self._unwatch()
            self._socket = -1
            self._pgconn.finish()
            self._fail(psycopg.OperationalError("the connection was closed"))

    async def run(self, statement: Statement, *values: bytes) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows, with values in binary format.

        If it is cancelled, the server is asked to cancel the statement; a connection that is still
        busy after that is closed.

        Raises:
            psycopg.Error: It failed; without an SQLSTATE if the connection was lost.

        """
        formats = [1] * len(values)
        if not self._prepares:
            self._pgconn.send_query_params(
                statement.text, values, statement.types, formats, result_format=1
            )
        else:
            if statement.name not in self._prepared:
                self._pgconn.send_prepare(statement.name, statement.text, statement.types)
                # It exists if the call that prepared it was cancelled.
                with suppress(psycopg.errors.DuplicatePreparedStatement):
                    await self._wait()
                self._prepared.add(statement.name)
            self._pgconn.send_query_prepared(statement.name, values, formats, result_format=1)
        result = await self._wait()
        columns = range(result.nfields)
        return [
            tuple([result.get_value(row, column) for column in columns])
            for row in range(result.ntuples)
        ]

    async def run_script(self, text: str) -> None:
        """Run statements without values in one transaction. Raises what ``run`` raises."""
        self._pgconn.send_query(text.encode())
        await self._wait()

    @abstractmethod
    async def _wait(self) -> PGresult:
        """Send what is buffered, and return the result once the server is ready for the next."""

    @abstractmethod
    def _watch_writing(self, *, is_partly_sent: bool) -> None:
        """Call ``_flush`` when more can be sent, or not any more."""

    @abstractmethod
    def _unwatch(self) -> None:
        """Forget the socket, which is about to be closed."""

    def _flush(self) -> None:
        try:
            is_partly_sent = bool(self._pgconn.flush())
        except psycopg.OperationalError as error:
            self._lose(error)
            return
        if is_partly_sent != self._is_sending:
            self._is_sending = is_partly_sent
            self._watch_writing(is_partly_sent=is_partly_sent)

    def _receive(self) -> None:
        """Read what the server sent. Called whenever there is something, even while idle."""
        try:
            self._pgconn.consume_input()
            while not self._pgconn.is_busy():
                result = self._pgconn.get_result()
                if result is None:
                    self._finish()
                    return
                if self._result is None or result.status == ExecStatus.FATAL_ERROR:
                    self._result = result
        except psycopg.OperationalError as error:
            self._lose(error)

    def _finish(self) -> None:
        answer, result = self._answer, self._result
        if result is None:
            return
        self._answer = self._result = None
        if result.status == ExecStatus.FATAL_ERROR:
            error = error_from_result(result)
            if error.sqlstate == psycopg.errors.InvalidSqlStatementName.sqlstate:
                self.close()  # the session lost its prepared statements
            if answer is not None and not answer.done():
                answer.set_exception(error)
        elif answer is not None and not answer.done():
            answer.set_result(result)

    def _lose(self, error: psycopg.OperationalError) -> None:
        self._fail(error)
        self.close()

    def _fail(self, error: psycopg.OperationalError) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_exception(error)


class LoopConnection(Connection):
    """A connection of an event loop."""

    def __init__(self, connection: psycopg.AsyncConnection, *, prepares: bool) -> None:
        super().__init__(connection.pgconn, prepares=prepares)
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket, self._receive)

    @classmethod
    async def open(cls, conninfo: str) -> Self:
        """Connect.

        Raises:
            psycopg.Error: No connection can be made.

        """
        connection = await psycopg.AsyncConnection.connect(
            conninfo, autocommit=True, prepare_threshold=None
        )
        try:
            configured = await connection.execute(CONFIGURE, settings_for(connection.pgconn))
            return cls(connection, prepares=configured.rowcount > 0)
        except BaseException:
            connection.pgconn.finish()
            raise

    async def _wait(self) -> PGresult:
        """Send what is buffered, and return the result once the server is ready for the next."""
        answer: asyncio.Future[PGresult] = self._loop.create_future()
        self._answer = answer
        self._flush()
        try:
            return await answer
        except asyncio.CancelledError:
            await self._cancel()
            raise

    async def _cancel(self) -> None:
        if self.is_idle or self._socket < 0:
            return
        self._answer = ended = self._loop.create_future()
        try:
            async with asyncio.timeout(2 * CANCEL_TIMEOUT):
                await self._connection.cancel_safe(timeout=CANCEL_TIMEOUT)
                await ended
        except (psycopg.Error, TimeoutError):
            if not self.is_idle:
                self.close()

    def _watch_writing(self, *, is_partly_sent: bool) -> None:
        if is_partly_sent:
            self._loop.add_writer(self._socket, self._flush)
        else:
            self._loop.remove_writer(self._socket)

    def _unwatch(self) -> None:
        if not self._loop.is_closed():
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)


class BlockingConnection(Connection):
    """A connection for callers without an event loop, which it blocks. It never suspends."""

    def __init__(self, connection: psycopg.Connection, *, prepares: bool, timeout: float) -> None:
        super().__init__(connection.pgconn, prepares=prepares)
        self._connection = connection
        self._timeout = timeout
        self._selector = SocketSelector()
        self._selector.register(self._socket, EVENT_READ)

    @classmethod
    async def open(cls, conninfo: str, timeout: float) -> Self:  # noqa: ASYNC109 - of later calls
        """Connect, to run statements that take at most ``timeout`` seconds each.

        Raises:
            psycopg.Error: No connection can be made.

        """
        connection = psycopg.Connection.connect(conninfo, autocommit=True, prepare_threshold=None)
        try:
            configured = connection.execute(CONFIGURE, settings_for(connection.pgconn))
            return cls(connection, prepares=configured.rowcount > 0, timeout=timeout)
        except BaseException:
            connection.pgconn.finish()
            raise

    async def _wait(self) -> PGresult:
        answer = self._answer = BlockingFuture[PGresult]()
        self._flush()
        try:
            self._wait_for(answer, self._timeout)
        except BaseException:
            self._cancel()
            raise
        return answer.result()

    def _wait_for(self, answer: BlockingFuture[PGresult], seconds: float) -> None:
        end = time.monotonic() + seconds
        while not answer.done():
            if not self._selector.select(max(0.0, end - time.monotonic())):
                raise TimeoutError
            if self._is_sending:
                self._flush()
            if self._socket >= 0:
                self._receive()

    def _cancel(self) -> None:
        ended = self._answer = BlockingFuture[PGresult]()
        try:
            self._connection.cancel_safe(timeout=CANCEL_TIMEOUT)
            self._wait_for(ended, CANCEL_TIMEOUT)
        except (psycopg.Error, TimeoutError):
            self.close()

    def _watch_writing(self, *, is_partly_sent: bool) -> None:
        events = EVENT_READ | EVENT_WRITE if is_partly_sent else EVENT_READ
        self._selector.modify(self._socket, events)

    def _unwatch(self) -> None:
        self._selector.close()


def settings_for(pgconn: PGconn) -> list[object]:
    """Return the values of ``CONFIGURE``."""
    return [list(SETTINGS), list(SETTINGS.values()), pgconn.backend_pid]


def pack_array(kind: int, items: Sequence[bytes]) -> bytes:
    """Return an array in PostgreSQL's binary format."""
    parts = [ARRAY.pack(1, 0, ELEMENTS[kind], len(items), 1)]
    for item in items:
        parts += (LENGTH.pack(len(item)), item)
    return b"".join(parts)


def pack_texts(texts: Sequence[str]) -> bytes:
    """Return a ``text[]`` in PostgreSQL's binary format."""
    return pack_array(TEXT_ARRAY, [text.encode() for text in texts])


def pack_int8(number: int) -> bytes:
    """Return a ``bigint`` in PostgreSQL's binary format."""
    return number.to_bytes(8, "big", signed=True)
