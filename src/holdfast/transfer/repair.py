"""Repair a copy of a session from the store that it was copied from.

This reads the whole session in both stores. An entry is replaced if it is damaged in the copy and
intact in the source; an intact entry is never replaced by a damaged one. The whole log is examined
before the first write, and a copy that diverged is left as it is.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

from holdfast.errors import (
    ConflictError,
    IntegrityError,
    InvalidDocumentError,
    UnsupportedValueError,
)
from holdfast.log.keyframe import damaged_keyframe_error, decode_keyframe
from holdfast.log.segment import StoredSegment, damaged_segment_error, decode_segment
from holdfast.log.timeline import Timeline
from holdfast.snapshots.delete import is_being_deleted
from holdfast.snapshots.discovery import find_first_key
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.snapshots.manifest import SnapshotManifest, decode_manifest
from holdfast.snapshots.order import decode_id_entry, id_entries_prefix
from holdfast.snapshots.records import decode_record
from holdfast.stores.base import StateStore
from holdfast.stores.batch_read import read_entries, split_batches
from holdfast.stores.entries import Entry, Put
from holdfast.transfer.copy_blobs import BlobRepair

BATCH_SIZE = 64
FORMAT = re.compile(rb'"format":[0-9]+')

Validator: TypeAlias = Callable[[str, bytes], object]
"""Decodes an entry, and raises IntegrityError if it is damaged."""


@dataclass(slots=True)
class CopyRepairResult:
    """What a repair wrote, and the damage that remains."""

    entries: int = 0
    """Entries written."""
    size: int = 0
    """Bytes written."""
    dropped: int = 0
    """Damaged entries deleted, for the copy that follows to write."""
    problems: list[str] = field(default_factory=list)
    """Entries that are still damaged, because they are not intact in the source either."""


@dataclass(frozen=True, slots=True)
class EntryPair:
    """An entry in the source and in the copy; None if it is missing or unreadable."""

    key: str
    original: Entry | None
    copy: Entry | None
    in_source: bool
    """Whether the source has the entry, readable or not."""
    in_copy: bool

    @property
    def is_equal(self) -> bool:
        """Whether both have the same bytes."""
        if self.original is None or self.copy is None:
            return False
        return self.original.value == self.copy.value


async def repair_copy(
    source: StateStore, target: StateStore, location: SnapshotLocation, manifest: SnapshotManifest
) -> CopyRepairResult:
    """Replace lost and damaged entries of a session's copy; ``manifest`` is the source's.

    Raises:
        ConflictError: The copy diverged from the source.
        IntegrityError: No entry of the copy can be read.

    """
    return await CopyRepair(source, target, location, manifest).run()


class CopyRepair:
    """One pass over all entries of a session in two stores."""

    def __init__(
        self,
        source: StateStore,
        target: StateStore,
        location: SnapshotLocation,
        manifest: SnapshotManifest,
    ) -> None:
        self.source = source
        self.target = target
        self.location = location
        self.manifest = manifest
        self.log_start = manifest.log_start.seq
        self.copy_log_start = self.log_start
        self.timeline = Timeline(source, location.prefix, manifest.incarnation)
        self.log = self.timeline.log
        self.blobs = BlobRepair(source, target, location, manifest)
        self.result = CopyRepairResult()
        self.has_manifest = False
        """Whether the copy's manifest is intact; then missing entries are copied later."""
        self.has_entries = self.has_readable_entries = False
        self.puts: list[Put] = []
        """The entries to write, without their values."""

    async def run(self) -> CopyRepairResult:
        """Examine all entries, then write."""
        if await is_being_deleted(self.target, self.location):
            return self.result  # the next writer finishes the deletion
        if await find_first_key(self.target, self.location.prefix, "") is None:
            return self.result
        (pair,) = await self._read_pairs([self.location.manifest_key])
        if is_intact(decode_manifest, pair.key, pair.copy, pair.original):
            copied = decode_manifest(pair.key, entry_value(pair.copy))
            if (
                copied.incarnation != self.manifest.incarnation
                or copied.log_start.seq > self.log_start
            ):
                return self.result  # the copy diverged, and copying it fails
            self.copy_log_start = copied.log_start.seq
            self.has_manifest = True
        await self._examine_log()
        await self._examine_keyframes()
        await self._examine_records()
        self.result.problems += await self.blobs.examine()
        if self.has_entries and not self.has_readable_entries:
            raise unreadable_copy_error(self.location)
        await self.blobs.write()
        self.result.entries += self.blobs.entries
        self.result.size += self.blobs.size
        await self._write()
        if pair.in_copy and not self.has_manifest:
            # The copy that follows recreates it from the log.
            etag = None if pair.copy is None else pair.copy.etag
            await self.target.delete(pair.key, if_match=etag)
            self.result.dropped += 1
        return self.result

    # --------------------------------------------------------------------------------- the log

    async def _examine_log(self) -> None:
        # The copy first: a concurrent writer only extends the source.
        theirs = await list_keys(self.target, self.log.prefix)
        ours = [] if self.has_manifest else await list_keys(self.source, self.log.prefix)
        async for pair in self._unequal_pairs({*theirs, *ours}):
            self._examine_segment(pair)

    def _examine_segment(self, pair: EntryPair) -> None:
        key = pair.key
        if not pair.in_source and key > self.log.key(self.log_start):
            raise diverged_error(self.location, key)
        if not pair.in_copy:
            self._add_missing(pair, self._validate_source_segment)
            return
        if not is_intact(validate_segment, key, pair.copy, pair.original):
            if is_readable_divergence(pair):
                raise diverged_error(self.location, key)
            self._replace(pair, self._validate_source_segment)
            return
        if not is_intact(validate_segment, key, pair.original):
            return
        one, other = (decode_segment(key, entry_value(each)) for each in (pair.original, pair.copy))
        same_prune = one.is_pruned and other.is_pruned and one.pruned_at == other.pruned_at
        if one.hash != other.hash and not same_prune:
            raise diverged_error(self.location, key)
        if other.is_pruned:
            # A tombstone has no digest, so it may be damaged.
            self._replace(pair, self._validate_source_segment)

    def _validate_source_segment(self, key: str, data: bytes) -> None:
        """Reject a segment that is damaged, or was pruned beyond the copy's log start."""
        validate_segment(key, data)
        segment = decode_segment(key, data)
        if segment.is_pruned and segment.last > self.copy_log_start:
            raise damaged_segment_error(key, "its events were pruned")

    # ---------------------------------------------------------------------------- other entries

    async def _examine_keyframes(self) -> None:
        async for pair in self._unequal_pairs(await self._list_keys(self.timeline.prefix)):
            if not pair.in_copy:
                if not self.has_manifest:
                    self._add_missing(pair, validate_keyframe)
            elif not is_intact(validate_keyframe, pair.key, pair.copy, pair.original):
                self._replace(pair, validate_keyframe)

    async def _examine_records(self) -> None:
        def validate_record(key: str, data: bytes) -> None:
            decode_record(key, data, self.location)

        for prefix, validate in (
            (self.location.history_prefix, validate_record),
            (self.location.latest_key, validate_record),
            (id_entries_prefix(self.location), decode_id_entry),
        ):
            async for pair in self._unequal_pairs(await self._list_keys(prefix)):
                if pair.in_copy and not is_intact(validate, pair.key, pair.copy, pair.original):
                    self._replace(pair, validate)

    # ------------------------------------------------------------------------ reading and writing

    async def _list_keys(self, prefix: str) -> set[str]:
        """List the keys that either store has."""
        return {*await list_keys(self.target, prefix), *await list_keys(self.source, prefix)}

    async def _unequal_pairs(self, keys: set[str]) -> AsyncIterator[EntryPair]:
        for batch in split_batches(sorted(keys), BATCH_SIZE):
            for pair in await self._read_pairs(batch):
                if not pair.is_equal:
                    yield pair

    async def _read_pairs(self, keys: Sequence[str]) -> list[EntryPair]:
        ours, theirs = await read_or_none(self.source, keys), await read_or_none(self.target, keys)
        self.has_readable_entries = self.has_readable_entries or any(theirs.values())
        self.has_entries = self.has_entries or bool(theirs)
        return [
            EntryPair(key, ours.get(key), theirs.get(key), key in ours, key in theirs)
            for key in keys
        ]

    def _add_missing(self, pair: EntryPair, validate: Validator) -> None:
        """Plan to write an entry that the copy lost, if it is intact in the source."""
        if is_intact(validate, pair.key, pair.original):
            self.puts.append(Put(pair.key, b"", if_absent=True))

    def _replace(self, pair: EntryPair, validate: Validator) -> None:
        """Plan to replace a damaged entry, if it is intact in the source."""
        if is_intact(validate, pair.key, pair.original):
            etag = None if pair.copy is None else pair.copy.etag
            self.puts.append(Put(pair.key, b"", if_match=etag))
        else:
            self.result.problems.append(
                f"{pair.key} is damaged in the target and not intact in the source"
            )

    async def _write(self) -> None:
        # The values are read again: a session may not fit in memory.
        for batch in split_batches(self.puts, BATCH_SIZE):
            entries = await self.source.get_many([put.key for put in batch])
            puts = [
                msgspec.structs.replace(put, value=entries[put.key].value)
                for put in batch
                if put.key in entries
            ]
            await self.target.put_many(puts)
            self.result.entries += len(puts)
            self.result.size += sum(len(put.value) for put in puts)


