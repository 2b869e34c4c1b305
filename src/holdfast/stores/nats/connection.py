"""A connection to one bucket of NATS: what a store asks of the server, and hears of its failures.

nats-py mends a lost connection by itself and then sends what it had kept back, maybe long after the
caller gave up. Here a lost connection ends what waits for it, and who tries again makes a new one.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import secrets
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from nats import errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import api
from nats.js import errors as js_errors

from holdfast.stores.nats.errors import ConnectionLostError, PermissionDeniedError
from holdfast.stores.nats.subjects import NOTHING, OPERATION, Etag, Message, chunk_subject
from holdfast.stores.urls import StoreURL

Answer = TypeVar("Answer")

LARGEST_PIECE = 1024 * 1024
BATCH = 1000
BATCHES = 20

PULSE = 1.0
"""Seconds after which one who waits looks for the connection itself: nats-py may fail to tell."""

STALL = 3.0
"""Seconds without another message after which the rest of a batch does not come."""

GRACE = 1.0
"""Seconds for the end of a connection. nats-py waits for ever after a failed TLS handshake."""

MARKS_LAST = 3600
"""Seconds for which it is kept that an entry was removed: longer than any write is tried again."""

FIRST_PAUSE = 0.002
LONGEST_PAUSE = 0.25
"""Bounds in seconds for the longest pause of a writer that lost to others: see ``backoff``."""

NO_MESSAGE = 10037
NAME_IN_USE = 10058
WRONG_SEQUENCE = (10071, 10164)
NO_MORE = ("404", "408")


class StrictClient(Client):
    """nats-py's client, which otherwise gives a password away, and may leave its end half done."""

    secure = False

    def _connect_command(self) -> bytes:
        # Asked for TLS, it would do without where the server does not require it.
        if self.secure and not self._server_info.get("tls_required"):
            raise errors.SecureConnWantedError
        return super()._connect_command()

    async def _close(self, status: int, do_cbs: bool = True) -> None:  # noqa: FBT001, FBT002
        # It would send what is left, fail as the connection is gone, and leave its tasks behind.
        self._pending.clear()
        self._pending_data_size = 0
        await super()._close(status, do_cbs)


