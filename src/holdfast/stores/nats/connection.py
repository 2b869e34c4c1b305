"""A connection to one bucket of NATS: what a store asks of the server.

nats-py reconnects by itself and then sends what it had buffered, perhaps long after the caller gave
up. Here a lost connection fails all pending requests, and a retry makes a new connection.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from nats import errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js import api
from nats.js import errors as js_errors

from holdfast.stores.nats.errors import ConnectionLostError, PermissionDeniedError
from holdfast.stores.nats.subjects import OPERATION, Message, chunk_subject
from holdfast.stores.urls import StoreURL

Answer = TypeVar("Answer")

MAX_CHUNK = 1024 * 1024
BATCH_SIZE = 1000
MAX_BATCHES = 20

CHECK_INTERVAL = 1.0
"""Seconds between checks of the connection while waiting: nats-py may fail to report its end."""

STALL_TIMEOUT = 3.0
"""Seconds without another message after which the rest of a batch is considered lost."""

CLOSE_TIMEOUT = 1.0
"""Seconds for closing a connection. nats-py waits forever after a failed TLS handshake."""

HEARTBEAT_SECONDS = 5.0
"""Seconds between the signs of life of a subscription."""

INACTIVE_SECONDS = 5.0
"""Seconds after which the server removes the subscription of a client that is gone."""

DELETE_MARKER_SECONDS = 3600
"""How long delete markers are kept: longer than any write is retried."""

NO_MESSAGE = 10037
NAME_IN_USE = 10058
WRONG_SEQUENCE = (10071, 10164)
NO_MORE_MESSAGES = ("404", "408")


class StrictClient(Client):
    """nats-py's client, which sends no password without TLS if that is required, and closes."""

    require_tls = False

    def _connect_command(self) -> bytes:
        # nats-py would continue without TLS if the server does not require it.
        if self.require_tls and not self._server_info.get("tls_required"):
            raise errors.SecureConnWantedError
        return super()._connect_command()

    async def _close(self, status: int, do_cbs: bool = True) -> None:  # noqa: FBT001, FBT002
        # nats-py would send what is buffered, fail if the connection is lost, and leave its tasks.
        self._pending.clear()
        self._pending_data_size = 0
        await super()._close(status, do_cbs)


