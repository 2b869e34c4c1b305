"""Delete expired snapshots and reclaim the log they alone needed.

The log is truncated at the *cutoff*: the oldest kept snapshot with no expired snapshot after it.
Kept snapshots before the cutoff get a keyframe of their own, so they still load. The steps are
ordered so that a crash between any two loses nothing, and the next prune resumes:

    1. write keyframes for kept snapshots before the cutoff
    2. record the pending cutoff in the manifest        new snapshots before it are refused
    3. delete the records of expired snapshots
    4. record the cutoff in the manifest                the log now starts here
    5. replace segments before the cutoff by tombstones, delete unreferenced keyframes
    6. delete tombstones older than a day
    7. delete the blobs that nothing refers to any more (see `sweep`)

A tombstone makes a stale writer's commit fail with ConflictError instead of succeeding in the
middle of a pruned log. A writer that was idle for some seconds reads the manifest before it writes,
so a tombstone is not needed for longer than a day, even if clocks disagree by hours.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from holdfast.blobs.keys import blobs_prefix
from holdfast.errors import ConflictError, IntegrityError, NotFoundError
from holdfast.log.event_log import Position
from holdfast.log.segment import decode_segment, encode_tombstone
from holdfast.log.timeline import BaseKeyframe, Timeline
from holdfast.snapshots.blob_references import PlannedPrune, find_state_digests
from holdfast.snapshots.discovery import find_first_key
from holdfast.snapshots.history import delete_history_record, list_history
from holdfast.snapshots.incarnation import Incarnation
from holdfast.snapshots.keys import SnapshotLocation, deletion_mark_key
from holdfast.snapshots.manifest import SnapshotManifest, read_manifest, select_manifest
from holdfast.snapshots.records import SnapshotInfo, decode_record
from holdfast.snapshots.retention import RetentionPolicy
from holdfast.snapshots.sweep import SweepResult, predict_sweep, sweep_blobs
from holdfast.stores.base import StateStore
from holdfast.stores.batch_read import iterate_entries, read_entries, require_entry
from holdfast.stores.local import pause

ATTEMPTS = 16
TOMBSTONE_AGE = dt.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class PruneResult:
    """Snapshots kept and removed by a prune, or by its dry run."""

    kept: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    events_removed: int = 0
    dry_run: bool = False
    blobs_removed: int = 0
    """Large values and attachments that nothing referred to any more."""
    bytes_removed: int = 0
    """Their size in bytes."""


@dataclass(frozen=True, slots=True)
class StoredSnapshots:
    """The manifest and the records of one incarnation of a session."""

    manifest: SnapshotManifest
    records: list[SnapshotInfo]
    """Those of the history."""
    latest: SnapshotInfo | None
    is_being_deleted: bool


async def prune_session(
    state_store: StateStore,
    location: SnapshotLocation,
    policy: RetentionPolicy,
    now: dt.datetime,
    *,
    dry_run: bool = False,
) -> PruneResult:
    """Delete the snapshots of a session that the policy does not keep, and unreferenced blobs.

    Raises:
        ConflictError: The session was deleted or changed in every attempt; nothing that is kept
            was touched.
        IntegrityError: A kept snapshot cannot be loaded, so nothing is deleted.

    """
    stored = await read_snapshots(state_store, location)
    if stored.is_being_deleted and not dry_run:
        await Incarnation.read(state_store, location)  # finishes the deletion
        stored = await read_snapshots(state_store, location)
    before, records, latest = stored.manifest, stored.records, stored.latest
    kept = policy.select(records, now)
    kept_ids = {info.snapshot_id for info in kept}
    expired = [info for info in records if info.snapshot_id not in kept_ids]
    cutoffs = (before.log_start, before.pending_log_start, find_cutoff(kept, expired, latest))
    cutoff = max((each for each in cutoffs if each is not None), key=lambda each: each.seq)
    result = PruneResult(
        [info.snapshot_id for info in kept],
        [info.snapshot_id for info in expired],
        max(0, cutoff.seq - before.log_start.seq),
        dry_run,
    )
    timeline = Timeline(state_store, location.prefix, before.incarnation)
    needed = [info for info in kept if info.seq <= cutoff.seq]
    if latest is not None and latest.seq <= cutoff.seq:
        needed.append(latest)
    if dry_run:
        swept = await predict_prune(timeline, location, before, cutoff, needed)
        return replace(result, blobs_removed=len(swept.digests), bytes_removed=swept.size)
    if (
        expired
        or cutoff != before.log_start
        or before.pending_log_start is not None
        or await has_segments_before(timeline, cutoff)
    ):
        await prune_log(timeline, location, stored, expired, needed, cutoff, now)
    swept = await sweep_blobs(state_store, location)
    return replace(result, blobs_removed=len(swept.digests), bytes_removed=swept.size)


async def prune_log(
    timeline: Timeline,
    location: SnapshotLocation,
    stored: StoredSnapshots,
    expired: list[SnapshotInfo],
    needed: list[SnapshotInfo],
    cutoff: Position,
    now: dt.datetime,
) -> None:
    """Delete expired snapshots and the log up to a cutoff; ``needed`` are kept snapshots there."""
    state_store, before, latest = timeline.state_store, stored.manifest, stored.latest
    # A concurrent writer may be about to base a keyframe on the last one.
    spared = (await timeline.list_keyframe_seqs())[-1:]
    await write_keyframes(timeline, location, needed)
    if cutoff.seq > before.log_start.seq:
        await record_cutoff(state_store, location, before, cutoff, now, is_reached=False)
        # A snapshot saved since the listing is found here, or its writer sees the pending cutoff.
        known = {info.snapshot_id for info in stored.records}
        again = await read_snapshots(state_store, location, before.incarnation)
        late = [
            info
            for info in again.records
            if info.seq <= cutoff.seq and info.snapshot_id not in known
        ]
        newest = again.latest
        if newest is not None and newest != latest and newest.seq <= cutoff.seq:
            late.append(newest)
        await write_keyframes(timeline, location, late)
        needed = [*needed, *late]
    for info in expired:
        await delete_record(state_store, location, info)
    if cutoff.seq > before.log_start.seq:
        await record_cutoff(state_store, location, before, cutoff, now, is_reached=True)
    if cutoff.seq:
        old = await replace_by_tombstones(state_store, timeline, cutoff, now)
        wanted = {cutoff.seq, *spared, *(info.seq for info in needed)}
        await delete_keyframes(state_store, timeline, cutoff, wanted)
        for key, etag in old.items():
            with suppress(ConflictError):  # a concurrent prune was faster
                await state_store.delete(key, if_match=etag)


async def predict_prune(
    timeline: Timeline,
    location: SnapshotLocation,
    manifest: SnapshotManifest,
    cutoff: Position,
    needed: list[SnapshotInfo],
) -> SweepResult:
    """Return the blobs that a prune would delete, without writing."""
    if await find_first_key(timeline.state_store, blobs_prefix(location.prefix)) is None:
        return SweepResult()
    seqs = await timeline.list_keyframe_seqs()
    wanted = {*seqs[-1:], *(seq for seq in seqs if seq >= cutoff.seq)}
    states = []
    for info in needed:
        loaded = await timeline.load(info.seq, near=info.keyframe)
        wanted.update(loaded.base_keyframe.chain)
        states.append(loaded.store.snapshot())
    for seq in sorted(wanted):
        wanted |= set(await read_chain(timeline, seq))
    planned = PlannedPrune(cutoff.seq, frozenset(wanted))
    return await predict_sweep(
        timeline.state_store, location, manifest, planned, find_state_digests(states)
    )


def find_cutoff(
    kept: list[SnapshotInfo], expired: list[SnapshotInfo], latest: SnapshotInfo | None
) -> Position | None:
    """Return the position of the oldest kept snapshot with no expired one after it.

    None if nothing expired.
    """
    if not expired:
        return None
    last = max(info.seq for info in expired)
    following = [info.position for info in kept if info.seq > last]
    if latest is not None and latest.seq > last:
        following.append(latest.position)
    if not following:
        # The expired snapshots are at the same event as the kept ones, or after them.
        following = [info.position for info in kept if info.seq == max(each.seq for each in kept)]
    return min(following, key=lambda position: position.seq)


# ----------------------------------------------------------------------------------- records


async def read_snapshots(
    state_store: StateStore, location: SnapshotLocation, incarnation: str | None = None
) -> StoredSnapshots:
    """Read the manifest and all records, by default those of the current incarnation."""
    keys = [each.key for each in await list_history(state_store, location)]
    mark = deletion_mark_key(location.session_id)
    found = await read_entries(
        state_store, [mark, location.manifest_key, location.latest_key, *keys]
    )
    entries = {key: require_entry(entry) for key, entry in found.items() if key != mark}
    manifest = select_manifest(location, entries).manifest
    records = {
        key: info
        for key in (location.latest_key, *keys)
        if key in entries
        and (info := decode_record(key, entries[key].value, location)).incarnation
        == (incarnation or manifest.incarnation)
    }
    latest = records.pop(location.latest_key, None)
    return StoredSnapshots(manifest, list(records.values()), latest, mark in found)


async def read_latest_record(
    state_store: StateStore, location: SnapshotLocation, incarnation: str
) -> SnapshotInfo | None:
    """Return the record of the latest snapshot of an incarnation, or None."""
    entry = await state_store.get(location.latest_key)
    info = None if entry is None else decode_record(location.latest_key, entry.value, location)
    return info if info is not None and info.incarnation == incarnation else None


async def delete_record(
    state_store: StateStore, location: SnapshotLocation, info: SnapshotInfo
) -> None:
    """Delete the record of a snapshot, unless it belongs to a new incarnation by now."""
    history_key = info.history_key(location)
    entry = await state_store.get(history_key.key)
    if entry is None:
        return
    if decode_record(history_key.key, entry.value, location).incarnation == info.incarnation:
        with suppress(ConflictError):  # replaced since it was read
            await delete_history_record(state_store, history_key, if_match=entry.etag)


async def is_stored(
    state_store: StateStore, location: SnapshotLocation, info: SnapshotInfo
) -> bool:
    """Tell whether the record of a snapshot still exists."""
    if await state_store.get(info.history_key(location).key) is not None:
        return True
    return await read_latest_record(state_store, location, info.incarnation) == info


async def record_cutoff(
    state_store: StateStore,
    location: SnapshotLocation,
    before: SnapshotManifest,
    cutoff: Position,
    now: dt.datetime,
    *,
    is_reached: bool,
) -> None:
    """Record in the manifest where the log starts, or is about to start.

    Raises:
        ConflictError: The session was deleted or replaced since ``before`` was read, or the
            manifest changed in every attempt.

    """
    for attempt in range(ATTEMPTS):
        stored = await read_manifest(state_store, location)
        manifest = stored.manifest
        if stored.etag is None or manifest.incarnation != before.incarnation:
            raise ConflictError(
                f"session {location.session_id} was deleted while it was pruned; the session that "
                "exists now was not changed",
                key=location.manifest_key,
            )
        if manifest.log_start.seq >= cutoff.seq:
            return
        # Of several concurrent prunes, the pending cutoff that is furthest stays.
        pending = manifest.pending_log_start
        if pending is None or pending.seq < cutoff.seq:
            pending = cutoff
        if is_reached:
            left = pending if pending.seq > cutoff.seq else None
            manifest = replace(manifest, updated_at=now, log_start=cutoff, pending_log_start=left)
        else:
            manifest = replace(manifest, updated_at=now, pending_log_start=pending)
        try:
            await state_store.put(location.manifest_key, manifest.encode(), if_match=stored.etag)
            return
        except ConflictError:
            await pause(random.uniform(0, 0.01 * attempt))  # noqa: S311 - jitter
    raise ConflictError(
        f"manifest {location.manifest_key} changed {ATTEMPTS} times in a row; prune again later",
        key=location.manifest_key,
    )


# ------------------------------------------------------------------------------------ the log


async def has_segments_before(timeline: Timeline, cutoff: Position) -> bool:
    """Tell whether the log has a segment or a tombstone before the cutoff."""
    first = await find_first_key(timeline.state_store, timeline.log.prefix) if cutoff.seq else None
    return first is not None and first <= timeline.log.key(cutoff.seq)


async def replace_by_tombstones(
    state_store: StateStore, timeline: Timeline, cutoff: Position, now: dt.datetime
) -> dict[str, str]:
    """Replace the segments up to the cutoff by tombstones.

    Return the keys and etags of those that are not needed any more. They are deleted last: a prune
    that was interrupted leaves them, and the next one resumes.
    """
    old: dict[str, str] = {}
    end = timeline.log.key(cutoff.seq)
    keys = []
    async for key in state_store.list(timeline.log.prefix):
        if key > end:
            break
        if timeline.log.is_segment_key(key):
            keys.append(key)
    async for key, found in iterate_entries(state_store, keys):
        entry = require_entry(found)
        segment = decode_segment(key, entry.value)
        if segment.last > cutoff.seq:
            continue
        if not segment.is_pruned:
            with suppress(ConflictError):  # a concurrent prune was faster
                await state_store.put(key, encode_tombstone(segment, now), if_match=entry.etag)
        elif now - segment.pruned_at > TOMBSTONE_AGE:
            old[key] = entry.etag
    return old


# ---------------------------------------------------------------------------------- keyframes


async def write_keyframes(
    timeline: Timeline, location: SnapshotLocation, infos: list[SnapshotInfo]
) -> None:
    """Write a keyframe at each snapshot that still exists and has none.

    A concurrent prune that keeps less may be about to delete the keyframes that these build on,
    and the events in between. So those are rewritten unchanged after the new ones: a prune that
    listed them before deletes only what it read, and one that lists later sees what builds on
    them. If one is gone already, the keyframe is written again with the whole state.
    """
    written: list[tuple[BaseKeyframe, Position]] = []
    for info in sorted(infos, key=lambda each: each.seq):
        try:
            loaded = await timeline.load(info.seq, near=info.keyframe)
        except (IntegrityError, NotFoundError):
            # A concurrent prune that keeps less may have deleted it.
            if await is_stored(timeline.state_store, location, info):
                raise
            continue
        if loaded.base_keyframe.position.seq == info.seq:
            continue
        keyframe = await timeline.write_keyframe_at(
            loaded.end, loaded.store.snapshot(), loaded.base_keyframe
        )
        if keyframe is not None:
            written.append((keyframe, loaded.end))
    bases = sorted({seq for keyframe, _ in written for seq in keyframe.chain[:-1]})
    deleted = {seq for seq in bases if not await rewrite_keyframe(timeline, seq)}
    for keyframe, position in written:
        if not deleted.isdisjoint(keyframe.chain):
            whole = timeline.prepare_keyframe(position, keyframe.state, BaseKeyframe())
            await timeline.state_store.put(whole.put.key, whole.put.value)


async def rewrite_keyframe(timeline: Timeline, seq: int) -> bool:
    """Write a keyframe again unchanged; False if it is gone, or changes in every attempt."""
    store, key = timeline.state_store, timeline.key(seq)
    for attempt in range(ATTEMPTS):
        entry = await store.get(key)
        if entry is None:
            return False
        try:
            await store.put(key, entry.value, if_match=entry.etag)
            return True
        except ConflictError:  # a concurrent prune rewrote or deleted it
            await pause(0.001 * attempt)
    return False


async def delete_keyframes(
    state_store: StateStore, timeline: Timeline, cutoff: Position, needed: Iterable[int]
) -> None:
    """Delete the keyframes up to the cutoff that are not needed, nor by any later keyframe."""
    etags: dict[int, str] = {}
    for seq in await timeline.list_keyframe_seqs(last=cutoff.seq):
        if (entry := await state_store.get(timeline.key(seq))) is not None:
            etags[seq] = entry.etag
    # Listed after the etags: keyframes written since then stay, and so does what they build on.
    listed = await timeline.list_keyframe_seqs()
    wanted = set(needed)
    for seq in sorted(wanted | {seq for seq in listed if seq not in etags}):
        if seq in listed:
            wanted |= set(await read_chain(timeline, seq))
    # Backwards: a keyframe must not be left without the one it builds on.
    for seq in reversed(listed):
        if seq in etags and seq not in wanted:
            with suppress(ConflictError):  # a concurrent prune built on it
                await state_store.delete(timeline.key(seq), if_match=etags[seq])


async def read_chain(timeline: Timeline, seq: int) -> tuple[int, ...]:
    """Return the keyframes that one builds on; none if a concurrent prune deleted it."""
    try:
        return tuple((await timeline.read_keyframe(seq)).chain)
    except IntegrityError:
        if await timeline.state_store.get(timeline.key(seq)) is not None:
            raise
        return ()
