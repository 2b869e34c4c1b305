"""Load states and events of sessions, and cache states by position.

The state after an event never changes while the log contains that event, and `heads` tells whether
it still does. A state that is not cached is folded from the nearest cached one before it, or from a
keyframe. The cache is bounded by size.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from contextlib import suppress
from threading import Lock
from typing import TypeAlias

from holdfast.errors import IntegrityError, NotFoundError
from holdfast.log.changes import fold_changes
from holdfast.log.event import Event, format_time
from holdfast.log.event_log import Position
from holdfast.log.timeline import BaseKeyframe, LoadedState
from holdfast.server.byte_cache import ByteCache
from holdfast.server.heads import SessionHead
from holdfast.server.positions import (
    NOW,
    SessionAt,
    Target,
    empty_session,
    event_not_found,
    from_loaded_state,
    parse_seq,
    snapshot_not_found,
)
from holdfast.server.problems import reject_invalid
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.snapshots.load import load_state
from holdfast.state.store import Store

MAX_BYTES = 64 << 20
MIN_SIZE = MAX_BYTES // 4096
"""The least that a state counts for, since states share what they have in common."""
MAX_STEP = 256
"""Events between a cached state and one that is folded from it, if there may be a keyframe."""
Log: TypeAlias = tuple[SnapshotLocation, int]


class StateCache:
    """Loads states and events of sessions, and caches states."""

    def __init__(self, archive: SnapshotArchive) -> None:
        self._archive = archive
        self._states: ByteCache[tuple[Log, int], SessionAt] = ByteCache(MAX_BYTES)
        self._bases: dict[Log, list[int]] = {}
        """The sorted seqs of cached states from which the log can be read, by log."""
        self._lock = Lock()

    async def find(self, head: SessionHead, text: str) -> Target:
        """Return the position that a text stands for, without loading its state.

        Raises:
            Problem: 404, the log does not contain the event.
            NotFoundError: There is no such snapshot.

        """
        if text == NOW:
            return Target(head.position.seq)
        seq = parse_seq(text)
        if seq is not None:
            is_past_end = head.end is not None and seq > head.end.seq
            if seq < head.manifest.log_start.seq or is_past_end:
                raise event_not_found(head, seq)
            return Target(seq)
        with reject_invalid():
            info = await self._archive.load_info(location=head.location, snapshot_id=text)
        if info is None:
            raise snapshot_not_found(head.location, text)
        return Target(info.seq, info)

    async def at(self, head: SessionHead, text: str) -> SessionAt:
        """Return the session at a position.

        Raises:
            Problem: 404, the log does not contain the event.
            NotFoundError: There is no such snapshot.

        """
        return await self.load(head, await self.find(head, text))

    async def load(self, head: SessionHead, target: Target) -> SessionAt:
        """Return the session at a position that exists.

        Raises:
            IntegrityError: The log or a keyframe is damaged or missing.

        """
        if target.info is not None:
            info = target.info
            state = await load_state(self._archive.state_store, head.location, info)
            return SessionAt(head.location, state, info.position, info.snapshot_id)
        if target.seq == 0:
            return empty_session(head.location)
        log = (head.location, head.generation)
        found = self._states.get((log, target.seq))
        if found is None:
            found = await self._load(head, target.seq)
            self._remember(log, found)
        return found

    async def _load(self, head: SessionHead, seq: int) -> SessionAt:
        """Load the state after an event, from a cached state or from a keyframe."""
        timeline = head.timeline(self._archive.state_store)
        base = self._find_base(head, seq)
        near = 0
        if base is not None:
            start = base.position.seq
            if seq - start > MAX_STEP:
                keyframes = await timeline.list_keyframe_seqs(after=start, last=seq)
                near = keyframes[-1] if keyframes else 0
            if not near:
                # A concurrent prune may delete segments; a keyframe makes up for them.
                with suppress(IntegrityError, NotFoundError):
                    return await self._fold(head, base, seq)
        loaded = await timeline.load(seq, near=near)
        keyframe = loaded.base_keyframe
        if keyframe.position.seq:
            before = SessionAt(head.location, keyframe.state, keyframe.position, ends_segment=True)
            self._remember((head.location, head.generation), before)
        return from_loaded_state(head.location, loaded)

    async def _fold(self, head: SessionHead, base: SessionAt, seq: int) -> SessionAt:
        """Load the state after an event from the state at the end of an earlier segment."""
        store = Store(max_history=0)
        store.restore(base.state)
        loaded = LoadedState(store, base.position, BaseKeyframe(), [])
        log = head.log(self._archive.state_store)
        contents = head.timeline(self._archive.state_store).contents
        async for segment in log.segments(base.position, seq):
            if segment.last > seq and segment.first - 1 > base.position.seq:
                # The other events of this segment are loaded from here.
                before = SessionAt(head.location, store.snapshot(), loaded.end, ends_segment=True)
                self._remember((head.location, head.generation), before)
            fold_changes(store, segment.changes(seq), contents)
            loaded.segments = [segment]
            loaded.end = Position(segment.last, segment.hash)
            if segment.last > seq:
                loaded.end = Position(seq, segment.events()[seq - segment.first].hash)
        if loaded.end.seq < seq:
            raise log.missing_segment_error(loaded.end.seq + 1)
        return from_loaded_state(head.location, loaded)

    def _find_base(self, head: SessionHead, seq: int) -> SessionAt | None:
        """Return the nearest cached state from which the log leads to an event."""
        log = (head.location, head.generation)
        with self._lock:
            seqs = self._bases.get(log, [])
            number = bisect_right(seqs, seq)
            nearest = seqs[number - 1] if number else 0
        if nearest:
            return self._states.get((log, nearest))
        return None if head.manifest.log_start.seq else empty_session(head.location)

    def _remember(self, log: Log, found: SessionAt) -> None:
        """Cache a state."""
        seq = found.position.seq
        size = max(found.state.size_bytes, MIN_SIZE)
        dropped = self._states.put((log, seq), found, size)
        with self._lock:
            if found.ends_segment and seq not in self._bases.setdefault(log, []):
                insort(self._bases[log], seq)
            for its_log, gone in dropped:
                if gone in (seqs := self._bases.get(its_log, [])):
                    seqs.remove(gone)
                if not seqs:
                    self._bases.pop(its_log, None)

    # ------------------------------------------------------------------------------------ events

    async def events(self, head: SessionHead, first: int, last: int) -> list[Event]:
        """Return the events from first to last, both included; fewer at the end of the log.

        Raises:
            NotFoundError: The events were pruned.
            IntegrityError: A segment is missing or damaged.

        """
        base = self._find_base(head, first - 1)
        if base is not None and first - base.position.seq <= MAX_STEP:
            log = head.log(self._archive.state_store)
            with suppress(IntegrityError, NotFoundError):  # as in _load
                return [event async for event in log.read(first, last, after=base.position)]
        timeline = head.timeline(self._archive.state_store)
        return [event async for event in timeline.events(first, last)]

    async def read_time(self, head: SessionHead, found: SessionAt) -> str | None:
        """Return the time of the last event before a position; None if there is none any more."""
        seq = found.position.seq
        if found.at is not None or seq <= head.manifest.log_start.seq:
            return found.at
        events = await self.events(head, seq, seq)
        return format_time(events[0].at) if events else None
