"""Moments of a session as a request names them, and what the session was then.

A moment is the number of an event, the id of a snapshot, or ``now``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast.errors import IntegrityError, NotFoundError, short_repr
from holdfast.log.event import format_time
from holdfast.log.event_log import Position
from holdfast.log.timeline import LoadedState, Timeline
from holdfast.server.problems import Problem, reject_invalid
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store

NOW = "now"
MAX_SEQ = 10**12


@dataclass(frozen=True, slots=True)
class SessionAt:
    """What a session was at one moment."""

    location: SnapshotLocation
    state: Snapshot
    position: Position
    snapshot_id: str | None = None
    at: str | None = None
    """When the event happened that led there, where that was read with it."""
    segment: tuple[str, str] | None = None
    """The key and the hash of the segment with that event, where that was read with it."""

    def named(self) -> dict[str, Any]:
        """Which moment it is, for an answer."""
        return {
            "agent_id": self.location.scope_id,
            "session_id": self.location.session_id,
            "scope": self.location.scope,
            "seq": self.position.seq,
            "snapshot_id": self.snapshot_id,
        }


def parse_seq(text: str) -> int | None:
    """The number of an event that a text stands for; None where it means something else."""
    if not (text.isascii() and text.isdecimal()):
        return None
    seq = int(text) if len(text) < 20 else MAX_SEQ
    if seq >= MAX_SEQ:
        raise Problem(422, f"no event has the number {short_repr(text)}", hint="they count from 1")
    return seq


async def load_head(archive: SnapshotArchive, location: SnapshotLocation) -> SessionAt:
    """The state as it is committed."""
    return from_loaded_state(location, await (await archive.timeline(location=location)).load())


def empty_session(location: SnapshotLocation) -> SessionAt:
    """The state before the first event: nothing."""
    return SessionAt(location, Store(max_history=0).snapshot(), Position())


async def load_at_event(
    archive: SnapshotArchive, location: SnapshotLocation, seq: int
) -> SessionAt:
    """The state after an event."""
    timeline = await archive.timeline(location=location)
    try:
        there = await timeline.load(seq)
    except IntegrityError:
        # It may be damaged, or it may not have happened yet.
        if seq > (await timeline.load()).end.seq:
            raise await event_not_found(archive, location, seq) from None
        raise
    return from_loaded_state(location, there)


def from_loaded_state(location: SnapshotLocation, there: LoadedState) -> SessionAt:
    """The moment that a load led to."""
    state = there.store.snapshot()
    if not there.segments:
        return SessionAt(location, state, there.end)
    segment = there.segments[-1]
    at = format_time(segment.events()[there.end.seq - segment.first].at)
    return SessionAt(location, state, there.end, at=at, segment=(segment.key, segment.hash))


async def load_at_snapshot(
    archive: SnapshotArchive, location: SnapshotLocation, snapshot_id: str
) -> SessionAt:
    """The state at a snapshot."""
    with reject_invalid():
        found = await archive.load_snapshot(location=location, snapshot_id=snapshot_id)
    if found is None:
        raise snapshot_not_found(location, snapshot_id)
    return SessionAt(location, found.snapshot, found.position or Position(), found.snapshot_id)


async def event_not_found(
    archive: SnapshotArchive, location: SnapshotLocation, seq: int
) -> Problem:
    """Return the problem of an event outside of the log, with the range of events that exist."""
    start = (await archive.load_manifest(location=location)).log_start.seq + 1
    last = (await (await archive.timeline(location=location)).load()).end.seq
    if start > last:
        range_ = f"all events up to {last} were pruned"
    else:
        range_ = f"its log has the events {start} to {last}"
    session = f"the session {location.session_id} of {location.scope_id}"
    if 0 <= seq < start and start > 1:
        detail = f"event {seq} of {session} was pruned; {range_}"
        hint = f"use an event from {start} on, or a snapshot that was kept"
    else:
        detail = f"{session} has no event {seq}; {range_}"
        hint = f"use an event up to {last}"
    return Problem(404, detail, hint=hint, more={"first_event": start, "last_event": last})


async def read_event_time(timeline: Timeline, seq: int) -> str | None:
    """When an event happened; None where it was pruned."""
    try:
        async for event in timeline.events(seq, seq):
            return format_time(event.at)
    except NotFoundError:
        return None
    return None


def snapshot_not_found(location: SnapshotLocation, snapshot_id: str) -> NotFoundError:
    """The error for a snapshot that is not there."""
    return NotFoundError(
        f"the session {location.session_id} of {location.scope_id} has no snapshot "
        f"{short_repr(snapshot_id)}"
    )
