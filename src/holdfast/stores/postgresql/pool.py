"""Connections that are made when needed, up to a number, and closed when unused."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress

import psycopg

from holdfast.errors import StateStoreError
from holdfast.stores.postgresql.connection import BlockingConnection, Connection, LoopConnection
from holdfast.stores.postgresql.errors import explain_connect_error

MAX_IDLE = 600.0
"""Seconds after which an unused connection is closed, before a firewall forgets it."""
MAX_AGE = 3600.0
"""Seconds after which a connection is replaced, so that a new primary is found."""


class ConnectionPool(ABC):
    """At most ``size`` connections, for calls that take at most ``timeout`` seconds."""

    _slots: asyncio.Semaphore | threading.Semaphore

    def __init__(self, display_url: str, conninfo: str, *, size: int, timeout: float) -> None:
        self.size = size
        self._display_url = display_url
        self._conninfo = conninfo
        self._timeout = timeout
        self._connections: set[Connection] = set()
        self._idle: list[Connection] = []
        self._is_closed = False

    async def close(self) -> None:
        """Close all connections, those in use as soon as their call is over."""
        self._is_closed = True
        for _ in range(self.size):
            self._slots.release()  # for those that wait
        with suppress(IndexError):
            while True:
                self._close_connection(self._idle.pop())

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Yield a connection that is alive as far as is known.

        Raises:
            StateStoreError: No connection can be made, or none was free in time.

        """
        if not await self._take_slot():
            raise StateStoreError(
                f"{self._display_url}: no connection was free in time; raise the option pool or "
                "timeout of the URL",
                transient=True,
            )
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

    @abstractmethod
    async def _take_slot(self) -> bool:
        """Take a slot, and return whether there was one in time.

        That is less than a call's timeout, after which the outcome of a write would be unknown.
        """

    @abstractmethod
    async def _open_connection(self) -> Connection:
        """Connect."""

    def _take_idle(self) -> Connection | None:
        with suppress(IndexError):  # of several threads, another one may take the last
            while True:
                connection = self._idle.pop()
                now = time.monotonic()
                is_fresh = now - connection.opened < MAX_AGE and now - connection.used < MAX_IDLE
                if is_fresh and connection.is_usable():
                    return connection
                self._close_connection(connection)
        return None

    async def _connect(self) -> Connection:
        try:
            connection = await self._open_connection()
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

    def _close_connection(self, connection: Connection) -> None:
        self._connections.discard(connection)
        connection.close()


class LoopPool(ConnectionPool):
    """The connections of one event loop."""

    def __init__(self, display_url: str, conninfo: str, *, size: int, timeout: float) -> None:
        super().__init__(display_url, conninfo, size=size, timeout=timeout)
        self._slots: asyncio.Semaphore = asyncio.Semaphore(size)
        self._timer: asyncio.TimerHandle | None = None
        self._lifetime = self._close_with_loop()

    async def open(self) -> None:
        """Open the pool, without connecting."""
        await anext(self._lifetime)
        self._check_idle()

    async def close(self) -> None:
        """Close all connections, those in use as soon as their call is over."""
        await super().close()
        await self._lifetime.aclose()

    async def _take_slot(self) -> bool:
        if not self._slots.locked():
            return await self._slots.acquire()
        try:
            async with asyncio.timeout(self._timeout * 0.9):
                return await self._slots.acquire()
        except TimeoutError:
            return False

    async def _open_connection(self) -> Connection:
        return await LoopConnection.open(self._conninfo)

    def _check_idle(self) -> None:
        limit = time.monotonic() - MAX_IDLE
        # The one used last is at the end of the list.
        while self._idle and self._idle[0].used < limit:
            self._close_connection(self._idle.pop(0))
        self._timer = asyncio.get_running_loop().call_later(MAX_IDLE / 2, self._check_idle)

    async def _close_with_loop(self) -> AsyncGenerator[None]:
        # asyncio.run() closes async generators that are still open, and so this one. That closes
        # the connections of a store that is used in another event loop next, or was never closed.
        try:
            yield
        finally:
            if self._timer is not None:
                self._timer.cancel()
            for connection in () if self._is_closed else self._connections:
                connection.close()


class BlockingPool(ConnectionPool):
    """The connections of all threads that call without an event loop. It never suspends."""

    def __init__(self, display_url: str, conninfo: str, *, size: int, timeout: float) -> None:
        super().__init__(display_url, conninfo, size=size, timeout=timeout)
        self._slots: threading.Semaphore = threading.Semaphore(size)
        self._process = os.getpid()

    async def _take_slot(self) -> bool:
        return self._slots.acquire(timeout=self._timeout * 0.9)

    async def _open_connection(self) -> Connection:
        return await BlockingConnection.open(self._conninfo, self._timeout)

    def __del__(self) -> None:
        # In a forked child, closing would end the sessions of the parent.
        for connection in self._connections if self._process == os.getpid() else ():
            connection.close()
