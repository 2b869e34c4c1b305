"""Compare a copy of a store, such as a backup, with the store: what it lacks, what is damaged."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from holdfast.errors import IntegrityError, InvalidDocumentError
from holdfast.log.segment import decode_segment
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.delete import is_being_deleted
from holdfast.snapshots.keys import SnapshotLocation, index_key
from holdfast.snapshots.manifest import SnapshotManifest, read_manifest
from holdfast.snapshots.order import id_entries_prefix
from holdfast.stores.base import StateStore
from holdfast.stores.batch_read import read_entries, require_entry, split_batches
from holdfast.transfer.copy import list_locations
from holdfast.transfer.repair import BATCH_SIZE, list_keys


@dataclass(frozen=True, slots=True)
class SessionComparison:
    """How complete and undamaged the copy of one session is."""

    location: SnapshotLocation
    events: int
    snapshots: int
    problems: list[str]
    """One per missing or damaged entry, with its key; empty if the copy is complete."""


async def compare_stores(source: StateStore, target: StateStore) -> list[str]:
    """List what a copy of a store lacks and what is damaged in it; empty if it is complete.

    Raises:
        StateStoreError: A store failed.

    """
    return [
        f"{each.location.scope_id}/{each.location.session_id}: {problem}"
        async for each in compare_sessions(source, target)
        for problem in each.problems
    ]


async def compare_sessions(
    source: StateStore, target: StateStore
) -> AsyncIterator[SessionComparison]:
    """Verify the copy of each session, and compare it with the session.

    Raises:
        StateStoreError: A store failed.

    """
    async for location in list_locations(source, None, None):
        if await is_being_deleted(source, location):
            continue
        verification = await SnapshotArchive(target).verify(location=location)
        damaged = {each.key for each in verification.damage}
        problems = [f"{each.key}: {each.problem}" for each in verification.damage]
        async for key, problem in diff_entries(source, target, location):
            if key not in damaged:
                problems.append(f"{key} {problem}")
        yield SessionComparison(location, verification.events, verification.snapshots, problems)


async def diff_entries(
    source: StateStore, target: StateStore, location: SnapshotLocation
) -> AsyncIterator[tuple[str, str]]:
    """Yield the keys of a session that are missing or different in the copy, and the problem."""
    manifest = SnapshotManifest()
    try:
        manifest = (await read_manifest(source, location)).manifest
    except (IntegrityError, InvalidDocumentError) as error:
        yield location.manifest_key, f"cannot be compared: {error}"
    if manifest.is_claim:
        return  # leftovers of a session that was never created are not copied
    log = f"{location.prefix}log/"
    keys = [*await list_keys(source, log), *await list_keys(source, location.history_prefix)]
    keys += await list_keys(source, id_entries_prefix(location))
    keys += [location.latest_key, location.manifest_key]
    if manifest.active_at is not None:
        keys.append(index_key(location, manifest.active_at))
    for batch in split_batches(keys, BATCH_SIZE):
        ours, theirs = await read_entries(source, batch), await read_entries(target, batch)
        for key in ours:
            if key not in theirs:
                yield key, "is missing in the copy"
                continue
            try:
                original, copy = require_entry(ours[key]).value, require_entry(theirs[key]).value
                is_segment = key.startswith(log)
                # The manifest of a copy differs where only one of the stores was pruned.
                if key != location.manifest_key and not is_same_entry(
                    key, original, copy, is_segment=is_segment
                ):
                    yield key, "is different in the copy"
            except (IntegrityError, InvalidDocumentError) as error:
                yield key, f"cannot be compared: {error}"


def is_same_entry(key: str, original: bytes, copy: bytes, *, is_segment: bool) -> bool:
    """Return whether an entry is a copy of another; a segment may be pruned in the original."""
    if original == copy or not is_segment:
        return original == copy
    try:
        one, other = decode_segment(key, original), decode_segment(key, copy)
    except IntegrityError:
        return False
    return one.hash == other.hash and (one.is_pruned or not other.is_pruned)
