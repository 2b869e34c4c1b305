"""A session with its events as one document."""

from __future__ import annotations

import os
from dataclasses import replace

from holdfast.errors import NotFoundError
from holdfast.ids import new_id
from holdfast.log.events import Event
from holdfast.log.timeline import Timeline
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.layout import SnapshotLocation
from holdfast.snapshots.session_snapshot import SessionSnapshot, now

ENVIRONMENT = "HOLDFAST_ENVIRONMENT"


async def exported(
    archive: SnapshotArchive,
    location: SnapshotLocation,
    *,
    snapshot_id: str | None = None,
    tags: dict[str, str] | None = None,
) -> SessionSnapshot:
    """What is committed of a session, or a kept snapshot of it, with the events that led there."""
    if snapshot_id is None:
        found = await current(archive, location)
    else:
        kept = await archive.load_snapshot(location=location, snapshot_id=snapshot_id)
        if kept is None:
            raise NotFoundError(f"there is no snapshot {snapshot_id} in {location.place}")
        found = kept
    manifest = await archive.load_manifest(location=location)
    position, floor = found.position, manifest.floor
    events: tuple[Event, ...] = ()
    base = None
    if position is not None and position.seq > floor.seq:
        timeline = Timeline(archive.state_store, location.place)
        reading = timeline.log.read(floor.seq + 1, position.seq, after=floor)
        events = tuple([event async for event in reading])
        base = (await timeline.load(floor.seq)).store.snapshot() if floor.seq else None
    return replace(
        found,
        events=events,
        base=base,
        event_log_count=len(events),
        exported_at=now(),
        source_environment=os.environ.get(ENVIRONMENT),
        tags={**found.tags, **(tags or {})},
    )


async def current(archive: SnapshotArchive, location: SnapshotLocation) -> SessionSnapshot:
    """A session as it is committed now, with an id of its own."""
    there = await Timeline(archive.state_store, location.place).load()
    if there.end.seq == 0:
        raise NotFoundError(
            f"the agent {location.scope_id} has no session {location.session_id} in this store: "
            "see holdfast.Catalog(state_store).sessions(agent_id)"
        )
    latest = await archive.load_info(location=location)
    return SessionSnapshot(
        snapshot=there.store.snapshot(),
        agent_id=location.scope_id,
        session_id=location.session_id,
        scope=location.scope,
        snapshot_id=new_id(),
        parent_id=None if latest is None else latest.snapshot_id,
        event_log_count=there.end.seq,
        position=there.end,
    )
