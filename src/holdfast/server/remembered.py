"""States that were looked at a moment ago: who walks through a session asks for each several times.

What an event led to never changes, so a state is known by its session and the event's number. How
much is remembered is bounded by its size.
"""

from __future__ import annotations

import datetime as dt
from collections import OrderedDict

from holdfast.server.moments import (
    NOW,
    Moment,
    at_event,
    at_snapshot,
    beginning,
    check_not_pruned,
    now,
    seq_of,
)
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.layout import SnapshotLocation

MOST_BYTES = 64 << 20
MOST = 256
Key = tuple[SnapshotLocation, dt.datetime | None, int]


class Moments:
    """The moments of sessions, some of them remembered."""

    def __init__(self, archive: SnapshotArchive) -> None:
        self._archive = archive
        self._known: OrderedDict[Key, Moment] = OrderedDict()
        self._bytes = 0

    async def at(self, location: SnapshotLocation, text: str) -> Moment:
        """What a session was at a moment; ``NotFoundError`` where it never came to it."""
        if text == NOW:
            return await now(self._archive, location)
        seq = seq_of(text)
        if seq is None:
            return await at_snapshot(self._archive, location, text)
        manifest = await self._archive.load_manifest(location=location)
        check_not_pruned(location, manifest.floor.seq, seq)
        if seq == 0:
            return beginning(location)
        # A session that was deleted and begun again is another one.
        key = (location, manifest.started_at, seq)
        found = self._known.get(key)
        if found is None:
            found = await at_event(self._archive, location, seq)
            self._remember(key, found)
        else:
            self._known.move_to_end(key)
        return found

    def _remember(self, key: Key, found: Moment) -> None:
        before = self._known.pop(key, None)
        if before is not None:
            self._bytes -= before.state.size_bytes
        self._known[key] = found
        self._bytes += found.state.size_bytes
        while self._bytes > MOST_BYTES or len(self._known) > MOST:
            _, gone = self._known.popitem(last=False)
            self._bytes -= gone.state.size_bytes
