"""Write the blobs that a commit refers to, before the commit.

A prune deletes blobs that nothing refers to, and counts these sweeps in the manifest. A commit that
refers to blobs is conditional on that count, and every blob was written, or seen in the log, at the
same count. So a sweep either sees the reference or makes the commit fail, and the writer stores its
blobs again. They are overwritten even if they exist: a sweep deletes only what it has read, and a
blob that was written since is another one. Where a commit cannot be conditional, `holds` do the
same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Protocol

from holdfast.blobs.contents import BlobContents
from holdfast.blobs.holds import write_holds
from holdfast.blobs.keys import CHUNK_SIZE, chunk_key
from holdfast.blobs.reader import BlobReader, StoredSource
from holdfast.blobs.source import BlobSource, BytesSource, ContentSources
from holdfast.errors import NotFoundError
from holdfast.stores.base import StateStore
from holdfast.stores.entries import Put
from holdfast.values.references import ReferringData, find_digests, find_tokens

BATCH_SIZE = 4 * CHUNK_SIZE
"""How much of a content in memory is written at once; of others, one chunk."""
BATCH_COUNT = 256


class ReferringEvent(Protocol):
    """The part of an event that tells which blobs it refers to."""

    json: bytes
    refers: bool
    sources: Sequence[BlobSource]

    def encoded_values(self) -> list[bytes]:
        """Return its values in the binary encoding."""

    def referred_digests(self) -> set[str]:
        """Return the digests of the blobs that its values refer to."""


class BlobWriter:
    """Writes the blobs of one session, and knows which ones are safe to refer to."""

    def __init__(self, state_store: StateStore, location_prefix: str) -> None:
        self.state_store = state_store
        self.reader = BlobReader(state_store, location_prefix)
        self.offered: dict[str, BlobSource] = {}
        """Attachments that are written when an event refers to them."""
        self.omitted: set[str] = set()
        """Blobs that events may refer to although they are not stored."""
        self.origin: BlobReader | None = None
        """The blobs of the session that this one is a fork of."""
        self._known: set[str] = set()
        self._sweeps: int | None = None

    def add_known(self, digests: Iterable[str], sweeps: int) -> None:
        """Note blobs that the log refers to, as read when the manifest had this count of sweeps."""
        if self._sweeps is None:
            self._sweeps = sweeps
        if sweeps == self._sweeps:
            self._known.update(digests)

    async def store(self, events: Iterable[ReferringEvent], sweeps: int) -> None:
        """Write the blobs that events refer to, unless they are known to be stored.

        Raises:
            NotFoundError: An event refers to an attachment that is not stored in this session.
            HoldfastError: A file that is to be stored changed or cannot be read.
            StateStoreError: The store failed.

        """
        is_swept = self._sweeps is not None and sweeps != self._sweeps
        if is_swept:
            self._known.clear()
        self._sweeps = sweeps
        sources: dict[str, BlobSource] = {}
        referred: set[str] = set()
        tokens: set[str] = set()
        for event in events:
            if event.refers:
                sources.update((each.digest, each) for each in event.sources)
                referred |= event.referred_digests()
                for data in event.encoded_values():
                    add_contents(sources, data, self.reader)
                if is_swept or self.origin is not None:
                    tokens |= find_tokens(event.json)
        for digest in referred:
            if digest not in sources and digest in self.offered:
                sources[digest] = self.offered[digest]
        if tokens:
            await self._add_stored(sources, tokens)
        for digest in referred - sources.keys():
            sources[digest] = StoredSource(self.reader, digest)
        wanted = [each for each in sources.values() if each.digest not in self._known]
        try:
            await self.write([each for each in wanted if each.digest not in self.omitted])
        except NotFoundError as error:
            raise NotFoundError(
                "an event refers to a content that is not stored in this session; attach it to "
                f"this session and commit again, or call reload() to drop the event: {error}"
            ) from error
        for source in wanted:
            if source.digest in self.omitted:
                with suppress(NotFoundError):
                    await self.write([source])

    async def hold(self, events: Iterable[ReferringEvent]) -> list[str]:
        """Keep sweeps from deleting what events refer to; return the keys of the holds.

        Raises:
            StateStoreError: The store failed.

        """
        digests = {each for event in events if event.refers for each in find_tokens(event.json)}
        return await write_holds(self.state_store, self.reader.location_prefix, digests)

    def release(self, events: Iterable[ReferringEvent]) -> None:
        """Drop the contents of attachments that committed events refer to."""
        for event in events:
            if event.refers and self.offered:
                for digest in event.referred_digests():
                    self.offered.pop(digest, None)

    def forget(self) -> None:
        """Store all blobs again with the next commit: the session was created by another writer."""
        self._known.clear()

    async def _add_stored(self, sources: dict[str, BlobSource], tokens: set[str]) -> None:
        """Add the blobs that are stored here or in the origin, of digests found in events."""
        for reader in (self.reader, self.origin):
            if reader is not None:
                async for digest in reader.list():
                    if digest in tokens:
                        sources.setdefault(digest, StoredSource(reader, digest))

    async def write(self, sources: Iterable[BlobSource]) -> None:
        """Write blobs, several small ones at once.

        Raises:
            NotFoundError: The source is a stored blob that is gone.
            HoldfastError: The source is a file that changed or cannot be read.
            StateStoreError: The store failed.

        """
        puts: list[Put] = []
        size = 0
        done: list[str] = []
        for source in sources:
            limit = BATCH_SIZE if isinstance(source, BytesSource) else CHUNK_SIZE
            number = 0
            async for chunk in source.chunks():
                if puts and (size + len(chunk) > limit or len(puts) >= BATCH_COUNT):
                    await self.state_store.put_many(puts)
                    puts, size = [], 0
                key = chunk_key(self.reader.location_prefix, source.digest, number)
                puts.append(Put(key, chunk))
                size += len(chunk)
                number += 1
            done.append(source.digest)
        if puts:
            await self.state_store.put_many(puts)
        self._known.update(done)


def add_contents(sources: dict[str, BlobSource], data: bytes, reader: BlobReader) -> None:
    """Add the contents that come with an encoded value, unless ``reader`` has them."""
    if not isinstance(data, ReferringData):
        return
    contents = data.contents
    if isinstance(contents, ContentSources):
        for digest in find_digests(data) & contents.keys():
            if digest not in sources:
                sources[digest] = contents.source(digest)
    elif not isinstance(contents, BlobContents):
        for digest in find_digests(data) & contents.keys():
            sources.setdefault(digest, BytesSource(contents[digest], digest))
    elif (
        contents.reader.location_prefix != reader.location_prefix
        or contents.reader.state_store is not reader.state_store
    ):
        for digest in find_digests(data):
            sources.setdefault(digest, StoredSource(contents.reader, digest))
