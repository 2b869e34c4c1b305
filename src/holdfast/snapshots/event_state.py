"""Load the state of a session after one of its events, or at two positions."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.errors import IntegrityError, NotFoundError
from holdfast.log.changes import fold_changes
from holdfast.log.event_log import Position
from holdfast.log.segment import decode_segment
from holdfast.log.timeline import LoadedState, Timeline
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.snapshots.session_snapshot import SessionSnapshot
from holdfast.state.diff import Changes
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store

MIN_STEPS = 1000
"""How many events are always folded rather than loading another keyframe."""


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
        head = await find_head(timeline)
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


async def find_head(timeline: Timeline) -> int:
    """Return the number of the last event, without loading the state.

    Raises:
        IntegrityError: The last segment is damaged.

    """
    key, keyframe = await timeline.change_token()
    entry = await timeline.state_store.get(key) if key else None
    return keyframe if entry is None else decode_segment(key, entry.value).last


# ---------------------------------------------------------------------------------- two positions


@dataclass(frozen=True, slots=True)
class _Target:
    """A position to load."""

    seq: int | None
    """The event; None for the head."""
    hash: str | None = None
    """The hash there, if it is known."""
    keyframe: int = 0


async def load_states(
    archive: SnapshotArchive,
    location: SnapshotLocation,
    first: str | int | None,
    second: str | int | None,
) -> tuple[Snapshot, Snapshot]:
    """Load the states at two positions: snapshot ids, event numbers, or None for the head.

    The later one is derived from the earlier one if that is less work than loading it. The two
    states then share all that is equal, and comparing them is cheap.

    Raises:
        NotFoundError: There is no such snapshot or event, or it was pruned.
        IntegrityError: Stored data is damaged.

    """
    try:
        found = await _load_both(archive, location, first, second)
    except (IntegrityError, NotFoundError):
        found = None  # loading each on its own finds out why
    if found is not None:
        return found
    return (
        await load_state(archive, location, first),
        await load_state(archive, location, second),
    )


async def load_state(
    archive: SnapshotArchive, location: SnapshotLocation, ref: str | int | None
) -> Snapshot:
    """Load the state at a snapshot id, an event number, or None for the head.

    Raises:
        NotFoundError: There is no such snapshot or event, or it was pruned.
        IntegrityError: Stored data is damaged.

    """
    if isinstance(ref, int):
        return (await load_state_at_event(archive, location, ref)).snapshot
    if isinstance(ref, str):
        snapshot = await archive.load_snapshot(location=location, snapshot_id=ref)
        if snapshot is None:
            raise NotFoundError(f"no snapshot {ref} in {location.prefix}")
        return snapshot.snapshot
    return (await (await archive.timeline(location=location)).load()).store.snapshot()


async def _load_both(
    archive: SnapshotArchive,
    location: SnapshotLocation,
    first: str | int | None,
    second: str | int | None,
) -> tuple[Snapshot, Snapshot] | None:
    """Load the earlier state, and the later one from it; None if that would be more work."""
    targets = []
    for ref in (first, second):
        if isinstance(ref, str):
            info = await archive.load_info(location=location, snapshot_id=ref)
            if info is None:
                return None
            targets.append(_Target(info.seq, info.hash, info.keyframe))
        else:
            targets.append(_Target(ref))
    earlier, later = sorted(targets, key=lambda each: (each.seq is None, each.seq or 0))
    if earlier.seq is None or earlier.seq < 1:
        return None
    timeline = await archive.timeline(location=location)
    loaded = await timeline.load(earlier.seq, near=earlier.keyframe)
    before = loaded.store.snapshot()
    advanced = await _advance(timeline, loaded, later.seq)
    if advanced is None or earlier.hash not in (None, loaded.end.hash):
        return None
    after, end = advanced
    if later.hash not in (None, end.hash):
        return None
    return (before, after) if targets[0] is earlier else (after, before)


async def _advance(
    timeline: Timeline, loaded: LoadedState, last: int | None
) -> tuple[Snapshot, Position] | None:
    """Return the state after a later event and its position; None if it is too far."""
    limit = loaded.end.seq + max(MIN_STEPS, len(loaded.store))
    if last is not None and last > limit:
        return None
    end = loaded.end
    changes: list[Changes] = []
    segments = loaded.segments[-1:]
    boundary = Position(segments[0].last, segments[0].hash) if segments else end
    if boundary.seq == end.seq:
        segments = []
    if last is None or last > boundary.seq:
        async for segment in timeline.log.segments(boundary, last):
            if segment.first > limit:
                return None
            segments.append(segment)
    for segment in segments:
        skipped = max(0, loaded.end.seq - segment.first + 1)
        changes += list(segment.changes(last))[skipped:]
        end = Position(segment.last, segment.hash)
        if last is not None and segment.last > last:
            end = Position(last, segment.events()[last - segment.first].hash)
    if last is not None and end.seq < last:
        return None
    store = Store(max_history=0)
    store.restore(loaded.store.snapshot())
    fold_changes(store, changes, timeline.contents)
    return store.snapshot(), end


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
