"""Connections to PostgreSQL: psycopg's pool, whose clients hear at once why there is none."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self
from weakref import WeakSet

import psycopg
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from holdfast.errors import StateStoreError

# How the server words its refusal before there is a session: without a SQLSTATE.
REFUSALS = {
    r"password|authentication|pg_hba\.conf|role .* does not exist": "See the user name and the "
    "password of the URL, and pg_hba.conf of the server",
    r"database .* does not exist": "Make the database, or name another in the path of the URL",
    r"permission denied": "Grant the role CONNECT on the database",
    r"SSL|certificate": "See the options sslmode and sslrootcert of the URL",
}


def unreachable(place: str, text: str) -> StateStoreError:
    """What it means that a connection cannot be made. Nothing was written then."""
    text = " ".join(text.split())
    for pattern, hint in REFUSALS.items():
        if re.search(pattern, text):
            return StateStoreError(f"{place} cannot be used: {text}. {hint}")
    return StateStoreError(
        f"{place} cannot be reached: {text}. See whether the server runs and listens there",
        transient=True,
    )


class Link(psycopg.AsyncConnection[TupleRow]):
    """A connection that its pool knows of, and that soon leaves a server that hangs."""

    @classmethod
    async def connect(cls, conninfo: str = "", **options: Any) -> Self:
        """Connect; the option ``owner`` is the pool that hears how it went."""
        owner: Pool = options.pop("owner")
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


class Pool:
    """psycopg's pool, whose waiting clients hear at once that no connection can be made.

    Left to itself it tries on in the background with growing pauses, and lets its clients wait to
    the end without a reason. Here each attempt is asked for by somebody, and its failure is told to
    all who wait; when to try again is for ``RemoteStateStore`` to say.
    """

    def __init__(self, place: str, conninfo: str, *, size: int, timeout: float) -> None:
        self._place = place
        self.links: WeakSet[Link] = WeakSet()
        self.failure: psycopg.Error | None = None
        self._waiting: set[asyncio.Timeout] = set()
        self._pool = AsyncConnectionPool(
            conninfo,
            connection_class=Link,
            kwargs={"autocommit": True, "prepare_threshold": None, "owner": self},
            min_size=0,
            max_size=size,
            open=False,
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
    async def connection(self) -> AsyncIterator[Link]:
        """A connection that was alive a moment ago."""
        task = asyncio.current_task()
        before = task.cancelling() if task else 0
        connection = await self._take()
        while connection.is_lost():
            await self._pool.putconn(connection)
            connection = await self._take()
        try:
            yield connection
        except psycopg.Error as error:
            # A query that is cancelled may end by an error of its own; it is a cancellation still.
            if task and task.cancelling() > before:
                raise asyncio.CancelledError from error
            raise
        finally:
            await self._pool.putconn(connection)

    async def _take(self) -> Link:
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
            raise unreachable(self._place, str(self.failure)) from self.failure

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
