"""Read blobs for downloads: verified, with a bounded amount of memory.

The digest of a blob covers all of it. So the first download in this process reads it whole, and
later ones may read a part.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from holdfast.blobs.keys import CHUNK_SIZE, blobs_prefix, parse_chunk_key
from holdfast.blobs.reader import BlobReader
from holdfast.errors import IntegrityError, NotFoundError
from holdfast.server.byte_cache import ByteCache
from holdfast.server.byte_ranges import ByteRange
from holdfast.stores.base import StateStore

MAX_VERIFIED = 100_000
"""Blobs that are remembered to be intact."""
MAX_IN_MEMORY = 2 * CHUNK_SIZE
"""The size up to which a blob is verified before the response starts."""


class BlobDownloads:
    """Reads the blobs of all sessions, and remembers the sizes of those that were verified."""

    def __init__(self, state_store: StateStore) -> None:
        self._state_store = state_store
        self._verified: ByteCache[tuple[str, str], int] = ByteCache(MAX_VERIFIED)

    async def measure(self, location_prefix: str, digest: str) -> int:
        """Return the size of a blob, without reading more than its last chunk.

        Raises:
            NotFoundError: The blob is not stored.

        """
        known = self._verified.get((location_prefix, digest))
        if known is not None:
            return known
        last: tuple[str, int] | None = None
        async for key in self._state_store.list(f"{blobs_prefix(location_prefix)}{digest}/"):
            number = parse_chunk_key(location_prefix, key)
            last = last if number is None else (key, number[1])
        entry = None if last is None else await self._state_store.get(last[0])
        if last is None or entry is None:
            raise BlobReader(self._state_store, location_prefix).missing_error(digest)
        return last[1] * CHUNK_SIZE + len(entry.value)

    async def read(self, location_prefix: str, digest: str) -> tuple[int, AsyncIterator[bytes]]:
        """Return the size of a blob, and its content in chunks.

        A small blob is verified before this returns, a larger one before its last chunk.

        Raises:
            NotFoundError: The blob is not stored.
            IntegrityError: Its content does not match its digest.

        """
        size = await self.measure(location_prefix, digest)
        chunks = self._stream(location_prefix, digest, size)
        if size <= MAX_IN_MEMORY:
            return size, prepend(b"".join([chunk async for chunk in chunks]))
        # Read ahead, so that a missing blob is an error before the response starts.
        return size, prepend(await anext(chunks), chunks)

    async def verify(self, location_prefix: str, digest: str) -> int:
        """Read a blob whole, unless that was done before, and return its size.

        Raises:
            NotFoundError: The blob is not stored.
            IntegrityError: Its content does not match its digest.

        """
        size = self._verified.get((location_prefix, digest))
        if size is None:
            size = await self.measure(location_prefix, digest)
            async for _ in self._stream(location_prefix, digest, size):
                pass
        return size

    async def read_range(
        self, location_prefix: str, digest: str, wanted: ByteRange
    ) -> AsyncIterator[bytes]:
        """Return a part of a verified blob, of which only its chunks are read.

        Raises:
            NotFoundError: A chunk is not stored.
            IntegrityError: A chunk is shorter than it was.

        """
        pieces = self._stream_range(location_prefix, digest, wanted)
        return prepend(await anext(pieces), pieces)

    async def _stream(self, location_prefix: str, digest: str, size: int) -> AsyncIterator[bytes]:
        reader = BlobReader(self._state_store, location_prefix)
        read = 0
        with self._forget_damaged(location_prefix, digest):
            async for chunk in reader.stream(digest):
                read += len(chunk)
                if read > size:
                    raise reader.damaged_error(digest)
                if read == size:
                    self._verified.put((location_prefix, digest), size)
                yield chunk
            if read < size:
                raise reader.damaged_error(digest)

    async def _stream_range(
        self, location_prefix: str, digest: str, wanted: ByteRange
    ) -> AsyncIterator[bytes]:
        reader = BlobReader(self._state_store, location_prefix)
        left = wanted.size
        with self._forget_damaged(location_prefix, digest):
            async for piece in reader.read_range(digest, wanted.start, wanted.end):
                left -= len(piece)
                if not piece:
                    break
                yield piece
            if left:
                raise reader.damaged_error(digest)

    @contextmanager
    def _forget_damaged(self, location_prefix: str, digest: str) -> Iterator[None]:
        """Read a blob whole again after an error."""
        try:
            yield
        except (NotFoundError, IntegrityError):
            self._verified.pop((location_prefix, digest))
            raise


async def prepend(first: bytes, rest: AsyncIterator[bytes] | None = None) -> AsyncIterator[bytes]:
    """Yield a chunk, and those that follow it."""
    yield first
    if rest is not None:
        async for chunk in rest:
            yield chunk
