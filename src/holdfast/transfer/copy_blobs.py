"""Copy the blobs of a session, before the log that refers to them.

Blobs never change, so one with as many chunks in the target is not copied again; whether it is
intact is for a repair to find out. Chunks are written in order, and the last one only if the
content matches the digest: an interrupted or damaged copy has fewer.

While a copy runs, a hold keeps sweeps of the target from deleting what nothing refers to yet.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from holdfast.blobs.holds import delete_holds, write_holds
from holdfast.blobs.keys import chunk_key
from holdfast.blobs.reader import CHUNKS_PER_READ, BlobReader
from holdfast.errors import ConflictError, IntegrityError, NotFoundError
from holdfast.snapshots.blob_references import find_referenced
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.snapshots.manifest import SnapshotManifest
from holdfast.snapshots.sweep import list_chunks
from holdfast.snapshots.verify_blobs import read_blob
from holdfast.stores.base import StateStore
from holdfast.stores.batch_read import split_batches
from holdfast.stores.entries import Put

PutEntries: TypeAlias = Callable[[list[Put]], Awaitable[None]]


class BlobCopy:
    """The blobs of one session in two stores."""

    def __init__(
        self,
        source: StateStore,
        target: StateStore,
        location: SnapshotLocation,
        manifest: SnapshotManifest,
        put: PutEntries,
    ) -> None:
        self._source = source
        self._target = target
        self._location = location
        self._manifest = manifest
        self._put = put
        self._wanted: dict[str, list[str]] = {}
        self._damaged: set[str] = set()
        self._holds: list[str] = []

    async def find(self) -> bool:
        """List the blobs of the source, after the log was listed; return whether there are any."""
        self._wanted = await list_chunks(self._source, self._location)
        return bool(self._wanted)

    async def hold(self) -> None:
        """Keep sweeps of the target from deleting the blobs."""
        self._holds = await write_holds(self._target, self._location.prefix, self._wanted)

    async def copy(self) -> None:
        """Copy the blobs that the target lacks.

        Raises:
            ConflictError: A blob was deleted from the source during the copy.

        """
        if not self._wanted:
            return
        present = await list_chunks(self._target, self._location)
        for digest, keys in self._wanted.items():
            if len(present.get(digest, ())) != len(keys) and digest not in self._damaged:
                await self._copy_blob(digest)

    async def finish(self) -> list[str]:
        """Copy again what a sweep deleted since, and return the problems of the source.

        What the log of the target refers to by now is not swept any more.
        """
        await self.copy()
        if not self._damaged:
            return []
        # Others are incomplete because they are being written.
        referred = await find_referenced(
            self._source, self._location, self._manifest, self._damaged
        )
        return [
            f"blob {digest} in {self._location.prefix} is damaged in the source and was not copied"
            for digest in sorted(referred)
        ]

    async def release(self) -> None:
        """Delete the hold."""
        await delete_holds(self._target, self._holds)

    async def _copy_blob(self, digest: str) -> None:
        reader = BlobReader(self._source, self._location.prefix)
        number = 0
        try:
            async for chunk in reader.stream(digest):
                await self._put([Put(chunk_key(self._location.prefix, digest, number), chunk)])
                number += 1
        except NotFoundError as error:
            raise ConflictError(
                f"blob {digest} in {self._location.prefix} was removed from the source during the "
                "copy; copy again"
            ) from error
        except IntegrityError:
            self._damaged.add(digest)


class BlobRepair:
    """Replaces the damaged blobs of a copy by those of the source."""

    def __init__(
        self,
        source: StateStore,
        target: StateStore,
        location: SnapshotLocation,
        manifest: SnapshotManifest,
    ) -> None:
        self._source = source
        self._target = target
        self._location = location
        self._manifest = manifest
        self._chunks: dict[str, list[str]] = {}
        self._extra: list[str] = []
        self.entries = 0
        """Chunks written."""
        self.size = 0
        """Bytes written."""

    async def examine(self) -> list[str]:
        """Read all blobs of the copy; return those that are not intact in the source either."""
        ours = await list_chunks(self._source, self._location)
        theirs = await list_chunks(self._target, self._location)
        lost: set[str] = set()
        for digest, keys in theirs.items():
            if digest in ours and not (await read_blob(self._target, digest, keys)).is_intact:
                if (await read_blob(self._source, digest, ours[digest])).is_intact:
                    self._chunks[digest] = ours[digest]
                    self._extra += [key for key in keys if key not in ours[digest]]
                else:
                    lost.add(digest)
        if lost:
            lost = await find_referenced(self._source, self._location, self._manifest, lost)
        return [
            f"blob {digest} in {self._location.prefix} is damaged in the target and not intact in "
            "the source"
            for digest in sorted(lost)
        ]

    async def write(self) -> None:
        """Replace the damaged blobs."""
        for keys in self._chunks.values():
            for batch in split_batches(keys, CHUNKS_PER_READ // 2):
                found = await self._source.get_many(batch)
                puts = [Put(key, found[key].value) for key in batch if key in found]
                await self._target.put_many(puts)
                self.entries += len(puts)
                self.size += sum(len(put.value) for put in puts)
        for key in self._extra:
            await self._target.delete(key)
