"""Cache states by position, since stepping through a session loads each several times.

The state after an event never changes while the log contains that event. A session that was deleted
and created again, or restored from a backup, has other events, so each hit is checked. The cache is
bounded by size.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeAlias

from holdfast.errors import IntegrityError
from holdfast.log.event_log import EventLog
from holdfast.log.segment import decode_segment
from holdfast.server.positions import (
    NOW,
    SessionAt,
    empty_session,
    event_not_found,
    load_at_event,
    load_at_snapshot,
    load_head,
    parse_seq,
)
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.keys import SnapshotLocation

MAX_BYTES = 64 << 20
MAX_STATES = 256
Key: TypeAlias = tuple[SnapshotLocation, int]


class StateCache:
    """Loads states of sessions, and caches those at an event."""

    def __init__(self, archive: SnapshotArchive) -> None:
        self._archive = archive
        self._known: OrderedDict[Key, SessionAt] = OrderedDict()
        self._bytes = 0

    async def at(self, location: SnapshotLocation, text: str) -> SessionAt:
        """Return the session at a position.

        Raises:
            Problem: 404, the log does not contain the event.
            NotFoundError: There is no such snapshot.

        """
        if text == NOW:
            return await load_head(self._archive, location)
        seq = parse_seq(text)
        if seq is None:
            return await load_at_snapshot(self._archive, location, text)
        manifest = await self._archive.load_manifest(location=location)
        if seq < manifest.log_start.seq:
            raise await event_not_found(self._archive, location, seq)
        if seq == 0:
            return empty_session(location)
        key = (location, seq)
        found = self._known.get(key)
        if found is None or not await self._is_in_log(found, manifest.incarnation):
            found = await load_at_event(self._archive, location, seq)
        self._remember(key, found)
        return found

    async def _is_in_log(self, found: SessionAt, incarnation: str) -> bool:
        """Return whether the log still contains the event of a cached state.

        The segment's hash covers everything before it. If the state came from a keyframe, no
        segment was read, and the next segment says what it follows.
        """
        log = EventLog(self._archive.state_store, found.location.prefix, incarnation)
        key, hash_ = found.segment or (log.key(found.position.seq + 1), None)
        entry = await self._archive.state_store.get(key)
        if entry is None:
            return False
        try:
            there = decode_segment(key, entry.value)
        except IntegrityError:
            return False  # loading it again reports the damage
        return there.prev == found.position.hash if hash_ is None else there.hash == hash_

    def _remember(self, key: Key, found: SessionAt) -> None:
        """Store a state as the most recently used one."""
        before = self._known.pop(key, None)
        if before is not None:
            self._bytes -= before.state.size_bytes
        self._known[key] = found
        self._bytes += found.state.size_bytes
        while self._bytes > MAX_BYTES or len(self._known) > MAX_STATES:
            _, gone = self._known.popitem(last=False)
            self._bytes -= gone.state.size_bytes
