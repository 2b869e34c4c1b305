"""NATS: one message per key in a JetStream key-value bucket, with its sequence as the etag.

Every write names the sequence that it replaces, 0 for none, and carries a token. So a write is
applied once, and a retry recognizes an earlier attempt whose response was lost by its token. A
write without a condition first reads what it replaces; it is applied again only if another writer
overwrote it before its response was known to be lost.

A value that is too large for a message is written in chunks, before the key's own message.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from math import inf
from sys import maxsize

from nats import errors

from holdfast.errors import ConflictError, IntegrityError, StateStoreError, short_repr
from holdfast.stores.backend import check_condition, etag_mismatch_error
from holdfast.stores.base import Entry, Put
from holdfast.stores.nats.connection import NatsConnection
from holdfast.stores.nats.errors import check_bucket_config, explain_error
from holdfast.stores.nats.listener import NatsListener
from holdfast.stores.nats.subjects import (
    ABSENT,
    CHUNKS,
    OPERATION,
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
from holdfast.stores.nats.writes import ConditionalWrite, new_write_token
from holdfast.stores.remote import PATIENCE, TIMEOUT, RemoteStateStore
from holdfast.stores.urls import StoreURL
from holdfast.stores.validation import KeyRange

BUCKET = "holdfast"
BUCKET_NAME = re.compile(r"[A-Za-z0-9_-]{1,200}")
MAX_REPLICAS = 5
MAX_CONCURRENT = 16

SEND_SECONDS = 3600.0
"""How long writing all chunks of a value and its message may take."""

ABANDONED_SECONDS = 24 * 3600.0
"""The age of chunks without a message that ``sweep`` removes: much longer than that."""

DELETE_HEADERS = {OPERATION: "PURGE", "Nats-Rollup": "sub"}


class NatsStateStore(RemoteStateStore[NatsConnection]):
    """A store in a NATS JetStream key-value bucket, which is created on first use.

    A write is acknowledged when a majority of the bucket's replicas have it. The server's
    ``sync_interval`` decides when it is on disk: within two minutes by default, before the response
    with ``always``. Reads go to the leader. ``put_many`` writes in order.

    A listing reads the names of all keys below the last complete part of its prefix.
    """

    failures = (errors.Error, OSError)
    wakes_other_processes = True

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
            raise StateStoreError(f"{url.scheme} URL has no host; write nats://host:4222/bucket")
        if not BUCKET_NAME.fullmatch(self._bucket):
            raise StateStoreError(
                "bucket name must be at most 200 letters, digits, - and _, got "
                f"{short_repr(self._bucket)}"
            )

    async def sweep(self, older_than: float = ABANDONED_SECONDS) -> int:
        """Remove chunks of large values whose writer died, and return the number of values.

        Such chunks only take space. A sweep reads the names of all keys.

        Args:
            older_than: Age of the chunks in seconds, never less than a writer may take.

        Raises:
            StateStoreError: The server failed.

        """
        used: set[str | None] = set()
        chunks: dict[str, float] = {}
        async for message in self._scan(">"):
            token = chunk_write_token(message.subject)
            if token is not None:
                chunks[token] = message.time
            elif message.chunks is not None:
                used.add(message.write_token)
        latest = time.time() - older_than
        abandoned = [token for token, at in chunks.items() if token not in used and at < latest]
        for token in abandoned:
            await self._remove_chunks(token)
        return len(abandoned)

    # ---- reading -----------------------------------------------------------------------------

    async def _get(self, key: str) -> Entry | None:
        return await self._run(lambda connection, _: self._read(connection, key))

    async def _get_many(self, keys: Sequence[str]) -> dict[str, Entry]:
        slots = asyncio.Semaphore(MAX_CONCURRENT)

        async def read(key: str) -> Entry | None:
            async with slots:
                return await self._get(key)

        try:
            async with asyncio.TaskGroup() as group:
                tasks = {key: group.create_task(read(key)) for key in keys}
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from failed.exceptions[0].__cause__
        entries = {key: task.result() for key, task in tasks.items()}
        return {key: entry for key, entry in entries.items() if entry is not None}

    async def _read(self, connection: NatsConnection, key: str) -> Entry | None:
        subject = key_to_subject(key)
        before = 0
        while True:
            last = await connection.last(subject)
            if last is None or not last.is_entry:
                return None
            value = await self._read_value(connection, last)
            if value is not None:
                return Entry(value, str(last.etag))
            if last.revision == before:
                raise IntegrityError(
                    f"value of key {short_repr(key)} in {self.display_url} has lost chunks; "
                    "restore it, or delete the key"
                )
            # Read again: another writer may have replaced it.
            before = last.revision

    async def _read_value(self, connection: NatsConnection, message: Message) -> bytes | None:
        """Return the value of a message, or None if chunks of it are missing."""
        if message.chunks is None:
            return message.value
        count, size = message.chunks
        value = bytearray()
        for number in range(count):
            chunk = await connection.last(chunk_subject(message.write_token or "", number))
            if chunk is None:
                return None
            value += chunk.value
        return bytes(value) if len(value) == size else None

    async def _page(self, key_range: KeyRange, count: int) -> Sequence[str]:
        keys: set[str] = set()
        async for message in self._scan(prefix_pattern(key_range.prefix)):
            key = subject_to_key(message.subject, message.headers)
            if key is not None and key_range.contains(key):
                (keys.add if message.is_entry else keys.discard)(key)
        return sorted(keys)[:count]

    async def _list(self, key_range: KeyRange, limit: int | None) -> AsyncIterator[str]:
        # One page, because every page reads all names.
        if limit != 0:
            for key in await self._page(key_range, maxsize if limit is None else limit):
                yield key

    async def _scan(self, pattern: str) -> AsyncIterator[Message]:
        """Yield the messages of some subjects, without their values, in the order of writing."""
        start = 1
        while start:
            messages, start = await self._scan_part(pattern, start)
            for message in messages:
                yield message

    async def _scan_part(self, pattern: str, start: int) -> tuple[Sequence[Message], int]:
        return await self._run(lambda connection, _: connection.scan(pattern, start))

    # ---- writing -----------------------------------------------------------------------------

    async def _put(self, put: Put) -> str:
        token = new_write_token()
        max_value = await self._run(read_max_value)
        if len(put.value) <= max_value:
            return str(Etag(await self._write(put, token, put.value, {})))
        starts = range(0, len(put.value), max_value)
        headers = {CHUNKS: f"{len(starts)} {len(put.value)}"}
        deadline = time.time() + SEND_SECONDS
        try:
            for number, start in enumerate(starts):
                await self._send_chunk(token, number, put.value[start : start + max_value])
            revision = await self._write(put, token, b"", headers, deadline)
        except ConflictError:
            await self._try_remove_chunks(token)
            raise
        except StateStoreError as error:
            # Not if the chunks may be in use, or the server is not available.
            if not (error.unknown or error.transient):
                await self._try_remove_chunks(token)
            raise
        return str(Etag(revision, token))

    async def _write(
        self,
        put: Put,
        token: str,
        value: bytes,
        headers: Mapping[str, str],
        deadline: float = inf,
    ) -> int:
        subject = key_to_subject(put.key)

        def allow(etag: str | None) -> bool:
            check_condition(put, etag)
            return True

        write = ConditionalWrite(
            subject,
            token,
            {WRITE: token, **key_headers(put.key, subject), **headers},
            value,
            ABSENT if put.if_absent else parse_etag(put.if_match or ""),
            allow,
        )

        async def attempt(connection: NatsConnection, unsure: bool) -> tuple[int, Etag]:  # noqa: FBT001
            # Later, a sweep could take the chunks for abandoned.
            if time.time() > deadline:
                raise StateStoreError(
                    f"writing the value of key {short_repr(put.key)} to {self.display_url} took "
                    "too long; write it again"
                )
            return await write.run(connection, unsure=unsure)

        conditional = put.if_absent or put.if_match is not None
        revision, replaced = await self._run(attempt, writes=True, matches=conditional)
        await self._try_remove_chunks(replaced.chunks)
        return revision

    async def _delete(self, key: str, if_match: str | None) -> bool:
        subject = key_to_subject(key)
        token = new_write_token()

        def allow(etag: str | None) -> bool:
            if if_match is not None and if_match != etag:
                raise etag_mismatch_error(key, if_match, etag)
            return etag is not None

        write = ConditionalWrite(
            subject,
            token,
            {WRITE: token, **key_headers(key, subject), **DELETE_HEADERS},
            b"",
            parse_etag(if_match or ""),
            allow,
        )
        revision, replaced = await self._run(
            lambda connection, unsure: write.run(connection, unsure=unsure),
            writes=True,
            matches=if_match is not None,
        )
        await self._try_remove_chunks(replaced.chunks)
        return revision > 0

    async def _send_chunk(self, token: str, number: int, chunk: bytes) -> None:
        subject = chunk_subject(token, number)
        await self._run(lambda connection, _: connection.write(subject, chunk, {}))

    async def _remove_chunks(self, token: str) -> None:
        await self._run(lambda connection, _: connection.remove_chunks(token))

    async def _try_remove_chunks(self, token: str | None) -> None:
        """Remove chunks that are not needed. If that fails, ``sweep`` finds them."""
        if token is not None:
            with suppress(StateStoreError):
                await self._remove_chunks(token)

    # ---- connecting --------------------------------------------------------------------------

    async def _client(self) -> NatsConnection:
        current = self._connections.get(asyncio.get_running_loop())
        if current is not None and current.client is not None and current.client.is_closed:
            current.client.drop()
            current.client = None
        return await super()._client()

    def _create_listener(self) -> NatsListener:
        return NatsListener(self._client, timeout=self._timeout, explain=self._explain_briefly)

    async def _connect(self) -> NatsConnection:
        connection = NatsConnection(self._bucket, self._timeout)
        async with AsyncExitStack() as undo:
            undo.push_async_callback(connection.close)
            try:
                await connection.open(self._url)
                config = await connection.prepare(self._replicas)
                check_bucket_config(config, self._bucket, self.display_url)
            except self.failures as error:
                # NoServersError has no reason; nats-py reported it to the error callback.
                is_vague = isinstance(error, errors.NoServersError)
                reason = connection.reported_error if is_vague else None
                failure = self._explain_error(reason or error)
                failure.unknown = False
                raise failure from error
            undo.pop_all()
        return connection

    async def _disconnect(self, client: NatsConnection) -> None:
        await client.close()

    def _explain_error(self, error: Exception) -> StateStoreError:
        return explain_error(error, self._bucket, self.display_url)


async def read_max_value(connection: NatsConnection, _unsure: bool) -> int:  # noqa: FBT001 - for _run
    """Return the largest value that fits into one message."""
    return connection.max_value


def open_url(url: StoreURL) -> NatsStateStore:
    """Open ``nats://[user:password@|token@]host:port[,host:port]/bucket``, or ``tls://``."""
    replicas = url.take_number("replicas", 1, least=1)
    if replicas not in range(1, MAX_REPLICAS + 1):
        raise StateStoreError(
            f"option replicas of the {url.scheme} URL must be a whole number from 1 to "
            f"{MAX_REPLICAS}, got {replicas:g}"
        )
    store = NatsStateStore(
        url,
        timeout=url.take_number("timeout", TIMEOUT, least=0.01),
        patience=url.take_number("patience", PATIENCE),
        replicas=int(replicas),
    )
    url.reject_unknown_options(("patience", "replicas", "timeout"))
    return store
