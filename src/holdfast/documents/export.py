"""Export a session as a document: its state at one position, and the events that led there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from holdfast.documents.document import Document
from holdfast.errors import IntegrityError, NotFoundError
from holdfast.log.changes import fold_changes
from holdfast.log.event import Event
from holdfast.log.event_log import Position
from holdfast.log.linked_events import EVENTS_PER_BLOCK, EventBlock, LinkedEvents
from holdfast.log.segment import Segment, link_segments
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
        found = await read_events_up_to(archive, location, snapshot.position or Position())
        document = Document.from_snapshot(snapshot, events=found.events, base=found.base)
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
    found = await read_events_up_to(archive, location)
    state, head = found.state, found.end
    if state is None:
        loaded = await (await archive.timeline(location=location)).load()
        state, head = loaded.store.snapshot(), loaded.end
    if head.seq == 0:
        raise NotFoundError(
            f"agent {location.scope_id} has no session {location.session_id} in this store; list "
            "its sessions with holdfast.Catalog(state_store).sessions(agent_id)"
        )
    return Document(
        snapshot=state,
        agent_id=location.scope_id,
        session_id=location.session_id,
        scope=location.scope,
        parent_id=None if latest is None else latest.snapshot_id,
        events=found.events,
        base=found.base,
        position=head,
    )


@dataclass(frozen=True, slots=True)
class EventRange:
    """The events of a log that were not pruned, up to a position."""

    events: Sequence[Event]
    base: Snapshot | None
    """The state before the first event, or None if that is the first event of all."""
    state: Snapshot | None
    """The state after the last event, if that is the head of the log."""
    end: Position


async def read_events_up_to(
    archive: SnapshotArchive, location: SnapshotLocation, position: Position | None = None
) -> EventRange:
    """Read the events that were not pruned, up to a position or the head of the log."""
    manifest = await archive.load_manifest(location=location)
    while position is None or position.seq > manifest.log_start.seq:
        log_start = manifest.log_start
        timeline = Timeline(archive.state_store, location.prefix, manifest.incarnation)
        try:
            found = await read_log_range(timeline, log_start, position)
            if not found.events:
                break
            return found
        except (NotFoundError, IntegrityError):
            # A concurrent prune may have moved the log start.
            manifest = await archive.load_manifest(location=location)
            if (manifest.incarnation, manifest.log_start) == (timeline.incarnation, log_start):
                raise
    return EventRange((), None, None, Position())


async def read_log_range(
    timeline: Timeline, log_start: Position, position: Position | None
) -> EventRange:
    """Read the events from the log start up to a position, which must exist, or to the head."""
    log = timeline.log
    last = None if position is None else position.seq
    store = Store(max_history=0)
    base = None
    if log_start.seq:
        base = (await timeline.load(log_start.seq)).store.snapshot()
        store.restore(base)
    blocks: list[EventBlock] = []
    pending: list[Segment] = []

    def link_pending() -> None:
        block, changes = link_segments(pending)
        pending.clear()
        if last is not None and block.last > last:
            block = block.take(last - block.first + 1)
        blocks.append(block)
        if position is None:
            fold_changes(store, changes, timeline.contents)

    async for segment in log.segments(log_start, last):
        pending.append(segment)
        if segment.last - pending[0].first >= EVENTS_PER_BLOCK:
            link_pending()
    if pending:
        link_pending()
    end = Position(blocks[-1].last, blocks[-1].hashes[-1]) if blocks else log_start
    if position is not None and end != position:
        raise log.missing_segment_error(end.seq + 1)
    state = store.snapshot() if position is None else None
    return EventRange(LinkedEvents(blocks, base=base, state=state), base, state, end)
