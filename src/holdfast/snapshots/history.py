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
MANY = 256
FIRST_SPAN = 60_000
SHORTEST = 1


async def newest_first(state_store: StateStore, location: SnapshotLocation) -> AsyncIterator[str]:
    """The ids of the kept snapshots, the newest first."""
    upper: str | None = None
    moment = time.time_ns() // 1_000_000
    span = FIRST_SPAN
    while True:
        # What is ahead of this clock, or has ids of another kind, is in the first span.
        lower = first_id(moment - span) if moment > span else ""
        found = await page(state_store, location, lower, upper, PAGE)
        if len(found) == PAGE:
            if span > SHORTEST:
                span = max(SHORTEST, span // 16)
                continue
            found = await page(state_store, location, lower, upper, None)
        for snapshot_id in reversed(found):
            yield snapshot_id
        if not lower:
            return
        upper, moment = lower, moment - span
        if not found:
            span *= 8


async def newest(state_store: StateStore, location: SnapshotLocation) -> str | None:
    """The id of the newest kept snapshot, or None."""
    high = time.time_ns() // 1_000_000
    span = FIRST_SPAN
    lower = first_id(high - span)
    while not (found := await page(state_store, location, lower, None, MANY)) and lower:
        high -= span
        span *= 8
        lower = first_id(high - span) if high > span else ""
    if not found:
        return None
    # After the last one found there may be more, up to the time that is known to be empty.
    last, is_more = found[-1], len(found) == MANY
    while is_more:
        low = moment_of(last)
        middle = (low + high) // 2
        start = max(last, first_id(middle) if high - low > SHORTEST else "")
        found = await page(state_store, location, start, None, MANY)
        if found:
            last, is_more = found[-1], len(found) == MANY
        elif start > last:
            high = middle
        else:
            is_more = False
    return last


async def page(
    state_store: StateStore,
    location: SnapshotLocation,
    lower: str,
    upper: str | None,
    limit: int | None,
) -> list[str]:
    """The ids after one bound and up to another, oldest first."""
    start = f"{location.history}{lower}" if lower else ""
    found = []
    async for key in state_store.list(location.history, start_after=start, limit=limit):
        snapshot_id = location.snapshot_id(key)
        if upper is not None and snapshot_id > upper:
            break
        found.append(snapshot_id)
    return found


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
