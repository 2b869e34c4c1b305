"""NATS: one message a key in a JetStream key-value bucket, its sequence number as the etag.

Every write names the sequence that it replaces, 0 for none, and carries a mark of its own. So a
write is applied once, and one whose answer got lost is known by its mark. One without a condition
reads first what it replaces; only where somebody else wrote over it before it was known to be done
does it come again.

A value that is too long for a message goes in pieces, before the message that makes it the key's.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from math import inf
from sys import maxsize

from nats import errors

from holdfast.errors import ConflictError, IntegrityError, StateStoreError, short_repr
from holdfast.stores.backend import check_condition, etag_mismatch_error
from holdfast.stores.base import Entry, Put
from holdfast.stores.nats.connection import ConditionalWrite, NatsConnection
from holdfast.stores.nats.errors import check_bucket_config, explain_error
from holdfast.stores.nats.subjects import (
    NOTHING,
    OPERATION,
    PIECES,
    WRITE,
    Etag,
    Message,
    chunk_subject,
    chunk_write_token,
    key_headers,
    key_to_subject,
    parse_etag,
    prefix_pattern,
    subject_to_key,
)
from holdfast.stores.remote import PATIENCE, TIMEOUT, RemoteStateStore
from holdfast.stores.urls import StoreURL
from holdfast.stores.validation import KeyRange

BUCKET = "holdfast"
BUCKET_NAME = re.compile(r"[A-Za-z0-9_-]{1,200}")
MOST_REPLICAS = 5
AT_ONCE = 16

SEND_WITHIN = 3600.0
"""Seconds in which all pieces of a value and its message are to be written."""

ABANDONED_AFTER = 24 * 3600.0
"""Seconds after which pieces that no message refers to are nobody's: much longer than that."""

REMOVAL = {OPERATION: "PURGE", "Nats-Rollup": "sub"}