class NatsConnection:
    """A connection to the server, for one bucket."""

    def __init__(self, bucket: str, timeout: float) -> None:
        self.nc = StrictClient()
        # The store bounds every attempt; this bounds what nobody waits for any more.
        self.js = self.nc.jetstream(timeout=timeout + 1)
        self.bucket = bucket
        self.stream = f"KV_{bucket}"
        self.room = 0
        self.marks_expire = False
        self.trouble: Exception | None = None
        self._asking: dict[asyncio.Task[Any], str] = {}
        # An event loop that ends cancels its tasks and waits for them: so the connection is closed
        # also where nobody closes the store.
        self._guardian = asyncio.create_task(self._guard())

    # ---- its life ----------------------------------------------------------------------------

    async def open(self, url: StoreURL) -> None:
        """Connect to one of the servers, or fail soon."""
        self.nc.secure = url.scheme == "tls"
        hosts = url.parts.netloc.rpartition("@")[2].split(",")
        await self.nc.connect(
            [f"{url.scheme}://{host}" for host in hosts],
            name="holdfast",
            user=None if url.password is None else url.user,
            password=url.password,
            token=url.user if url.password is None else None,
            error_cb=self._note,
            closed_cb=self._end,
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=3,
            ping_interval=5,
        )
        if not self.nc.is_connected:
            raise ConnectionLostError("the server closed it at once")

    async def prepare(self, replicas: int) -> api.StreamConfig:
        """Make the bucket if there is none; gives its configuration."""
        try:
            config = await self._config()
        except js_errors.NotFoundError:
            await self._create(replicas)
            config = await self._config()
        sizes = [size for size in (self.nc.max_payload, config.max_msg_size or 0) if size > 0]
        # A half, as what is read comes in base64 and JSON, and headers need room too.
        self.room = min(min(sizes) // 2, LARGEST_PIECE)
        self.marks_expire = bool(getattr(config, "allow_msg_ttl", False))
        return config

    @property
    def ended(self) -> bool:
        """Whether the connection is over."""
        return self.nc.is_closed

    def drop(self) -> None:
        """Let go of a connection, without waiting."""
        self._guardian.cancel()

    async def close(self) -> None:
        """End the connection."""
        self.drop()
        await asyncio.wait((self._guardian,))

    async def _guard(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout(GRACE):
                    await self.nc.close()

    async def _config(self) -> api.StreamConfig:
        question = self.js.stream_info(self.stream)
        return (await self.ask(f"$JS.API.STREAM.INFO.{self.stream}", question)).config

    async def _create(self, replicas: int) -> None:
        question = self.js.create_key_value(
            bucket=self.bucket,
            history=1,
            storage=api.StorageType.FILE,
            replicas=replicas,
            direct=False,
        )
        try:
            await self.ask(f"$JS.API.STREAM.CREATE.{self.stream}", question)
        except js_errors.BadRequestError as error:
            if error.err_code != NAME_IN_USE:  # or somebody else was faster
                raise

    # ---- questions ---------------------------------------------------------------------------

    async def ask(self, subject: str, question: Coroutine[Any, Any, Answer]) -> Answer:
        """The answer to what is asked on a subject, or an error as soon as there can be none.

        nats-py waits for its time limit where the connection is lost or the user has no right.
        """
        task = asyncio.create_task(question)
        # Whoever asked may be cancelled in the moment in which it fails, and not hear of it.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._asking[task] = subject
        try:
            while not (await asyncio.wait((task,), timeout=PULSE))[0] and not self.ended:
                pass
            if task.done() and not task.cancelled():
                return task.result()
            raise (
                ConnectionLostError(str(self.nc.last_error or "closed"))
                if self.ended
                else PermissionDeniedError(subject)
            )
        finally:
            del self._asking[task]
            task.cancel()

    async def last(self, subject: str) -> Message | None:
        """The last message of a subject, or None.

        Asked of the leader and not of whoever is near, as a replica or a mirror may lag behind.
        """
        question = self.js.get_msg(self.stream, subject=self._full(subject))
        try:
            found = await self.ask(f"$JS.API.STREAM.MSG.GET.{self.stream}", question)
        except js_errors.NotFoundError as error:
            if error.err_code != NO_MESSAGE:
                raise
            return None
        return Message(subject, found.seq or 0, found.headers or {}, found.data or b"")

    async def write(
        self, subject: str, value: bytes, headers: Mapping[str, str], replaces: int | None = None
    ) -> int | None:
        """The sequence of a new message, or None where the last is not the one to be replaced."""
        sent = dict(headers)
        if replaces is not None:
            sent[api.Header.EXPECTED_LAST_SUBJECT_SEQUENCE.value] = str(replaces)
        if OPERATION in headers and self.marks_expire:
            sent["Nats-TTL"] = str(MARKS_LAST)
        overhead = sum(len(f"{name}: {text}\r\n") for name, text in sent.items())
        if len("NATS/1.0\r\n\r\n") + overhead + len(value) > self.nc.max_payload:
            raise errors.MaxPayloadError  # to which the server would answer by hanging up
        full = self._full(subject)
        try:
            return (await self.ask(full, self.js.publish(full, value, headers=sent))).seq
        except js_errors.APIError as error:
            if error.err_code in WRONG_SEQUENCE:
                return None
            raise

    async def remove_pieces(self, mark: str) -> None:
        """Remove the pieces of a write's value."""
        pattern = self._full(chunk_subject(mark, ">"))
        question = self.js.purge_stream(self.stream, subject=pattern)
        await self.ask(f"$JS.API.STREAM.PURGE.{self.stream}", question)

    async def scan(self, pattern: str, start: int) -> tuple[list[Message], int]:
        """The messages of some subjects from a sequence on, without values; where to go on, or 0.

        They come in the order of writing, so that what is written meanwhile comes too, and in
        batches, as the server cuts off who is sent more than they take.
        """
        name = secrets.token_hex(8)
        asking = f"$JS.API.CONSUMER.MSG.NEXT.{self.stream}.{name}"
        filtered = self._full(pattern)
        found: list[Msg] = []
        status: list[Msg] = []
        arrived = asyncio.Event()

        async def take(message: Msg) -> None:
            (found if message.reply else status).append(message)
            if status or len(found) % BATCH == 0 or message.metadata.num_pending == 0:
                arrived.set()

        inbox = self.nc.new_inbox()
        subscription = await self.nc.subscribe(inbox, cb=take)
        try:
            made = await self.ask(
                f"$JS.API.CONSUMER.CREATE.{self.stream}.{name}.{filtered}",
                self.js.add_consumer(
                    self.stream,
                    name=name,
                    filter_subject=filtered,
                    deliver_policy=api.DeliverPolicy.BY_START_SEQUENCE,
                    opt_start_seq=start,
                    ack_policy=api.AckPolicy.NONE,
                    headers_only=True,
                    mem_storage=True,
                    num_replicas=1,
                    inactive_threshold=30,
                ),
            )
            left = made.num_pending or 0
            while left and len(found) < BATCH * BATCHES:
                arrived.clear()
                order = json.dumps({"batch": BATCH, "no_wait": True}).encode()
                await self.nc.publish(asking, order, reply=inbox)
                await self.ask(asking, wait_for_batch(arrived, found))
                if status and (said := (status[0].headers or {}).get("Status")) not in NO_MORE:
                    raise ConnectionLostError(f"a listing was ended with {said}")
                left = 0 if status else found[-1].metadata.num_pending
            # Where it ends otherwise, the server forgets it by itself.
            await self.ask(
                f"$JS.API.CONSUMER.DELETE.{self.stream}.{name}",
                self.js.delete_consumer(self.stream, name),
            )
        finally:
            if not self.ended:
                await subscription.unsubscribe()
        messages = [self._without_value(message) for message in found]
        return messages, messages[-1].revision + 1 if left else 0

    def _without_value(self, message: Msg) -> Message:
        about = message.metadata
        return Message(
            message.subject.removeprefix(self._full("")),
            about.sequence.stream,
            message.headers or {},
            time=about.timestamp.timestamp(),
        )

    def _full(self, subject: str) -> str:
        return f"$KV.{self.bucket}.{subject}"

    # ---- what goes wrong beside an answer ----------------------------------------------------

    async def _note(self, error: Exception) -> None:
        """Keep what nats-py tells in passing, and would log."""
        self.trouble = error
        denied = re.search(r'permissions violation for \w+ to "([^"]*)"', str(error))
        for task, subject in self._asking.items():
            # nats-py makes such texts lower case. All answers come to one inbox.
            if denied and (denied[1] == subject.lower() or denied[1].startswith("_inbox.")):
                task.cancel()

    async def _end(self) -> None:
        for task in self._asking:
            task.cancel()


async def wait_for_batch(arrived: asyncio.Event, found: Sequence[Msg]) -> None:
    """Wait for the end of a batch, of which the server forgets the rest if the consumer is gone."""
    while not arrived.is_set():
        before = len(found)
        with suppress(TimeoutError):
            async with asyncio.timeout(STALL):
                await arrived.wait()
        if len(found) == before and not arrived.is_set():
            raise ConnectionLostError("a listing stalled")


@dataclass(slots=True)
class ConditionalWrite:
    """A message to be written in place of another, once, in as many attempts as it takes."""

    subject: str
    mark: str
    headers: Mapping[str, str]
    value: bytes
    replaces: Etag | None
    """What it replaces, or None where that is to be read."""

    allowed: Callable[[str | None], bool]
    """Whether to write, given the etag of what is there, or None. It raises ConflictError."""

    tried: Etag = NOTHING
    """What the last attempt wanted to replace."""

    async def do(self, link: NatsConnection, *, unsure: bool) -> tuple[int, Etag]:
        """Write it; gives its sequence, 0 where it was not to be, and what it replaced."""
        old = None if unsure else self.replaces
        pauses = backoff_pauses()
        while True:
            if old is None:
                last = await link.last(self.subject)
                if last is not None and last.mark == self.mark:
                    return last.revision, self.tried  # by an attempt whose answer got lost
                if not self.allowed(None if last is None or not last.live else str(last.etag)):
                    return 0, NOTHING
                old = NOTHING if last is None else last.etag
            self.tried = old
            revision = await link.write(self.subject, self.value, self.headers, old.revision)
            if revision is not None:
                return revision, old
            # Others were first. To try again at once is to lose again to those who are nearer.
            await asyncio.sleep(next(pauses))
            old = None


def backoff_pauses() -> Iterator[float]:
    """Seconds to wait before each further attempt: none, then growing, and never in step."""
    yield 0.0
    longest = FIRST_PAUSE
    while True:
        yield random.uniform(0, longest)  # noqa: S311 - no secret
        longest = min(longest * 2, LONGEST_PAUSE)
