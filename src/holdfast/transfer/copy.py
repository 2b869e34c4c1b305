"""Sessions from one store to another as they are: dev to staging to production, and backups.

What is copied is what is stored, byte for byte: the log, the keyframes, the records of snapshots.
It is incremental, as segments never change, and can be cut short at any point and begun again: the
parts of a session arrive in an order in which every one finds what it needs. What the target lacks
is seen by its keys and copied again; damage is looked for where it is asked for (``mending``).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from holdfast.errors import ConflictError, IntegrityError, InvalidDocumentError
from holdfast.log.event_log import EventLog, read_entries, require_entry
from holdfast.log.segment import decode_segment
from holdfast.log.timeline import Timeline
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.catalog.catalog import Catalog
from holdfast.snapshots.incarnation import Incarnation
from holdfast.snapshots.keys import SnapshotLocation, deletion_mark_key, index_key
from holdfast.snapshots.lifecycle import read_manifests, to_microseconds
from holdfast.snapshots.manifest import SnapshotManifest, decode_manifest
from holdfast.snapshots.order import id_entries_prefix
from holdfast.snapshots.records import decode_record
from holdfast.stores.base import StateStore
from holdfast.stores.entries import Entry, Put
from holdfast.transfer.repair import RepairResult, diverged_error, list_keys, repair_copy

BATCH_SIZE = 64

Progress = Callable[[SnapshotLocation, int], None]
"""Told of every session and how many entries of it were written, as it goes."""


@dataclass(slots=True)
class CopyResult:
    """What a copy did."""

    sessions: int = 0
    entries: int = 0
    """How many entries were written; those that were there already are not counted."""
    size: int = 0
    """Their bytes."""
    repaired: int = 0
    """How many were damaged in the target and are not any more, where it was to be mended."""
    failed: dict[SnapshotLocation, str] = field(default_factory=dict)
    """Sessions that could not be copied, and why."""


async def copy_sessions(
    source: StateStore,
    target: StateStore,
    *,
    agent_id: str | None = None,
    session_id: str | None = None,
    repair: bool = False,
    progress: Progress | None = None,
) -> CopyResult:
    """Copy all sessions, those of an agent, or one.

    A session that is damaged, or that went another way in the target, does not keep the others.
    With ``mend`` all of the target is read, and what is damaged there and whole here is written
    anew.
    """
    result = CopyResult()
    async for location in list_locations(source, agent_id, session_id):
        try:
            done = await copy_session(source, target, location, repair=repair)
        except (ConflictError, IntegrityError, InvalidDocumentError) as error:
            result.failed[location] = str(error)
            continue
        result.sessions += 1
        result.entries += done.entries
        result.size += done.size
        result.repaired += done.repaired
        if progress is not None:
            progress(location, done.entries)
    return result


async def list_locations(
    store: StateStore, agent_id: str | None, session_id: str | None
) -> AsyncIterator[SnapshotLocation]:
    """The parts of sessions that are meant, all without an agent and a session."""
    catalog = Catalog(store)
    start = ""
    while True:
        page = (
            [session_id]
            if session_id is not None
            else await catalog.session_ids(limit=BATCH_SIZE, start_after=start)
        )
        for each in page:
            for location in await catalog.locations(each):
                if agent_id in (None, location.scope_id):
                    yield location
        if session_id is not None or len(page) < BATCH_SIZE:
            return
        start = page[-1]


async def copy_session(
    source: StateStore, target: StateStore, location: SnapshotLocation, *, repair: bool = False
) -> CopyResult:
    """Copy what the target does not have of a session, and say how much it was.

    ``ConflictError`` where the target's session went another way.
    """
    if await source.get(deletion_mark_key(location.session_id)) is not None:
        return CopyResult()  # it is being deleted there
    known = await source.get(location.manifest_key)
    if known is None:
        return CopyResult()  # leftovers of a session that was never created, or of a deleted one
    here = decode_manifest(location.manifest_key, known.value)
    mended = RepairResult()
    if repair:
        mended = await repair_copy(source, target, location, here)
    with name_target_in_errors(mended=repair):
        there = await Incarnation.read(target, location)
        begun = await validate_shared_history(source, target, location, here, there.manifest)
    # Listed before the log, which they point into: a concurrent writer makes the log longer.
    recorded = await list_keys(source, location.history_prefix)
    ids = await list_keys(source, id_entries_prefix(location))
    latest = await source.get(location.latest_key)
    timeline = Timeline(source, location.prefix, here.incarnation)
    frames = await list_keys(source, timeline.prefix)
    if here.log_start.seq and timeline.key(here.log_start.seq) not in frames:
        raise removed_during_copy_error(timeline.key(here.log_start.seq))
    work = EntryCopier(source, target)
    try:
        await work.missing(key for key in frames if key <= timeline.key(here.log_start.seq))
        log = await list_keys(source, timeline.log.prefix)
        await work.missing(log, log_start=here.log_start.seq, there=begun)
        await work.missing(key for key in frames if key > timeline.key(here.log_start.seq))
        # What was copied so far belongs to a session of the target only from here on.
        await work.manifest(location, here, there)
    except ConflictError:
        await work.take_back(location, here.incarnation)
        raise
    await work.missing(ids)
    await work.missing(recorded)
    if latest is not None:
        await work.latest(location, latest.value)
    if problems := [*mended.left, *work.left]:
        raise IntegrityError(f"all else was copied, but {'; '.join(problems)}")
    return CopyResult(
        sessions=1,
        entries=work.written + mended.entries,
        size=work.size + mended.size,
        repaired=mended.entries + mended.dropped,
    )


@contextmanager
def name_target_in_errors(*, mended: bool) -> Iterator[None]:
    """Say of damage that it is in the target, and what helps."""
    try:
        yield
    except IntegrityError as error:
        if mended:
            raise
        raise IntegrityError(f"in the target {error}, or copy again with mend") from error


async def validate_shared_history(
    source: StateStore,
    target: StateStore,
    location: SnapshotLocation,
    here: SnapshotManifest,
    there: SnapshotManifest,
) -> list[str]:
    """Refuse where the target's log is not the beginning of the source's; gives its keys."""
    log = EventLog(target, location.prefix, here.incarnation)
    if there.started_at is not None and there.incarnation != here.incarnation:
        raise diverged_error(location, location.manifest_key)
    name = f"the session {location.session_id} of {location.scope_id}"
    if there.log_start.seq > here.log_start.seq:
        raise ConflictError(
            f"{name} was pruned in the target up to event {there.log_start.seq}, and in the source up "
            f"to {here.log_start.seq}: prune the source as well, or copy into an empty store",
            key=location.manifest_key,
        )
    keys = await list_keys(target, log.prefix)
    if not keys or there.started_at is None:
        return keys  # a copy that was cut short; the entries of a segment's key are its own
    last = keys[-1]
    found, known = await source.get(last), await target.get(last)
    if found is not None and known is not None:
        end = decode_segment(last, known.value)
        reached = max(end.last, there.log_start.seq) >= here.log_start.seq
        if reached and decode_segment(last, found.value).hash == end.hash:
            return keys
    elif known is not None and here.log_start == there.log_start and is_tombstone(last, known):
        return keys  # all that is left of the log are the tombstones of pruned events
    raise diverged_error(location, last)


class EntryCopier:
    """Entries on their way from one store to another, and how many were written."""

    def __init__(self, source: StateStore, target: StateStore) -> None:
        self.source = source
        self.target = target
        self.written = 0
        self.size = 0
        self.etags: dict[str, str] = {}
        """The entries that were written."""
        self.left: list[str] = []
        """What was not copied, as it is damaged in the source and whole in the target."""

    async def missing(
        self, keys: Iterable[str], *, log_start: int | None = None, there: list[str] | None = None
    ) -> None:
        """Copy those of some entries that the target does not have, in order.

        ``log_start`` is where a log begins, if they are one: what was pruned after it is not copied.
        ``there`` is what the target had of it when it was found to be the same log: who has gone on
        since, or begun one, is met as a conflict.
        """
        wanted = list(keys)
        if not wanted:
            return
        if there is None:
            there = await list_keys(self.target, wanted[0].rpartition("/")[0] + "/")
        known = set(there)
        lacking = [key for key in wanted if key not in known]
        for start in range(0, len(lacking), BATCH_SIZE):
            some = lacking[start : start + BATCH_SIZE]
            found = await self.source.get_many(some)
            for key in some:
                if key not in found or (
                    log_start is not None and is_pruned_after(log_start, key, found[key].value)
                ):
                    raise removed_during_copy_error(key)
            await self.put_absent([Put(key, found[key].value, if_absent=True) for key in some])

    async def manifest(
        self, location: SnapshotLocation, here: SnapshotManifest, there: Incarnation
    ) -> None:
        """Make the target's manifest and index entry what the source has.

        Raises:
            ConflictError: The target's session was created or deleted since it was read.

        """
        before = there.manifest
        known = await self.target.get(location.manifest_key)
        data = here.encode()
        if before.started_at is not None and before.log_start != here.log_start:
            # The copy has more than the source has now, and goes on from its own beginning.
            data = replace(
                here, log_start=before.log_start, pending_log_start=before.pending_log_start
            ).encode()
        # A concurrent copy of the same session writes the same manifest.
        if known is not None and known.etag != there.etag and known.value != data:
            raise ConflictError(
                f"the session {location.session_id} of {location.scope_id} changed in the target "
                "while it was copied; copy again",
                key=location.manifest_key,
            )
        if here.active_at is not None:
            await self.put_changed(Put(index_key(location, to_microseconds(here.active_at)), b"{}"))
        if known is None or known.value != data:
            named = Put(
                location.manifest_key, data, if_match=there.etag, if_absent=there.etag is None
            )
            try:
                await self.put([named])
            except ConflictError:
                known = await self.target.get(location.manifest_key)
                if known is None or known.value != data:
                    raise
        if before.active_at is not None and here.active_at != before.active_at:
            await self.target.delete(index_key(location, to_microseconds(before.active_at)))

    async def take_back(self, location: SnapshotLocation, incarnation: str) -> None:
        """Remove what was written, unless a session of the target has it in its log by now."""
        there = (await read_manifests(self.target, [location])).get(location)
        if there is not None and there.incarnation == incarnation:
            return
        for key, etag in reversed(self.etags.items()):
            with suppress(ConflictError):
                await self.target.delete(key, if_match=etag)

    async def latest(self, location: SnapshotLocation, data: bytes) -> None:
        """See that the target has the source's latest snapshot, unless that one is damaged."""
        key = location.latest_key
        known = await self.target.get(key)
        try:
            decode_record(key, data, location)
        except IntegrityError:
            if known is not None and known.value != data:
                self.left.append(
                    f"{key} is damaged in the source, and stays as it is in the target"
                )
                return
        await self.put_changed(Put(key, data))

    async def put_changed(self, put: Put) -> None:
        """Write an entry if the target has another there, none, or none to be read."""
        known = (await read_entries(self.target, [put.key])).get(put.key)
        if not isinstance(known, Entry) or known.value != put.value:
            await self.put([put])

    async def put_absent(self, puts: list[Put]) -> None:
        """Write entries that were not there. Who copies the same meanwhile writes the same."""
        try:
            await self.put(puts)
        except ConflictError:
            there = await self.target.get_many([put.key for put in puts])
            left = [put for put in puts if put.key not in there]
            if len(left) == len(puts) or any(
                there[put.key].value != put.value for put in puts if put.key in there
            ):
                raise
            if left:
                await self.put_absent(left)

    async def put(self, puts: list[Put]) -> None:
        """Write entries, and count them."""
        etags = await self.target.put_many(puts)
        self.etags.update(zip((put.key for put in puts), etags, strict=True))
        self.written += len(puts)
        self.size += sum(len(put.value) for put in puts)


