"""A connection pool that reports at once why no connection can be made."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self
from weakref import WeakSet

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from holdfast.errors import StateStoreError
from holdfast.stores.postgresql.errors import explain_connect_error

NAME = "holdfast"
NUMBERS = itertools.count(1)


def demote_pool_warnings(record: logging.LogRecord) -> bool:
    """Log the pool's warnings about our connections at level DEBUG.

    The store raises the same error, or recovers from it with its next attempt.
    """
    arguments = record.args if isinstance(record.args, tuple) else ()
    if any(isinstance(one, PooledConnection) or str(one).startswith(NAME) for one in arguments):
        record.levelno, record.levelname = logging.DEBUG, logging.getLevelName(logging.DEBUG)
        return logging.getLogger(record.name).isEnabledFor(logging.DEBUG)
    return True


logging.getLogger("psycopg.pool").addFilter(demote_pool_warnings)


class PooledConnection(psycopg.AsyncConnection[TupleRow]):
    """A connection that reports to its pool, and soon gives up on a server that hangs."""

    @classmethod
    async def connect(cls, conninfo: str = "", **options: Any) -> Self:
        """Connect, and report the outcome to the pool in the option ``owner``."""
        owner: ConnectionPool = options.pop("owner")
        try:
            connection = await super().connect(conninfo, **options)
        except psycopg.Error as error:
            owner.failure = error
            raise
        owner.connections.add(connection)
        return connection

    async def cancel_safe(self, *, timeout: float = 30.0) -> None:  # noqa: ASYNC109 - the driver's
        """Ask the server to cancel the query; disconnect if it does not respond."""
        try:
            await super().cancel_safe(timeout=min(timeout, 1.0))
        except psycopg.Error:
            self.pgconn.finish()
            raise

    def is_lost(self) -> bool:
        """Whether the server closed the connection while it was idle; sends nothing."""
        try:
            # Once for the server's last message, and once for the end of the connection.
            self.pgconn.consume_input()
            self.pgconn.consume_input()
        except psycopg.OperationalError:
            self.pgconn.finish()
        return self.closed


class ConnectionPool:
    """psycopg's pool, whose waiting clients learn at once that no connection can be made.

    psycopg's pool retries in the background with growing pauses, and its clients wait until their
    timeout without a reason. Here each attempt to connect is made for a waiting client, and its
    failure is reported to all of them; ``RemoteStateStore`` decides when to retry.
    """

    def __init__(self, display_url: str, conninfo: str, *, size: int, timeout: float) -> None:
        self._display_url = display_url
        self.connections: WeakSet[PooledConnection] = WeakSet()
        self.failure: psycopg.Error | None = None
        self._waiting: set[asyncio.Timeout] = set()
        self._returning: set[asyncio.Task[None]] = set()
        self._pool = AsyncConnectionPool(
            conninfo,
            connection_class=PooledConnection,
            kwargs={"autocommit": True, "prepare_threshold": None, "owner": self},
            min_size=0,
            max_size=size,
            open=False,
            name=f"{NAME}-{next(NUMBERS)}",
            # Less than an attempt's timeout, after which the outcome of a write would be unknown.
            timeout=timeout * 0.9,
            reconnect_timeout=0,
            reconnect_failed=self._fail_waiting,
        )
        self._lifetime = self._close_with_loop()

    async def open(self) -> None:
        """Open the pool, without connecting."""
        await self._pool.open()
        await anext(self._lifetime)

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.close(timeout=1)
        await self._lifetime.aclose()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[PooledConnection]:
        """Yield a connection that is alive as far as is known.

        Raises:
            StateStoreError: No connection can be made, or none was free in time.

        """
        task = asyncio.current_task()
        cancelled_before = task.cancelling() if task else 0
        connection = await self._take()
        while connection.is_lost():
            await self._return(connection)
            connection = await self._take()
        try:
            yield connection
        except psycopg.Error as error:
            # A cancelled query may raise its own error, but it is still a cancellation.
            if task and task.cancelling() > cancelled_before:
                raise asyncio.CancelledError from error
            raise
        finally:
            if connection.pgconn.transaction_status != TransactionStatus.IDLE:
                # Interrupted: ending the query cleanly could take as long as the query.
                connection.pgconn.finish()
            await self._return(connection)

    async def _return(self, connection: PooledConnection) -> None:
        # In a task, because a cancellation while the pool is busy would lose the connection.
        returning = asyncio.create_task(self._pool.putconn(connection))
        self._returning.add(returning)
        returning.add_done_callback(self._returning.discard)
        await asyncio.shield(returning)

    async def _take(self) -> PooledConnection:
        try:
            async with asyncio.timeout(None) as waiting:
                self._waiting.add(waiting)
                try:
                    return await self._pool.getconn()
                finally:
                    self._waiting.discard(waiting)
        except PoolTimeout as error:
            raise StateStoreError(
                f"{self._display_url}: no connection was free in time; raise the option pool or "
                "timeout of the URL",
                transient=True,
            ) from error
        except PoolClosed as error:
            raise StateStoreError(f"{self._display_url} was closed during the call") from error
        except TimeoutError:
            # Without its frames, which have the password in a local variable.
            cause = self.failure and self.failure.with_traceback(None)
            raise explain_connect_error(str(cause), self._display_url) from cause

    async def _fail_waiting(self, _pool: object) -> None:
        now = asyncio.get_running_loop().time()
        while self._waiting:
            self._waiting.pop().reschedule(now)

    async def _close_with_loop(self) -> AsyncGenerator[None]:
        # asyncio.run() closes async generators that are still open, and so this one. That closes
        # the connections of a store that is used in another event loop next, or was never closed.
        try:
            yield
        finally:
            # The pool cannot close itself then, because its own tasks are already cancelled.
            for connection in () if self._pool.closed else self.connections:
                connection.pgconn.finish()
