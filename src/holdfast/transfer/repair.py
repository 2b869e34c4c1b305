"""What is damaged in a copy of a session is written anew, from the store that it was copied from.

Looking reads all of the session in both stores, so it is done where it is asked for. An entry is
replaced where it is not what it says it is, and the source's is. What is whole is never replaced
by what is damaged, and a copy that went another way is left as it is: nothing is written before all
of the log was looked at.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import msgspec

from holdfast.errors import (
    ConflictError,
    IntegrityError,
    InvalidDocumentError,
    UnsupportedValueError,
)
from holdfast.log.event_log import read_entries
from holdfast.log.keyframe import damaged_keyframe_error, decode_keyframe
from holdfast.log.segment import StoredSegment, damaged_segment_error, decode_segment
from holdfast.log.timeline import Timeline
from holdfast.snapshots.keys import SnapshotLocation, deletion_mark_key
from holdfast.snapshots.lifecycle import find_first_key
from holdfast.snapshots.manifest import SnapshotManifest, decode_manifest
from holdfast.snapshots.order import decode_id_entry, id_entries_prefix
from holdfast.snapshots.records import decode_record
from holdfast.stores.base import StateStore
from holdfast.stores.entries import Entry, Put

BATCH_SIZE = 64
FORMAT = re.compile(rb'"format":[0-9]+')

Check: TypeAlias = Callable[[str, bytes], object]
"""Reads an entry; ``IntegrityError`` where it is damaged."""


@dataclass(slots=True)
class RepairResult:
    """What became of the damage in a copy."""

    entries: int = 0
    """How many entries were written."""
    size: int = 0
    """Their bytes."""
    dropped: int = 0
    """How many were removed, for what follows to write them anew."""
    left: list[str] = field(default_factory=list)
    """What is damaged still, as the source has nothing better."""


@dataclass(frozen=True, slots=True)
class EntryPair:
    """An entry in the source and in the copy; None where there is none, or none to be read."""

    key: str
    here: Entry | None
    there: Entry | None
    is_here: bool
    is_there: bool
    """Whether there is an entry at all."""

    @property
    def is_equal(self) -> bool:
        """Whether both have the same bytes."""
        return None not in (self.here, self.there) and entry_value(self.here) == entry_value(
            self.there
        )


async def repair_copy(
    source: StateStore, target: StateStore, location: SnapshotLocation, here: SnapshotManifest
) -> RepairResult:
    """Repair what is lost or damaged of a session in a copy.

    ``here`` is the source's manifest.

    Raises:
        ConflictError: The copy and the source diverged.

    """
    return await CopyRepair(source, target, location, here).run()


class CopyRepair:
    """One pass over everything that is stored of a session in two stores."""

    def __init__(
        self,
        source: StateStore,
        target: StateStore,
        location: SnapshotLocation,
        here: SnapshotManifest,
    ) -> None:
        self.source = source
        self.target = target
        self.location = location
        self.here = here
        self.log_start = self.stubs = here.log_start.seq
        """Up to where the copy's events may be gone."""
        self.timeline = Timeline(source, location.prefix, here.incarnation)
        self.log = self.timeline.log
        self.result = RepairResult()
        self.is_founded = False
        """Whether the copy knows its beginning. Then what it lacks is copied later, as if new."""
        self.is_there = self.is_legible = False
        """Whether the copy has anything, and anything that could be read."""
        self.puts: list[Put] = []
        """What is to be written, as yet without the values."""

    async def run(self) -> RepairResult:
        """All of it: first looking, then writing."""
        if await self.target.get(deletion_mark_key(self.location.session_id)) is not None:
            return self.result  # whoever comes next goes on with deleting it
        if await find_first_key(self.target, self.location.prefix, "") is None:
            return self.result
        (kept,) = await self._pairs([self.location.manifest_key])
        if is_intact(decode_manifest, kept.key, kept.there, kept.here):
            known = decode_manifest(kept.key, entry_value(kept.there))
            if known.incarnation != self.here.incarnation or known.log_start.seq > self.log_start:
                return self.result  # the copy is refused as it is
            self.stubs = known.log_start.seq
            self.is_founded = True
        await self._look_at_log()
        await self._look_at_keyframes()
        await self._look_at_records()
        if self.is_there and not self.is_legible:
            raise unreadable_copy_error(self.location)
        await self._write()
        if kept.is_there and not self.is_founded:
            # What follows makes it anew of the log, and then takes over what the source knows.
            etag = None if kept.there is None else kept.there.etag
            await self.target.delete(kept.key, if_match=etag)
            self.result.dropped += 1
        return self.result

    # --------------------------------------------------------------------------------- the log

    async def _look_at_log(self) -> None:
        # The copy's first: who writes meanwhile makes the source longer.
        theirs = await list_keys(self.target, self.log.prefix)
        ours = [] if self.is_founded else await list_keys(self.source, self.log.prefix)
        keys = sorted({*theirs, *ours})
        for start in range(0, len(keys), BATCH_SIZE):
            for pair in await self._pairs(keys[start : start + BATCH_SIZE]):
                self._look_at_segment(pair)

    def _look_at_segment(self, pair: EntryPair) -> None:
        key = pair.key
        if not pair.is_here and key > self.log.key(self.log_start):
            raise diverged_error(self.location, key)
        if pair.is_equal:
            return
        if not pair.is_there:
            self._fill(pair, self._check_source)
            return
        if not is_intact(validate_segment, key, pair.there, pair.here):
            if is_readable_divergence(pair):
                raise diverged_error(self.location, key)
            self._replace(pair, self._check_source)
            return
        if not is_intact(validate_segment, key, pair.here):
            return
        one, other = (decode_segment(key, entry_value(each)) for each in (pair.here, pair.there))
        is_near = one.is_pruned and other.is_pruned and one.pruned_at == other.pruned_at
        if one.hash != other.hash and not is_near:
            raise diverged_error(self.location, key)
        if other.is_pruned:
            self._replace(pair, self._check_source)  # a stub has no digest that would tell

    def _check_source(self, key: str, data: bytes) -> None:
        """Refuse a segment that the copy would be no better with."""
        validate_segment(key, data)
        segment = decode_segment(key, data)
        if segment.is_pruned and segment.last > self.stubs:
            raise damaged_segment_error(key, "its events were pruned")

    # --------------------------------------------------------------------------- all the others

    async def _look_at_keyframes(self) -> None:
        async for pair in self._pairs_below(self.timeline.prefix):
            if not pair.is_there:
                if not self.is_founded:
                    self._fill(pair, validate_keyframe)
            elif not is_intact(validate_keyframe, pair.key, pair.there, pair.here):
                self._replace(pair, validate_keyframe)

    async def _look_at_records(self) -> None:
        def check(key: str, data: bytes) -> None:
            decode_record(key, data, self.location)

        for prefix in (self.location.history_prefix, self.location.latest_key):
            async for pair in self._pairs_below(prefix):
                if pair.is_there and not is_intact(check, pair.key, pair.there, pair.here):
                    self._replace(pair, check)
        async for pair in self._pairs_below(id_entries_prefix(self.location)):
            if pair.is_there and not is_intact(validate_id_entry, pair.key, pair.there, pair.here):
                self._replace(pair, validate_id_entry)

    # ------------------------------------------------------------------------ reading and writing

    async def _pairs_below(self, prefix: str) -> AsyncIterator[EntryPair]:
        """What is below a prefix here or there, and is not the same in both."""
        theirs = await list_keys(self.target, prefix)
        keys = sorted({*theirs, *await list_keys(self.source, prefix)})
        for start in range(0, len(keys), BATCH_SIZE):
            for pair in await self._pairs(keys[start : start + BATCH_SIZE]):
                if not pair.is_equal:
                    yield pair

    async def _pairs(self, keys: list[str]) -> list[EntryPair]:
        here, there = await read_intact(self.source, keys), await read_intact(self.target, keys)
        self.is_legible = self.is_legible or any(there.values())
        self.is_there = self.is_there or bool(there)
        return [
            EntryPair(key, here.get(key), there.get(key), key in here, key in there) for key in keys
        ]

    def _fill(self, pair: EntryPair, check: Check) -> None:
        """Have what was lost written, if the source's is whole."""
        if is_intact(check, pair.key, pair.here):
            self.puts.append(Put(pair.key, b"", if_absent=True))

    def _replace(self, pair: EntryPair, check: Check) -> None:
        """Have what is damaged written anew, if the source's is whole."""
        if is_intact(check, pair.key, pair.here):
            etag = None if pair.there is None else pair.there.etag
            self.puts.append(Put(pair.key, b"", if_match=etag))
        else:
            self.result.left.append(
                f"{pair.key} is damaged in the target, and the source does not have it whole"
            )

    async def _write(self) -> None:
        # They are read once more rather than kept: a session may be larger than the memory.
        for start in range(0, len(self.puts), BATCH_SIZE):
            some = self.puts[start : start + BATCH_SIZE]
            found = await self.source.get_many([put.key for put in some])
            puts = [replace(put, value=found[put.key].value) for put in some if put.key in found]
            await self.target.put_many(puts)
            self.result.entries += len(puts)
            self.result.size += sum(len(put.value) for put in puts)


