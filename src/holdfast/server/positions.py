"""Load a session at a requested position: an event number, a snapshot id, or ``now``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast.errors import IntegrityError, NotFoundError, short_repr
from holdfast.log.event import format_time
from holdfast.log.event_log import Position
from holdfast.log.timeline import LoadedState, Timeline
from holdfast.server.problems import Problem, reject_invalid
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.keys import SnapshotLocation, location_fields
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store

NOW = "now"
MAX_SEQ = 10**12


@dataclass(frozen=True, slots=True)
class SessionAt:
    """A session at one position."""

    location: SnapshotLocation
    state: Snapshot
    position: Position
    snapshot_id: str | None = None
    at: str | None = None
    """The time of the last event, if it was read."""
    segment: tuple[str, str] | None = None
    """The key and hash of the segment with that event, if it was read."""

    def to_json(self) -> dict[str, Any]:
        """Return the position as JSON data."""
        return {
            **location_fields(self.location),
            "seq": self.position.seq,
            "snapshot_id": self.snapshot_id,
        }


def parse_seq(text: str) -> int | None:
    """Return the event number that a text stands for; None if it is not a number."""
    if not (text.isascii() and text.isdecimal()):
        return None
    seq = int(text) if len(text) < 20 else MAX_SEQ
    if seq >= MAX_SEQ:
        raise Problem(
            422, f"invalid event number {short_repr(text)}", hint="events are numbered from 1"
        )
    return seq


async def load_head(archive: SnapshotArchive, location: SnapshotLocation) -> SessionAt:
    """Load the session at its head."""
    return from_loaded_state(location, await (await archive.timeline(location=location)).load())


def empty_session(location: SnapshotLocation) -> SessionAt:
    """Return the session before its first event."""
    return SessionAt(location, Store(max_history=0).snapshot(), Position())


async def load_at_event(
    archive: SnapshotArchive, location: SnapshotLocation, seq: int
) -> SessionAt:
    """Load the session after an event."""
    timeline = await archive.timeline(location=location)
    try:
        there = await timeline.load(seq)
    except IntegrityError:
        # The log may be damaged, or not that long yet.
        if seq > (await timeline.load()).end.seq:
            raise await event_not_found(archive, location, seq) from None
        raise
    return from_loaded_state(location, there)


def from_loaded_state(location: SnapshotLocation, there: LoadedState) -> SessionAt:
    """Return the position that was loaded."""
    state = there.store.snapshot()
    if not there.segments:
        return SessionAt(location, state, there.end)
    segment = there.segments[-1]
    at = format_time(segment.events()[there.end.seq - segment.first].at)
    return SessionAt(location, state, there.end, at=at, segment=(segment.key, segment.hash))


async def load_at_snapshot(
    archive: SnapshotArchive, location: SnapshotLocation, snapshot_id: str
) -> SessionAt:
    """Load the session at a snapshot."""
    with reject_invalid():
        found = await archive.load_snapshot(location=location, snapshot_id=snapshot_id)
    if found is None:
        raise snapshot_not_found(location, snapshot_id)
    return SessionAt(location, found.snapshot, found.position or Position(), found.snapshot_id)


async def event_not_found(
    archive: SnapshotArchive, location: SnapshotLocation, seq: int
) -> Problem:
    """Return the problem of an event outside the log, with the range that exists."""
    start = (await archive.load_manifest(location=location)).log_start.seq + 1
    last = (await (await archive.timeline(location=location)).load()).end.seq
    if start > last:
        range_ = f"all events up to {last} were pruned"
    else:
        range_ = f"its log has events {start} to {last}"
    session = f"session {location.session_id} of {location.scope_id}"
    if 0 <= seq < start and start > 1:
        detail = f"event {seq} of {session} was pruned; {range_}"
        hint = f"use an event from {start} on, or a durable snapshot"
    else:
        detail = f"{session} has no event {seq}; {range_}"
        hint = f"use an event up to {last}"
    return Problem(404, detail, hint=hint, more={"first_event": start, "last_event": last})


async def read_event_time(timeline: Timeline, seq: int) -> str | None:
    """Return the time of an event; None if it was pruned."""
    try:
        async for event in timeline.events(seq, seq):
            return format_time(event.at)
    except NotFoundError:
        return None
    return None


def snapshot_not_found(location: SnapshotLocation, snapshot_id: str) -> NotFoundError:
    """Return the error for a snapshot that does not exist."""
    return NotFoundError(
        f"session {location.session_id} of {location.scope_id} has no snapshot "
        f"{short_repr(snapshot_id)}"
    )
