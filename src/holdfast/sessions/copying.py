"""Sessions from one store to another as they are: dev to staging to production, and backups.

What is copied is what is stored, byte for byte: the log, the keyframes, the records of snapshots.
It is incremental, as segments never change, and can be cut short at any point and begun again: the
parts of a session arrive in an order in which every one finds what it needs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from holdfast.errors import ConflictError
from holdfast.log import segments
from holdfast.log.event_log import EventLog, Position
from holdfast.snapshots import manifest
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.catalog import Catalog
from holdfast.snapshots.founding import microseconds
from holdfast.snapshots.layout import SnapshotLocation, index_key
from holdfast.stores.contract import StateStore
from holdfast.stores.entries import Put

AT_ONCE = 64

Progress = Callable[[SnapshotLocation, int], None]
"""Told of every session and how many entries of it were written, as it goes."""


@dataclass(slots=True)
class Copied:
    """What a copy did."""

    sessions: int = 0
    entries: int = 0
    """How many entries were written; those that were there already are not counted."""
    size: int = 0
    """Their bytes."""
    failed: dict[str, str] = field(default_factory=dict)
    """Sessions that could not be copied, and why."""


async def copy_sessions(
    source: StateStore,
    target: StateStore,
    *,
    agent_id: str | None = None,
    session_id: str | None = None,
    progress: Progress | None = None,
) -> Copied:
    """Copy all sessions, those of an agent, or one. What fails does not keep the others."""
    result = Copied()
    async for location in locations(source, agent_id, session_id):
        try:
            written, size = await copy_session(source, target, location)
        except ConflictError as error:
            result.failed[f"{location.scope_id}/{location.session_id}"] = str(error)
            continue
        result.sessions += 1
        result.entries += written
        result.size += size
        if progress is not None:
            progress(location, written)
    return result


async def locations(
    store: StateStore, agent_id: str | None, session_id: str | None
) -> AsyncIterator[SnapshotLocation]:
    """The parts of sessions that are meant, all without an agent and a session."""
    catalog = Catalog(store)
    start = ""
    while True:
        page = (
            [session_id]
            if session_id
            else await catalog.session_ids(limit=AT_ONCE, start_after=start)
        )
        for each in page:
            for location in await catalog.locations(each):
                if agent_id in (None, location.scope_id):
                    yield location
        if session_id or len(page) < AT_ONCE:
            return
        start = page[-1]


async def copy_session(
    source: StateStore, target: StateStore, location: SnapshotLocation
) -> tuple[int, int]:
    """Copy what the target does not have of a session; gives the number of entries and bytes.

    ``ConflictError`` where the target's session went another way.
    """
    await SnapshotArchive(target).settle(location)
    await check_same_way(source, target, location)
    log = EventLog(source, location.place)
    beginning = await founded(source, target, location)
    # Where the first events were pruned, the manifest says where the log begins: it comes first.
    is_pruned = beginning.floor.seq > 0
    written = size = 0
    for part in (
        copy_missing(source, target, f"{location.place}keyframes/"),
        *([put_all(target, beginning.puts)] if is_pruned else []),
        copy_missing(source, target, log.prefix),
        *([] if is_pruned else [put_all(target, beginning.puts)]),
        copy_missing(source, target, location.history),
        copy_latest(source, target, location),
    ):
        count, length = await part
        written, size = written + count, size + length
    return written, size


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where a log begins, and what the target lacks of how a session is founded."""

    floor: Position
    puts: list[Put]


async def founded(source: StateStore, target: StateStore, location: SnapshotLocation) -> Beginning:
    """What is to be written so that the target knows the session."""
    entry = await source.get(location.manifest)
    if entry is None:
        return Beginning(Position(), [])
    found = manifest.decoded(location.manifest, entry.value)
    if await target.get(location.manifest) is not None:
        return Beginning(found.floor, [])
    puts = [Put(location.manifest, entry.value)]
    if found.started_at is not None:
        puts.insert(0, Put(index_key(location, microseconds(found.started_at)), b"{}"))
    return Beginning(found.floor, puts)


async def put_all(target: StateStore, puts: list[Put]) -> tuple[int, int]:
    """Write some entries; gives their number and bytes."""
    if puts:
        await target.put_many(puts)
    return len(puts), sum(len(put.value) for put in puts)


async def copy_latest(
    source: StateStore, target: StateStore, location: SnapshotLocation
) -> tuple[int, int]:
    """Copy the snapshot that is replaced again and again, if it differs."""
    latest = await source.get(location.latest)
    there = await target.get(location.latest)
    if latest is None or (there is not None and there.value == latest.value):
        return 0, 0
    return await put_all(target, [Put(location.latest, latest.value)])


async def check_same_way(
    source: StateStore, target: StateStore, location: SnapshotLocation
) -> None:
    """Refuse where the target's log is not the beginning of the source's."""
    theirs = EventLog(target, location.place)
    last = ""
    async for key in target.list(theirs.prefix):
        last = key
    if not last:
        return
    found = await source.get(last)
    there = await target.get(last)
    if there is None:
        return
    same = found is not None and (
        segments.decoded(last, found.value).hash == segments.decoded(last, there.value).hash
    )
    if not same:
        raise ConflictError(
            f"the session {location.session_id} of {location.scope_id} went another way in the "
            "target, or was pruned beyond it in the source: export and import it as a document",
            key=last,
        )


async def copy_missing(source: StateStore, target: StateStore, prefix: str) -> tuple[int, int]:
    """Copy the entries below a prefix that the target does not have, in order."""
    there = {key async for key in target.list(prefix)}
    missing = [key async for key in source.list(prefix) if key not in there]
    size = 0
    for start in range(0, len(missing), AT_ONCE):
        found = await source.get_many(missing[start : start + AT_ONCE])
        puts = [Put(key, entry.value, if_absent=True) for key, entry in found.items()]
        size += sum(len(put.value) for put in puts)
        await target.put_many(puts)
    return len(missing), size


async def compare_stores(source: StateStore, target: StateStore) -> list[str]:
    """What a copy lacks of a store, and what is damaged in it; nothing where it is whole."""
    problems = []
    async for location in locations(source, None, None):
        name = f"{location.scope_id}/{location.session_id}"
        found = await SnapshotArchive(target).verify(location=location)
        problems += [f"{name}: {each.key}: {each.problem}" for each in found.damage]
        for prefix in (EventLog(source, location.place).prefix, location.history):
            there = {key async for key in target.list(prefix)}
            lacking = [key async for key in source.list(prefix) if key not in there]
            problems += [f"{name}: {key} is not in the copy" for key in lacking]
    return problems
