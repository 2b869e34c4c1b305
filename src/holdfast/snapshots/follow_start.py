"""Find where a follower of a log starts: at the end of a segment."""

from __future__ import annotations

from holdfast.errors import IntegrityError, NotFoundError
from holdfast.log.event_log import Position
from holdfast.log.segment import decode_segment
from holdfast.log.timeline import Timeline
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.snapshots.manifest import SnapshotManifest
from holdfast.stores.base import StateStore


async def find_start(
    state_store: StateStore,
    location: SnapshotLocation,
    manifest: SnapshotManifest,
    after: int | None,
) -> Position:
    """Return the last position at or before an event at which a segment ends.

    Without ``after``, it is the end of the log.

    Raises:
        NotFoundError: The log does not have the event, or the events after it were pruned.
        IntegrityError: The log is damaged.

    """
    log_start = manifest.log_start
    if after is None:
        return await find_head(state_store, location, manifest)
    if after <= log_start.seq:
        if after < log_start.seq:
            raise pruned_error(location, manifest)
        return log_start
    timeline = Timeline(state_store, location.prefix, manifest.incarnation)
    key = timeline.log.key(after + 1)
    entry = await state_store.get(key)
    if entry is not None:
        return Position(after, decode_segment(key, entry.value).prev)
    # The event is the last one, or inside a segment.
    position = await timeline.find_keyframe_position(after + 1)
    if position.seq < log_start.seq:
        position = log_start
    async for segment in timeline.log.segments(position, after):
        # With events after the start, so that none is received without events.
        if segment.last > after:
            return Position(segment.first - 1, segment.prev)
        position = Position(segment.last, segment.hash)
    if position.seq < after:
        raise NotFoundError(
            f"{describe_session(location)} has no event {after}; its last event is {position.seq}: "
            "follow it from there or before"
        )
    return position


async def find_head(
    state_store: StateStore, location: SnapshotLocation, manifest: SnapshotManifest
) -> Position:
    """Return the last position of a log.

    Raises:
        IntegrityError: The log is damaged.

    """
    timeline = Timeline(state_store, location.prefix, manifest.incarnation)
    key, keyframe = await timeline.change_token()
    if key:
        entry = await state_store.get(key)
        if entry is None:
            raise IntegrityError(f"log segment {key} is listed but cannot be read; run verify")
        segment = decode_segment(key, entry.value)
        return Position(segment.last, segment.hash)
    if keyframe:
        frame = await timeline.read_keyframe(keyframe)
        return Position(frame.seq, frame.hash)
    return manifest.log_start


def describe_session(location: SnapshotLocation) -> str:
    """Return the name of a session in messages."""
    return f"session {location.session_id} of {location.scope_id}"


def pruned_error(location: SnapshotLocation, manifest: SnapshotManifest) -> NotFoundError:
    """Return the error for events that were pruned."""
    start = manifest.log_start.seq
    return NotFoundError(
        f"events up to {start} of {describe_session(location)} were pruned; load its state, and "
        f"follow it with after={start} or later"
    )
