"""Repair what can be derived of a session: its manifest, its index entry, and leftovers.

The log and the snapshots are the truth and are never changed. What a repair writes follows from
them; what it removes belongs to no session: entries of deleted incarnations, of creations that a
crash interrupted, and index entries that were replaced.
"""

from __future__ import annotations

import datetime as dt
from contextlib import suppress
from dataclasses import dataclass, field

from holdfast.errors import ConflictError, IntegrityError
from holdfast.log.event_log import Position, read_entries
from holdfast.log.segment import decode_segment
from holdfast.log.timeline import Timeline, parse_seq
from holdfast.snapshots.incarnation import INDEX_VALUE
from holdfast.snapshots.keys import SnapshotLocation, deletion_mark_key, index_key
from holdfast.snapshots.lifecycle import (
    decode_manifest_or_none,
    find_incarnations,
    find_index_keys,
    to_microseconds,
)
from holdfast.snapshots.manifest import SnapshotManifest
from holdfast.snapshots.records import decode_record
from holdfast.snapshots.verify import verify_session
from holdfast.stores.base import StateStore
from holdfast.stores.entries import Entry

AT_ONCE = 100


@dataclass(slots=True)
class RepairResult:
    """What a repair wrote and removed."""

    written: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)


async def repair_session(state_store: StateStore, location: SnapshotLocation) -> RepairResult:
    """Restore a lost manifest or index entry of a session, and remove leftovers.

    Damage of the log, of keyframes or of snapshots is not repaired: restore those from a backup.

    Raises:
        ConflictError: Another process changed the session at the same time; retry.

    """
    result = RepairResult()
    if await state_store.get(deletion_mark_key(location.session_id)) is not None:
        return result  # the next reader finishes the deletion
    entry = (await read_entries(state_store, [location.manifest_key])).get(location.manifest_key)
    known = decode_manifest_or_none(location, entry) if isinstance(entry, Entry) else None
    if known is None or known.started_at is None:
        known = await rebuild_manifest(state_store, location, known)
        if known is None:
            return result
        etag = entry.etag if isinstance(entry, Entry) else None
        await state_store.put(
            location.manifest_key, known.encode(), if_match=etag, if_absent=entry is None
        )
        result.written.append(location.manifest_key)
    if known.active_at is not None:
        key = index_key(location, to_microseconds(known.active_at))
        if key not in await find_index_keys(state_store, location):
            await state_store.put(key, INDEX_VALUE)
            result.written.append(key)
    left = (await verify_session(state_store, location)).leftovers
    for start in range(0, len(left), AT_ONCE):
        for key, found in (await read_entries(state_store, left[start : start + AT_ONCE])).items():
            with suppress(ConflictError):
                await state_store.delete(key, if_match=getattr(found, "etag", None))
                result.removed.append(key)
    return result


async def rebuild_manifest(
    state_store: StateStore, location: SnapshotLocation, known: SnapshotManifest | None
) -> SnapshotManifest | None:
    """Derive a manifest from the log; None where nothing shows that the session was created."""
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
        extra={} if known is None else known.extra,
    )


async def find_created(state_store: StateStore, location: SnapshotLocation) -> str | None:
    """Return the one incarnation whose snapshots show that it was created, if there is one."""
    there = await find_incarnations(state_store, location)
    keys = [key async for key in state_store.list(location.history_prefix)]
    created: set[str] = set()
    keys.append(location.latest_key)
    for start in range(0, len(keys), AT_ONCE):
        for key, entry in (await read_entries(state_store, keys[start : start + AT_ONCE])).items():
            with suppress(IntegrityError):
                if isinstance(entry, Entry):
                    created.add(decode_record(key, entry.value, location).incarnation)
    created &= set(there)
    return created.pop() if len(created) == 1 else None