class NatsStateStore(RemoteStateStore[NatsConnection]):
    """Keeps everything in a key-value bucket of NATS JetStream, which it makes on first use.

    A write is acknowledged when a majority of the bucket's replicas have it. When it reaches their
    disks is up to the server's ``sync_interval``: within two minutes unless set otherwise, before
    the answer with ``always``. Reads are from the leader. ``put_many`` writes in order.

    A listing reads the names of all keys below the last whole part of its prefix.
    """

    failures = (errors.Error, OSError)

    def __init__(
        self,
        url: StoreURL,
        *,
        timeout: float = TIMEOUT,
        patience: float = PATIENCE,
        replicas: int = 1,
    ) -> None:
        super().__init__(url, timeout=timeout, patience=patience)
        self._bucket = url.path.strip("/") or BUCKET
        self._replicas = replicas
        if not url.host:
            raise StateStoreError(f"the {url.scheme} URL names no host: nats://host:4222/bucket")
        if not BUCKET_NAME.fullmatch(self._bucket):
            raise StateStoreError(
                "the name of a bucket has letters, digits, - and _, 200 at most; "
                f"this one does not: {short_repr(self._bucket)}"
            )

    async def sweep(self, older_than: float = ABANDONED_AFTER) -> int:
        """Remove pieces of large values that a writer left behind when it died; how many values.

        It reads the names of all keys. They take room and do no harm otherwise. ``older_than`` is
        in seconds; never less than a writer may take.
        """
        wanted: set[str | None] = set()
        pieces: dict[str, float] = {}
        async for message in self._scan(">"):
            mark = chunk_write_token(message.subject)
            if mark is not None:
                pieces[mark] = message.time
            elif message.pieces is not None:
                wanted.add(message.mark)
        then = time.time() - older_than
        left = [mark for mark, when in pieces.items() if mark not in wanted and when < then]
        for mark in left:
            await self._remove_pieces(mark)
        return len(left)

    # ---- reading -----------------------------------------------------------------------------

    async def _get(self, key: str) -> Entry | None:
        return await self._run(lambda link, _: self._read(link, key))

    async def _get_many(self, keys: Sequence[str]) -> dict[str, Entry]:
        turns = asyncio.Semaphore(AT_ONCE)

        async def read(key: str) -> Entry | None:
            async with turns:
                return await self._get(key)

        try:
            async with asyncio.TaskGroup() as group:
                reading = {key: group.create_task(read(key)) for key in keys}
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from failed.exceptions[0].__cause__
        entries = {key: task.result() for key, task in reading.items()}
        return {key: entry for key, entry in entries.items() if entry is not None}

    async def _read(self, link: NatsConnection, key: str) -> Entry | None:
        subject = key_to_subject(key)
        before = 0
        while True:
            last = await link.last(subject)
            if last is None or not last.live:
                return None
            value = await self._whole(link, last)
            if value is not None:
                return Entry(value, str(last.etag))
            if last.revision == before:
                raise IntegrityError(
                    f"the value of the key {short_repr(key)} in {self.place} has lost pieces: "
                    "restore it, or delete the key"
                )
            # Somebody wrote over it meanwhile, or else it is the same one again.
            before = last.revision

    async def _whole(self, link: NatsConnection, message: Message) -> bytes | None:
        """The value of a message, or None where pieces of it are gone."""
        if message.pieces is None:
            return message.value
        count, size = message.pieces
        value = bytearray()
        for number in range(count):
            piece = await link.last(chunk_subject(message.mark or "", number))
            if piece is None:
                return None
            value += piece.value
        return bytes(value) if len(value) == size else None

    async def _page(self, span: KeyRange, count: int) -> Sequence[str]:
        keys: set[str] = set()
        async for message in self._scan(prefix_pattern(span.prefix)):
            key = subject_to_key(message.subject, message.headers)
            if key is not None and span.holds(key):
                (keys.add if message.live else keys.discard)(key)
        return sorted(keys)[:count]

    async def _list(self, span: KeyRange, limit: int | None) -> AsyncIterator[str]:
        # At once: every page would read the names of all.
        if limit != 0:
            for key in await self._page(span, maxsize if limit is None else limit):
                yield key

    async def _scan(self, pattern: str) -> AsyncIterator[Message]:
        """The messages of some subjects, without their values, in the order of writing."""
        start = 1
        while start:
            messages, start = await self._part_of_scan(pattern, start)
            for message in messages:
                yield message

    async def _part_of_scan(self, pattern: str, start: int) -> tuple[Sequence[Message], int]:
        return await self._run(lambda link, _: link.scan(pattern, start))

    # ---- writing -----------------------------------------------------------------------------

    async def _put(self, put: Put) -> str:
        mark = secrets.token_hex(16)
        room = await self._run(room_of)
        if len(put.value) <= room:
            return str(Etag(await self._write(put, mark, put.value, {})))
        starts = range(0, len(put.value), room)
        headers = {PIECES: f"{len(starts)} {len(put.value)}"}
        deadline = time.time() + SEND_WITHIN
        try:
            for number, start in enumerate(starts):
                await self._send_piece(mark, number, put.value[start : start + room])
            revision = await self._write(put, mark, b"", headers, deadline)
        except ConflictError:
            await self._forget(mark)
            raise
        except StateStoreError as error:
            # Not if they may be needed, nor if the server is not there.
            if not (error.unknown or error.transient):
                await self._forget(mark)
            raise
        return str(Etag(revision, mark))

    async def _write(
        self,
        put: Put,
        mark: str,
        value: bytes,
        headers: Mapping[str, str],
        deadline: float = inf,
    ) -> int:
        subject = key_to_subject(put.key)

        def allowed(found: str | None) -> bool:
            check_condition(put, found)
            return True

        write = ConditionalWrite(
            subject,
            mark,
            {WRITE: mark, **key_headers(put.key, subject), **headers},
            value,
            NOTHING if put.if_absent else parse_etag(put.if_match or ""),
            allowed,
        )

        async def attempt(link: NatsConnection, unsure: bool) -> tuple[int, Etag]:  # noqa: FBT001
            # As somebody may then take its pieces for abandoned.
            if time.time() > deadline:
                raise StateStoreError(
                    f"the value for the key {short_repr(put.key)} took too long to get to {self.place}: "
                    "write it again"
                )
            return await write.do(link, unsure=unsure)

        conditional = put.if_absent or put.if_match is not None
        revision, old = await self._run(attempt, writes=True, matches=conditional)
        await self._forget(old.pieces)
        return revision

    async def _delete(self, key: str, if_match: str | None) -> bool:
        subject = key_to_subject(key)
        mark = secrets.token_hex(16)

        def allowed(found: str | None) -> bool:
            if if_match is not None and if_match != found:
                raise etag_mismatch_error(key, if_match, found)
            return found is not None

        write = ConditionalWrite(
            subject,
            mark,
            {WRITE: mark, **key_headers(key, subject), **REMOVAL},
            b"",
            parse_etag(if_match or ""),
            allowed,
        )
        revision, old = await self._run(
            lambda link, unsure: write.do(link, unsure=unsure),
            writes=True,
            matches=if_match is not None,
        )
        await self._forget(old.pieces)
        return revision > 0

    async def _send_piece(self, mark: str, number: int, piece: bytes) -> None:
        subject = chunk_subject(mark, number)
        await self._run(lambda link, _: link.write(subject, piece, {}))

    async def _remove_pieces(self, mark: str) -> None:
        await self._run(lambda link, _: link.remove_pieces(mark))

    async def _forget(self, mark: str | None) -> None:
        """Remove pieces that nobody needs, if possible: ``sweep`` finds those that stay."""
        if mark is not None:
            with suppress(StateStoreError):
                await self._remove_pieces(mark)

    # ---- connecting --------------------------------------------------------------------------

    async def _client(self) -> NatsConnection:
        connection = self._connections.get(asyncio.get_running_loop())
        if connection is not None and connection.client is not None and connection.client.ended:
            connection.client.drop()
            connection.client = None
        return await super()._client()

    async def _connect(self) -> NatsConnection:
        link = NatsConnection(self._bucket, self._timeout)
        async with AsyncExitStack() as undo:
            undo.push_async_callback(link.close)
            try:
                await link.open(self._url)
                check_bucket_config(await link.prepare(self._replicas), self._bucket, self.place)
            except self.failures as error:
                # nats-py says only that there is no server, having told why in passing.
                reason = link.trouble if isinstance(error, errors.NoServersError) else None
                failure = self._explained(reason or error)
                failure.unknown = False
                raise failure from error
            undo.pop_all()
        return link

    async def _disconnect(self, client: NatsConnection) -> None:
        await client.close()

    def _explained(self, error: Exception) -> StateStoreError:
        return explain_error(error, self._bucket, self.place)


async def room_of(link: NatsConnection, _unsure: bool) -> int:  # noqa: FBT001 - as every call of _run
    """How long a value may be to fit in a message."""
    return link.room


def open_url(url: StoreURL) -> NatsStateStore:
    """``nats://[user:password@|token@]host:port[,host:port]/bucket``, or ``tls://``."""
    replicas = url.take_number("replicas", 1, least=1)
    if replicas not in range(1, MOST_REPLICAS + 1):
        raise StateStoreError(
            f"the option replicas of the {url.scheme} URL is a whole number from 1 to "
            f"{MOST_REPLICAS}, not {replicas:g}"
        )
    store = NatsStateStore(
        url,
        timeout=url.take_number("timeout", TIMEOUT, least=0.01),
        patience=url.take_number("patience", PATIENCE),
        replicas=int(replicas),
    )
    url.reject_unknown_options(("patience", "replicas", "timeout"))
    return store
