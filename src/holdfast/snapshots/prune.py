"""Giving back the space of snapshots that are not wanted any more.

Kept snapshots keep loading, whatever is removed around them. From the oldest snapshot after which
none is removed, the *log_start*, the log stays as it is. Kept snapshots before it get a keyframe each,
and the events up to it go. A crash between any two steps loses nothing that is kept:

    1. keyframes at the kept snapshots up to the log_start        more ways to the same states
    2. the log_start to be is noted in the manifest               so that whoever is next goes on,
                                                              and nobody saves before it any more
    3. the records of the others are deleted                  each by itself
    4. the log_start is written into the manifest                 from here on the events are gone
    5. segments up to the log_start become stubs, keyframes that nothing needs are deleted
    6. stubs that are a day old are deleted

Whoever prunes next goes on where a crash left it. A stub holds the place of its segment: a
writer that was last here before the pruning meets it and gets its ``ConflictError``. A writer that
was idle for some seconds looks at the manifest before it writes (`sessions`), so no stub is needed
after a day, nor after less where the clock of whoever prunes is days ahead.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import random
from contextlib import suppress
from dataclasses import dataclass, field, replace

from holdfast.errors import ConflictError, IntegrityError, NotFoundError
from holdfast.log.event_log import Position
from holdfast.log.segment import decode_segment, encode_tombstone
from holdfast.log.timeline import BaseKeyframe, Timeline
from holdfast.snapshots.history import delete_history_record
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.snapshots.manifest import SnapshotManifest, decode_manifest
from holdfast.snapshots.order import parse_history_key
from holdfast.snapshots.records import SnapshotInfo, decode_record
from holdfast.snapshots.retention import RetentionPolicy
from holdfast.stores.base import StateStore

AT_ONCE = 100
ATTEMPTS = 16
STUBS_STAY = dt.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class PruneResult:
    """What pruning did, or would do."""

    kept: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    events_removed: int = 0
    dry_run: bool = False


async def prune_session(
    state_store: StateStore,
    location: SnapshotLocation,
    policy: RetentionPolicy,
    moment: dt.datetime,
    *,
    dry_run: bool,
) -> PruneResult:
    """Remove the snapshots that a policy does not keep, and what only they needed."""
    before = await read_manifest(state_store, location)
    there = await read_records(state_store, location, before.incarnation)
    kept = policy.select(there, moment)
    keep = {info.snapshot_id for info in kept}
    removed = [info for info in there if info.snapshot_id not in keep]
    latest = await read_latest_record(state_store, location, before.incarnation)
    floors = (before.log_start, before.pending_log_start, find_cutoff(kept, removed, latest))
    log_start = max((each for each in floors if each is not None), key=lambda each: each.seq)
    result = PruneResult(
        [info.snapshot_id for info in kept],
        [info.snapshot_id for info in removed],
        max(0, log_start.seq - before.log_start.seq),
        dry_run,
    )
    if dry_run:
        return result
    timeline = Timeline(state_store, location.prefix, before.incarnation)
    spared = await timeline.list_keyframe_seqs()
    needed = [info for info in kept if info.seq <= log_start.seq]
    if latest is not None and latest.seq <= log_start.seq:
        needed.append(latest)
    await write_keyframes(timeline, location, needed)
    if log_start.seq > before.log_start.seq:
        await record_cutoff(state_store, location, before, log_start, moment, is_reached=False)
        # Who saved meanwhile at an event that goes sees the note, or is seen here.
        known = {info.snapshot_id for info in there}
        late = [
            info
            for info in await read_records(state_store, location, before.incarnation)
            if info.seq <= log_start.seq and info.snapshot_id not in known
        ]
        newest = await read_latest_record(state_store, location, before.incarnation)
        if newest is not None and newest != latest and newest.seq <= log_start.seq:
            late.append(newest)
        await write_keyframes(timeline, location, late)
        needed += late
    for info in removed:
        await remove_record(state_store, location, info)
    if log_start.seq > before.log_start.seq:
        await record_cutoff(state_store, location, before, log_start, moment, is_reached=True)
    if log_start.seq:
        await replace_by_tombstones(state_store, timeline, log_start, moment)
        await delete_keyframes(state_store, timeline, log_start, needed, spared[-1:])
    return result


def find_cutoff(
    kept: list[SnapshotInfo], removed: list[SnapshotInfo], latest: SnapshotInfo | None
) -> Position | None:
    """The position of the oldest kept snapshot after which none is removed; None to leave it."""
    if not removed:
        return None
    last = max(info.seq for info in removed)
    following = [info.position for info in kept if info.seq > last]
    if latest is not None and latest.seq > last:
        following.append(latest.position)
    if not following:
        # What is removed is at the same event as what is kept, or after it.
        following = [info.position for info in kept if info.seq == max(each.seq for each in kept)]
    return min(following, key=lambda position: position.seq)


async def read_records(
    state_store: StateStore, location: SnapshotLocation, incarnation: str
) -> list[SnapshotInfo]:
    """Return the records of all snapshots of an incarnation."""
    found: list[SnapshotInfo] = []
    listing = state_store.list(location.history_prefix)
    keys = [key async for key in listing if parse_history_key(location, key) is not None]
    for start in range(0, len(keys), AT_ONCE):
        entries = await state_store.get_many(keys[start : start + AT_ONCE])
        found += [decode_record(key, entry.value, location) for key, entry in entries.items()]
    return [info for info in found if info.incarnation == incarnation]


async def read_manifest(state_store: StateStore, location: SnapshotLocation) -> SnapshotManifest:
    """The manifest, or an empty one."""
    entry = await state_store.get(location.manifest_key)
    if entry is None:
        return SnapshotManifest()
    return decode_manifest(location.manifest_key, entry.value)


async def read_latest_record(
    state_store: StateStore, location: SnapshotLocation, incarnation: str
) -> SnapshotInfo | None:
    """Return the record of the snapshot that is replaced again and again, or None."""
    entry = await state_store.get(location.latest_key)
    info = None if entry is None else decode_record(location.latest_key, entry.value, location)
    return info if info is not None and info.incarnation == incarnation else None


async def remove_record(
    state_store: StateStore, location: SnapshotLocation, info: SnapshotInfo
) -> None:
    """Delete the record of a snapshot, unless a new incarnation has one of the same id."""
    place = info.history_key(location)
    entry = await state_store.get(place.key)
    if entry is None:
        return
    if decode_record(place.key, entry.value, location).incarnation == info.incarnation:
        with suppress(ConflictError):  # replaced since it was read
            await delete_history_record(state_store, place, if_match=entry.etag)


async def is_there(state_store: StateStore, location: SnapshotLocation, info: SnapshotInfo) -> bool:
    """Whether a snapshot is still kept."""
    if await state_store.get(info.history_key(location).key) is not None:
        return True
    return await read_latest_record(state_store, location, info.incarnation) == info


async def write_keyframes(
    timeline: Timeline, location: SnapshotLocation, infos: list[SnapshotInfo]
) -> None:
    """See that there is a keyframe at each snapshot that is still kept.

    What they build on, somebody else who prunes and keeps less may be about to delete, and the
    events in between go. So that is written once more as it is, after them: whoever has looked at
    it before deletes what they have seen and nothing else, and whoever looks later sees what builds
    on it. Where it is gone already, the whole state is written.
    """
    written: list[tuple[BaseKeyframe, Position]] = []
    for info in sorted(infos, key=lambda each: each.seq):
        try:
            there = await timeline.load(info.seq, near=info.keyframe)
        except (IntegrityError, NotFoundError):
            # Somebody else who prunes may keep less, and have removed it since.
            if await is_there(timeline.state_store, location, info):
                raise
            continue
        if there.base_keyframe.position.seq == info.seq:
            continue
        made = await timeline.write_keyframe_at(
            there.end, there.store.snapshot(), there.base_keyframe
        )
        if made is not None:
            written.append((made, there.end))
    bases = sorted({seq for made, _ in written for seq in made.chain[:-1]})
    gone = {seq for seq in bases if not await is_held(timeline, seq)}
    for made, position in written:
        if not gone.isdisjoint(made.chain):
            whole = timeline.prepare_keyframe(position, made.state, BaseKeyframe())
            await timeline.state_store.put(whole.put.key, whole.put.value)


async def is_held(timeline: Timeline, seq: int) -> bool:
    """Write a keyframe once more as it is; False where it is gone, or changes all the time."""
    store, key = timeline.state_store, timeline.key(seq)
    for attempt in range(ATTEMPTS):
        entry = await store.get(key)
        if entry is None:
            return False
        try:
            await store.put(key, entry.value, if_match=entry.etag)
            return True
        except ConflictError:
            await asyncio.sleep(0.001 * attempt)  # somebody else holds it, or has deleted it
    return False


async def record_cutoff(
    state_store: StateStore,
    location: SnapshotLocation,
    before: SnapshotManifest,
    log_start: Position,
    moment: dt.datetime,
    *,
    is_reached: bool,
) -> None:
    """Write into the manifest where the log begins now, or is about to begin.

    Raises:
        ConflictError: The session was deleted or replaced since ``before`` was read.

    """
    for attempt in range(ATTEMPTS):
        entry = await state_store.get(location.manifest_key)
        there = SnapshotManifest()
        if entry is not None:
            there = decode_manifest(location.manifest_key, entry.value)
        if entry is None or there.incarnation != before.incarnation:
            raise ConflictError(
                f"the session {location.session_id} was deleted while it was pruned; nothing of "
                "the session that is there now was changed",
                key=location.manifest_key,
            )
        if there.log_start.seq >= log_start.seq:
            return
        # Of several who prune at once, the note of the one who goes furthest stays.
        noted = there.pending_log_start
        if noted is None or noted.seq < log_start.seq:
            noted = log_start
        if is_reached:
            still = noted if noted.seq > log_start.seq else None
            data = replace(
                there, updated_at=moment, pending_log_start=still, log_start=log_start
            ).encode()
        else:
            data = replace(there, updated_at=moment, pending_log_start=noted).encode()
        try:
            await state_store.put(location.manifest_key, data, if_match=entry.etag)
            return
        except ConflictError:
            await asyncio.sleep(random.uniform(0, 0.01 * attempt))  # noqa: S311 - takes turns
    raise ConflictError(
        f"others changed the manifest {location.manifest_key} {ATTEMPTS} times: prune again later",
        key=location.manifest_key,
    )


async def replace_by_tombstones(
    state_store: StateStore, timeline: Timeline, log_start: Position, moment: dt.datetime
) -> None:
    """Leave stubs of the segments up to the log_start, and delete stubs that are old enough."""
    end = timeline.log.key(log_start.seq)
    keys = []
    async for key in state_store.list(timeline.log.prefix):
        if key > end:
            break
        if timeline.log.is_segment_key(key):
            keys.append(key)
    for start in range(0, len(keys), AT_ONCE):
        for key, entry in (await state_store.get_many(keys[start : start + AT_ONCE])).items():
            segment = decode_segment(key, entry.value)
            if segment.last > log_start.seq:
                continue
            try:
                if not segment.is_pruned:
                    await state_store.put(
                        key, encode_tombstone(segment, moment), if_match=entry.etag
                    )
                elif moment - segment.pruned_at > STUBS_STAY:
                    await state_store.delete(key, if_match=entry.etag)
            except ConflictError:
                continue  # somebody else who prunes was here


async def delete_keyframes(
    state_store: StateStore,
    timeline: Timeline,
    log_start: Position,
    needed: list[SnapshotInfo],
    spared: list[int],
) -> None:
    """Delete the keyframes up to the log_start that no kept snapshot and no later keyframe needs.

    The one that was the last before is spared: a writer may be about to build on it.
    """
    known: dict[int, str] = {}
    for seq in await timeline.list_keyframe_seqs(last=log_start.seq):
        if (entry := await state_store.get(timeline.key(seq))) is not None:
            known[seq] = entry.etag
    # Looked for after that: what is new since then stays, and so does what it builds on.
    there = await timeline.list_keyframe_seqs()
    wanted = {info.seq for info in needed} | {log_start.seq} | set(spared)
    for seq in sorted(wanted | {seq for seq in there if seq not in known}):
        if seq in there:
            wanted |= set(await chain_of(timeline, seq))
    # The last first: what builds on another must not be left without it.
    for seq in reversed(there):
        if seq in known and seq not in wanted:
            with suppress(ConflictError):  # somebody else has built on it
                await state_store.delete(timeline.key(seq), if_match=known[seq])


async def chain_of(timeline: Timeline, seq: int) -> tuple[int, ...]:
    """What a keyframe builds on; nothing where somebody else who prunes has just removed it."""
    try:
        return tuple((await timeline.read_keyframe(seq)).chain)
    except IntegrityError:
        if await timeline.state_store.get(timeline.key(seq)) is not None:
            raise
        return ()
