"""A session at a requested position: an event number, a snapshot id, or ``now``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast.errors import NotFoundError, short_repr
from holdfast.log.event import format_time
from holdfast.log.event_log import Position
from holdfast.log.timeline import LoadedState
from holdfast.server.heads import SessionHead
from holdfast.server.problems import Problem
from holdfast.snapshots.keys import SnapshotLocation, location_fields
from holdfast.snapshots.records import SnapshotInfo
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store

NOW = "now"
MAX_SEQ = 10**12


@dataclass(frozen=True, slots=True)
class Target:
    """A position that exists: after an event, or at a snapshot."""

    seq: int
    info: SnapshotInfo | None = None

    @property
    def key(self) -> tuple[int, str | None]:
        """What identifies it in its session."""
        return self.seq, None if self.info is None else self.info.snapshot_id


@dataclass(frozen=True, slots=True)
class SessionAt:
    """A session at one position."""

    location: SnapshotLocation
    state: Snapshot
    position: Position
    snapshot_id: str | None = None
    at: str | None = None
    """The time of the last event, if it was read."""
    ends_segment: bool = False
    """Whether a segment ends here, so that the log can be read from here."""

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


def empty_session(location: SnapshotLocation) -> SessionAt:
    """Return the session before its first event."""
    return SessionAt(location, Store(max_history=0).snapshot(), Position(), ends_segment=True)


def from_loaded_state(location: SnapshotLocation, there: LoadedState) -> SessionAt:
    """Return the position that was loaded."""
    state = there.store.snapshot()
    if not there.segments:
        return SessionAt(location, state, there.end, ends_segment=True)
    segment = there.segments[-1]
    at = format_time(segment.events()[there.end.seq - segment.first].at)
    ends_segment = segment.last == there.end.seq
    return SessionAt(location, state, there.end, at=at, ends_segment=ends_segment)


def event_not_found(head: SessionHead, seq: int) -> Problem:
    """Return the problem of an event outside the log, with the range that exists."""
    location, last = head.location, head.position.seq
    start = head.manifest.log_start.seq + 1
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


def snapshot_not_found(location: SnapshotLocation, snapshot_id: str) -> NotFoundError:
    """Return the error for a snapshot that does not exist."""
    return NotFoundError(
        f"session {location.session_id} of {location.scope_id} has no snapshot "
        f"{short_repr(snapshot_id)}"
    )
