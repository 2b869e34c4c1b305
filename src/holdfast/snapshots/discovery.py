"""Find what a store holds of a session by listing keys, without reading entries."""

from __future__ import annotations

from collections.abc import AsyncIterator

from holdfast.snapshots.keys import (
    SESSIONS,
    SnapshotLocation,
    agent_index_prefix,
    index_key,
    parse_index_key,
    parse_location,
    session_prefix,
)
from holdfast.snapshots.manifest import INCARNATION, SnapshotManifest
from holdfast.stores.base import StateStore

MIN_PAGE_SIZE, MAX_PAGE_SIZE = 32, 256
"""How many keys are listed at once to find folders."""


async def find_first_key(state_store: StateStore, prefix: str, start_after: str = "") -> str | None:
    """Return the first key with a prefix after another key, or None."""
    async for key in state_store.list(prefix, start_after=start_after, limit=1):
        return key
    return None


async def iterate_folders(
    state_store: StateStore, prefix: str, depth: int, *, start_after: str = ""
) -> AsyncIterator[str]:
    """Yield the first ``depth`` parts of all keys with a prefix, each once, with a final slash.

    Each call lists a page of keys, and the next one continues after the last folder in it: one
    call finds all folders that are small, and lists only a few keys of a large one.
    """
    start, size = start_after, MIN_PAGE_SIZE
    while True:
        keys = [key async for key in state_store.list(prefix, start_after=start, limit=size)]
        folders: list[str] = []
        for key in keys:
            if not folders or not key.startswith(folders[-1]):
                parts = key.split("/", depth)
                if len(parts) > depth:
                    folders.append(key.removesuffix(parts[-1]))
                    yield folders[-1]
        if len(keys) < size:
            return
        start = keys[-1]
        if folders and start.startswith(folders[-1]):
            # 0 follows / in ASCII: this skips all other keys in the folder.
            start = f"{folders[-1][:-1]}0"
        size = min(2 * size, MAX_PAGE_SIZE) if len(folders) > 1 else MIN_PAGE_SIZE


async def iterate_locations(
    state_store: StateStore, session_id: str | None = None
) -> AsyncIterator[SnapshotLocation]:
    """Yield the locations of all sessions or of one, one for each agent or group of agents."""
    prefix = SESSIONS if session_id is None else f"{session_prefix(session_id)}scopes/"
    async for folder in iterate_folders(state_store, prefix, 5):
        location = parse_location(folder)
        if location is not None:
            yield location


async def find_locations(state_store: StateStore, session_id: str) -> list[SnapshotLocation]:
    """Return the locations of a session, one for each agent or group of agents."""
    return [each async for each in iterate_locations(state_store, session_id)]


async def find_incarnations(state_store: StateStore, location: SnapshotLocation) -> list[str]:
    """Return the ids of all incarnations that have a log or keyframes, current or not."""
    found: set[str] = set()
    for prefix in (f"{location.prefix}log/", f"{location.prefix}keyframes/"):
        async for folder in iterate_folders(state_store, prefix, prefix.count("/") + 1):
            name = folder[len(prefix) : -1]
            if INCARNATION.fullmatch(name):
                found.add(name)
    return sorted(found)


async def find_index_keys(
    state_store: StateStore, location: SnapshotLocation, manifest: SnapshotManifest | None = None
) -> list[str]:
    """Return the keys of a session in its agent's index.

    The manifest tells where the entry is. Without it, or if there is no such entry, the agent's
    whole index is listed.
    """
    if manifest is not None and manifest.active_at is not None:
        key = index_key(location, manifest.active_at)
        if await state_store.get(key) is not None:
            return [key]
    found = []
    async for key in state_store.list(agent_index_prefix(location.scope_id)):
        parsed = parse_index_key(key)
        if parsed is not None and parsed[0] == location:
            found.append(key)
    return found
