"""Giving back the space of snapshots that are not wanted any more.

Kept snapshots keep loading, whatever is removed around them. From the oldest snapshot after which
none is removed, the *floor*, the log stays as it is. Kept snapshots before it get a keyframe each,
and the events up to it go. A crash between any two steps loses nothing that is kept:

    1. keyframes at the kept snapshots up to the floor        more ways to the same states
    2. the floor to be is noted in the manifest               so that whoever is next goes on,
                                                              and nobody saves before it any more
    3. the records of the others are deleted                  each by itself
    4. the floor is written into the manifest                 from here on the events are gone
    5. segments up to the floor become stubs, keyframes that nothing needs are deleted
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
from holdfast.log import segment as segments
from holdfast.log.event_log import Position
from holdfast.log.timeline import Anchor, Timeline
from holdfast.snapshots import history, manifest, records
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.snapshots.order import parse_key
from holdfast.snapshots.records import SnapshotInfo
from holdfast.snapshots.retention import RetentionPolicy
from holdfast.stores.base import StateStore

AT_ONCE = 100
ATTEMPTS = 16
STUBS_STAY = dt.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Pruned:
    """What pruning did, or would do."""

    kept: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    events_removed: int = 0
    dry_run: bool = False


async def prune(
    state_store: StateStore,
    location: SnapshotLocation,
    policy: RetentionPolicy,
    moment: dt.datetime,
    *,
    dry_run: bool,
) -> Pruned:
    """Remove the snapshots that a policy does not keep, and what only they needed."""
    before = await read_manifest(state_store, location)
    there = await all_records(state_store, location, before.incarnation)
    kept = policy.kept(there, moment)
    keep = {info.snapshot_id for info in kept}
    removed = [info for info in there if info.snapshot_id not in keep]
    latest = await read_latest(state_store, location, before.incarnation)
    floors = (before.floor, before.pruning, new_floor(kept, removed, latest))
    floor = max((each for each in floors if each is not None), key=lambda each: each.seq)
    result = Pruned(
        [info.snapshot_id for info in kept],
        [info.snapshot_id for info in removed],
        max(0, floor.seq - before.floor.seq),
        dry_run,
    )
    if dry_run:
        return result
    timeline = Timeline(state_store, location.place, before.incarnation)
    spared = await timeline.keyframe_seqs()
    needed = [info for info in kept if info.seq <= floor.seq]
    if latest is not None and latest.seq <= floor.seq:
        needed.append(latest)
    await write_keyframes(timeline, location, needed)
    if floor.seq > before.floor.seq:
        await note_floor(state_store, location, before, floor, moment, is_reached=False)
        # Who saved meanwhile at an event that goes sees the note, or is seen here.
        known = {info.snapshot_id for info in there}
        late = [
            info
            for info in await all_records(state_store, location, before.incarnation)
            if info.seq <= floor.seq and info.snapshot_id not in known
        ]
        newest = await read_latest(state_store, location, before.incarnation)
        if newest is not None and newest != latest and newest.seq <= floor.seq:
            late.append(newest)
        await write_keyframes(timeline, location, late)
        needed += late
    for info in removed:
        await remove_record(state_store, location, info)
    if floor.seq > before.floor.seq:
        await note_floor(state_store, location, before, floor, moment, is_reached=True)
    if floor.seq:
        await stub_segments(state_store, timeline, floor, moment)
        await drop_keyframes(state_store, timeline, floor, needed, spared[-1:])
    return result


def new_floor(
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


async def all_records(
    state_store: StateStore, location: SnapshotLocation, incarnation: str
) -> list[SnapshotInfo]:
    """Return the records of all snapshots of an incarnation."""
    found: list[SnapshotInfo] = []
    listing = state_store.list(location.history)
    keys = [key async for key in listing if parse_key(location, key) is not None]
    for start in range(0, len(keys), AT_ONCE):
        entries = await state_store.get_many(keys[start : start + AT_ONCE])
        found += [records.decoded(key, entry.value, location) for key, entry in entries.items()]
    return [info for info in found if info.incarnation == incarnation]


async def read_manifest(
    state_store: StateStore, location: SnapshotLocation
) -> manifest.SnapshotManifest:
    """The manifest, or an empty one."""
    entry = await state_store.get(location.manifest)
    if entry is None:
        return manifest.SnapshotManifest()
    return manifest.decoded(location.manifest, entry.value)


async def read_latest(
    state_store: StateStore, location: SnapshotLocation, incarnation: str
) -> SnapshotInfo | None:
    """Return the record of the snapshot that is replaced again and again, or None."""
    entry = await state_store.get(location.latest)
    info = None if entry is None else records.decoded(location.latest, entry.value, location)
    return info if info is not None and info.incarnation == incarnation else None


async def remove_record(
    state_store: StateStore, location: SnapshotLocation, info: SnapshotInfo
) -> None:
    """Delete the record of a snapshot, unless a new incarnation has one of the same id."""
    place = info.place(location)
    entry = await state_store.get(place.key)
    if entry is None:
        return
    if records.decoded(place.key, entry.value, location).incarnation == info.incarnation:
        with suppress(ConflictError):  # replaced since it was read
            await history.remove(state_store, place, if_match=entry.etag)


async def is_there(state_store: StateStore, location: SnapshotLocation, info: SnapshotInfo) -> bool:
    """Whether a snapshot is still kept."""
    if await state_store.get(info.place(location).key) is not None:
        return True
    return await read_latest(state_store, location, info.incarnation) == info


async def write_keyframes(
    timeline: Timeline, location: SnapshotLocation, infos: list[SnapshotInfo]
) -> None:
    """See that there is a keyframe at each snapshot that is still kept.

    What they build on, somebody else who prunes and keeps less may be about to delete, and the
    events in between go. So that is written once more as it is, after them: whoever has looked at
    it before deletes what they have seen and nothing else, and whoever looks later sees what builds
    on it. Where it is gone already, the whole state is written.
    """
    written: list[tuple[Anchor, Position]] = []
    for info in sorted(infos, key=lambda each: each.seq):
        try:
            there = await timeline.load(info.seq, near=info.keyframe)
        except (IntegrityError, NotFoundError):
            # Somebody else who prunes may keep less, and have removed it since.
            if await is_there(timeline.state_store, location, info):
                raise
            continue
        if there.anchor.position.seq == info.seq:
            continue
        made = await timeline.write_keyframe_at(there.end, there.store.snapshot(), there.anchor)
        if made is not None:
            written.append((made, there.end))
    bases = sorted({seq for made, _ in written for seq in made.chain[:-1]})
    gone = {seq for seq in bases if not await is_held(timeline, seq)}
    for made, position in written:
        if not gone.isdisjoint(made.chain):
            whole = timeline.keyframe_at(position, made.state, Anchor())
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


async def note_floor(
    state_store: StateStore,
    location: SnapshotLocation,
    before: manifest.SnapshotManifest,
    floor: Position,
    moment: dt.datetime,
    *,
    is_reached: bool,
) -> None:
    """Write into the manifest where the log begins now, or is about to begin.

    Raises:
        ConflictError: The session was deleted or replaced since ``before`` was read.

    """
    for attempt in range(ATTEMPTS):
        entry = await state_store.get(location.manifest)
        there = manifest.SnapshotManifest()
        if entry is not None:
            there = manifest.decoded(location.manifest, entry.value)
        if entry is None or there.incarnation != before.incarnation:
            raise ConflictError(
                f"the session {location.session_id} was deleted while it was pruned; nothing of "
                "the session that is there now was changed",
                key=location.manifest,
            )
        if there.floor.seq >= floor.seq:
            return
        # Of several who prune at once, the note of the one who goes furthest stays.
        noted = there.pruning
        if noted is None or noted.seq < floor.seq:
            noted = floor
        if is_reached:
            still = noted if noted.seq > floor.seq else None
            data = replace(there, updated_at=moment, pruning=still, floor=floor).encoded()
        else:
            data = replace(there, updated_at=moment, pruning=noted).encoded()
        try:
            await state_store.put(location.manifest, data, if_match=entry.etag)
            return
        except ConflictError:
            await asyncio.sleep(random.uniform(0, 0.01 * attempt))  # noqa: S311 - takes turns
    raise ConflictError(
        f"others changed the manifest {location.manifest} {ATTEMPTS} times: prune again later",
        key=location.manifest,
    )


async def stub_segments(
    state_store: StateStore, timeline: Timeline, floor: Position, moment: dt.datetime
) -> None:
    """Leave stubs of the segments up to the floor, and delete stubs that are old enough."""
    end = timeline.log.key(floor.seq)
    keys = []
    async for key in state_store.list(timeline.log.prefix):
        if key > end:
            break
        if timeline.log.is_segment(key):
            keys.append(key)
    for start in range(0, len(keys), AT_ONCE):
        for key, entry in (await state_store.get_many(keys[start : start + AT_ONCE])).items():
            segment = segments.decoded(key, entry.value)
            if segment.last > floor.seq:
                continue
            try:
                if not segment.is_pruned:
                    await state_store.put(key, segments.stub(segment, moment), if_match=entry.etag)
                elif moment - segment.pruned_at > STUBS_STAY:
                    await state_store.delete(key, if_match=entry.etag)
            except ConflictError:
                continue  # somebody else who prunes was here


async def drop_keyframes(
    state_store: StateStore,
    timeline: Timeline,
    floor: Position,
    needed: list[SnapshotInfo],
    spared: list[int],
) -> None:
    """Delete the keyframes up to the floor that no kept snapshot and no later keyframe needs.

    The one that was the last before is spared: a writer may be about to build on it.
    """
    known: dict[int, str] = {}
    for seq in await timeline.keyframe_seqs(last=floor.seq):
        if (entry := await state_store.get(timeline.key(seq))) is not None:
            known[seq] = entry.etag
    # Looked for after that: what is new since then stays, and so does what it builds on.
    there = await timeline.keyframe_seqs()
    wanted = {info.seq for info in needed} | {floor.seq} | set(spared)
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
        return tuple((await timeline.keyframe(seq)).chain)
    except IntegrityError:
        if await timeline.state_store.get(timeline.key(seq)) is not None:
            raise
        return ()
