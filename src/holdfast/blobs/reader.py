"""Read blobs, verified by their digest."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterable

from holdfast.blobs.keys import CHUNK_SIZE, chunk_key, count_chunks, list_blobs
from holdfast.blobs.source import BlobSource
from holdfast.errors import IntegrityError, NotFoundError
from holdfast.stores.base import StateStore

CHUNKS_PER_READ = 8


class MissingBlobError(NotFoundError):
    """A blob is not stored."""


class BlobReader:
    """The blobs of one session."""

    def __init__(self, state_store: StateStore, location_prefix: str) -> None:
        self.state_store = state_store
        self.location_prefix = location_prefix

    async def read(self, digest: str, size: int | None = None) -> bytes:
        """Return the content of a blob; with its size, several chunks are read at once.

        Raises:
            NotFoundError: The blob is not stored.
            IntegrityError: Its content does not match its digest.

        """
        if size is None:
            return b"".join([chunk async for chunk in self.stream(digest)])
        parts: list[bytes] = []
        count = count_chunks(size)
        # The size may be wrong: read on only while there are chunks.
        for first in range(0, count, CHUNKS_PER_READ):
            numbers = range(first, min(first + CHUNKS_PER_READ, count))
            keys = [chunk_key(self.location_prefix, digest, at) for at in numbers]
            found = await self.state_store.get_many(keys)
            if len(found) != len(keys):
                raise self.missing_error(digest)
            parts += [found[key].value for key in keys]
        content = b"".join(parts)
        if hashlib.sha256(content).hexdigest() != digest:
            raise self.damaged_error(digest)
        return content

    async def stream(self, digest: str) -> AsyncIterator[bytes]:
        """Yield the content of a blob in chunks; the last one only if the digest matches.

        Raises:
            NotFoundError: The blob is not stored.
            IntegrityError: Its content does not match its digest.

        """
        sha = hashlib.sha256()
        held: bytes | None = None
        number = 0
        while held is None or len(held) == CHUNK_SIZE:
            key = chunk_key(self.location_prefix, digest, number)
            entry = await self.state_store.get(key)
            if entry is None:
                break
            sha.update(entry.value)
            if held is not None:
                yield held
            held = entry.value
            number += 1
        if held is None:
            raise self.missing_error(digest)
        if sha.hexdigest() != digest:
            raise self.damaged_error(digest)
        yield held

    async def read_range(self, digest: str, start: int, end: int) -> AsyncIterator[bytes]:
        """Yield the bytes from ``start`` up to ``end``, reading only their chunks, unverified.

        Raises:
            NotFoundError: A chunk is not stored.

        """
        for number in range(start // CHUNK_SIZE, -(-end // CHUNK_SIZE)):
            entry = await self.state_store.get(chunk_key(self.location_prefix, digest, number))
            if entry is None:
                raise self.missing_error(digest)
            offset = number * CHUNK_SIZE
            yield entry.value[max(0, start - offset) : end - offset]

    async def find_missing(self, digests: Iterable[str]) -> set[str]:
        """Return those of the digests whose blobs are not stored."""
        wanted = set(digests)
        if wanted:
            wanted.difference_update([each async for each in self.list()])
        return wanted

    def list(self) -> AsyncIterator[str]:
        """Yield the digests of all stored blobs, in order."""
        return list_blobs(self.state_store, self.location_prefix)

    def missing_error(self, digest: str) -> MissingBlobError:
        """Return the error for a blob that is not stored."""
        return MissingBlobError(
            f"blob {digest} in {self.location_prefix} is not stored: it was deleted, pruned, "
            "omitted from a document, or attached to another session; attach it, restore it from a "
            "backup, or import a document that embeds it"
        )

    def damaged_error(self, digest: str) -> IntegrityError:
        """Return the error for a blob with the wrong content."""
        return IntegrityError(
            f"blob {digest} in {self.location_prefix} is damaged: its content does not match its "
            "digest; restore it from a backup or a document"
        )


class StoredSource(BlobSource):
    """A blob of a session, as the source of a copy."""

    def __init__(self, reader: BlobReader, digest: str, size: int = 0) -> None:
        super().__init__(digest, size)
        self._reader = reader

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield the content in chunks.

        Raises:
            NotFoundError: The blob is not stored.
            IntegrityError: Its content does not match its digest.

        """
        return self._reader.stream(self.digest)
