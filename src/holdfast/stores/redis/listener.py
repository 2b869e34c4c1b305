"""Redis pub/sub: a connection that receives the notifications of watched sessions.

A write is published to the channel of its topic, the first two parts of its keys, such as
``sessions/ses_1/``; one with keys of several topics, or shorter ones, to the channel of none. So a
watch on a session receives nothing of the others.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from holdfast.stores.listener import Listener
from holdfast.stores.notification import decode_notification

QUIET_SECONDS = 15.0
"""Seconds without a message after which the server is asked whether it is there."""

Subscription: TypeAlias = tuple[bytes, bytes]
"""``subscribe`` or ``psubscribe``, as in Redis' response, and the channel or pattern."""


class RedisListener(Listener):
    """The notifications of one namespace."""

    failures = (RedisError,)

    def __init__(
        self,
        connect: Callable[[], Awaitable[AbstractConnection]],
        channel: bytes,
        *,
        timeout: float,
        explain: Callable[[Exception], str],
    ) -> None:
        super().__init__(timeout=timeout, explain=explain)
        self._connect = connect
        self._channel = channel
        self._connection: AbstractConnection | None = None
        self._confirmed: dict[Subscription, asyncio.Event] = {}

    async def _listen(self, set_ready: Callable[[], None]) -> None:
        async with asyncio.timeout(self._timeout):
            connection = await self._connect()
        self._connection = connection
        self._confirmed = {}
        try:
            is_ready = False
            while not is_ready:
                for prefix in self.prefixes:
                    await self._send_subscriptions(prefix)
                if all(each.is_set() for each in self._confirmed.values()):
                    is_ready = True
                    set_ready()
                else:
                    await self._receive(connection)
            while True:
                await self._receive(connection)
        finally:
            self._connection = None
            await connection.disconnect(nowait=True)

    async def _receive(self, connection: AbstractConnection) -> None:
        """Receive a message, or find out that the server is gone.

        Raises:
            RedisError: The connection was lost, or the user may not subscribe.

        """
        message = await read_message(connection, QUIET_SECONDS)
        if message is None:
            await connection.send_command("PING", check_health=False)
            message = await read_message(connection, self._timeout)
        if message is None:
            raise RedisConnectionError("the server does not respond")
        kind = message[0]
        if kind in {b"message", b"pmessage"}:
            self.report(decode_notification(message[-1]))
        elif (confirmed := self._confirmed.get((kind, message[1]))) is not None:
            confirmed.set()

    async def _subscribe(self, prefix: str) -> None:
        await self._send_subscriptions(prefix)
        for each in self._subscriptions(prefix):
            if each in self._confirmed:
                await self._confirmed[each].wait()

    async def _unsubscribe(self, prefix: str) -> None:  # noqa: ARG002 - of those that are not needed
        needed = {each for watched in self.prefixes for each in self._subscriptions(watched)}
        for each in [each for each in self._confirmed if each not in needed]:
            del self._confirmed[each]
            command, name = each
            if self._connection is not None:
                ending = command.replace(b"sub", b"unsub")
                await self._connection.send_command(ending, name, check_health=False)

    async def _send_subscriptions(self, prefix: str) -> None:
        for each in self._subscriptions(prefix):
            if each not in self._confirmed and self._connection is not None:
                self._confirmed[each] = asyncio.Event()
                await self._connection.send_command(*each, check_health=False)

    def _subscriptions(self, prefix: str) -> list[Subscription]:
        topic = find_topic(prefix)
        if not topic:
            escaped = re.sub(rb"([*?\[\]\\])", rb"\\\1", self._channel)
            return [(b"psubscribe", escaped + b"*")]
        return [
            (b"subscribe", self._channel),
            (b"subscribe", self._channel + topic.encode()),
        ]


async def read_message(connection: AbstractConnection, seconds: float) -> list[bytes] | None:
    """Return the next message, or None after some seconds."""
    found: list[bytes] | None = await connection.read_response(
        timeout=seconds, disconnect_on_error=False
    )
    return found


def find_topic(text: str) -> str:
    """Return the first two parts of a key or prefix with the slashes that end them, or nothing."""
    first, _, rest = text.partition("/")
    second, slash, _ = rest.partition("/")
    return f"{first}/{second}/" if slash else ""