class NatsConnection:
    """A connection to the server, for one bucket."""

    def __init__(self, bucket: str, timeout: float) -> None:
        self.nc = StrictClient()
        # The store limits every attempt; this limits requests that were abandoned.
        self.js = self.nc.jetstream(timeout=timeout + 1)
        self.bucket = bucket
        self.stream = f"KV_{bucket}"
        self.max_value = 0
        self.reported_error: Exception | None = None
        self.closed = asyncio.Event()
        self._markers_expire = False
        self._requests: dict[asyncio.Task[Any], str] = {}
        # An event loop that ends cancels its tasks and waits for them. So this task closes the
        # connection even if the store is never closed.
        self._lifetime = asyncio.create_task(self._close_when_cancelled())

    # ---- lifetime ----------------------------------------------------------------------------

    async def open(self, url: StoreURL) -> None:
        """Connect to one of the servers, or fail soon."""
        self.nc.require_tls = url.scheme == "tls"
        hosts = url.parts.netloc.rpartition("@")[2].split(",")
        with keep_cancellation():
            await self.nc.connect(
                [f"{url.scheme}://{host}" for host in hosts],
                name="holdfast",
                user=None if url.password is None else url.user,
                password=url.password,
                token=url.user if url.password is None else None,
                error_cb=self._on_error,
                closed_cb=self._on_closed,
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                connect_timeout=3,
                ping_interval=5,
            )
        if not self.nc.is_connected:
            raise ConnectionLostError("the server closed it at once")

    async def prepare(self, replicas: int) -> api.StreamConfig:
        """Create the bucket if it does not exist, and return its configuration."""
        try:
            config = await self._read_config()
        except js_errors.NotFoundError:
            await self._create_bucket(replicas)
            config = await self._read_config()
        sizes = [size for size in (self.nc.max_payload, config.max_msg_size or 0) if size > 0]
        # Half of it, because reads are in base64 and JSON, and headers need space too.
        self.max_value = min(min(sizes) // 2, MAX_CHUNK)
        self._markers_expire = bool(getattr(config, "allow_msg_ttl", False))
        return config

    @property
    def is_closed(self) -> bool:
        """Whether the connection is closed."""
        return self.nc.is_closed

    def drop(self) -> None:
        """Start to close the connection, without waiting."""
        self._lifetime.cancel()

    async def close(self) -> None:
        """Close the connection."""
        self.drop()
        await asyncio.wait((self._lifetime,))

    async def _close_when_cancelled(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_TIMEOUT):
                    await self.nc.close()

    async def _read_config(self) -> api.StreamConfig:
        request = self.js.stream_info(self.stream)
        return (await self.ask(f"$JS.API.STREAM.INFO.{self.stream}", request)).config

    async def _create_bucket(self, replicas: int) -> None:
        request = self.js.create_key_value(
            bucket=self.bucket,
            history=1,
            storage=api.StorageType.FILE,
            replicas=replicas,
            direct=False,
        )
        try:
            await self.ask(f"$JS.API.STREAM.CREATE.{self.stream}", request)
        except js_errors.BadRequestError as error:
            if error.err_code != NAME_IN_USE:  # created concurrently
                raise

    # ---- requests ----------------------------------------------------------------------------

    async def ask(self, subject: str, request: Coroutine[Any, Any, Answer]) -> Answer:
        """Return the response to a request, or fail as soon as there cannot be one.

        nats-py itself waits for its timeout if the connection is lost or permission is missing.

        Raises:
            ConnectionLostError: The connection was closed.
            PermissionDeniedError: The user may not use the subject.

        """
        task = asyncio.create_task(request)
        # Retrieve its exception even if the caller is cancelled, so that asyncio does not log it.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._requests[task] = subject
        try:
            while not (await asyncio.wait((task,), timeout=CHECK_INTERVAL))[0]:
                if self.is_closed:
                    break
            if task.done() and not task.cancelled():
                return task.result()
            if self.is_closed:
                raise ConnectionLostError(str(self.nc.last_error or "closed"))
            raise PermissionDeniedError(subject)
        finally:
            del self._requests[task]
            task.cancel()

    async def last(self, subject: str) -> Message | None:
        """Return the last message of a subject, or None.

        Asks the leader, because a replica or a mirror may lag behind.
        """
        request = self.js.get_msg(self.stream, subject=self._full_subject(subject))
        try:
            found = await self.ask(f"$JS.API.STREAM.MSG.GET.{self.stream}", request)
        except js_errors.NotFoundError as error:
            if error.err_code != NO_MESSAGE:
                raise
            return None
        return Message(subject, found.seq or 0, found.headers or {}, found.data or b"")

    async def write(
        self, subject: str, value: bytes, headers: Mapping[str, str], replaces: int | None = None
    ) -> int | None:
        """Write a message and return its sequence.

        Returns None if ``replaces`` is given and is not the last sequence of the subject.
        """
        sent = dict(headers)
        if replaces is not None:
            sent[api.Header.EXPECTED_LAST_SUBJECT_SEQUENCE.value] = str(replaces)
        if OPERATION in headers and self._markers_expire:
            sent["Nats-TTL"] = str(DELETE_MARKER_SECONDS)
        overhead = sum(len(f"{name}: {text}\r\n") for name, text in sent.items())
        if len("NATS/1.0\r\n\r\n") + overhead + len(value) > self.nc.max_payload:
            raise errors.MaxPayloadError  # the server would close the connection
        full = self._full_subject(subject)
        try:
            return (await self.ask(full, self.js.publish(full, value, headers=sent))).seq
        except js_errors.APIError as error:
            if error.err_code in WRONG_SEQUENCE:
                return None
            raise

    async def remove_chunks(self, write_token: str) -> None:
        """Remove the chunks of a write's value."""
        pattern = self._full_subject(chunk_subject(write_token, ">"))
        request = self.js.purge_stream(self.stream, subject=pattern)
        await self.ask(f"$JS.API.STREAM.PURGE.{self.stream}", request)

    async def scan(self, pattern: str, start: int) -> tuple[list[Message], int]:
        """Return messages of some subjects from a sequence on, without values, and where to resume.

        The second value is 0 at the end. Messages come in the order of writing, so a scan includes
        concurrent writes, and in batches, because the server disconnects slow consumers.
        """
        name = secrets.token_hex(8)
        request_subject = f"$JS.API.CONSUMER.MSG.NEXT.{self.stream}.{name}"
        filter_subject = self._full_subject(pattern)
        received: list[Msg] = []
        status: list[Msg] = []
        arrived = asyncio.Event()

        async def receive(message: Msg) -> None:
            (received if message.reply else status).append(message)
            if status or len(received) % BATCH_SIZE == 0 or message.metadata.num_pending == 0:
                arrived.set()

        inbox = self.nc.new_inbox()
        subscription = await self.nc.subscribe(inbox, cb=receive)
        try:
            consumer = await self.ask(
                f"$JS.API.CONSUMER.CREATE.{self.stream}.{name}.{filter_subject}",
                self.js.add_consumer(
                    self.stream,
                    name=name,
                    filter_subject=filter_subject,
                    deliver_policy=api.DeliverPolicy.BY_START_SEQUENCE,
                    opt_start_seq=start,
                    ack_policy=api.AckPolicy.NONE,
                    headers_only=True,
                    mem_storage=True,
                    num_replicas=1,
                    inactive_threshold=30,
                ),
            )
            left = consumer.num_pending or 0
            while left and len(received) < BATCH_SIZE * MAX_BATCHES:
                arrived.clear()
                order = json.dumps({"batch": BATCH_SIZE, "no_wait": True}).encode()
                await self.nc.publish(request_subject, order, reply=inbox)
                await self.ask(request_subject, wait_for_batch(arrived, received))
                code = (status[0].headers or {}).get("Status") if status else None
                if status and code not in NO_MORE_MESSAGES:
                    raise ConnectionLostError(f"a listing ended with status {code}")
                left = 0 if status else received[-1].metadata.num_pending
            # If this is not reached, the server removes the consumer after 30 seconds.
            await self.ask(
                f"$JS.API.CONSUMER.DELETE.{self.stream}.{name}",
                self.js.delete_consumer(self.stream, name),
            )
        finally:
            if not self.is_closed:
                await subscription.unsubscribe()
        messages = [self._to_message(message) for message in received]
        return messages, messages[-1].revision + 1 if left else 0

    async def subscribe_new(
        self, pattern: str, receive: Callable[[Message | None], None]
    ) -> tuple[Subscription, str]:
        """Subscribe to new messages of some subjects, without their values.

        ``receive`` is called with each message once it can be read, and with None as a sign of life
        every ``HEARTBEAT_SECONDS``. Returns what ``unsubscribe`` needs. The server removes the
        consumer of a client that is gone.
        """
        name = secrets.token_hex(8)
        filter_subject = self._full_subject(pattern)
        inbox = self.nc.new_inbox()

        async def pass_on(message: Msg) -> None:
            is_status = "Status" in (message.headers or {})
            receive(None if is_status else self._to_message(message))

        subscription = await self.nc.subscribe(inbox, cb=pass_on)
        try:
            await self.ask(
                f"$JS.API.CONSUMER.CREATE.{self.stream}.{name}.{filter_subject}",
                self.js.add_consumer(
                    self.stream,
                    name=name,
                    filter_subject=filter_subject,
                    deliver_subject=inbox,
                    deliver_policy=api.DeliverPolicy.NEW,
                    ack_policy=api.AckPolicy.NONE,
                    headers_only=True,
                    mem_storage=True,
                    num_replicas=1,
                    idle_heartbeat=HEARTBEAT_SECONDS,
                    inactive_threshold=INACTIVE_SECONDS,
                ),
            )
        except BaseException:
            if not self.is_closed:
                await subscription.unsubscribe()
            raise
        return subscription, name

    async def unsubscribe(self, subscription: Subscription, name: str) -> None:
        """End what ``subscribe_new`` started."""
        if not self.is_closed:
            await subscription.unsubscribe()
            await self.ask(
                f"$JS.API.CONSUMER.DELETE.{self.stream}.{name}",
                self.js.delete_consumer(self.stream, name),
            )

    def _to_message(self, message: Msg) -> Message:
        metadata = message.metadata
        return Message(
            message.subject.removeprefix(self._full_subject("")),
            metadata.sequence.stream,
            message.headers or {},
            time=metadata.timestamp.timestamp(),
        )

    def _full_subject(self, subject: str) -> str:
        return f"$KV.{self.bucket}.{subject}"

    # ---- callbacks of nats-py ----------------------------------------------------------------

    async def _on_error(self, error: Exception) -> None:
        """Keep an error that nats-py would only log, and cancel requests without permission."""
        self.reported_error = error
        # The protocol has no code for this, and nats-py makes the text lower case.
        denied = re.search(r'permissions violation for \w+ to "([^"]*)"', str(error))
        for task, subject in self._requests.items():
            # All responses come to one inbox.
            if denied and (denied[1] == subject.lower() or denied[1].startswith("_inbox.")):
                task.cancel()

    async def _on_closed(self) -> None:
        self.closed.set()
        for task in self._requests:
            task.cancel()


@contextmanager
def keep_cancellation() -> Iterator[None]:
    """Raise the cancellation of the current task, if a block ignores it.

    Before Python 3.12, ``asyncio.wait_for`` does so if it ends at the same time.
    """
    task = asyncio.current_task()
    before = 0 if task is None else task.cancelling()
    try:
        yield
    finally:
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError


async def wait_for_batch(arrived: asyncio.Event, received: Sequence[Msg]) -> None:
    """Wait for the end of a batch.

    Raises:
        ConnectionLostError: It stalled. The server drops the rest if the consumer is gone.

    """
    while not arrived.is_set():
        before = len(received)
        with suppress(TimeoutError):
            async with asyncio.timeout(STALL_TIMEOUT):
                await arrived.wait()
        if len(received) == before and not arrived.is_set():
            raise ConnectionLostError("a listing stalled")
