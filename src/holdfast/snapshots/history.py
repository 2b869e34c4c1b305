"""The kept snapshots of a location in the order of saving, from either end, page by page.

Their keys are in that order (see `order`). A ``StateStore`` lists forward only. Going backward, the
search asks for ever larger spans of time until something is found, and for smaller ones where too
much is. Keys that Holdfast did not write are skipped.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import suppress
from uuid import UUID

from holdfast.errors import ConflictError, IntegrityError
from holdfast.ids import new_id
from holdfast.snapshots.keys import END_OF_TIME, SnapshotLocation
from holdfast.snapshots.order import (
    UUID_LENGTH,
    HistoryKey,
    choose_stamp,
    decode_id_entry,
    encode_id_entry,
    id_entry_key,
    parse_history_key,
)
from holdfast.stores.base import StateStore
from holdfast.stores.entries import Put

PAGE = 32
MANY = 64
FIRST_SPAN = 60_000
SHORTEST = 1


async def list_history(
    state_store: StateStore,
    location: SnapshotLocation,
    *,
    start_after: str = "",
    limit: int | None = None,
) -> list[HistoryKey]:
    """Return the kept snapshots after a key, the first saved first."""
    found: list[HistoryKey] = []
    while True:
        wanted = None if limit is None else limit - len(found)
        keys = await page(state_store, location, start_after, None, wanted)
        found += [each for key in keys if (each := parse_history_key(location, key)) is not None]
        if wanted is None or len(keys) < wanted or len(found) == limit:
            return found
        start_after = keys[-1]


async def iterate_newest_first(
    state_store: StateStore, location: SnapshotLocation
) -> AsyncIterator[HistoryKey]:
    """Yield the kept snapshots, the last saved first."""
    upper: str | None = None
    moment = time.time_ns() // 1_000_000
    span = FIRST_SPAN
    while True:
        # What is ahead of this clock is in the first span.
        lower = history_key_at(location, moment - span)
        found = await page(state_store, location, lower, upper, PAGE)
        if len(found) == PAGE:
            if span > SHORTEST:
                span = max(SHORTEST, span // 16)
                continue
            found = await page(state_store, location, lower, upper, None)
        for key in reversed(found):
            if (each := parse_history_key(location, key)) is not None:
                yield each
        if not lower:
            return
        upper, moment = lower, moment - span
        if not found:
            span *= 8


async def find_newest_key(state_store: StateStore, location: SnapshotLocation) -> HistoryKey | None:
    """Return the kept snapshot that was saved last, or None."""
    high = time.time_ns() // 1_000_000
    span = FIRST_SPAN
    lower = history_key_at(location, high - span)
    while not (found := await page(state_store, location, lower, None, MANY)) and lower:
        high -= span
        span *= 8
        lower = history_key_at(location, high - span)
    if not found:
        return None
    # After the last one found there may be more, up to the time that is known to be empty.
    last, is_more = found[-1], len(found) == MANY
    while is_more:
        low = id_milliseconds(last[len(location.history_prefix) :])
        middle = (low + high) // 2
        start = max(last, history_key_at(location, middle) if high - low > SHORTEST else "")
        # Keys that tell no time can only be walked through.
        count = MANY if low < END_OF_TIME else 16 * MANY
        found = await page(state_store, location, start, None, count)
        if found:
            last, is_more = found[-1], len(found) == count
        elif start > last:
            high = middle
        else:
            is_more = False
    if (entry := parse_history_key(location, last)) is not None:
        return entry
    async for each in iterate_newest_first(state_store, location):
        return each
    return None


async def history_keys(
    state_store: StateStore, location: SnapshotLocation, start_after: str, limit: int | None
) -> AsyncIterator[str]:
    """List the keys of kept snapshots after a key, at most ``limit``; other keys are ignored."""
    left = limit
    while left is None or left > 0:
        listing = state_store.list(location.history_prefix, start_after=start_after, limit=left)
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
    """Return the keys after one and up to another, in order."""
    found = []
    async for key in history_keys(state_store, location, lower, limit):
        if upper is not None and key > upper:
            break
        found.append(key)
    return found


def history_key_at(location: SnapshotLocation, millisecond: int) -> str:
    """Return what precedes all keys from a moment on; empty for the first moment."""
    return f"{location.history_prefix}{first_id_at(millisecond)}" if millisecond > 0 else ""


def first_id_at(millisecond: int) -> str:
    """Return what precedes every id that was made from a moment on."""
    text = f"{millisecond:012x}"
    return f"{text[:8]}-{text[8:]}"


def id_milliseconds(name: str) -> int:
    """Return the millisecond in the UUID that a name begins with; the end of time without one."""
    try:
        return UUID(name[:UUID_LENGTH]).int >> 80
    except ValueError:
        return END_OF_TIME


# --------------------------------------------------------------------- finding and placing one


async def find_history_key(
    state_store: StateStore, location: SnapshotLocation, snapshot_id: str
) -> HistoryKey | None:
    """Return the key under which an id was saved, as its id entry says; None without one.

    Raises:
        IntegrityError: The id entry is damaged.

    """
    key = id_entry_key(location, snapshot_id)
    entry = await state_store.get(key)
    if entry is None:
        return None
    return HistoryKey(location, snapshot_id, decode_id_entry(key, entry.value))


async def choose_history_key(
    state_store: StateStore, location: SnapshotLocation, snapshot_id: str, after: str | None
) -> tuple[HistoryKey, list[Put]]:
    """Return the key to save a snapshot under now, and what to write before its record.

    ``after`` is the order of what was saved last. A snapshot of this id that is in the history
    keeps its key. An id entry without a record, as a crash leaves it, is harmless: the next save
    under that id uses it, or replaces it if something was saved since.
    """
    key, plain = id_entry_key(location, snapshot_id), HistoryKey(location, snapshot_id)
    there = await state_store.get_many([key, plain.key])
    if plain.key in there and parse_history_key(location, plain.key) == plain:
        return plain, []
    entry = there.get(key)
    if entry is not None:
        known = HistoryKey(location, snapshot_id, decode_id_entry(key, entry.value))
        if known.order > (after or "") or await state_store.get(known.key) is not None:
            return known, []
    stamp = choose_stamp(snapshot_id, after)
    if entry is None and stamp is None:
        return plain, []
    made = HistoryKey(location, snapshot_id, stamp or new_id(after=after))
    condition = None if entry is None else entry.etag
    return made, [
        Put(key, encode_id_entry(made.order), if_match=condition, if_absent=entry is None)
    ]


async def delete_history_record(
    state_store: StateStore, entry: HistoryKey, *, if_match: str | None = None
) -> bool:
    """Delete the record of a kept snapshot and its id entry; return whether there was one.

    Raises:
        ConflictError: The record does not have the etag ``if_match``.

    """
    removed = await state_store.delete(entry.key, if_match=if_match)
    if entry.stamp is not None:
        key = id_entry_key(entry.location, entry.snapshot_id)
        found = await state_store.get(key)
        if found is not None and entry.stamp.encode() in found.value:
            with suppress(ConflictError):  # another writer saves under this id
                await state_store.delete(key, if_match=found.etag)
    return removed


async def delete_history_id(
    state_store: StateStore, location: SnapshotLocation, snapshot_id: str
) -> bool:
    """Delete a kept snapshot by its id, also where its entries are damaged."""
    plain = HistoryKey(location, snapshot_id)
    removed = False
    if parse_history_key(location, plain.key) == plain:
        removed = await delete_history_record(state_store, plain)
    try:
        place = await find_history_key(state_store, location, snapshot_id)
    except IntegrityError:
        # Only the keys tell where it is.
        places = [each for each in await list_history(state_store, location) if each.stamp]
        for each in places:
            if each.snapshot_id == snapshot_id:
                removed |= await delete_history_record(state_store, each)
        await state_store.delete(id_entry_key(location, snapshot_id))
        return removed
    return removed if place is None else await delete_history_record(state_store, place) or removed