async def list_keys(store: StateStore, prefix: str) -> list[str]:
    """List all keys with a prefix, in order."""
    return [key async for key in store.list(prefix)]


async def read_or_none(store: StateStore, keys: Iterable[str]) -> dict[str, Entry | None]:
    """Read entries; None for an entry that exists, but cannot be decrypted or decompressed."""
    found = await read_entries(store, keys)
    return {key: each if isinstance(each, Entry) else None for key, each in found.items()}


# ------------------------------------------------------------------------------------ validation


def entry_value(entry: Entry | None) -> bytes:
    """Return the bytes of an entry, or none if it cannot be read."""
    return b"" if entry is None else entry.value


def is_intact(
    validate: Validator, key: str, entry: Entry | None, other: Entry | None = None
) -> bool:
    """Return whether an entry is readable and not damaged.

    A format that is too new is an error, unless it is the only difference to ``other``.
    """
    if entry is None:
        return False
    try:
        validate(key, entry.value)
    except IntegrityError:
        return False
    except InvalidDocumentError:
        if FORMAT.sub(b"", entry.value, 1) == FORMAT.sub(b"", entry_value(other), 1):
            return False
        raise
    except UnsupportedValueError:
        return True  # its digest matches, but a type is not registered here
    return True


def validate_segment(key: str, data: bytes) -> None:
    """Raise IntegrityError for a segment that is damaged or under the wrong key."""
    segment = decode_segment(key, data)
    if not key.endswith(f"/{segment.first:012}.json"):
        raise damaged_segment_error(key, f"it holds the events from {segment.first}")
    if not segment.is_pruned:
        segment.events()
        return
    try:
        _ = segment.pruned_at
    except ValueError as error:
        raise damaged_segment_error(key, str(error)) from error


