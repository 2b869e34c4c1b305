"""Delete the blobs that nothing in a session refers to.

A commit that refers to blobs is conditional on the count of sweeps in the manifest, and its blobs
were written, or seen in the log, at that count (see `holdfast.blobs.writer`). The steps of a sweep:

    1. find candidates, and read their etags
    2. increment the count in the manifest     commits at the old count fail from here on
    3. read the holds, then all references
    4. delete the candidates without a reference, if their etags are unchanged

A commit at the old count is seen in step 3. A commit at the new count has overwritten its blobs
after step 2, so their etags have changed. After a crash the next sweep starts again.

On a store without ``conditional_put_many`` a commit cannot fail in this way. It holds its blobs
while it runs (see `holdfast.blobs.holds`), and a hold is a reference. After a crash it expires.
"""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass, field, replace

from holdfast.blobs.holds import list_holds, read_holds
from holdfast.blobs.keys import blobs_prefix, parse_chunk_key
from holdfast.blobs.reader import CHUNKS_PER_READ
from holdfast.errors import ConflictError, IntegrityError
from holdfast.snapshots.blob_references import PlannedPrune, find_referenced
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.snapshots.manifest import SnapshotManifest, read_manifest
from holdfast.stores.base import StateStore
from holdfast.stores.batch_read import read_entries, split_batches
from holdfast.stores.entries import Entry
from holdfast.stores.local import pause

logger = logging.getLogger(__name__)

ATTEMPTS = 16


@dataclass(frozen=True, slots=True)
class SweepResult:
    """The blobs that a sweep deleted, or would delete."""

    digests: list[str] = field(default_factory=list)
    size: int = 0
    """Their size in bytes."""


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk of a blob, as it was read."""

    key: str
    etag: str
    size: int


async def sweep_blobs(state_store: StateStore, location: SnapshotLocation) -> SweepResult:
    """Delete the blobs of a session that nothing refers to.

    Nothing is deleted if a segment or a keyframe is damaged, because its references are not known.

    Raises:
        ConflictError: The manifest changed in every attempt; nothing was deleted.

    """
    stored = await list_chunks(state_store, location)
    if not stored:
        return SweepResult()
    before = (await read_manifest(state_store, location)).manifest
    candidates = await find_candidates(state_store, location, before, stored)
    if not candidates:
        await list_holds(state_store, location.prefix)  # deletes those that expired
        return SweepResult()
    chunks = {
        digest: await read_chunks(state_store, keys) for digest, keys in sorted(candidates.items())
    }
    manifest = await count_sweep(state_store, location, before)
    if manifest is None:
        return SweepResult()  # deleted or replaced: what is left belongs to the next session
    try:
        referenced = await read_holds(state_store, location.prefix)
        referenced |= await find_referenced(state_store, location, manifest, chunks.keys())
    except IntegrityError as error:
        logger.warning("blobs in %s were not swept: %s", location.prefix, error)
        return SweepResult()
    digests: list[str] = []
    size = 0
    for digest in sorted(chunks.keys() - referenced):
        is_deleted = False
        for chunk in chunks[digest]:
            if await delete_chunk(state_store, chunk):
                is_deleted = True
                size += chunk.size
        if is_deleted:
            digests.append(digest)
    return SweepResult(digests, size)


async def predict_sweep(
    state_store: StateStore,
    location: SnapshotLocation,
    manifest: SnapshotManifest,
    planned: PlannedPrune,
    kept: set[str],
) -> SweepResult:
    """Return what a sweep would delete after a prune; ``kept`` is what its new keyframes refer to.

    Nothing is written.
    """
    stored = await list_chunks(state_store, location)
    candidates = await find_candidates(state_store, location, manifest, stored, planned)
    digests = sorted(candidates.keys() - kept)
    size = 0
    for digest in digests:
        size += sum(each.size for each in await read_chunks(state_store, candidates[digest]))
    return SweepResult(digests, size)


async def find_candidates(
    state_store: StateStore,
    location: SnapshotLocation,
    manifest: SnapshotManifest,
    stored: dict[str, list[str]],
    planned: PlannedPrune | None = None,
) -> dict[str, list[str]]:
    """Return the blobs that nothing refers to, with the keys of their chunks.

    None if the session does not exist: its deletion collects them, or a creation is about to start.
    """
    if not (manifest.is_created or manifest.is_claim):
        return {}
    try:
        referenced = await find_referenced(state_store, location, manifest, stored.keys(), planned)
    except IntegrityError as error:
        logger.warning("blobs in %s were not swept: %s", location.prefix, error)
        return {}
    return {digest: keys for digest, keys in stored.items() if digest not in referenced}


async def list_chunks(state_store: StateStore, location: SnapshotLocation) -> dict[str, list[str]]:
    """Return the stored blobs of a session, with the keys of their chunks in order."""
    stored: dict[str, list[str]] = {}
    async for key in state_store.list(blobs_prefix(location.prefix)):
        parsed = parse_chunk_key(location.prefix, key)
        if parsed is not None:
            stored.setdefault(parsed[0], []).append(key)
    return stored


async def read_chunks(state_store: StateStore, keys: list[str]) -> list[StoredChunk]:
    """Return the etags and sizes of chunks; those that cannot be read are left out."""
    chunks: list[StoredChunk] = []
    for batch in split_batches(keys, CHUNKS_PER_READ):
        for key, entry in (await read_entries(state_store, batch)).items():
            if isinstance(entry, Entry):
                chunks.append(StoredChunk(key, entry.etag, len(entry.value)))
            else:
                logger.warning("chunk %s is not swept: %s", key, entry)
    return chunks


async def count_sweep(
    state_store: StateStore, location: SnapshotLocation, before: SnapshotManifest
) -> SnapshotManifest | None:
    """Increment the count of sweeps, and return the manifest; None if the session was replaced.

    Raises:
        ConflictError: The manifest changed in every attempt.

    """
    for attempt in range(ATTEMPTS):
        stored = await read_manifest(state_store, location)
        manifest = stored.manifest
        if stored.etag is None or manifest.live_incarnation != before.live_incarnation:
            return None
        counted = replace(manifest, blob_sweeps=manifest.blob_sweeps + 1)
        try:
            await state_store.put(location.manifest_key, counted.encode(), if_match=stored.etag)
        except ConflictError:
            await pause(random.uniform(0, 0.01 * attempt))  # noqa: S311 - jitter
        else:
            return counted
    raise ConflictError(
        f"manifest {location.manifest_key} changed {ATTEMPTS} times in a row; prune again later",
        key=location.manifest_key,
    )


async def delete_chunk(state_store: StateStore, chunk: StoredChunk) -> bool:
    """Delete a chunk if it is unchanged; return whether it was deleted."""
    try:
        return await state_store.delete(chunk.key, if_match=chunk.etag)
    except ConflictError:
        return False  # written again since, or deleted by a concurrent sweep