async def list_keys(store: StateStore, prefix: str) -> list[str]:
    """All keys below a prefix, in order."""
    return [key async for key in store.list(prefix)]


async def read_intact(store: StateStore, keys: Iterable[str]) -> dict[str, Entry | None]:
    """What the keys hold; None for what is there and cannot be decrypted or unpacked any more."""
    found = await read_entries(store, keys)
    return {key: each if isinstance(each, Entry) else None for key, each in found.items()}


# ------------------------------------------------------------------------------- what is whole


def entry_value(entry: Entry | None) -> bytes:
    """The bytes of an entry, none where it cannot be read."""
    return b"" if entry is None else entry.value


def is_intact(check: Check, key: str, entry: Entry | None, other: Entry | None = None) -> bool:
    """Whether an entry is what it says it is.

    One of a newer version is refused, unless it says what the ``other`` one says in the known one.
    """
    if entry is None:
        return False
    try:
        check(key, entry.value)
    except IntegrityError:
        return False
    except InvalidDocumentError:
        if FORMAT.sub(b"", entry.value, 1) == FORMAT.sub(b"", entry_value(other), 1):
            return False
        raise
    except UnsupportedValueError:
        return True  # its digest matches; a type that is not registered here is no damage
    return True


def validate_segment(key: str, data: bytes) -> None:
    """Refuse a segment that is damaged, or at another's place."""
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
    """Refuse a keyframe that is damaged, or at another's place."""
    frame = decode_keyframe(key, data)
    if not key.endswith(f"/{frame.seq:012}.json.gz"):
        raise damaged_keyframe_error(key, f"it is that of the event {frame.seq}")


