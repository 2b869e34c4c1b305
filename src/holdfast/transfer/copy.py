"""Copy sessions from one store to another, byte for byte: for promotion and for backups.

The log, the keyframes and the snapshot records are copied as they are stored. Segments never
change, so a copy is incremental. It can be interrupted at any point and resumed, because an entry
is written after those that it refers to: blobs first. Entries that the target lacks are found by
their keys;
damaged ones only with ``repair``, which reads everything.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from holdfast.errors import ConflictError, IntegrityError, InvalidDocumentError
from holdfast.log.event_log import EventLog
from holdfast.log.segment import decode_segment
from holdfast.log.timeline import Timeline
from holdfast.snapshots.delete import is_being_deleted
from holdfast.snapshots.discovery import iterate_locations
from holdfast.snapshots.incarnation import Incarnation
from holdfast.snapshots.keys import SnapshotLocation, index_key, validate_id
from holdfast.snapshots.manifest import SnapshotManifest, read_manifest, read_manifests
from holdfast.snapshots.order import id_entries_prefix
from holdfast.snapshots.records import decode_record
from holdfast.stores.base import StateStore
from holdfast.stores.batch_read import read_entries, split_batches
from holdfast.stores.entries import Entry, Put
from holdfast.transfer.copy_blobs import BlobCopy
from holdfast.transfer.repair import (
    BATCH_SIZE,
    CopyRepairResult,
    diverged_error,
    list_keys,
    repair_copy,
)

Progress = Callable[[SnapshotLocation, int], None]
"""Called with each session that was copied, and the number of entries written."""


@dataclass(slots=True)
class CopyResult:
    """What a copy wrote, and the sessions that it could not copy."""

    sessions: int = 0
    entries: int = 0
    """Entries written, without those that the target already had."""
    size: int = 0
    """Bytes written."""
    repaired: int = 0
    """Damaged entries of the target that were replaced."""
    failed: dict[SnapshotLocation, str] = field(default_factory=dict)
    """The error message for each session that was not copied."""


async def copy_sessions(
    source: StateStore,
    target: StateStore,
    *,
    agent_id: str | None = None,
    session_id: str | None = None,
    repair: bool = False,
    progress: Progress | None = None,
) -> CopyResult:
    """Copy all sessions, those of an agent, or one session.

    A session that is damaged, or that diverged in the target, is reported in ``failed``; the others
    are copied. With ``repair``, entries that are damaged in the target are replaced.

    Raises:
        StateStoreError: A store failed.

    """
    result = CopyResult()
    async for location in list_locations(source, agent_id, session_id):
        try:
            copied = await copy_session(source, target, location, repair=repair)
        except (ConflictError, IntegrityError, InvalidDocumentError) as error:
            result.failed[location] = str(error)
            continue
        result.sessions += 1
        result.entries += copied.entries
        result.size += copied.size
        result.repaired += copied.repaired
        if progress is not None:
            progress(location, copied.entries)
    return result


async def list_locations(
    store: StateStore, agent_id: str | None, session_id: str | None
) -> AsyncIterator[SnapshotLocation]:
    """List the locations of all sessions, or of those with this agent or session id."""
    if session_id is not None:
        validate_id(session_id, "session_id")
    async for location in iterate_locations(store, session_id):
        if agent_id in (None, location.scope_id):
            yield location


async def copy_session(
    source: StateStore, target: StateStore, location: SnapshotLocation, *, repair: bool = False
) -> CopyResult:
    """Copy the entries of a session that the target lacks.

    Raises:
        ConflictError: The session diverged in the target, or changed during the copy.
        IntegrityError: An entry is damaged; what could be copied was copied.

    """
    if await is_being_deleted(source, location):
        return CopyResult()
    stored = await read_manifest(source, location)
    if stored.etag is None or stored.manifest.is_claim:
        return CopyResult()  # leftovers of a session that was never created, or was deleted
    manifest = stored.manifest
    repaired = CopyRepairResult()
    if repair:
        repaired = await repair_copy(source, target, location, manifest)
    with name_target_in_errors(suggest_repair=not repair):
        copied = await Incarnation.read(target, location)
        copied_log = await validate_shared_history(
            source, target, location, manifest, copied.manifest
        )
    # Listed before the log that they refer to, which a concurrent writer only extends.
    history = await list_keys(source, location.history_prefix)
    ids = await list_keys(source, id_entries_prefix(location))
    latest = await source.get(location.latest_key)
    timeline = Timeline(source, location.prefix, manifest.incarnation)
    keyframes = await list_keys(source, timeline.prefix)
    first_keyframe = timeline.key(manifest.log_start.seq)
    if manifest.log_start.seq and first_keyframe not in keyframes:
        raise removed_during_copy_error(first_keyframe)
    copier = EntryCopier(source, target)
    blobs = BlobCopy(source, target, location, manifest, copier.put_blob)
    try:
        log = await list_keys(source, timeline.log.prefix)
        # Listed after the log that refers to them.
        if await blobs.find():
            await copier.claim(copied, manifest)
            await blobs.hold()
            await blobs.copy()
        await copier.copy_missing(key for key in keyframes if key <= first_keyframe)
        await copier.copy_missing(log, log_start=manifest.log_start.seq, target_keys=copied_log)
        await copier.copy_missing(key for key in keyframes if key > first_keyframe)
        # Until the manifest is written, no session of the target refers to these entries.
        await copier.copy_manifest(location, manifest, copied)
        copier.problems += await blobs.finish()
    except ConflictError:
        await copier.undo(location, manifest.incarnation)
        raise
    finally:
        await blobs.release()
    await copier.copy_missing(ids)
    await copier.copy_missing(history)
    if latest is not None:
        await copier.copy_latest(location, latest.value)
    if problems := [*repaired.problems, *copier.problems]:
        raise IntegrityError(f"everything else was copied, but {'; '.join(problems)}")
    return CopyResult(
        sessions=1,
        entries=copier.written + repaired.entries,
        size=copier.size + repaired.size,
        repaired=repaired.entries + repaired.dropped,
    )


@contextmanager
def name_target_in_errors(*, suggest_repair: bool) -> Iterator[None]:
    """Add to an IntegrityError that the damage is in the target, and how to repair it."""
    try:
        yield
    except IntegrityError as error:
        if not suggest_repair:
            raise
        raise IntegrityError(f"in the target: {error}, or copy again with repair") from error


async def validate_shared_history(
    source: StateStore,
    target: StateStore,
    location: SnapshotLocation,
    manifest: SnapshotManifest,
    copied: SnapshotManifest,
) -> list[str]:
    """Check that the target's log is a prefix of the source's; returns the keys of its segments.

    Raises:
        ConflictError: The logs diverged.

    """
    log = EventLog(target, location.prefix, manifest.incarnation)
    if copied.started_at is not None and copied.incarnation != manifest.incarnation:
        raise diverged_error(location, location.manifest_key)
    if copied.log_start.seq > manifest.log_start.seq:
        raise ConflictError(
            f"session {location.session_id} of {location.scope_id} was pruned up to event "
            f"{copied.log_start.seq} in the target, but up to {manifest.log_start.seq} in the "
            "source; prune the source as well, or copy into an empty store",
            key=location.manifest_key,
        )
    keys = await list_keys(target, log.prefix)
    if not keys or copied.started_at is None:
        return keys  # an interrupted copy: the entries that it wrote are the source's
    last = keys[-1]
    ours, theirs = await source.get(last), await target.get(last)
    if ours is not None and theirs is not None:
        segment = decode_segment(last, theirs.value)
        reached = max(segment.last, copied.log_start.seq) >= manifest.log_start.seq
        if reached and decode_segment(last, ours.value).hash == segment.hash:
            return keys
    elif (
        theirs is not None
        and manifest.log_start == copied.log_start
        and decode_segment(last, theirs.value).is_pruned
    ):
        return keys  # nothing is left of the log but tombstones
    raise diverged_error(location, last)


class EntryCopier:
    """Copies entries from one store to another, and counts those that it writes."""

    def __init__(self, source: StateStore, target: StateStore) -> None:
        self.source = source
        self.target = target
        self.written = 0
        self.size = 0
        self.etags: dict[str, str] = {}
        """The etags of the entries written, by key."""
        self.problems: list[str] = []
        """Entries that were not copied, because they are damaged in the source."""

    async def copy_missing(
        self,
        keys: Iterable[str],
        *,
        log_start: int | None = None,
        target_keys: list[str] | None = None,
    ) -> None:
        """Copy those entries that the target lacks, in order.

        Args:
            keys: The entries, all with one prefix.
            log_start: The log start, if these are segments; one that was pruned after it is an
                error.
            target_keys: The keys that the target had when its log was validated: a segment that
                another writer added since is then a conflict.

        """
        wanted = list(keys)
        if not wanted:
            return
        if target_keys is None:
            target_keys = await list_keys(self.target, wanted[0].rpartition("/")[0] + "/")
        present = set(target_keys)
        missing = [key for key in wanted if key not in present]
        for batch in split_batches(missing, BATCH_SIZE):
            entries = await self.source.get_many(batch)
            for key in batch:
                if key not in entries or (
                    log_start is not None and is_pruned_after(log_start, key, entries[key].value)
                ):
                    raise removed_during_copy_error(key)
            await self.put_absent([Put(key, entries[key].value, if_absent=True) for key in batch])

    async def claim(self, copied: Incarnation, manifest: SnapshotManifest) -> None:
        """Claim a session that the target does not have, so that a deletion spares its blobs.

        Raises:
            ConflictError: It was created or deleted since it was read.

        """
        if copied.is_created or manifest.started_at is None or not manifest.incarnation:
            return
        copied.id = manifest.incarnation
        active_at = manifest.active_at or manifest.started_at
        await copied.claim(started_at=manifest.started_at, active_at=active_at)
        self.etags[copied.location.manifest_key] = copied.etag or ""

    async def copy_manifest(
        self, location: SnapshotLocation, manifest: SnapshotManifest, copied: Incarnation
    ) -> None:
        """Write the source's manifest and index entry to the target.

        Raises:
            ConflictError: The target's session was created or deleted since it was read.

        """
        before = copied.manifest
        current = await self.target.get(location.manifest_key)
        # The target counts its own sweeps, and the count must not decrease.
        manifest = replace(manifest, blob_sweeps=max(manifest.blob_sweeps, before.blob_sweeps))
        data = manifest.encode()
        if before.started_at is not None and before.log_start != manifest.log_start:
            # The target has events that were pruned in the source, and keeps them.
            data = replace(
                manifest, log_start=before.log_start, pending_log_start=before.pending_log_start
            ).encode()
        # A concurrent copy of the same session writes the same manifest.
        if current is not None and current.etag != copied.etag and current.value != data:
            raise ConflictError(
                f"session {location.session_id} of {location.scope_id} changed in the target "
                "during the copy; copy again",
                key=location.manifest_key,
            )
        if manifest.active_at is not None:
            key = index_key(location, manifest.active_at)
            await self.put_if_different(Put(key, b"{}"))
        if current is None or current.value != data:
            put = Put(
                location.manifest_key, data, if_match=copied.etag, if_absent=copied.etag is None
            )
            try:
                await self.put([put])
            except ConflictError:
                current = await self.target.get(location.manifest_key)
                if current is None or current.value != data:
                    raise
        if before.active_at is not None and manifest.active_at != before.active_at:
            await self.target.delete(index_key(location, before.active_at))

    async def undo(self, location: SnapshotLocation, incarnation: str) -> None:
        """Delete the entries written, unless a session of the target refers to them by now."""
        manifest = (await read_manifests(self.target, [location])).get(location)
        if manifest is not None and manifest.incarnation == incarnation:
            return
        for key, etag in reversed(self.etags.items()):
            with suppress(ConflictError):
                await self.target.delete(key, if_match=etag)

    async def copy_latest(self, location: SnapshotLocation, data: bytes) -> None:
        """Copy the latest snapshot, unless it is damaged and the target has another one."""
        key = location.latest_key
        current = await self.target.get(key)
        try:
            decode_record(key, data, location)
        except IntegrityError:
            if current is not None and current.value != data:
                self.problems.append(f"{key} is damaged in the source and was not copied")
                return
        await self.put_if_different(Put(key, data))

    async def put_if_different(self, put: Put) -> None:
        """Write an entry, unless the target has the same one."""
        current = (await read_entries(self.target, [put.key])).get(put.key)
        if not isinstance(current, Entry) or current.value != put.value:
            await self.put([put])

    async def put_absent(self, puts: list[Put]) -> None:
        """Write new entries. A concurrent copy may write the same ones first."""
        try:
            await self.put(puts)
        except ConflictError:
            present = await self.target.get_many([put.key for put in puts])
            left = [put for put in puts if put.key not in present]
            if len(left) == len(puts) or any(
                present[put.key].value != put.value for put in puts if put.key in present
            ):
                raise
            if left:
                await self.put_absent(left)

    async def put_blob(self, puts: list[Put]) -> None:
        """Write and count chunks of a blob. To undo a copy would not delete them.

        Another session may refer to the same content by then; a prune deletes the others.
        """
        await self.target.put_many(puts)
        self.written += len(puts)
        self.size += sum(len(put.value) for put in puts)

    async def put(self, puts: list[Put]) -> None:
        """Write entries, and count them."""
        etags = await self.target.put_many(puts)
        self.etags.update(zip((put.key for put in puts), etags, strict=True))
        self.written += len(puts)
        self.size += sum(len(put.value) for put in puts)


def removed_during_copy_error(key: str) -> ConflictError:
    """Return the error for an entry that was pruned during the copy."""
    return ConflictError(f"{key} was removed from the source during the copy; copy again", key=key)


def is_pruned_after(log_start: int, key: str, data: bytes) -> bool:
    """Return whether a segment is a tombstone of events after the log start."""
    try:
        segment = decode_segment(key, data)
    except IntegrityError:
        return False  # it is copied as it is, for verify to report
    return segment.is_pruned and segment.last > log_start
