"""What a session's first commit writes beside its first segment, and how its last traces go.

The order of writes is what makes a crash between any two of them harmless. Founding: the segment,
then the entry in the agent's index, then the manifest; so where the manifest is, all is, and where
only the segment is, whoever opens the session next writes the rest. Deleting: a mark, then the
index, then everything else, then the mark; so whoever meets the mark goes on with deleting.
"""

from __future__ import annotations

import datetime as dt

from holdfast.errors import ConflictError, IntegrityError
from holdfast.log import segments
from holdfast.log.event_log import EventLog, Position
from holdfast.log.segments import Segment
from holdfast.snapshots import manifest
from holdfast.snapshots.layout import (
    SCOPES,
    SnapshotLocation,
    agent_place,
    deleted_key,
    index_key,
    indexed,
    located,
    session_place,
)
from holdfast.stores.contract import StateStore
from holdfast.stores.entries import Put

AT_ONCE = 100
NOWHERE = Position()


def milliseconds(moment: dt.datetime) -> int:
    """Milliseconds since the epoch."""
    return int(moment.timestamp() * 1000)


def founding(
    location: SnapshotLocation, started: dt.datetime, floor: Position = NOWHERE
) -> list[Put]:
    """What follows the first segment of a session, whose log begins after a position."""
    beginning = manifest.SnapshotManifest(started_at=started, updated_at=started, floor=floor)
    return [
        Put(index_key(location, milliseconds(started)), b"{}"),
        Put(location.manifest, beginning.encoded()),
    ]


async def locations(state_store: StateStore, session_id: str) -> list[SnapshotLocation]:
    """The parts of a session, one for each agent or group of agents, without reading them."""
    found = []
    for scope in SCOPES:
        prefix = f"{session_place(session_id)}scopes/{scope}/"
        start = ""
        while key := await first_key(state_store, prefix, start):
            location = located(key)
            if location is not None:
                found.append(location)
            # 0 follows /: all keys of this part are before it.
            start = "/".join(key.split("/")[:5]) + "0"
    return found


async def first_key(state_store: StateStore, prefix: str, start_after: str) -> str | None:
    """The first key with a prefix after another, or None."""
    async for key in state_store.list(prefix, start_after=start_after, limit=1):
        return key
    return None


async def delete_session(state_store: StateStore, session_id: str) -> None:
    """Remove everything of a session. A crash leaves the mark, and the next one goes on."""
    prefix = session_place(session_id)
    mark = deleted_key(session_id)
    if await first_key(state_store, prefix, "") is None:
        return
    await state_store.put(mark, b"{}")
    for location in await locations(state_store, session_id):
        await leave_index(state_store, location)
    # Snapshots first and the log last: what is still listed meanwhile can still be loaded.
    for part in ("snapshots/", "keyframes/", "log/"):
        for location in await locations(state_store, session_id):
            await delete_all(state_store, f"{location.place}{part}", but=mark)
    await delete_all(state_store, prefix, but=mark)
    await state_store.delete(mark)


async def leave_index(state_store: StateStore, location: SnapshotLocation) -> None:
    """Remove the entries of a session in its agent's index."""
    entry = await state_store.get(location.manifest)
    try:
        known = None if entry is None else manifest.decoded(location.manifest, entry.value)
    except IntegrityError:
        known = None
    if known is not None and known.started_at is not None:
        started = milliseconds(known.started_at)
        if await state_store.delete(index_key(location, started)):
            return
    for key in await index_entries(state_store, location):
        await state_store.delete(key)


async def index_entries(state_store: StateStore, location: SnapshotLocation) -> list[str]:
    """The entries of a session in its agent's index, by reading all of that."""
    found = []
    async for key in state_store.list(agent_place(location.scope_id)):
        entry = indexed(key)
        if entry is not None and entry[0] == location:
            found.append(key)
    return found


async def settle(state_store: StateStore, location: SnapshotLocation) -> manifest.SnapshotManifest:
    """Finish what a crashed writer began: a deletion, or the founding of a session.

    Gives the manifest, an empty one where there is no session.
    """
    mark = deleted_key(location.session_id)
    found = await state_store.get_many([mark, location.manifest])
    if mark in found and state_store.writable:
        await delete_session(state_store, location.session_id)
        return manifest.SnapshotManifest()
    if location.manifest in found:
        return manifest.decoded(location.manifest, found[location.manifest].value)
    first = await first_segment(state_store, location)
    if first is None:
        if state_store.writable:
            # Keyframes come before the log that they belong to where a document is imported.
            await delete_all(state_store, f"{location.place}keyframes/", but=mark)
        return manifest.SnapshotManifest()
    moment = first.events()[0].at
    for key in await index_entries(state_store, location):
        if entry := indexed(key):
            moment = dt.datetime.fromtimestamp(entry[1] / 1000, dt.UTC)
    floor = Position(first.first - 1, first.prev)
    puts = founding(location, moment, floor)
    if state_store.writable:
        await state_store.put_many(puts)
    return manifest.decoded(location.manifest, puts[-1].value)


async def first_segment(state_store: StateStore, location: SnapshotLocation) -> Segment | None:
    """The first segment of a log whose events were not pruned, or None."""
    log = EventLog(state_store, location.place)
    async for key in state_store.list(log.prefix):
        entry = await state_store.get(key)
        segment = None if entry is None else segments.decoded(key, entry.value)
        if segment is not None and not segment.is_pruned:
            return segment
    return None


async def delete_all(state_store: StateStore, prefix: str, *, but: str) -> None:
    """Remove what is there now, and nothing that somebody writes meanwhile."""
    start = ""
    while True:
        keys = [key async for key in state_store.list(prefix, start_after=start, limit=AT_ONCE)]
        for key, entry in (await state_store.get_many(keys)).items():
            if key != but:
                try:
                    await state_store.delete(key, if_match=entry.etag)
                except ConflictError:
                    continue
        if len(keys) < AT_ONCE:
            return
        start = keys[-1]