def validate_keyframe(key: str, data: bytes) -> None:
    """Raise IntegrityError for a keyframe that is damaged or under the wrong key."""
    keyframe = decode_keyframe(key, data)
    if not key.endswith(f"/{keyframe.seq:012}.json.gz"):
        raise damaged_keyframe_error(key, f"it is that of event {keyframe.seq}")


def is_readable_divergence(pair: EntryPair) -> bool:
    """Return whether a damaged segment can be read well enough to see that it diverged."""
    try:
        one = msgspec.json.decode(entry_value(pair.original), type=StoredSegment)
        other = msgspec.json.decode(entry_value(pair.copy), type=StoredSegment)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    if one.pruned_at or other.pruned_at:
        return one.hash != other.hash and one.pruned_at != other.pruned_at
    return one.hash != other.hash and one.digest != other.digest


def unreadable_copy_error(location: SnapshotLocation) -> IntegrityError:
    """Return the error for a copy with no readable entry: its encryption key may be wrong."""
    return IntegrityError(
        f"no entry of session {location.session_id} of {location.scope_id} can be read in the "
        "target; open the target with the key that it was written with, or delete the session "
        "there and copy again"
    )


def diverged_error(location: SnapshotLocation, key: str) -> ConflictError:
    """Return the error for a target's log that is not a prefix of the source's."""
    return ConflictError(
        f"session {location.session_id} of {location.scope_id} diverged in the target, or was "
        "pruned beyond it in the source; delete it there and copy again, or export and import it "
        "as a document",
        key=key,
    )
