"""The snapshots of a location in the order of saving, from either end.

The keys of the history are in that order (see `order`). A ``StateStore`` lists forward only, so to
go backward the search asks for growing spans of time until it finds something, and for shorter ones
where it finds too much. Keys that Holdfast did not write are skipped.
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

PAGE_SIZE = 32
SEARCH_PAGE_SIZE = 64
FIRST_SPAN = 60_000
"""Milliseconds before now in which the search for the newest snapshot starts."""
SHORTEST_SPAN = 1


async def list_history(
    state_store: StateStore,
    location: SnapshotLocation,
    *,
    start_after: str = "",
    limit: int | None = None,
) -> list[HistoryKey]:
    """Return the snapshots after a key, in the order of saving."""
    found: list[HistoryKey] = []
    while True:
        wanted = None if limit is None else limit - len(found)
        keys = await _list_keys(state_store, location, start_after, None, wanted)
        found += [each for key in keys if (each := parse_history_key(location, key)) is not None]
        if wanted is None or len(keys) < wanted or len(found) == limit:
            return found
        start_after = keys[-1]


async def iterate_newest_first(
    state_store: StateStore, location: SnapshotLocation
) -> AsyncIterator[HistoryKey]:
    """Yield the snapshots, newest first."""
    upper: str | None = None
    end = time.time_ns() // 1_000_000
    span = FIRST_SPAN
    while True:
        # Keys ahead of this clock are in the first span.
        lower = history_key_at(location, end - span)
        found = await _list_keys(state_store, location, lower, upper, PAGE_SIZE)
        if len(found) == PAGE_SIZE:
            if span > SHORTEST_SPAN:
                span = max(SHORTEST_SPAN, span // 16)
                continue
            found = await _list_keys(state_store, location, lower, upper, None)
        for key in reversed(found):
            if (each := parse_history_key(location, key)) is not None:
                yield each
        if not lower:
            return
        upper, end = lower, end - span
        if not found:
            span *= 8


async def find_newest_key(
    state_store: StateStore, location: SnapshotLocation, *, since: int = 0
) -> HistoryKey | None:
    """Return the snapshot that was saved last, or None.

    ``since`` is a time in milliseconds before it, if one is known; it may be wrong.
    """
    high = time.time_ns() // 1_000_000
    span = FIRST_SPAN
    low = since or high - span
    while True:
        lower = history_key_at(location, low)
        found = await _list_keys(state_store, location, lower, None, SEARCH_PAGE_SIZE)
        if found or not lower:
            break
        high, span = low, span * 8
        low = high - span
    if not found:
        return None
    # There may be more after the last one found, up to the time that is known to be empty.
    last, is_more = found[-1], len(found) == SEARCH_PAGE_SIZE
    start_of_id = len(location.history_prefix)
    step = 4 * (id_milliseconds(last[start_of_id:]) - id_milliseconds(found[0][start_of_id:]) + 1)
    while is_more:
        low = id_milliseconds(last[start_of_id:])
        middle = min((low + high) // 2, low + step)
        step *= 4
        start = max(last, history_key_at(location, middle) if high - low > SHORTEST_SPAN else "")
        # Keys without a time can only be listed one after the other.
        count = SEARCH_PAGE_SIZE if low < END_OF_TIME else 16 * SEARCH_PAGE_SIZE
        found = await _list_keys(state_store, location, start, None, count)
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


async def _list_keys(
    state_store: StateStore,
    location: SnapshotLocation,
    lower: str,
    upper: str | None,
    limit: int | None,
) -> list[str]:
    """Return at most ``limit`` keys of snapshots after one key and up to another."""
    found: list[str] = []
    while True:
        left = None if limit is None else limit - len(found)
        listing = state_store.list(location.history_prefix, start_after=lower, limit=left)
        listed = [key async for key in listing]
        for key in listed:
            if upper is not None and key > upper:
                return found
            if location.is_history_key(key):
                found.append(key)
        if left is None or len(listed) < left or len(found) == limit:
            return found
        lower = listed[-1]


def history_key_at(location: SnapshotLocation, millisecond: int) -> str:
    """Return a key before those of all snapshots saved from a time on; empty before the epoch."""
    return f"{location.history_prefix}{first_id_at(millisecond)}" if millisecond > 0 else ""


def first_id_at(millisecond: int) -> str:
    """Return a text before every UUIDv7 made from a time on."""
    text = f"{millisecond:012x}"
    return f"{text[:8]}-{text[8:]}"


def id_milliseconds(name: str) -> int:
    """Return the time in the UUID that a name starts with; the end of time if there is none."""
    try:
        return UUID(name[:UUID_LENGTH]).int >> 80
    except ValueError:
        return END_OF_TIME


# --------------------------------------------------------------------------------- one snapshot


async def find_history_key(
    state_store: StateStore, location: SnapshotLocation, snapshot_id: str
) -> HistoryKey | None:
    """Return the key that an id entry gives for a snapshot; None without an id entry.

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
    """Return the key to save a snapshot under, and the id entry to write before its record.

    ``after`` is the order of the snapshot that was saved last. A snapshot that is in the history
    keeps its key. A crash can leave an id entry without a record: the next save under that id uses
    it, or replaces it if another snapshot was saved since.
    """
    key, plain = id_entry_key(location, snapshot_id), HistoryKey(location, snapshot_id)
    entries = await state_store.get_many([key, plain.key])
    if plain.key in entries and parse_history_key(location, plain.key) == plain:
        return plain, []
    entry = entries.get(key)
    if entry is not None:
        known = HistoryKey(location, snapshot_id, decode_id_entry(key, entry.value))
        if known.order > (after or "") or await state_store.get(known.key) is not None:
            return known, []
    stamp = choose_stamp(snapshot_id, after)
    if entry is None and stamp is None:
        return plain, []
    stamped = HistoryKey(location, snapshot_id, stamp or new_id(after=after))
    etag = None if entry is None else entry.etag
    return stamped, [
        Put(key, encode_id_entry(stamped.order), if_match=etag, if_absent=entry is None)
    ]


async def delete_history_record(
    state_store: StateStore, entry: HistoryKey, *, if_match: str | None = None
) -> bool:
    """Delete the record of a snapshot and its id entry; return whether there was a record.

    Raises:
        ConflictError: The record does not have the etag ``if_match``.

    """
    deleted = await state_store.delete(entry.key, if_match=if_match)
    if entry.stamp is not None:
        key = id_entry_key(entry.location, entry.snapshot_id)
        found = await state_store.get(key)
        if found is not None and entry.stamp.encode() in found.value:
            with suppress(ConflictError):  # another writer saves under this id
                await state_store.delete(key, if_match=found.etag)
    return deleted


async def delete_history_id(
    state_store: StateStore, location: SnapshotLocation, snapshot_id: str
) -> bool:
    """Delete a snapshot by its id, even a damaged one; return whether there was one."""
    plain = HistoryKey(location, snapshot_id)
    deleted = False
    if parse_history_key(location, plain.key) == plain:
        deleted = await delete_history_record(state_store, plain)
    try:
        stamped = await find_history_key(state_store, location, snapshot_id)
    except IntegrityError:
        # Without its id entry, only a listing finds the record.
        for each in await list_history(state_store, location):
            if each.stamp and each.snapshot_id == snapshot_id:
                deleted |= await delete_history_record(state_store, each)
        await state_store.delete(id_entry_key(location, snapshot_id))
        return deleted
    if stamped is not None:
        deleted |= await delete_history_record(state_store, stamped)
    return deleted
