"""Find what a store holds of a session by listing keys, without reading entries."""

from __future__ import annotations

from holdfast.snapshots.keys import (
    SnapshotLocation,
    agent_index_prefix,
    index_key,
    parse_index_key,
    parse_location,
    session_prefix,
)
from holdfast.snapshots.manifest import INCARNATION, SnapshotManifest
from holdfast.stores.base import StateStore


async def find_first_key(state_store: StateStore, prefix: str, start_after: str = "") -> str | None:
    """Return the first key with a prefix after another key, or None."""
    async for key in state_store.list(prefix, start_after=start_after, limit=1):
        return key
    return None


async def find_locations(state_store: StateStore, session_id: str) -> list[SnapshotLocation]:
    """Return the locations of a session, one for each agent or group of agents."""
    found = []
    prefix = f"{session_prefix(session_id)}scopes/"
    start = ""
    while key := await find_first_key(state_store, prefix, start):
        location = parse_location(key)
        if location is not None:
            found.append(location)
        # 0 follows / in ASCII: this skips all other keys of the location.
        start = "/".join(key.split("/")[:5]) + "0"
    return found


async def find_incarnations(state_store: StateStore, location: SnapshotLocation) -> list[str]:
    """Return the ids of all incarnations that have a log or keyframes, current or not."""
    found: set[str] = set()
    for prefix in (f"{location.prefix}log/", f"{location.prefix}keyframes/"):
        start = ""
        while key := await find_first_key(state_store, prefix, start):
            name, is_folder, _ = key[len(prefix) :].partition("/")
            if is_folder and INCARNATION.fullmatch(name):
                found.add(name)
            # As above.
            start = f"{prefix}{name}0" if is_folder else key
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
