"""What a session's first commit writes beside its first segment, and how its last traces go.

The order of writes is what makes a crash between any two of them harmless. Founding: the segment,
then the entry in the agent's index, then the manifest; so where the manifest is, all is, and where
only the segment is, whoever opens the session next writes the rest. Deleting: a mark, then the
index, then everything else, then the mark; so whoever meets the mark goes on with deleting.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from holdfast.errors import ConflictError, IntegrityError
from holdfast.log import segments
from holdfast.log.chain import GENESIS
from holdfast.log.event_log import EventLog, Position
from holdfast.log.segments import Segment
from holdfast.log.timeline import Timeline
from holdfast.snapshots import manifest
from holdfast.snapshots.layout import (
    SCOPES,
    SnapshotLocation,
    agent_place,
    deleted_key,
    index_key,
    indexed,
    located,
    session_place,
)
from holdfast.stores.contract import StateStore
from holdfast.stores.entries import Put

AT_ONCE = 100
ROUNDS = 4
NOWHERE = Position()
NOTHING: Mapping[str, Any] = {}


EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def microseconds(moment: dt.datetime) -> int:
    """Microseconds since the epoch."""
    return (moment - EPOCH) // dt.timedelta(microseconds=1)


def moment_of(started: int) -> dt.datetime:
    """The moment that microseconds since the epoch stand for."""
    return EPOCH + dt.timedelta(microseconds=started)


def founding(
    location: SnapshotLocation,
    started: dt.datetime,
    floor: Position = NOWHERE,
    extra: Mapping[str, Any] = NOTHING,
) -> list[Put]:
    """What follows the first segment of a session, whose log begins after a position.

    ``extra`` is what somebody had put into the manifest before.
    """
    beginning = manifest.SnapshotManifest(
        started_at=started, updated_at=started, floor=floor, extra=dict(extra)
    )
    return [
        Put(index_key(location, microseconds(started)), b"{}"),
        Put(location.manifest, beginning.encoded()),
    ]


def claim(state_store: StateStore, location: SnapshotLocation, floor: Position) -> Put:
    """What holds the place of the events up to a floor, so that nobody begins a session there."""
    key = EventLog(state_store, location.place).key(1)
    moment = dt.datetime.now(dt.UTC)
    form = segments.SegmentForm(segments.FORMAT, 1, floor.seq, GENESIS, floor.hash)
    return Put(key, segments.stub(Segment(key, form), moment), if_absent=True)


async def forget_other_start(
    state_store: StateStore, location: SnapshotLocation, other: dt.datetime, started: dt.datetime
) -> None:
    """Remove the entry in the agent's index by which a session began at another moment."""
    if other != started:
        await state_store.delete(index_key(location, microseconds(other)))


async def locations(state_store: StateStore, session_id: str) -> list[SnapshotLocation]:
    """The parts of a session, one for each agent or group of agents, without reading them."""
    found = []
    for scope in SCOPES:
        prefix = f"{session_place(session_id)}scopes/{scope}/"
        start = ""
        while key := await first_key(state_store, prefix, start):
            location = located(key)
            if location is not None:
                found.append(location)
            # 0 follows /: all keys of this part are before it.
            start = "/".join(key.split("/")[:5]) + "0"
    return found


async def first_key(state_store: StateStore, prefix: str, start_after: str) -> str | None:
    """The first key with a prefix after another, or None."""
    async for key in state_store.list(prefix, start_after=start_after, limit=1):
        return key
    return None


async def delete_session(state_store: StateStore, session_id: str) -> None:
    """Remove everything of a session. A crash leaves the mark, and the next one goes on.

    What is removed is what was there at the beginning, and nothing that another, who has gone on
    with it meanwhile, may have begun anew under the same id.
    """
    prefix = session_place(session_id)
    if await first_key(state_store, prefix, "") is None:
        return
    mark = deleted_key(session_id)
    marked = await state_store.put(mark, b"{}")
    # A writer who has not noticed may add something meanwhile: that goes too.
    for _ in range(ROUNDS):
        places = await locations(state_store, session_id)
        doomed = [each for place in places for each in await index_of(state_store, place)]
        # Snapshots before keyframes before the log: what is still listed can still be loaded.
        there = await etags(state_store, prefix, but=mark)
        doomed += sorted(there.items(), key=lambda item: item[0].rpartition("/")[0][-4:] == "/log")
        # Whoever meets the mark goes on with it, and removes it before anything is begun anew. So
        # as long as it is there, what was found is what is to go.
        entry = await state_store.get(mark)
        if entry is None or entry.etag != marked:
            return
        if not doomed:
            break
        for key, etag in doomed:
            with suppress(ConflictError):
                await state_store.delete(key, if_match=etag)
    with suppress(ConflictError):
        await state_store.delete(mark, if_match=marked)


