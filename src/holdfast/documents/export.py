"""Export a session as a document: its state at one position, and the events that led there."""

from __future__ import annotations

import os
from dataclasses import replace

from holdfast.documents.document import Document
from holdfast.errors import IntegrityError, NotFoundError
from holdfast.log.changes import fold_changes
from holdfast.log.event import Event
from holdfast.log.event_log import EventLog, Position
from holdfast.log.timeline import Timeline
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.event_state import load_state_at_event
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.snapshots.session_snapshot import SessionSnapshot, utc_now
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store

ENVIRONMENT_VARIABLE = "HOLDFAST_ENVIRONMENT"


async def export_document(
    archive: SnapshotArchive,
    location: SnapshotLocation,
    *,
    snapshot_id: str | None = None,
    seq: int | None = None,
    tags: dict[str, str] | None = None,
) -> Document:
    """Export the committed state of a session, a saved snapshot, or the state after an event.

    Args:
        archive: The snapshots of the store.
        location: The session.
        snapshot_id: The snapshot to export.
        seq: The number of the event to export the state after.
        tags: Tags to add to those of the snapshot.

    Raises:
        NotFoundError: There is no such session, snapshot or event.
        IntegrityError: Stored data is damaged.

    """
    if seq is None and snapshot_id is None:
        document = await export_head(archive, location)
    else:
        if seq is not None:
            snapshot = await load_state_at_event(archive, location, seq)
        else:
            snapshot = await load_saved(archive, location, snapshot_id)
        events, base = await read_events_up_to(archive, location, snapshot.position or Position())
        document = Document.from_snapshot(snapshot, events=events, base=base)
    return replace(
        document,
        event_log_count=len(document.events),
        exported_at=utc_now(),
        source_environment=os.environ.get(ENVIRONMENT_VARIABLE),
        tags={**document.tags, **(tags or {})},
    )


async def load_saved(
    archive: SnapshotArchive, location: SnapshotLocation, snapshot_id: str | None
) -> SessionSnapshot:
    """Load a snapshot that must exist."""
    snapshot = await archive.load_snapshot(location=location, snapshot_id=snapshot_id)
    if snapshot is None:
        raise NotFoundError(f"no snapshot {snapshot_id} in {location.prefix}")
    return snapshot


async def export_head(archive: SnapshotArchive, location: SnapshotLocation) -> Document:
    """Export the committed state of a session under a new snapshot id."""
    latest = await archive.load_info(location=location)
    events, base = await read_events_up_to(archive, location)
    if events:
        # With all events at hand, folding them is cheaper than reading a keyframe.
        store = Store(max_history=0)
        if base is not None:
            store.restore(base)
        fold_changes(store, (event.changes for event in events))
        head = Position(events[-1].seq, events[-1].hash)
    else:
        loaded = await (await archive.timeline(location=location)).load()
        store, head = loaded.store, loaded.end
    if head.seq == 0:
        raise NotFoundError(
            f"agent {location.scope_id} has no session {location.session_id} in this store; list "
            "its sessions with holdfast.Catalog(state_store).sessions(agent_id)"
        )
    return Document(
        snapshot=store.snapshot(),
        agent_id=location.scope_id,
        session_id=location.session_id,
        scope=location.scope,
        parent_id=None if latest is None else latest.snapshot_id,
        events=events,
        base=base,
        position=head,
    )


async def read_events_up_to(
    archive: SnapshotArchive, location: SnapshotLocation, position: Position | None = None
) -> tuple[tuple[Event, ...], Snapshot | None]:
    """Read the events that were not pruned, up to a position or the head of the log.

    Also returns the state before the first of them, or None if that is the first event of all.
    """
    manifest = await archive.load_manifest(location=location)
    while position is None or position.seq > manifest.log_start.seq:
        log_start = manifest.log_start
        timeline = Timeline(archive.state_store, location.prefix, manifest.incarnation)
        try:
            events = await read_log_range(timeline.log, log_start, position)
            if not events:
                break
            if not log_start.seq:
                return events, None
            return events, (await timeline.load(log_start.seq)).store.snapshot()
        except (NotFoundError, IntegrityError):
            # A concurrent prune may have moved the log start.
            manifest = await archive.load_manifest(location=location)
            if (manifest.incarnation, manifest.log_start) == (timeline.incarnation, log_start):
                raise
    return (), None


async def read_log_range(
    log: EventLog, log_start: Position, position: Position | None
) -> tuple[Event, ...]:
    """Read the events from the log start up to a position, which must exist, or to the head."""
    last = None if position is None else position.seq
    events: list[Event] = []
    async for segment in log.segments(log_start, last):
        events += segment.events()
    if position is not None:
        del events[position.seq - log_start.seq :]
        if not events or events[-1].hash != position.hash:
            raise log.missing_segment_error(events[-1].seq + 1 if events else log_start.seq + 1)
    return tuple(events)
