"""New messages of a bucket: a consumer per watched prefix, over the connection of the store.

A message reaches a consumer when it is stored. A plain subscription to its subject would often be
faster than the store, and a read that follows would not find the message.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from nats import errors
from nats.aio.subscription import Subscription

from holdfast.stores.listener import Listener
from holdfast.stores.nats.connection import (
    CHECK_INTERVAL,
    CLOSE_TIMEOUT,
    HEARTBEAT_SECONDS,
    NatsConnection,
)
from holdfast.stores.nats.errors import ConnectionLostError
from holdfast.stores.nats.subjects import Message, prefix_pattern, subject_to_key
from holdfast.stores.notification import Notification, get_process_id


class Consumer:
    """A subscription to the subjects of a pattern."""

    def __init__(self, report: Callable[[Notification], None]) -> None:
        self._report = report
        self.heard = time.monotonic()
        self.subscription: tuple[Subscription, str] | None = None

    def receive(self, message: Message | None) -> None:
        """Report a message; None is a sign of life."""
        self.heard = time.monotonic()
        key = None if message is None else subject_to_key(message.subject, message.headers)
        if message is not None and key is not None:
            process_id = (message.write_token or "")[: len(get_process_id())]
            self._report(Notification(process_id, [key]))


class NatsListener(Listener):
    """The notifications of one bucket."""

    failures = (errors.Error,)

    def __init__(
        self,
        connect: Callable[[], Awaitable[NatsConnection]],
        *,
        timeout: float,
        explain: Callable[[Exception], str],
    ) -> None:
        super().__init__(timeout=timeout, explain=explain)
        self._connect = connect
        self._lock = asyncio.Lock()
        self._connection: NatsConnection | None = None
        self._consumers: dict[str, Consumer] = {}

    async def _listen(self, set_ready: Callable[[], None]) -> None:
        async with asyncio.timeout(self._timeout):
            self._connection = connection = await self._connect()
        self._consumers = {}
        try:
            async with asyncio.timeout(self._timeout):
                while missing := self._find_missing():
                    await self._subscribe(missing[0])
            set_ready()
            while not connection.is_closed:
                with suppress(TimeoutError):
                    async with asyncio.timeout(CHECK_INTERVAL):
                        await connection.closed.wait()
                limit = time.monotonic() - 3 * HEARTBEAT_SECONDS
                if any(each.heard < limit for each in self._consumers.values()):
                    raise ConnectionLostError("a subscription has no heartbeat")
            raise ConnectionLostError(str(connection.nc.last_error or "closed"))
        finally:
            self._connection = None
            with suppress(*self.failures, TimeoutError):
                async with asyncio.timeout(CLOSE_TIMEOUT):
                    for consumer in self._consumers.values():
                        if consumer.subscription is not None:
                            await connection.unsubscribe(*consumer.subscription)

    def _find_missing(self) -> list[str]:
        return [each for each in self.prefixes if prefix_pattern(each) not in self._consumers]

    async def _subscribe(self, prefix: str) -> None:
        pattern = prefix_pattern(prefix)
        async with self._lock:
            connection = self._connection
            if pattern not in self._consumers and connection is not None:
                consumer = Consumer(self.report)
                consumer.subscription = await connection.subscribe_new(pattern, consumer.receive)
                self._consumers[pattern] = consumer

    async def _unsubscribe(self, prefix: str) -> None:
        pattern = prefix_pattern(prefix)
        async with self._lock:
            if pattern in map(prefix_pattern, self.prefixes):
                return
            consumer, connection = self._consumers.pop(pattern, None), self._connection
            if connection is not None and consumer is not None and consumer.subscription:
                await connection.unsubscribe(*consumer.subscription)
