"""Find the record of a snapshot: by its id, the latest, or the newest that matches.

A record counts only if it belongs to the current incarnation of its session. On a store without
conditional batches, a writer of a deleted incarnation can leave a record behind.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Mapping
from contextlib import suppress

from holdfast.errors import IntegrityError, NotFoundError, short_repr
from holdfast.snapshots.history import find_history_key, find_newest_key, iterate_newest_first
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.snapshots.manifest import read_manifest, select_manifest
from holdfast.snapshots.order import HistoryKey, decode_id_entry, id_entry_key, is_uuid7
from holdfast.snapshots.records import SnapshotInfo, decode_record
from holdfast.stores.base import StateStore
from holdfast.stores.batch_read import BATCH_SIZE, read_entries
from holdfast.stores.entries import Entry


async def find_snapshot_info(
    state_store: StateStore, location: SnapshotLocation, snapshot_id: str
) -> SnapshotInfo | None:
    """Return the record of a snapshot, in the history or the latest, or None.

    Raises:
        IntegrityError: The record is damaged.

    """
    keys = [location.snapshot_key(snapshot_id), id_entry_key(location, snapshot_id)]
    keys += [location.latest_key, location.manifest_key]
    entries = await state_store.get_many(keys)
    info = await _read_history_info(state_store, location, snapshot_id, entries)
    if info is None and location.latest_key in entries:
        latest = decode_record(location.latest_key, entries[location.latest_key].value, location)
        info = latest if latest.snapshot_id == snapshot_id else None
    return info if _is_current(info, location, entries) else None


async def find_snapshot_location(
    state_store: StateStore, snapshot_id: str, locations: AsyncIterable[SnapshotLocation]
) -> SnapshotLocation | None:
    """Return the first of some sessions that has a snapshot, or None.

    Several sessions are asked with one read.

    Raises:
        IntegrityError: The record is damaged.

    """
    batch: dict[str, SnapshotLocation] = {}

    async def search_batch() -> SnapshotLocation | None:
        found = await read_entries(state_store, batch)
        candidates = [
            batch[key]
            for key, entry in found.items()
            if key != batch[key].latest_key
            or not isinstance(entry, Entry)
            or snapshot_id.encode() in entry.value
        ]
        for location in dict.fromkeys(candidates):
            if await find_snapshot_info(state_store, location, snapshot_id) is not None:
                return location
        batch.clear()
        return None

    async for location in locations:
        for key in (location.snapshot_key(snapshot_id), location.latest_key):
            batch[key] = location
        batch[id_entry_key(location, snapshot_id)] = location
        if len(batch) >= BATCH_SIZE - 2 and (hit := await search_batch()) is not None:
            return hit
    return await search_batch()


async def find_history_info(
    state_store: StateStore, location: SnapshotLocation, snapshot_id: str
) -> SnapshotInfo | None:
    """Return the record of a snapshot in the history, or None.

    Raises:
        IntegrityError: The record is damaged.

    """
    keys = [location.snapshot_key(snapshot_id), id_entry_key(location, snapshot_id)]
    entries = await state_store.get_many(keys)
    return await _read_history_info(state_store, location, snapshot_id, entries)


async def find_latest_info(
    state_store: StateStore, location: SnapshotLocation
) -> SnapshotInfo | None:
    """Return the record of the snapshot that was saved last, listed or not, or None.

    Raises:
        IntegrityError: The record is damaged.

    """
    newest = await find_newest_key(
        state_store, location, since=await _find_activity(state_store, location)
    )
    keys = [location.latest_key] if newest is None else [newest.key, location.latest_key]
    entries = await state_store.get_many([*keys, location.manifest_key])
    found = [decode_record(key, entries[key].value, location) for key in keys if key in entries]
    current = [info for info in found if _is_current(info, location, entries)]
    if len(current) < len(found):
        # A record of a deleted incarnation hides those before it.
        older = await find_newest_info(
            state_store, location, lambda info: _is_current(info, location, entries)
        )
        found = current if older is None else [*current, older]
    # A snapshot can be both: its record in the history comes first, and is the one returned.
    return max(found, key=lambda info: info.order, default=None)


async def _find_activity(state_store: StateStore, location: SnapshotLocation) -> int:
    """Return when a session was last active, in milliseconds, or 0; a few seconds early at most."""
    with suppress(IntegrityError):
        active_at = (await read_manifest(state_store, location)).manifest.active_at
        return 0 if active_at is None else int(active_at.timestamp() * 1000)
    return 0


async def find_newest_info(
    state_store: StateStore,
    location: SnapshotLocation,
    wanted: Callable[[SnapshotInfo], bool],
) -> SnapshotInfo | None:
    """Return the record of the newest snapshot in the history that matches, or None.

    Raises:
        IntegrityError: A record is damaged.

    """
    async for history_key in iterate_newest_first(state_store, location):
        entry = await state_store.get(history_key.key)
        if entry is None:
            continue  # deleted since it was listed
        info = decode_record(history_key.key, entry.value, location)
        if wanted(info):
            return info
    return None


async def find_last_order(state_store: StateStore, location: SnapshotLocation) -> str | None:
    """Return the order of the snapshot that was saved last, listed or not, or None."""
    found = []
    if (newest := await find_newest_key(state_store, location)) is not None:
        found.append(newest.order)
    with suppress(IntegrityError):  # a damaged one is about to be replaced, or a load reports it
        if (entry := await state_store.get(location.latest_key)) is not None:
            found.append(decode_record(location.latest_key, entry.value, location).order)
    return max(found, default=None)


async def find_listing_start(
    state_store: StateStore, location: SnapshotLocation, snapshot_id: str
) -> str:
    """Return the key of a snapshot, after which a listing starts.

    A UUIDv7 without a record stands for the time at which it was made.

    Raises:
        NotFoundError: There is no such snapshot, and its id is not a UUIDv7.
        IntegrityError: Its id entry is damaged.

    """
    history_key = await find_history_key(state_store, location, snapshot_id)
    if history_key is not None:
        return history_key.key
    plain = location.snapshot_key(snapshot_id)
    if is_uuid7(snapshot_id) or await state_store.get(plain) is not None:
        return plain
    raise NotFoundError(
        f"no snapshot {short_repr(snapshot_id)} in {location.prefix}; pass the id of an existing "
        "snapshot to start_after, or use next_token"
    )


async def _read_history_info(
    state_store: StateStore,
    location: SnapshotLocation,
    snapshot_id: str,
    entries: Mapping[str, Entry],
) -> SnapshotInfo | None:
    """Return the record of a snapshot in the history, given the entries of its two keys."""
    plain, by_id = location.snapshot_key(snapshot_id), id_entry_key(location, snapshot_id)
    if plain in entries:
        info = decode_record(plain, entries[plain].value, location)
        if info.snapshot_id == snapshot_id:
            return info
    if by_id in entries:
        stamp = decode_id_entry(by_id, entries[by_id].value)
        stamped = HistoryKey(location, snapshot_id, stamp)
        if (entry := await state_store.get(stamped.key)) is not None:
            return decode_record(stamped.key, entry.value, location)
    return None


def _is_current(
    info: SnapshotInfo | None, location: SnapshotLocation, entries: Mapping[str, Entry]
) -> bool:
    """Tell whether a record belongs to the incarnation that the manifest names."""
    if info is None or location.manifest_key not in entries:
        return False
    try:
        return select_manifest(location, entries).manifest.incarnation == info.incarnation
    except IntegrityError:
        return True  # the record may still load
