"""Verify the blobs of a session: every reference has its blob, and every blob its content.

A keyframe before the start of the log that no kept snapshot builds on is not read any more; a
concurrent writer may leave it. Its references are not checked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from holdfast.blobs.keys import count_chunks
from holdfast.blobs.reader import CHUNKS_PER_READ
from holdfast.log.event import Event
from holdfast.log.event_log import Damage
from holdfast.log.keyframe import Keyframe
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.state.diff import Changes
from holdfast.stores.base import StateStore
from holdfast.stores.batch_read import read_entries, split_batches
from holdfast.stores.entries import Entry
from holdfast.values.binary_encoding import encode
from holdfast.values.references import FILES, find_file, find_sizes


@dataclass(frozen=True, slots=True)
class UnreferencedBlob:
    """A blob that nothing refers to: a crash left it, or it is not committed yet."""

    digest: str
    size: int
    """The bytes that are stored."""
    is_complete: bool
    """Whether all of its content is stored."""


@dataclass(slots=True)
class ReferenceOrigin:
    """Where a blob is referred to first, and how often."""

    key: str
    where: str
    size: int
    count: int = 1


@dataclass(slots=True)
class StoredContent:
    """What is stored of a blob."""

    size: int = 0
    chunks: int = 0
    is_intact: bool = False
    """Whether the content matches the digest."""


@dataclass(slots=True)
class BlobReferences:
    """The blobs that a log and its keyframes refer to."""

    origins: dict[str, ReferenceOrigin] = field(default_factory=dict)

    def add_event(self, key: str, event: Event) -> None:
        """Add the references of an event; ``key`` is that of its segment."""
        where = f"event {event.seq}"
        self._add_value(key, where, event.data)
        self._add_changes(key, where, event.changes)

    def add_keyframe(self, key: str, frame: Keyframe) -> None:
        """Add the references of a keyframe."""
        self._add_changes(key, f"keyframe {frame.seq}", frame.changes)

    def _add_changes(self, key: str, where: str, changes: Changes) -> None:
        for space, _, value in changes["set"]:
            self._add_value(key, where, value)
            file = find_file(value) if space == FILES else None
            if file is not None:
                self._add(key, where, *file)

    def _add_value(self, key: str, where: str, value: object) -> None:
        # Encoded, because references can also be inside of registered types and keys of dicts.
        for digest, size in find_sizes(encode(value)).items():
            self._add(key, where, digest, size)

    def _add(self, key: str, where: str, digest: str, size: int) -> None:
        origin = self.origins.get(digest)
        if origin is None:
            self.origins[digest] = ReferenceOrigin(key, where, size)
        else:
            origin.count += 1


async def read_blob(state_store: StateStore, digest: str, keys: Iterable[str]) -> StoredContent:
    """Read what is stored of a blob, holding a few chunks in memory."""
    sha = hashlib.sha256()
    content = StoredContent()
    for batch in split_batches(list(keys), CHUNKS_PER_READ):
        found = await read_entries(state_store, batch)
        for key in batch:
            entry = found.get(key)
            if isinstance(entry, Entry):
                sha.update(entry.value)
                content.size += len(entry.value)
                content.chunks += 1
    content.is_intact = sha.hexdigest() == digest
    return content


def find_blob_damage(
    location: SnapshotLocation, references: BlobReferences, stored: Mapping[str, StoredContent]
) -> list[Damage]:
    """Return the references whose blobs are missing, incomplete or damaged."""
    damage = []
    for digest, origin in sorted(references.origins.items()):
        problem = describe_problem(origin.size, stored.get(digest))
        if problem:
            others = f" (and {origin.count - 1:,} more)" if origin.count > 1 else ""
            damage.append(
                Damage(
                    origin.key,
                    f"{origin.where}{others} refers to blob {digest} of {origin.size} bytes, "
                    f"which {problem} ({location.prefix}blobs/{digest})",
                )
            )
    return damage


def describe_problem(size: int, content: StoredContent | None) -> str:
    """Return what is wrong with a blob that is referred to with a size, or an empty text."""
    if content is None:
        return "is missing"
    expected = count_chunks(size)
    if content.is_intact:
        return "" if content.size == size else f"has {content.size} bytes"
    if content.chunks < expected:
        return f"is incomplete: {content.chunks} of {expected} chunks are stored"
    return "is damaged: its content does not match its digest"