def is_tombstone(key: str, entry: Entry) -> bool:
    """Whether an entry is what is left of a pruned segment."""
    return decode_segment(key, entry.value).is_pruned


def removed_during_copy_error(key: str) -> ConflictError:
    """The error for what somebody pruned while it was copied."""
    return ConflictError(f"{key} was removed from the source in this moment: copy again", key=key)


def is_pruned_after(log_start: int, key: str, data: bytes) -> bool:
    """Whether a segment is a stub of events that are not pruned, as far as the manifest said."""
    try:
        segment = decode_segment(key, data)
    except IntegrityError:
        return False  # it is copied as it is: whoever verifies hears of it
    return segment.is_pruned and segment.last > log_start


# -------------------------------------------------------------------------------- the proof


@dataclass(frozen=True, slots=True)
class SessionComparison:
    """A session in a copy: what it has, and what it lacks or has damaged."""

    location: SnapshotLocation
    events: int
    snapshots: int
    problems: list[str]
    """One for each entry, with its key; empty where the copy is whole."""


async def compare_stores(source: StateStore, target: StateStore) -> list[str]:
    """What a copy lacks of a store, and what is damaged in it; nothing where it is whole."""
    return [
        f"{each.location.scope_id}/{each.location.session_id}: {problem}"
        async for each in compare_sessions(source, target)
        for problem in each.problems
    ]


