"""``LISTEN``: a connection that receives the notifications of all writes to a table.

It holds a shared lock while it listens. Writers test that lock, and notify only if it is held: see
``NOTIFY`` in statements.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Self

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.sql import SQL, Identifier, Literal

from holdfast.errors import StateStoreError
from holdfast.stores.listener import Listener
from holdfast.stores.notification import decode_notification
from holdfast.stores.postgresql.connection import LoopConnection
from holdfast.stores.postgresql.errors import explain_connect_error
from holdfast.stores.postgresql.statements import Statements

KEEPALIVES = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
"""Nothing is sent over the connection, so only these detect a server that is gone."""

LISTEN = "LISTEN {channel}; SELECT pg_advisory_lock_shared({lock})"


class ListeningConnection(LoopConnection):
    """A connection that passes on the notifications it receives."""

    def __init__(self, connection: psycopg.AsyncConnection, *, prepares: bool) -> None:
        self.receive: Callable[[bytes], None] | None = None
        self.closed = asyncio.Event()
        self.has_own_session = prepares
        super().__init__(connection, prepares=prepares)

    @classmethod
    async def open(cls, conninfo: str) -> Self:
        """Connect. Raises what `LoopConnection.open` raises."""
        settings: dict[str, Any] = {**KEEPALIVES, **conninfo_to_dict(conninfo)}
        return await super().open(make_conninfo("", **settings))

    def close(self) -> None:
        """Close the connection."""
        super().close()
        self.closed.set()

    def _receive(self) -> None:
        super()._receive()
        while self._socket >= 0 and (notification := self._pgconn.notifies()) is not None:
            if self.receive is not None:
                self.receive(notification.extra)


class PostgresListener(Listener):
    """The notifications of a table."""

    failures = (psycopg.Error,)

    def __init__(
        self,
        display_url: str,
        conninfo: str,
        statements: Statements,
        *,
        timeout: float,
        explain: Callable[[Exception], str],
    ) -> None:
        super().__init__(timeout=timeout, explain=explain)
        self._display_url = display_url
        self._conninfo = conninfo
        self._script = SQL(LISTEN).format(
            channel=Identifier(statements.channel), lock=Literal(statements.listener_lock)
        )

    async def _listen(self, set_ready: Callable[[], None]) -> None:
        connection = await self._connect()
        try:
            if not connection.has_own_session:
                raise StateStoreError(
                    "a pooler switches sessions between transactions, and LISTEN needs one session"
                )
            connection.receive = lambda sent: self.report(decode_notification(sent))
            async with asyncio.timeout(self._timeout):
                await connection.run_script(self._script.as_string())
            set_ready()
            await connection.closed.wait()
        finally:
            connection.close()

    async def _connect(self) -> ListeningConnection:
        try:
            async with asyncio.timeout(self._timeout):
                return await ListeningConnection.open(self._conninfo)
        except psycopg.Error as error:
            raise explain_connect_error(str(error), self._display_url) from None
