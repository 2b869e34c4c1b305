"""Load the state of a session after one of its events."""

from __future__ import annotations

from holdfast.errors import IntegrityError, NotFoundError
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.snapshots.session_snapshot import SessionSnapshot


async def load_state_at_event(
    archive: SnapshotArchive, location: SnapshotLocation, seq: int
) -> SessionSnapshot:
    """Load the state of a session after one of its events, as a snapshot that is not saved.

    Raises:
        NotFoundError: The event was pruned, or does not exist yet.
        ValueError: The number is below 1.

    """
    if isinstance(seq, bool) or seq < 1:
        raise ValueError(f"invalid event number {seq!r}: events are counted from 1")
    timeline = await archive.timeline(location=location)
    try:
        loaded = await timeline.load(seq)
    except (NotFoundError, IntegrityError):
        log_start = (await archive.load_manifest(location=location)).log_start.seq
        if seq < log_start:
            raise pruned_events_error(location, seq, seq, log_start) from None
        head = (await timeline.load()).end.seq
        if seq > head:
            raise missing_event_error(location, seq, head) from None
        raise
    return SessionSnapshot(
        snapshot=loaded.store.snapshot(),
        agent_id=location.scope_id,
        session_id=location.session_id,
        scope=location.scope,
        position=loaded.end,
    )


def pruned_events_error(
    location: SnapshotLocation, first: int, last: int, log_start: int
) -> NotFoundError:
    """Return the error for events that were pruned; ``log_start`` is the last pruned event."""
    which = f"event {first} was" if first == last else f"events {first} to {last} were"
    return NotFoundError(
        f"{which} pruned from session {location.session_id} of {location.scope_id}; "
        f"its log starts after event {log_start}"
    )


def missing_event_error(location: SnapshotLocation, seq: int, head: int) -> NotFoundError:
    """Return the error for an event after the head of the log."""
    return NotFoundError(
        f"session {location.session_id} of {location.scope_id} has no event {seq}; "
        f"its last event is {head}"
    )
