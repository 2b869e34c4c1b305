"""Find which blobs the stored log and keyframes of a session refer to.

Everything that looks like a digest counts: 64 hexadecimal digits in the text of a segment or of a
keyframe, of any incarnation. So no kind of reference can be overlooked, and the text need not be
decoded. Damage makes the answer incomplete, and is an error.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from holdfast.errors import HoldfastError, IntegrityError, StateStoreError
from holdfast.log.event_log import Position
from holdfast.log.keyframe import KeyframeError, decode_stored_keyframe
from holdfast.log.segment import Segment, damaged_segment_error, decode_segment
from holdfast.log.timeline import Timeline, parse_seq
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.snapshots.manifest import SnapshotManifest, read_manifest
from holdfast.state.snapshot import Snapshot, encoded_changes
from holdfast.state.store import Store
from holdfast.stores.base import StateStore
from holdfast.stores.batch_read import iterate_entries, require_entry
from holdfast.values.references import find_digests, find_tokens

ATTEMPTS = 4
ESCAPE = re.compile(rb"\\u00([0-9a-fA-F]{2})")


@dataclass(frozen=True, slots=True)
class PlannedPrune:
    """What a prune is about to delete, whose references do not count."""

    cutoff: int
    """The events up to here are deleted."""
    kept_keyframes: frozenset[int]
    """Keyframes up to the cutoff that are kept, with those that they build on."""


async def find_referenced(
    state_store: StateStore,
    location: SnapshotLocation,
    manifest: SnapshotManifest,
    digests: Collection[str],
    planned: PlannedPrune | None = None,
) -> set[str]:
    """Return those of the digests that the log or a keyframe of a session refers to.

    Raises:
        IntegrityError: A segment or a keyframe is damaged or missing, so that the references in it
            are not known.

    """
    for attempt in range(ATTEMPTS):
        try:
            return await ReferenceScan(state_store, location, manifest, digests, planned).run()
        except StateStoreError:
            raise
        except IntegrityError:
            if attempt == ATTEMPTS - 1:
                raise
            # A concurrent commit or prune can look like damage.
            manifest = (await read_manifest(state_store, location)).manifest
    return set(digests)


@dataclass(slots=True)
class ReferenceScan:
    """One pass over the log and the keyframes of a session."""

    state_store: StateStore
    location: SnapshotLocation
    manifest: SnapshotManifest
    digests: Collection[str]
    planned: PlannedPrune | None = None
    found: set[str] = field(default_factory=set)

    async def run(self) -> set[str]:
        """Return the digests that were found.

        The log first: a prune writes keyframes before it deletes the segments that lead to them.
        """
        await self._scan_log()
        await self._scan_keyframes()
        return self.found

    async def _scan_log(self) -> None:
        current = self._timeline().log.prefix
        end = self.manifest.log_start
        is_created, has_started = self.manifest.is_created, False
        for prefix, keys in (await self._list("log/")).items():
            async for key, entry in iterate_entries(self.state_store, keys):
                try:
                    segment = decode_segment(key, require_entry(entry).value)
                except HoldfastError:
                    if prefix == current and is_created:
                        raise
                    continue  # of a deleted incarnation
                if prefix == current and is_created:
                    end, has_started = follow(end, segment, has_started=has_started)
                    if self.planned is not None and segment.last <= self.planned.cutoff:
                        continue
                if not segment.is_pruned:
                    self._add(bytes(segment.text))
        if is_created and end.seq == 0:
            raise self._timeline().log.missing_segment_error(1)

    async def _scan_keyframes(self) -> None:
        current = self._timeline().prefix
        for prefix, keys in {current: [], **await self._list("keyframes/")}.items():
            is_current = prefix == current and self.manifest.is_created
            needed: set[int] = set()
            read: set[int] = set()
            if is_current and self.manifest.log_start.seq:
                needed.add(self.manifest.log_start.seq)
            async for key, entry in iterate_entries(self.state_store, keys):
                try:
                    stored = decode_stored_keyframe(key, require_entry(entry).value)
                except HoldfastError:
                    if is_current:
                        raise
                    continue
                needed.update(stored.chain)
                read.add(stored.seq)
                if not is_current or self._is_kept(stored.seq):
                    self._add(bytes(stored.changes))
            if is_current and not needed <= read:
                seq = min(needed - read)
                raise KeyframeError(
                    f"keyframe {self._timeline().key(seq)} is missing; restore it from a backup"
                )

    def _is_kept(self, seq: int) -> bool:
        planned = self.planned
        return planned is None or seq > planned.cutoff or seq in planned.kept_keyframes

    def _timeline(self) -> Timeline:
        return Timeline(self.state_store, self.location.prefix, self.manifest.incarnation)

    async def _list(self, part: str) -> dict[str, list[str]]:
        """Return the keys of segments or keyframes by incarnation, in order."""
        found: dict[str, list[str]] = {}
        async for key in self.state_store.list(self.location.prefix + part):
            prefix = key[: key.rindex("/") + 1]
            if parse_seq(key, prefix):
                found.setdefault(prefix, []).append(key)
        return found

    def _add(self, text: bytes) -> None:
        found = find_tokens(text)
        if b"\\u00" in text:
            found |= find_tokens(ESCAPE.sub(lambda each: bytes([int(each[1], 16)]), text))
        self.found.update(digest for digest in found if digest in self.digests)


def follow(end: Position, segment: Segment, *, has_started: bool) -> tuple[Position, bool]:
    """Return the end of the log after a segment, and that it has started.

    Raises:
        IntegrityError: A segment before it is missing.

    """
    if segment.last <= end.seq and not has_started:
        return end, False  # pruned, or about to be
    is_next = segment.first <= end.seq + 1 if not has_started else segment.first == end.seq + 1
    if not is_next or (segment.first == end.seq + 1 and segment.prev != end.hash):
        raise damaged_segment_error(segment.key, "it does not follow the previous segment")
    return Position(segment.last, segment.hash), True


def find_state_digests(states: Iterable[Snapshot]) -> set[str]:
    """Return everything in some states that may be the digest of a blob."""
    empty = Store(max_history=0).snapshot()
    found: set[str] = set()
    for state in states:
        for _, _, data in encoded_changes(state, empty):
            if data is not None:
                found |= find_digests(data) | find_tokens(data)
    return found
