"""The size of a session over its events, computed once for each event."""

from __future__ import annotations

import datetime as dt
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from holdfast.log.changes import fold_changes
from holdfast.log.event import Event, format_time
from holdfast.log.event_log import Position
from holdfast.server.byte_cache import ByteCache
from holdfast.server.cache import StateCache
from holdfast.server.heads import SessionHead
from holdfast.server.positions import Target
from holdfast.snapshots.keys import EPOCH
from holdfast.snapshots.session_state import MESSAGES
from holdfast.state.store import Store
from holdfast.stores.base import StateStore
from holdfast.stores.local import run_in_thread

MAX_BYTES = 32 << 20
OVERHEAD = 1 << 10
BATCH = 256
MICROSECOND = dt.timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class GrowthCurve:
    """The time, the number of messages and the size after each event up to a position."""

    end: Position
    times: array[int] = field(default_factory=lambda: array("q"))
    messages: array[int] = field(default_factory=lambda: array("q"))
    sizes: array[int] = field(default_factory=lambda: array("q"))

    def add(self, store: Store, events: Iterable[Event]) -> None:
        """Apply events to a store, and add its size after each."""
        before = store.snapshot()
        # Counting all messages of each state would take quadratic time.
        count = before.count(MESSAGES)
        for event in events:
            changes = event.changes
            touched = {key for space, key, _ in changes["set"] if space == MESSAGES}
            touched.update(key for space, key in changes["delete"] if space == MESSAGES)
            fold_changes(store, [changes])
            after = store.snapshot()
            for key in touched:
                count += after.contains(MESSAGES, key) - before.contains(MESSAGES, key)
            self.times.append((event.at - EPOCH) // MICROSECOND)
            self.messages.append(count)
            self.sizes.append(after.size_bytes)
            before = after

    def row(self, seq: int, index: int) -> dict[str, Any]:
        """Return the size after an event as JSON data."""
        return {
            "seq": seq,
            "at": format_time(EPOCH + self.times[index] * MICROSECOND),
            "messages": self.messages[index],
            "size_bytes": self.sizes[index],
        }


class GrowthReader:
    """Computes the growth of sessions, and continues where it ended if they grow."""

    def __init__(self, state_store: StateStore, states: StateCache) -> None:
        self._state_store = state_store
        self._states = states
        self._curves: ByteCache[tuple[object, ...], GrowthCurve] = ByteCache(MAX_BYTES)

    async def compute(self, head: SessionHead, points: int) -> dict[str, Any]:
        """Return the size of a session at evenly spread events, including the first and the last.

        Raises:
            IntegrityError: The log is damaged.

        """
        start, end = head.manifest.log_start, head.position
        if end.seq <= start.seq:
            return {"points": [], "last_event": end.seq}
        key = (head.location, head.generation, start)
        curve = self._curves.get(key) or GrowthCurve(start)
        if curve.end != end:
            curve = await self._extend(head, curve)
            self._curves.put(key, curve, OVERHEAD + 3 * len(curve.times) * curve.times.itemsize)
        wanted = spread_evenly(start.seq + 1, end.seq, points)
        rows = [curve.row(seq, seq - start.seq - 1) for seq in wanted]
        return {"points": rows, "last_event": end.seq}

    async def _extend(self, head: SessionHead, curve: GrowthCurve) -> GrowthCurve:
        """Return a curve up to the end of the session."""
        first, last = curve.end.seq + 1, head.position.seq
        store = Store(max_history=0)
        store.restore((await self._states.load(head, Target(first - 1))).state)
        longer = GrowthCurve(head.position, curve.times[:], curve.messages[:], curve.sizes[:])
        batch: list[Event] = []
        async for event in head.log(self._state_store).read(first, last, after=curve.end):
            batch.append(event)
            if len(batch) == BATCH:
                await run_in_thread(longer.add, store, batch)
                batch = []
        await run_in_thread(longer.add, store, batch)
        return longer


def spread_evenly(first: int, last: int, most: int) -> Iterator[int]:
    """Yield at most ``most`` numbers from first to last, both included, evenly spread."""
    number = min(most, last - first + 1)
    if number < 2:
        yield last
        return
    for each in range(number):
        yield first + (last - first) * each // (number - 1)
