"""Find the record of a snapshot: by its id, the latest, the newest that is wanted.

A record counts only if it belongs to the current incarnation of its session: on a store without
conditions in its batches, a writer of a deleted one may leave a record behind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from holdfast.errors import IntegrityError, NotFoundError, short_repr
from holdfast.snapshots.history import find_history_key, find_newest_key, iterate_newest_first
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.snapshots.lifecycle import decode_manifest_or_none
from holdfast.snapshots.order import HistoryKey, decode_id_entry, id_entry_key, is_uuid7
from holdfast.snapshots.records import SnapshotInfo, decode_record
from holdfast.stores.base import StateStore
from holdfast.stores.entries import Entry


async def find_snapshot_info(
    state_store: StateStore, location: SnapshotLocation, snapshot_id: str
) -> SnapshotInfo | None:
    """Return the record of a snapshot, be it in the history or the latest that is not listed."""
    keys = [location.snapshot_key(snapshot_id), id_entry_key(location, snapshot_id)]
    keys += [location.latest_key, location.manifest_key]
    found = await state_store.get_many(keys)
    info = await read_kept(state_store, location, snapshot_id, found)
    if info is None and location.latest_key in found:
        latest = decode_record(location.latest_key, found[location.latest_key].value, location)
        info = latest if latest.snapshot_id == snapshot_id else None
    return info if is_current(info, location, found) else None


def is_current(
    info: SnapshotInfo | None, location: SnapshotLocation, found: Mapping[str, Entry]
) -> bool:
    """Tell whether a record belongs to the incarnation that the manifest among entries names."""
    entry = found.get(location.manifest_key)
    if info is None or entry is None:
        return False
    known = decode_manifest_or_none(location, entry)
    return known is None or known.incarnation == info.incarnation


async def find_history_info(
    state_store: StateStore, location: SnapshotLocation, snapshot_id: str
) -> SnapshotInfo | None:
    """Return the record of a snapshot in the history."""
    keys = [location.snapshot_key(snapshot_id), id_entry_key(location, snapshot_id)]
    found = await state_store.get_many(keys)
    return await read_kept(state_store, location, snapshot_id, found)


async def read_kept(
    state_store: StateStore,
    location: SnapshotLocation,
    snapshot_id: str,
    found: Mapping[str, Entry],
) -> SnapshotInfo | None:
    """Return the record of a snapshot in the history, given what its two keys hold."""
    plain, by_id = location.snapshot_key(snapshot_id), id_entry_key(location, snapshot_id)
    if plain in found:
        info = decode_record(plain, found[plain].value, location)
        if info.snapshot_id == snapshot_id:
            return info
    if by_id in found:
        stamp = decode_id_entry(by_id, found[by_id].value)
        place = HistoryKey(location, snapshot_id, stamp)
        if (entry := await state_store.get(place.key)) is not None:
            return decode_record(place.key, entry.value, location)
    return None


async def find_latest_info(
    state_store: StateStore, location: SnapshotLocation
) -> SnapshotInfo | None:
    """Return the record of the snapshot that was saved last, be it listed or not."""
    kept = await find_newest_key(state_store, location)
    keys = [location.latest_key] if kept is None else [kept.key, location.latest_key]
    entries = await state_store.get_many([*keys, location.manifest_key])
    found = [decode_record(key, entries[key].value, location) for key in keys if key in entries]
    current = [info for info in found if is_current(info, location, entries)]
    if len(current) < len(found):
        # A record of a deleted incarnation hides those before it.
        older = await find_newest_info(
            state_store, location, lambda info: is_current(info, location, entries)
        )
        found = current if older is None else [*current, older]
    # Of one that is both, the record in the history.
    return max(found, key=lambda info: info.order, default=None)


async def find_last_order(state_store: StateStore, location: SnapshotLocation) -> str | None:
    """Return the order of the snapshot that was saved last, be it listed or not."""
    found = []
    if (kept := await find_newest_key(state_store, location)) is not None:
        found.append(kept.order)
    with suppress(IntegrityError):  # a damaged one is about to be replaced, or is reported on load
        if (entry := await state_store.get(location.latest_key)) is not None:
            found.append(decode_record(location.latest_key, entry.value, location).order)
    return max(found, default=None)


async def find_newest_info(
    state_store: StateStore,
    location: SnapshotLocation,
    wanted: Callable[[SnapshotInfo], bool],
) -> SnapshotInfo | None:
    """Return the record of the newest snapshot in the history that is wanted."""
    async for place in iterate_newest_first(state_store, location):
        entry = await state_store.get(place.key)
        if entry is None:
            continue  # it was deleted since it was listed
        info = decode_record(place.key, entry.value, location)
        if wanted(info):
            return info
    return None


async def find_listing_start(
    state_store: StateStore, location: SnapshotLocation, snapshot_id: str
) -> str:
    """Return the key of a snapshot, to list those that were saved after it.

    A UUIDv7 without a record stands for the moment at which it was made.

    Raises:
        NotFoundError: There is no such snapshot, and its id does not tell where it was.

    """
    plain = HistoryKey(location, snapshot_id)
    place = await find_history_key(state_store, location, snapshot_id)
    if place is None and (
        is_uuid7(snapshot_id)
        or await state_store.get(location.snapshot_key(snapshot_id)) is not None
    ):
        place = plain
    if place is None:
        raise NotFoundError(
            f"no snapshot {short_repr(snapshot_id)} in {location.prefix} to start after; pass the id of "
            "one that is there, or the next_token of a page"
        )
    return place.key