def validate_id_entry(key: str, data: bytes) -> None:
    """Refuse an entry that finds a snapshot by its id and is damaged."""
    decode_id_entry(key, data)


def is_readable_divergence(pair: EntryPair) -> bool:
    """Whether a damaged segment of the copy can be read so far that it was never the source's."""
    try:
        one = msgspec.json.decode(entry_value(pair.here), type=StoredSegment)
        other = msgspec.json.decode(entry_value(pair.there), type=StoredSegment)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    if one.pruned_at or other.pruned_at:
        return one.hash != other.hash and one.pruned_at != other.pruned_at
    return one.hash != other.hash and one.digest != other.digest


def unreadable_copy_error(location: SnapshotLocation) -> IntegrityError:
    """The error for a copy of which no entry can be decrypted or unpacked: it may be the key."""
    return IntegrityError(
        f"nothing of the session {location.session_id} of {location.scope_id} can be read in the "
        "target: open it with the key that it was written with, or delete the session there and "
        "copy again"
    )


def diverged_error(location: SnapshotLocation, key: str) -> ConflictError:
    """The error for a target's log that is not the beginning of the source's."""
    return ConflictError(
        f"the session {location.session_id} of {location.scope_id} went another way in the target, "
        "or was pruned beyond it in the source: delete it there and copy again, or export and "
        "import it as a document",
        key=key,
    )
