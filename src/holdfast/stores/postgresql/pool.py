"""Connections to PostgreSQL: psycopg's pool, whose clients hear at once why there is none."""

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
    """Let the pool's warnings about our connections be seen by those who look for details.

    What they tell is raised by the store as well, or mended by its next attempt.
    """
    about = record.args if isinstance(record.args, tuple) else ()
    if any(isinstance(one, PooledConnection) or str(one).startswith(NAME) for one in about):
        record.levelno, record.levelname = logging.DEBUG, logging.getLevelName(logging.DEBUG)
        return logging.getLogger(record.name).isEnabledFor(logging.DEBUG)
    return True


logging.getLogger("psycopg.pool").addFilter(demote_pool_warnings)


class PooledConnection(psycopg.AsyncConnection[TupleRow]):
    """A connection that its pool knows of, and that soon leaves a server that hangs."""

    @classmethod
    async def connect(cls, conninfo: str = "", **options: Any) -> Self:
        """Connect; the option ``owner`` is the pool that hears how it went."""
        owner: ConnectionPool = options.pop("owner")
        try:
            link = await super().connect(conninfo, **options)
        except psycopg.Error as error:
            owner.failure = error
            raise
        owner.links.add(link)
        return link

    async def cancel_safe(self, *, timeout: float = 30.0) -> None:  # noqa: ASYNC109 - as the driver's
        """Ask the server to leave off what it does; one that does not hear it is left."""
        try:
            await super().cancel_safe(timeout=min(timeout, 1.0))
        except psycopg.Error:
            self.pgconn.finish()
            raise

    def is_lost(self) -> bool:
        """Whether the server has ended it while it was idle; costs no message to it."""
        try:
            # Once for what the server said before it left, and once for its leaving.
            self.pgconn.consume_input()
            self.pgconn.consume_input()
        except psycopg.OperationalError:
            self.pgconn.finish()
        return self.closed


class ConnectionPool:
    """psycopg's pool, whose waiting clients hear at once that no connection can be made.

    Left to itself it tries on in the background with growing pauses, and lets its clients wait to
    the end without a reason. Here each attempt is asked for by somebody, and its failure is told to
    all who wait; when to try again is for ``RemoteStateStore`` to say.
    """

    def __init__(self, place: str, conninfo: str, *, size: int, timeout: float) -> None:
        self._place = place
        self.links: WeakSet[PooledConnection] = WeakSet()
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
            # Sooner than the attempt itself, of which one would not know whether it wrote.
            timeout=timeout * 0.9,
            reconnect_timeout=0,
            reconnect_failed=self._send_away,
        )
        self._life = self._until_the_loop_ends()

    async def open(self) -> None:
        """Be ready to connect."""
        await self._pool.open()
        await anext(self._life)

    async def close(self) -> None:
        """End all connections."""
        await self._pool.close(timeout=1)
        await self._life.aclose()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[PooledConnection]:
        """A connection that was alive a moment ago."""
        task = asyncio.current_task()
        before = task.cancelling() if task else 0
        connection = await self._take()
        while connection.is_lost():
            await self._give_back(connection)
            connection = await self._take()
        try:
            yield connection
        except psycopg.Error as error:
            # A query that is cancelled may end by an error of its own; it is a cancellation still.
            if task and task.cancelling() > before:
                raise asyncio.CancelledError from error
            raise
        finally:
            if connection.pgconn.transaction_status != TransactionStatus.IDLE:
                # Cut short. To end what it is at might take as long as that itself.
                connection.pgconn.finish()
            await self._give_back(connection)

    async def _give_back(self, connection: PooledConnection) -> None:
        # Whoever is cancelled while the pool is busy would take the connection along for good.
        returning = asyncio.create_task(self._pool.putconn(connection))
        self._returning.add(returning)
        returning.add_done_callback(self._returning.discard)
        await asyncio.shield(returning)

    async def _take(self) -> PooledConnection:
        try:
            async with asyncio.timeout(None) as patience:
                self._waiting.add(patience)
                try:
                    return await self._pool.getconn()
                finally:
                    self._waiting.discard(patience)
        except PoolTimeout as error:
            raise StateStoreError(
                f"{self._place}: no connection was free in time. Allow more with the option pool "
                "of the URL, or wait longer with timeout",
                transient=True,
            ) from error
        except PoolClosed as error:
            raise StateStoreError(f"{self._place} was closed meanwhile") from error
        except TimeoutError:
            # Without its frames, in which the password is a local variable.
            cause = self.failure and self.failure.with_traceback(None)
            raise explain_connect_error(self._place, str(cause)) from cause

    async def _send_away(self, _pool: object) -> None:
        now = asyncio.get_running_loop().time()
        while self._waiting:
            self._waiting.pop().reschedule(now)

    async def _until_the_loop_ends(self) -> AsyncGenerator[None]:
        # asyncio.run() ends generators that are still open when its work is done, and so this one,
        # and with it the connections of a store that goes on in another event loop or is forgotten.
        try:
            yield
        finally:
            # The pool's own tasks are cancelled by then, without which it cannot close itself.
            for link in () if self._pool.closed else self.links:
                link.pgconn.finish()
