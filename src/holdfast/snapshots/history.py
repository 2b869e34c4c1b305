"""The kept snapshots of a location by their ids, from either end, without reading them all.

Ids are UUIDs of version 7, so their keys are in the order of time. A ``StateStore`` lists forward
only; going backward, one asks for ever larger spans of time until something is found, and for
smaller ones where too much is. What ids of another kind are before or after those is found too.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from uuid import UUID

from holdfast.snapshots.layout import END_OF_TIME, SnapshotLocation
from holdfast.stores.contract import StateStore

PAGE = 32
MANY = 64
FIRST_SPAN = 60_000
SHORTEST = 1


async def newest_first(state_store: StateStore, location: SnapshotLocation) -> AsyncIterator[str]:
    """The ids of the kept snapshots, the newest first."""
    upper: str | None = None
    moment = time.time_ns() // 1_000_000
    span = FIRST_SPAN
    while True:
        # What is ahead of this clock, or has ids of another kind, is in the first span.
        lower = from_moment(location, moment - span)
        found = await page(state_store, location, lower, upper, PAGE)
        if len(found) == PAGE:
            if span > SHORTEST:
                span = max(SHORTEST, span // 16)
                continue
            found = await page(state_store, location, lower, upper, None)
        for key in reversed(found):
            yield location.snapshot_id(key)
        if not lower:
            return
        upper, moment = lower, moment - span
        if not found:
            span *= 8


async def newest(state_store: StateStore, location: SnapshotLocation) -> str | None:
    """The id of the newest kept snapshot, or None."""
    high = time.time_ns() // 1_000_000
    span = FIRST_SPAN
    lower = from_moment(location, high - span)
    while not (found := await page(state_store, location, lower, None, MANY)) and lower:
        high -= span
        span *= 8
        lower = from_moment(location, high - span)
    if not found:
        return None
    # After the last one found there may be more, up to the time that is known to be empty.
    last, is_more = found[-1], len(found) == MANY
    while is_more:
        low = moment_of(location.snapshot_id(last))
        middle = (low + high) // 2
        start = max(last, from_moment(location, middle) if high - low > SHORTEST else "")
        # Ids that tell no time can only be walked through.
        count = MANY if low < END_OF_TIME else 16 * MANY
        found = await page(state_store, location, start, None, count)
        if found:
            last, is_more = found[-1], len(found) == count
        elif start > last:
            high = middle
        else:
            is_more = False
    return location.snapshot_id(last)


async def history_keys(
    state_store: StateStore, location: SnapshotLocation, start_after: str, limit: int | None
) -> AsyncIterator[str]:
    """List the keys of kept snapshots after a key, at most ``limit``; other keys are ignored."""
    left = limit
    while left is None or left > 0:
        listing = state_store.list(location.history, start_after=start_after, limit=left)
        listed = [key async for key in listing]
        own = [key for key in listed if location.is_history_key(key)]
        for key in own:
            yield key
        if left is None or len(listed) < left:
            return
        start_after = listed[-1]
        left -= len(own)


async def page(
    state_store: StateStore,
    location: SnapshotLocation,
    lower: str,
    upper: str | None,
    limit: int | None,
) -> list[str]:
    """The keys after one and up to another, oldest first."""
    found = []
    async for key in history_keys(state_store, location, lower, limit):
        if upper is not None and key > upper:
            break
        found.append(key)
    return found


def from_moment(location: SnapshotLocation, millisecond: int) -> str:
    """What comes before the keys of all snapshots from a moment on; empty for the first moment."""
    return f"{location.history}{first_id(millisecond)}" if millisecond > 0 else ""


def first_id(millisecond: int) -> str:
    """What comes before every id that was made from a moment on."""
    text = f"{millisecond:012x}"
    return f"{text[:8]}-{text[8:]}"


def moment_of(snapshot_id: str) -> int:
    """When an id was made; the end of time for one of another kind."""
    try:
        return UUID(snapshot_id).int >> 80
    except ValueError:
        return END_OF_TIME
