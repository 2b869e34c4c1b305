"""The connections of one event loop: made when needed, up to a number, and closed when unused."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import psycopg

from holdfast.errors import StateStoreError
from holdfast.stores.postgresql.connection import Connection
from holdfast.stores.postgresql.errors import explain_connect_error

MAX_IDLE = 600.0
"""Seconds after which an unused connection is closed, before a firewall forgets it."""
MAX_AGE = 3600.0
"""Seconds after which a connection is replaced, so that a new primary is found."""


class ConnectionPool:
    """At most ``size`` connections, for calls that wait at most ``timeout`` seconds for one."""

    def __init__(self, display_url: str, conninfo: str, *, size: int, timeout: float) -> None:
        self.size = size
        self._display_url = display_url
        self._conninfo = conninfo
        self._timeout = timeout
        self._slots = asyncio.Semaphore(size)
        self._connections: set[Connection] = set()
        self._idle: list[Connection] = []
        self._is_closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._lifetime = self._close_with_loop()

    async def open(self) -> None:
        """Open the pool, without connecting."""
        await anext(self._lifetime)

    async def close(self) -> None:
        """Close all connections, those in use as soon as their call is over."""
        self._is_closed = True
        for _ in range(self.size):
            self._slots.release()  # for those that wait
        if self._timer is not None:
            self._timer.cancel()
        while self._idle:
            self._close_connection(self._idle.pop())
        await self._lifetime.aclose()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Yield a connection that is alive as far as is known.

        Raises:
            StateStoreError: No connection can be made, or none was free in time.

        """
        if self._slots.locked():
            await self._wait_for_slot()
        else:
            await self._slots.acquire()
        try:
            if self._is_closed:
                raise StateStoreError(f"{self._display_url} was closed during the call")
            connection = self._take_idle() or await self._connect()
            try:
                yield connection
            finally:
                self._give_back(connection)
        finally:
            self._slots.release()

    async def _wait_for_slot(self) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                await self._slots.acquire()
        except TimeoutError as error:
            raise StateStoreError(
                f"{self._display_url}: no connection was free in time; raise the option pool or "
                "timeout of the URL",
                transient=True,
            ) from error

    def _take_idle(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if time.monotonic() - connection.opened < MAX_AGE and connection.is_usable():
                return connection
            self._close_connection(connection)
        return None

    async def _connect(self) -> Connection:
        try:
            connection = await Connection.open(self._conninfo)
        except psycopg.Error as error:
            # Without its frames, which have the password in a local variable.
            cause = error.with_traceback(None)
            raise explain_connect_error(str(error), self._display_url) from cause
        self._connections.add(connection)
        return connection

    def _give_back(self, connection: Connection) -> None:
        # One that is not idle was interrupted: to end its query cleanly could take as long as that.
        if self._is_closed or not connection.is_idle:
            self._close_connection(connection)
            return
        connection.used = time.monotonic()
        self._idle.append(connection)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(MAX_IDLE, self._close_unused)

    def _close_unused(self) -> None:
        limit = time.monotonic() - MAX_IDLE
        # The one used last is at the end of the list.
        while self._idle and self._idle[0].used < limit:
            self._close_connection(self._idle.pop(0))
        self._timer = None
        if self._idle:
            self._timer = asyncio.get_running_loop().call_later(MAX_IDLE, self._close_unused)

    def _close_connection(self, connection: Connection) -> None:
        self._connections.discard(connection)
        connection.close()

    async def _close_with_loop(self) -> AsyncGenerator[None]:
        # asyncio.run() closes async generators that are still open, and so this one. That closes
        # the connections of a store that is used in another event loop next, or was never closed.
        try:
            yield
        finally:
            for connection in () if self._is_closed else self._connections:
                connection.close()
