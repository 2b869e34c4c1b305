"""A session with its events as one document."""

from __future__ import annotations

import os
from dataclasses import replace

from holdfast.documents.encode import SIGNATURES
from holdfast.errors import IntegrityError, NotFoundError
from holdfast.ids import new_id
from holdfast.log.changes import fold_changes
from holdfast.log.event import Event
from holdfast.log.event_log import EventLog, Position
from holdfast.log.timeline import Timeline
from holdfast.snapshots.archive import SnapshotArchive
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
) -> SessionSnapshot:
    """What is committed of a session, or a kept snapshot of it, with the events that led there.

    ``seq`` is the number of an event: the session as it was after that one.
    """
    if seq is not None:
        reached = await load_state_at_event(archive, location, seq)
        events, base = await read_events_up_to(archive, location, reached.position)
        found = replace(reached, events=events, base=base)
    elif snapshot_id is None:
        found = await load_current(archive, location)
    else:
        kept = await archive.load_snapshot(location=location, snapshot_id=snapshot_id)
        if kept is None:
            raise NotFoundError(f"there is no snapshot {snapshot_id} in {location.prefix}")
        events, base = await read_events_up_to(archive, location, kept.position or Position())
        found = replace(kept, events=events, base=base)
    return replace(
        found,
        event_log_count=len(found.events),
        exported_at=utc_now(),
        source_environment=os.environ.get(ENVIRONMENT_VARIABLE),
        tags={**found.tags, **(tags or {})},
        # Signatures of a document that was kept are not of this one, which says when it was made.
        extra={name: value for name, value in found.extra.items() if name != SIGNATURES},
    )


async def load_state_at_event(
    archive: SnapshotArchive, location: SnapshotLocation, seq: int
) -> SessionSnapshot:
    """Load the state of a session after one of its events, as a snapshot that is not saved.

    Raises:
        NotFoundError: The event was pruned, or has not happened yet.
        ValueError: The number is below 1.

    """
    if isinstance(seq, bool) or seq < 1:
        raise ValueError(f"invalid event number {seq!r}; events are counted from 1")
    timeline = await archive.timeline(location=location)
    try:
        there = await timeline.load(seq)
    except (NotFoundError, IntegrityError):
        log_start = (await archive.load_manifest(location=location)).log_start.seq
        if seq < log_start:
            raise pruned_events_error(location, seq, seq, log_start) from None
        end = (await timeline.load()).end.seq
        if seq > end:
            raise missing_event_error(location, seq, end) from None
        raise
    return SessionSnapshot(
        snapshot=there.store.snapshot(),
        agent_id=location.scope_id,
        session_id=location.session_id,
        scope=location.scope,
        snapshot_id=new_id(),
        position=there.end,
    )


def pruned_events_error(
    location: SnapshotLocation, first: int, last: int, log_start: int
) -> NotFoundError:
    """Make the error for events that were pruned; ``log_start`` is the last of those."""
    which = f"event {first} was" if first == last else f"events {first} to {last} were"
    return NotFoundError(
        f"{which} pruned from session {location.session_id} of {location.scope_id}; "
        f"its log starts after event {log_start}"
    )


def missing_event_error(location: SnapshotLocation, seq: int, end: int) -> NotFoundError:
    """Make the error for an event after the last one."""
    return NotFoundError(
        f"session {location.session_id} of {location.scope_id} has no event {seq}; "
        f"its last event is {end}"
    )


async def read_events_up_to(
    archive: SnapshotArchive, location: SnapshotLocation, position: Position | None = None
) -> tuple[tuple[Event, ...], Snapshot | None]:
    """The events up to a position that are still there, and the state before the first of them.

    Without a position they are those up to the last.
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
            # Who prunes meanwhile takes away what was about to be read: the log begins later now.
            manifest = await archive.load_manifest(location=location)
            if (manifest.incarnation, manifest.log_start) == (timeline.incarnation, log_start):
                raise
    return (), None


async def read_log_range(
    log: EventLog, log_start: Position, position: Position | None
) -> tuple[Event, ...]:
    """The events from one place of the log to another, which has to be there, or to the end."""
    last = None if position is None else position.seq
    events: list[Event] = []
    async for segment in log.segments(log_start, last):
        events += segment.events()
    if position is not None:
        del events[position.seq - log_start.seq :]
        if not events or events[-1].hash != position.hash:
            raise log.missing(events[-1].seq + 1 if events else log_start.seq + 1)
    return tuple(events)


async def load_current(archive: SnapshotArchive, location: SnapshotLocation) -> SessionSnapshot:
    """A session as it is committed now, with an id of its own."""
    latest = await archive.load_info(location=location)
    events, base = await read_events_up_to(archive, location)
    if events:
        # They are all here: to fold them takes less than to read a keyframe.
        store = Store(max_history=0)
        if base is not None:
            store.restore(base)
        fold_changes(store, (event.changes for event in events))
        end = Position(events[-1].seq, events[-1].hash)
    else:
        there = await (await archive.timeline(location=location)).load()
        store, end = there.store, there.end
    if end.seq == 0:
        raise NotFoundError(
            f"the agent {location.scope_id} has no session {location.session_id} in this store: "
            "see holdfast.Catalog(state_store).sessions(agent_id)"
        )
    return SessionSnapshot(
        snapshot=store.snapshot(),
        agent_id=location.scope_id,
        session_id=location.session_id,
        scope=location.scope,
        snapshot_id=new_id(),
        parent_id=None if latest is None else latest.snapshot_id,
        position=end,
        events=events,
        base=base,
    )
