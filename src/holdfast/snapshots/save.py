"""Write commits and snapshot records: the one write path of sessions and archives.

`Session.commit` and `Session.save` write the events that a session recorded. `StateSaver` does the
same for code without a log: it compares a whole state with the state at the head of the log, and
commits the difference as one event.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import random
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from weakref import WeakValueDictionary

from holdfast.blobs.holds import HOLD_AGE, delete_holds
from holdfast.blobs.writer import BlobWriter
from holdfast.errors import ConflictError, IntegrityError, NotFoundError
from holdfast.log.encoded_event import encode_changes, new_event
from holdfast.log.event_log import Position, PreparedSegment
from holdfast.log.segment import Segment
from holdfast.log.timeline import Timeline
from holdfast.snapshots.history import choose_history_key, find_history_key
from holdfast.snapshots.incarnation import (
    PASSIVE_EVENT_TYPES,
    Incarnation,
    ReplacedError,
    SweptError,
)
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.snapshots.load import load_state
from holdfast.snapshots.lookup import find_history_info, find_last_order
from holdfast.snapshots.order import HistoryKey, choose_stamp
from holdfast.snapshots.session_snapshot import SessionSnapshot, utc_now
from holdfast.snapshots.tool_calls import ToolCallIndex
from holdfast.state.snapshot import Snapshot, stored_changes
from holdfast.stores.base import StateStore
from holdfast.stores.entries import Put
from holdfast.stores.local import pause

CACHED_HEADS = 8
ATTEMPTS = 16


async def write_segment(
    incarnation: Incarnation,
    timeline: Timeline,
    segment: PreparedSegment,
    records: Sequence[Put] = (),
    *,
    blobs: BlobWriter,
    seen: Sequence[Segment],
    origin_active_at: dt.datetime | None = None,
) -> None:
    """Append a segment to the log together with records of it, and create the session if needed.

    The blobs that its events refer to are written first, by ``blobs``.

    ``seen`` is the last segment that the writer knows. ``origin_active_at`` is when the session
    was active that this one was forked or imported from; the new one is listed as active then.

    Raises:
        ReplacedError: The session was deleted, replaced or pruned; nothing was written.
        ConflictError: Another writer committed first; nothing was written.
        NotFoundError: An event refers to an attachment that is not stored; nothing was written.

    """
    refers = any(event.refers for event in segment.recorded)
    if incarnation.is_created:
        active_at = None
        for event in segment.recorded:
            at = event.at
            if event.type not in PASSIVE_EVENT_TYPES and (active_at is None or active_at < at):
                active_at = at
        if not refers:
            await incarnation.write(
                [segment.put],
                records,
                end=segment.after,
                seen=seen,
                active_at=active_at,
                written=segment.end,
            )
        elif incarnation.state_store.conditional_put_many:
            await append_referring(incarnation, segment, records, blobs, seen, active_at)
        else:
            await append_held(incarnation, segment, records, blobs, seen, active_at)
    else:
        started_at = segment.recorded[0].at
        active_at = started_at if origin_active_at is None else min(started_at, origin_active_at)
        if refers:
            # A deletion of an earlier session spares the blobs of one that is being created.
            await incarnation.claim(started_at=started_at, active_at=active_at)
            await blobs.store(segment.recorded, incarnation.manifest.blob_sweeps)
        await incarnation.create([segment.put], records, started_at=started_at, active_at=active_at)
    if refers:
        blobs.release(segment.recorded)
    timeline.advance(segment.end, len(segment.put.value))


async def append_referring(
    incarnation: Incarnation,
    segment: PreparedSegment,
    records: Sequence[Put],
    blobs: BlobWriter,
    seen: Sequence[Segment],
    active_at: dt.datetime | None,
) -> None:
    """Write blobs, then the segment that refers to them, provided that no sweep was in between."""
    for _ in range(ATTEMPTS):
        sweeps = incarnation.manifest.blob_sweeps
        await blobs.store(segment.recorded, sweeps)
        try:
            await incarnation.write(
                [segment.put],
                records,
                end=segment.after,
                seen=seen,
                active_at=active_at,
                sweeps=sweeps,
            )
        except SweptError as error:
            swept = error
        else:
            return
    raise swept


async def append_held(
    incarnation: Incarnation,
    segment: PreparedSegment,
    records: Sequence[Put],
    blobs: BlobWriter,
    seen: Sequence[Segment],
    active_at: dt.datetime | None,
) -> None:
    """Like `append_referring`, on a store where the write cannot be conditional on sweeps.

    If the outcome is unknown, the hold stays: the segment may be written later.
    """
    state_store = incarnation.state_store
    await blobs.store(segment.recorded, incarnation.manifest.blob_sweeps)
    held: list[str] = []
    try:
        for _ in range(ATTEMPTS):
            since = time.monotonic()
            held += await blobs.hold(segment.recorded)
            await incarnation.refresh(segment.after, seen)
            await blobs.store(segment.recorded, incarnation.manifest.blob_sweeps)
            if time.monotonic() - since < HOLD_AGE.total_seconds() / 2:
                break
        await incarnation.write(
            [segment.put],
            records,
            end=segment.after,
            seen=seen,
            active_at=active_at,
            written=segment.end,
        )
    except (ConflictError, NotFoundError):
        await delete_holds(state_store, held)
        raise
    await delete_holds(state_store, held)


@dataclass(slots=True)
class LogHead:
    """The head of a log and the state there, with which the next state is compared."""

    incarnation: Incarnation
    timeline: Timeline
    state: Snapshot
    seen: list[Segment]
    """The last segment, if it is known."""
    blobs: BlobWriter


class StateSaver:
    """Saves whole states as snapshots.

    The heads of the logs that were written last are cached, so that saving a state repeatedly
    reads nothing.
    """

    def __init__(self, state_store: StateStore) -> None:
        self.state_store = state_store
        self._heads: OrderedDict[SnapshotLocation, LogHead] = OrderedDict()
        self._locks: WeakValueDictionary[SnapshotLocation, asyncio.Lock] = WeakValueDictionary()

    def forget(self, location: SnapshotLocation | None = None) -> None:
        """Drop the cached head of a location, or of all."""
        if location is None:
            self._heads.clear()
        else:
            self._heads.pop(location, None)

    async def save(
        self,
        location: SnapshotLocation,
        snapshot_id: str,
        snapshot: SessionSnapshot,
        *,
        is_latest: bool,
    ) -> None:
        """Save a snapshot as the latest, or add it to the history.

        Raises:
            ConflictError: The history has another snapshot of this id, or other writers committed
                first in every attempt.

        """
        async with self._locks.setdefault(location, asyncio.Lock()):
            await self._save(location, snapshot_id, snapshot, is_latest=is_latest)

    async def _save(
        self,
        location: SnapshotLocation,
        snapshot_id: str,
        snapshot: SessionSnapshot,
        *,
        is_latest: bool,
    ) -> None:
        may_reuse_position = True
        for attempt in range(ATTEMPTS):
            if attempt:
                await pause(random.uniform(0, 0.01 * attempt))  # noqa: S311 - jitter
            if not is_latest and await self._is_saved(location, snapshot_id, snapshot):
                return
            head = await self._open_head(location)
            position = None
            if may_reuse_position:
                position = await self._find_position(location, snapshot, head)
            try:
                if await self._write(
                    location, snapshot_id, snapshot, head, position, is_latest=is_latest
                ):
                    return
            except ReplacedError:
                self.forget(location)
                # It may have been pruned beyond the snapshot's event: then commit a new one.
                may_reuse_position = position is None
            except BaseException as error:
                self.forget(location)
                if not isinstance(error, ConflictError):
                    raise
        raise ConflictError(
            f"other writers of session {location.session_id} committed first {ATTEMPTS} times in "
            "a row; retry when fewer write to it"
        )

    async def _is_saved(
        self, location: SnapshotLocation, snapshot_id: str, snapshot: SessionSnapshot
    ) -> bool:
        """Tell whether the history has this very snapshot; another one is a conflict."""
        info = await find_history_info(self.state_store, location, snapshot_id)
        if info is None:
            return False
        state = await load_state(self.state_store, location, info)
        if (
            info.tags == snapshot.tags
            and info.parent_id == snapshot.parent_id
            and state.digest == snapshot.digest
        ):
            return True
        raise ConflictError(
            f"{location.prefix} has another snapshot {snapshot_id}, and the history is never "
            "rewritten; save under a new id",
            key=info.history_key(location).key,
        )

    async def _open_head(self, location: SnapshotLocation) -> LogHead:
        """Return the head of the log as it was last read."""
        head = self._heads.get(location)
        if head is None:
            incarnation, timeline, loaded = await Incarnation.open(self.state_store, location)
            head = LogHead(
                incarnation,
                timeline,
                loaded.store.snapshot(),
                loaded.segments[-1:],
                BlobWriter(self.state_store, location.prefix),
            )
            self._heads[location] = head
            while len(self._heads) > CACHED_HEADS:
                self._heads.popitem(last=False)
        self._heads.move_to_end(location)
        return head

    async def _find_position(
        self, location: SnapshotLocation, snapshot: SessionSnapshot, head: LogHead
    ) -> Position | None:
        """Return the position in the log that has the snapshot's state already, or None."""
        end = head.timeline.log.head
        position = snapshot.position
        is_here = snapshot.location == location
        if is_here and position is not None and 0 < position.seq < end.seq:
            try:
                there = await head.timeline.load(position.seq, near=snapshot.keyframe)
            except (NotFoundError, IntegrityError):
                return None
            if there.end == position and is_same_state(there.store.snapshot(), snapshot.snapshot):
                return position
        return end if end.seq and is_same_state(head.state, snapshot.snapshot) else None

    async def _write(
        self,
        location: SnapshotLocation,
        snapshot_id: str,
        snapshot: SessionSnapshot,
        head: LogHead,
        position: Position | None,
        *,
        is_latest: bool,
    ) -> bool:
        """Write the record of a snapshot, and the event that leads to it if it has no position.

        Return False if another writer saved under the same id.
        """
        after = await find_last_order(self.state_store, location)
        info = replace(
            snapshot.info(),
            snapshot_id=snapshot_id,
            scope=location.scope,
            keyframe=head.timeline.base_keyframe.position.seq,
            incarnation=head.incarnation.id,
            unfinished=snapshot.unfinished or bool(ToolCallIndex().unfinished(snapshot.snapshot)),
            saved_at=utc_now(),
            stamp=choose_stamp(snapshot_id, after),
        )
        history_key, key, puts = None, location.latest_key, list[Put]()
        if not is_latest:
            history_key, puts = await choose_history_key(
                self.state_store, location, snapshot_id, after
            )
            info, key = replace(info, stamp=history_key.stamp), history_key.key

        def with_record(at: Position) -> list[Put]:
            record = replace(info, seq=at.seq, hash=at.hash).encode(location)
            return [*puts, Put(key, record, if_absent=not is_latest)]

        if position is None:
            segment = self._prepare(location, head, snapshot_id, snapshot.snapshot)
            await write_segment(
                head.incarnation,
                head.timeline,
                segment,
                with_record(segment.end),
                blobs=head.blobs,
                seen=head.seen,
            )
            head.seen = [segment.segment]
            head.state = snapshot.snapshot
            await head.timeline.write_keyframe_if_due(head.state)
        else:
            await head.incarnation.write([], with_record(position), end=position, seen=head.seen)
        return history_key is None or await self._is_found_by_id(history_key)

    def _prepare(
        self, location: SnapshotLocation, head: LogHead, snapshot_id: str, state: Snapshot
    ) -> PreparedSegment:
        """Return the difference between a state and the head as a segment of one event."""
        data = {"snapshot_id": snapshot_id}
        events = [new_event("state.restored", data, encode_changes(state, head.state))]
        if not head.incarnation.is_created:
            started = {"agent_id": location.scope_id, "session_id": location.session_id}
            events.insert(0, new_event("session.started", started, {"set": [], "delete": []}))
        log = head.timeline.log
        return log.prepare(events, log.head)

    async def _is_found_by_id(self, history_key: HistoryKey) -> bool:
        """Tell whether a snapshot that was just saved is found by its id; delete it if not.

        Without atomic batches, another writer can save under the same id between this writer's id
        entry and its record.
        """
        if history_key.stamp is None or self.state_store.atomic_put_many:
            return True
        found = await find_history_key(
            self.state_store, history_key.location, history_key.snapshot_id
        )
        if found is None or found == history_key:
            return True
        await self.state_store.delete(history_key.key)
        return False


def is_same_state(one: Snapshot, other: Snapshot) -> bool:
    """Tell whether two states have the same content."""
    return not stored_changes(one, other)
