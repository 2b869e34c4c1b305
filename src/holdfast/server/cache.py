"""States that were looked at a moment ago: who walks through a session asks for each several times.

What an event led to never changes, so a state is known by its session and the event's number, as
long as the log has that event: one that was deleted and begun again, or copied back from a backup,
has others. How much is remembered is bounded by its size.
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

MOST_BYTES = 64 << 20
MOST = 256
Key: TypeAlias = tuple[SnapshotLocation, int]


class StateCache:
    """The states of sessions, some of them remembered."""

    def __init__(self, archive: SnapshotArchive) -> None:
        self._archive = archive
        self._known: OrderedDict[Key, SessionAt] = OrderedDict()
        self._bytes = 0

    async def at(self, location: SnapshotLocation, text: str) -> SessionAt:
        """What a session was at a moment; a 404 where its log has not that event."""
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
        """Whether the log still has the event that led to a moment.

        Its segment tells, by a hash that all before it is in. Where the state was that of a
        keyframe, no segment was read, and it is the next one that says what it follows.
        """
        log = EventLog(self._archive.state_store, found.location.prefix, incarnation)
        key, hash_ = found.segment or (log.key(found.position.seq + 1), None)
        entry = await self._archive.state_store.get(key)
        if entry is None:
            return False
        try:
            there = decode_segment(key, entry.value)
        except IntegrityError:
            return False  # who loads it anew says what is wrong
        return there.prev == found.position.hash if hash_ is None else there.hash == hash_

    def _remember(self, key: Key, found: SessionAt) -> None:
        """Keep a moment as the one that was asked for last."""
        before = self._known.pop(key, None)
        if before is not None:
            self._bytes -= before.state.size_bytes
        self._known[key] = found
        self._bytes += found.state.size_bytes
        while self._bytes > MOST_BYTES or len(self._known) > MOST:
            _, gone = self._known.popitem(last=False)
            self._bytes -= gone.state.size_bytes
