"""Repair the derived entries of a session: its manifest, its index entry, and leftovers.

The log and the snapshots are never changed. What a repair writes follows from them. What it deletes
belongs to no session: entries of deleted incarnations, of interrupted creations, replaced index
entries, and blobs that nothing refers to. Those are deleted by a sweep, as in a prune.
"""

from __future__ import annotations

import datetime as dt
from contextlib import suppress
from dataclasses import dataclass, field

from holdfast.blobs.keys import blobs_prefix
from holdfast.errors import ConflictError, IntegrityError
from holdfast.log.event_log import Position
from holdfast.log.segment import decode_segment
from holdfast.log.timeline import Timeline, parse_seq
from holdfast.snapshots.delete import is_being_deleted
from holdfast.snapshots.discovery import find_incarnations, find_index_keys
from holdfast.snapshots.incarnation import INDEX_VALUE
from holdfast.snapshots.keys import SnapshotLocation, index_key
from holdfast.snapshots.manifest import SnapshotManifest, decode_manifest
from holdfast.snapshots.records import decode_record
from holdfast.snapshots.sweep import sweep_blobs
from holdfast.snapshots.verify import verify_session
from holdfast.stores.base import StateStore
from holdfast.stores.batch_read import iterate_entries, read_entries, require_entry
from holdfast.stores.entries import Entry


@dataclass(slots=True)
class RepairResult:
    """The keys that a repair wrote and deleted; of a deleted blob, the prefix of its chunks."""

    written: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)


async def repair_session(state_store: StateStore, location: SnapshotLocation) -> RepairResult:
    """Restore a lost manifest or index entry of a session, and delete leftovers.

    Damaged segments, keyframes and snapshots are not repaired: restore those from a backup.

    Raises:
        ConflictError: Another process changed the session at the same time; retry.

    """
    result = RepairResult()
    if await is_being_deleted(state_store, location):
        return result  # the next reader finishes the deletion
    entry = (await read_entries(state_store, [location.manifest_key])).get(location.manifest_key)
    known = None
    if isinstance(entry, Entry):
        with suppress(IntegrityError):
            known = decode_manifest(location.manifest_key, entry.value)
    if known is None or not known.is_created:
        known = await rebuild_manifest(state_store, location, known)
        if known is None:
            return result
        etag = entry.etag if isinstance(entry, Entry) else None
        await state_store.put(
            location.manifest_key, known.encode(), if_match=etag, if_absent=entry is None
        )
        result.written.append(location.manifest_key)
    if known.active_at is not None:
        key = index_key(location, known.active_at)
        if key not in await find_index_keys(state_store, location):
            await state_store.put(key, INDEX_VALUE)
            result.written.append(key)
    leftovers = (await verify_session(state_store, location)).leftovers
    async for key, found in iterate_entries(state_store, leftovers):
        with suppress(ConflictError):
            await state_store.delete(key, if_match=getattr(found, "etag", None))
            result.removed.append(key)
    swept = await sweep_blobs(state_store, location)
    result.removed += [f"{blobs_prefix(location.prefix)}{digest}" for digest in swept.digests]
    return result


async def rebuild_manifest(
    state_store: StateStore, location: SnapshotLocation, known: SnapshotManifest | None
) -> SnapshotManifest | None:
    """Derive a manifest from the log; None if nothing shows that the session was created."""
    incarnation = await find_created(state_store, location)
    if incarnation is None:
        return None
    timeline = Timeline(state_store, location.prefix, incarnation)
    first, last, log_start = None, None, Position()
    async for key in state_store.list(timeline.log.prefix):
        entry = await state_store.get(key) if parse_seq(key, timeline.log.prefix) else None
        if entry is None:
            continue
        last = decode_segment(key, entry.value)
        if last.is_pruned:
            log_start = Position(last.last, last.hash)
        elif first is None:
            first, log_start = last, Position(last.first - 1, last.prev)
    if last is None and (seqs := await timeline.list_keyframe_seqs()):
        frame = await timeline.read_keyframe(seqs[-1])
        log_start = Position(frame.seq, frame.hash)
    now = dt.datetime.now(dt.UTC)
    return SnapshotManifest(
        incarnation=incarnation,
        started_at=first.events()[0].at if first else now,
        updated_at=now,
        active_at=last.events()[-1].at if first and last else now,
        log_start=log_start if log_start.seq else Position(),
        # Greater than the lost count: writers must not take it for the one that they know.
        blob_sweeps=int(now.timestamp()),
        extra={} if known is None else known.extra,
    )


async def find_created(state_store: StateStore, location: SnapshotLocation) -> str | None:
    """Return the only incarnation that has both a log and snapshots, or None."""
    keys = [key async for key in state_store.list(location.history_prefix)]
    keys.append(location.latest_key)
    created: set[str] = set()
    async for key, entry in iterate_entries(state_store, keys):
        with suppress(IntegrityError):
            created.add(decode_record(key, require_entry(entry).value, location).incarnation)
    created &= set(await find_incarnations(state_store, location))
    return created.pop() if len(created) == 1 else None