async def etags(state_store: StateStore, prefix: str, *, but: str = "") -> dict[str, str]:
    """What is below a prefix now, each with its etag."""
    keys = [key async for key in state_store.list(prefix) if key != but]
    found: dict[str, str] = {}
    for start in range(0, len(keys), AT_ONCE):
        entries = await state_store.get_many(keys[start : start + AT_ONCE])
        found.update((key, entry.etag) for key, entry in entries.items())
    return found


async def index_of(state_store: StateStore, location: SnapshotLocation) -> list[tuple[str, str]]:
    """The entries of a session in its agent's index, with their etags."""
    entry = await state_store.get(location.manifest)
    keys = []
    try:
        known = None if entry is None else manifest.decoded(location.manifest, entry.value)
    except IntegrityError:
        known = None
    if known is not None and known.started_at is not None:
        keys = [index_key(location, microseconds(known.started_at))]
    found = await state_store.get_many(keys)
    if not found:
        found = await state_store.get_many(await index_entries(state_store, location))
    return [(key, entry.etag) for key, entry in found.items()]


async def index_entries(state_store: StateStore, location: SnapshotLocation) -> list[str]:
    """The entries of a session in its agent's index, by reading all of that."""
    found = []
    async for key in state_store.list(agent_place(location.scope_id)):
        entry = indexed(key)
        if entry is not None and entry[0] == location:
            found.append(key)
    return found


async def settle(state_store: StateStore, location: SnapshotLocation) -> manifest.SnapshotManifest:
    """Finish what a crashed writer began: a deletion, or the founding of a session.

    Gives the manifest, an empty one where there is no session.
    """
    mark = deleted_key(location.session_id)
    found = await state_store.get_many([mark, location.manifest])
    if mark in found and state_store.writable:
        await delete_session(state_store, location.session_id)
        return manifest.SnapshotManifest()
    known = manifest.SnapshotManifest()
    if location.manifest in found:
        known = manifest.decoded(location.manifest, found[location.manifest].value)
        if known.started_at is not None:
            return known
    first = await first_segment(state_store, location)
    if first is None:
        floor = await lone_keyframe(state_store, location)
        if floor is None:
            return known
        moment = dt.datetime.now(dt.UTC)
    else:
        await check_beginning(state_store, location, first)
        floor = Position(first.first - 1, first.prev)
        moment = first.events()[0].at
    for key in await index_entries(state_store, location):
        if entry := indexed(key):
            moment = moment_of(entry[1])
    puts = founding(location, moment, floor, known.extra)
    if state_store.writable:
        there = found.get(location.manifest)
        etag = None if there is None else there.etag
        last = replace(puts[-1], if_absent=there is None, if_match=etag)
        try:
            await state_store.put_many([*puts[:-1], last])
        except ConflictError:
            # Somebody else founded it meanwhile, by what was not all there when this one looked.
            known = await settle(state_store, location)
            if known.started_at is not None and not state_store.atomic_put_many:
                await forget_other_start(state_store, location, moment, known.started_at)
            return known
    return manifest.decoded(location.manifest, puts[-1].value)


async def check_beginning(
    state_store: StateStore, location: SnapshotLocation, first: Segment
) -> None:
    """Refuse a log that begins nowhere: no state leads to its first event."""
    if first.first == 1:
        return
    timeline = Timeline(state_store, location.place)
    if first.first - 1 not in await timeline.keyframe_seqs(last=first.first - 1):
        raise IntegrityError(
            f"the log in {location.place} begins at event {first.first}, and nothing says what was "
            "before it. So it looks where a writer went on with a session that was deleted: delete "
            "the session again, or restore it from a backup"
        )


async def first_segment(state_store: StateStore, location: SnapshotLocation) -> Segment | None:
    """The first segment of a log whose events were not pruned, or None."""
    log = EventLog(state_store, location.place)
    async for key in state_store.list(log.prefix):
        if not log.is_segment(key):
            continue
        entry = await state_store.get(key)
        segment = None if entry is None else segments.decoded(key, entry.value)
        if segment is not None and not segment.is_pruned:
            return segment
    return None


async def lone_keyframe(state_store: StateStore, location: SnapshotLocation) -> Position | None:
    """The position of the last keyframe of a log of which nothing else is left, or None.

    Without a snapshot that it is for, it is what a crashed import left: that goes.
    """
    timeline = Timeline(state_store, location.place)
    seqs = await timeline.keyframe_seqs()
    if not seqs:
        return None
    if await first_key(state_store, location.history, "") or await state_store.get(location.latest):
        frame = await timeline.keyframe(seqs[-1])
        return Position(frame.seq, frame.hash)
    left = await etags(state_store, f"{location.place}keyframes/")
    # Who imports at this moment writes the log after the keyframe: once more, it is not there.
    if state_store.writable and await first_key(state_store, timeline.log.prefix, "") is None:
        for key, etag in left.items():
            with suppress(ConflictError):
                await state_store.delete(key, if_match=etag)
    return None