async def compare_sessions(
    source: StateStore, target: StateStore
) -> AsyncIterator[SessionComparison]:
    """Compare each session of a store with its copy."""
    async for location in list_locations(source, None, None):
        if await read_entries(source, [deletion_mark_key(location.session_id)]):
            continue  # it is being deleted; that the mark is there says so, whatever it holds
        found = await SnapshotArchive(target).verify(location=location)
        damaged = {each.key for each in found.damage}
        problems = [f"{each.key}: {each.problem}" for each in found.damage]
        async for key, problem in diff_entries(source, target, location):
            if key not in damaged:
                problems.append(f"{key} {problem}")
        yield SessionComparison(location, found.events, found.snapshots, problems)


async def diff_entries(
    source: StateStore, target: StateStore, location: SnapshotLocation
) -> AsyncIterator[tuple[str, str]]:
    """The entries of a session that a copy lacks, or has otherwise, and which of the two."""
    known = SnapshotManifest()
    try:
        entry = await source.get(location.manifest_key)
        if entry is not None:
            known = decode_manifest(location.manifest_key, entry.value)
    except (IntegrityError, InvalidDocumentError) as error:
        yield location.manifest_key, f"cannot be compared: {error}"
    log = f"{location.prefix}log/"
    keys = [*await list_keys(source, log), *await list_keys(source, location.history_prefix)]
    keys += await list_keys(source, id_entries_prefix(location))
    keys += [location.latest_key, location.manifest_key]
    if known.active_at is not None:
        keys.append(index_key(location, to_microseconds(known.active_at)))
    for start in range(0, len(keys), BATCH_SIZE):
        some = keys[start : start + BATCH_SIZE]
        ours, theirs = await read_entries(source, some), await read_entries(target, some)
        for key in ours:
            if key not in theirs:
                yield key, "is not in the copy"
                continue
            try:
                here, copy = require_entry(ours[key]).value, require_entry(theirs[key]).value
                if key != location.manifest_key and not is_same_entry(
                    key, here, copy, is_segment=key.startswith(log)
                ):
                    yield key, "is another one in the copy"
            except (IntegrityError, InvalidDocumentError) as error:
                yield key, f"cannot be compared: {error}"


def is_same_entry(key: str, here: bytes, copy: bytes, *, is_segment: bool) -> bool:
    """Whether a copy of an entry is one; of a segment that was pruned since, the hash tells."""
    if here == copy or not is_segment:
        return here == copy
    try:
        one, other = decode_segment(key, here), decode_segment(key, copy)
    except IntegrityError:
        return False
    return one.hash == other.hash and (one.is_pruned or not other.is_pruned)
