"""The events of one commit as bytes: one JSON object, written once.

    {"format": 1, "first": 8, "last": 11, "prev": "…", "hash": "…", "digest": "…",
     "events": [{…}, …]}

``first`` and ``last`` are the seqs of its first and last event. ``prev`` is the hash before the
first event and ``hash`` that of the last, so segments form a chain too. ``digest`` is the sha256 of
the text of ``events``: a load detects damage at the cost of reading. The hashes of single events
are not stored; readers compute them if needed.

A tombstone replaces a pruned segment for a while, so that a stale writer's commit at that seq
conflicts:

    {"format": 1, "first": 8, "last": 11, "prev": "…", "hash": "…", "pruned_at": "…Z"}
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from holdfast.errors import (
    HoldfastError,
    IntegrityError,
    InvalidDocumentError,
    NotFoundError,
    UnsupportedValueError,
)
from holdfast.log.changes import changes_from_rows
from holdfast.log.encoded_event import EncodedEvent, link_encoded
from holdfast.log.event import Event, StoredChanges, format_time, parse_time
from holdfast.log.linked_events import EventBlock, decode_changes, decode_events, join_texts
from holdfast.state.diff import Changes

T = TypeVar("T")

SEGMENT_FORMAT = 1
DAMAGE = (HoldfastError, msgspec.DecodeError, AttributeError, KeyError, TypeError, ValueError)

decode_segment_changes = msgspec.json.Decoder(list[StoredChanges]).decode


class StoredSegment(msgspec.Struct, omit_defaults=True):
    """The JSON object of a segment or a tombstone."""

    format: int
    first: int
    last: int
    prev: str
    hash: str
    digest: str = ""
    events: msgspec.Raw = msgspec.Raw(b"")
    pruned_at: str = ""


class DamageReport:
    """Reports the errors of malformed events as damage of their segment."""

    __slots__ = ("_key",)

    def __init__(self, key: str) -> None:
        self._key = key

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # A type that is not registered here does not mean damage.
        if isinstance(error, DAMAGE) and not isinstance(
            error, IntegrityError | UnsupportedValueError
        ):
            raise damaged_segment_error(self._key, str(error)) from error


class Segment:
    """A stored segment whose digest was verified. Its events are decoded on demand."""

    __slots__ = ("_stored", "key")

    def __init__(self, key: str, stored: StoredSegment) -> None:
        self.key = key
        self._stored = stored

    @property
    def first(self) -> int:
        """The seq of the first event."""
        return self._stored.first

    @property
    def last(self) -> int:
        """The seq of the last event."""
        return self._stored.last

    @property
    def prev(self) -> str:
        """The hash before the first event."""
        return self._stored.prev

    @property
    def hash(self) -> str:
        """The hash of the last event."""
        return self._stored.hash

    @property
    def is_pruned(self) -> bool:
        """Whether this is a tombstone."""
        return bool(self._stored.pruned_at)

    @property
    def pruned_at(self) -> dt.datetime:
        """When the events were pruned."""
        return parse_time(self._stored.pruned_at)

    @property
    def text(self) -> msgspec.Raw:
        """The JSON array of the stored events."""
        return self._stored.events

    @property
    def size(self) -> int:
        """The size of the stored events in bytes."""
        return len(memoryview(self._stored.events))

    def changes(self, last: int | None = None) -> list[Changes]:
        """Return the changes of each event in order, up to the event ``last``.

        Raises:
            NotFoundError: The events were pruned.
            IntegrityError: The segment is damaged.

        """
        self._check_not_pruned()
        with DamageReport(self.key):
            rows = self._check_count(decode_segment_changes(self._stored.events))
            if last is not None:
                del rows[max(0, last - self.first + 1) :]
            return [changes_from_rows(row.set, row.delete) for row in rows]

    def events(self) -> list[Event]:
        """Decode the events and verify that their hash chain ends at ``hash``.

        Raises:
            NotFoundError: The events were pruned.
            IntegrityError: The segment is damaged.

        """
        self._check_not_pruned()
        with DamageReport(self.key):
            events = decode_events(self._stored.events, self.first - 1, self.prev)
            self._check_hashes([event.hash for event in events])
        return events

    def _check_hashes(self, hashes: list[str]) -> None:
        if self._check_count(hashes)[-1] != self.hash:
            raise damaged_segment_error(self.key, "the hash of its events does not match")

    def _check_not_pruned(self) -> None:
        if self.is_pruned:
            raise pruned_segment_error(self)

    def _check_count(self, items: list[T]) -> list[T]:
        if not items or len(items) != self.last - self.first + 1:
            raise damaged_segment_error(self.key, f"it has {len(items)} events")
        return items

    def encode(self) -> bytes:
        """Return the segment as stored."""
        return msgspec.json.encode(self._stored)


def link_segments(segments: Sequence[Segment]) -> tuple[EventBlock, list[Changes]]:
    """Return the events of consecutive segments as text, and their changes.

    Their hash chain is verified, as by `Segment.events`.

    Raises:
        NotFoundError: The events were pruned.
        IntegrityError: A segment is damaged.

    """
    first, prev = segments[0].first, segments[0].prev
    text = join_texts(memoryview(each.text)[1:-1] for each in segments)
    try:
        hashes, changes = decode_changes(text, first - 1, prev)
        is_valid = len(hashes) == segments[-1].last - first + 1
    except DAMAGE:
        is_valid = False
    if not is_valid or any(hashes[each.last - first] != each.hash for each in segments):
        for each in segments:
            each.events()
        raise damaged_segment_error(segments[0].key, "it does not lead to the next segment")
    return EventBlock(first, prev, hashes, text), changes


def build_segment(key: str, block: EventBlock) -> Segment:
    """Return the segment of linked events."""
    return join_segment(key, block.first, block.last, block.prev, block.hashes[-1], block.text)


def link_segment(
    key: str, events: Sequence[EncodedEvent], seq: int, prev: str
) -> tuple[list[str], Segment]:
    """Return the hashes of the events that follow a position, and their segment."""
    hashes, text = link_encoded(events, seq, prev)
    return hashes, join_segment(key, seq + 1, seq + len(events), prev, hashes[-1], text)


def join_segment(
    key: str, first: int, last: int, prev: str, hash_: str, text: bytes | msgspec.Raw
) -> Segment:
    """Return a segment, given the JSON text of its events."""
    digest = hashlib.sha256(text).hexdigest()
    return Segment(
        key, StoredSegment(SEGMENT_FORMAT, first, last, prev, hash_, digest, msgspec.Raw(text))
    )


def encode_tombstone(segment: Segment, pruned_at: dt.datetime) -> bytes:
    """Return the bytes of the tombstone of a segment."""
    return msgspec.json.encode(
        StoredSegment(
            SEGMENT_FORMAT,
            segment.first,
            segment.last,
            segment.prev,
            segment.hash,
            pruned_at=format_time(pruned_at),
        )
    )


def decode_segment(key: str, data: bytes) -> Segment:
    """Decode a segment or a tombstone and verify its digest.

    Raises:
        IntegrityError: It is damaged.
        InvalidDocumentError: It was written by a newer version of Holdfast.

    """
    try:
        stored = msgspec.json.decode(data, type=StoredSegment)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise damaged_segment_error(key, str(error)) from error
    if stored.format > SEGMENT_FORMAT:
        raise InvalidDocumentError(
            f"{key} has format {stored.format}, but this version supports {SEGMENT_FORMAT}; "
            "upgrade Holdfast"
        )
    if not stored.pruned_at and hashlib.sha256(stored.events).hexdigest() != stored.digest:
        raise damaged_segment_error(key, "its content does not match its digest")
    return Segment(key, stored)


def damaged_segment_error(key: str, problem: str) -> IntegrityError:
    """Return the error for a damaged segment."""
    return IntegrityError(
        f"log segment {key} is damaged: {problem:.400}; restore it from a backup or a document"
    )


def pruned_segment_error(segment: Segment) -> NotFoundError:
    """Return the error for reading pruned events."""
    return NotFoundError(
        f"events {segment.first} to {segment.last} were pruned ({segment.key}); read later events, "
        "or the state at a snapshot that was kept"
    )
