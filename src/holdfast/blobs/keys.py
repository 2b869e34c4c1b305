"""The keys of blobs, and the digests in them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

from holdfast.stores.base import StateStore

CHUNK_SIZE = 1 << 19
"""The size of all chunks of a blob but the last; below the limit of every backend."""
CHUNK_KEY = re.compile("([0-9a-f]{64})/([0-9]{6})")
MAX_SIZE = CHUNK_SIZE * 10**6


def blobs_prefix(location_prefix: str) -> str:
    """Return the prefix of the keys of all blobs of a session."""
    return f"{location_prefix}blobs/"


def chunk_key(location_prefix: str, digest: str, number: int) -> str:
    """Return the key of a chunk."""
    return f"{location_prefix}blobs/{digest}/{number:06}"


def count_chunks(size: int) -> int:
    """Return the number of chunks of a blob; an empty one has one."""
    return max(1, -(-size // CHUNK_SIZE))


def chunk_keys(location_prefix: str, digest: str, size: int) -> list[str]:
    """Return the keys of all chunks of a blob."""
    return [chunk_key(location_prefix, digest, each) for each in range(count_chunks(size))]


def parse_chunk_key(location_prefix: str, key: str) -> tuple[str, int] | None:
    """Return the digest and the number of a chunk, or None for a key of another form."""
    found = CHUNK_KEY.fullmatch(key, len(blobs_prefix(location_prefix)))
    return None if found is None else (found[1], int(found[2]))


async def list_blobs(state_store: StateStore, location_prefix: str) -> AsyncIterator[str]:
    """Yield the digests of the stored blobs of a session, in order."""
    last = ""
    async for key in state_store.list(blobs_prefix(location_prefix)):
        parsed = parse_chunk_key(location_prefix, key)
        if parsed is not None and parsed[0] != last:
            last = parsed[0]
            yield last
