"""The log of one session over any ``StateStore``: append events, read a verified range.

    <prefix>log/<incarnation>/<first seq, 12 digits>.json      one segment per commit

A commit writes its segment ``if_absent`` at the next seq. That single conditional write is the
commit: of two concurrent writers, one gets ``ConflictError`` and has written nothing.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from holdfast.errors import HoldfastError, IntegrityError, UnsupportedValueError
from holdfast.log.encoded_event import EncodedEvent, encode_draft
from holdfast.log.event import Event, EventDraft
from holdfast.log.hash_chain import GENESIS
from holdfast.log.linked_events import EventBlock
from holdfast.log.segment import (
    Segment,
    build_segment,
    damaged_segment_error,
    decode_segment,
    link_segment,
    pruned_segment_error,
)
from holdfast.stores.base import StateStore
from holdfast.stores.batch_read import read_entries, require_entry
from holdfast.stores.entries import Entry, Put

PAGE_SIZE = 256
SEGMENT_NAME = re.compile(r"[0-9]{12}\.json")
MAX_SEQ = 10**12 - 1
"""The last event that has a key: keys have twelve digits."""

SegmentPage: TypeAlias = dict[str, Entry | None]
"""Entries by key, in order; None for a key that was listed but could not be read."""


class Position(msgspec.Struct, frozen=True, gc=False):
    """A position in the log: after the event ``seq``, whose hash is ``hash``."""

    seq: int = 0
    hash: str = GENESIS


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged or missing entry, and what is wrong with it."""

    key: str
    problem: str


class PreparedSegment(msgspec.Struct, frozen=True):
    """A segment of events that follow ``after``, and the put that commits it."""

    after: Position
    recorded: Sequence[EncodedEvent]
    hashes: Sequence[str]
    """The hashes of the events."""
    segment: Segment
    put: Put
    end: Position
    """The head of the log after the commit."""

    @property
    def positions(self) -> list[Position]:
        """The positions of its events."""
        return [Position(seq, hash_) for seq, hash_ in enumerate(self.hashes, self.segment.first)]

    @property
    def events(self) -> list[Event]:
        """Its events, decoded."""
        return self.segment.events()


class EventLog:
    """The append-only, hash-chained log of one incarnation of a session.

    ``head`` is the last position that this object knows; new events are appended there.
    """

    def __init__(
        self,
        state_store: StateStore,
        location_prefix: str,
        incarnation: str,
        head: Position = Position(),  # noqa: B008
    ) -> None:
        self.state_store = state_store
        self.prefix = f"{location_prefix}log/{incarnation}/"
        self.head = head

    async def append(self, drafts: Sequence[EventDraft]) -> PreparedSegment:
        """Write events as one segment at the head.

        Raises:
            ConflictError: Another writer committed first; nothing was written.
            HoldfastError: The log is full; nothing was written.

        """
        prepared = self.prepare([encode_draft(each) for each in drafts], self.head)
        await self.write(prepared)
        return prepared

    def prepare(self, events: Sequence[EncodedEvent], after: Position) -> PreparedSegment:
        """Link new events after a position, without writing them.

        Raises:
            HoldfastError: The log is full.

        """
        last = after.seq + len(events)
        check_seq(last)
        key = self.key(after.seq + 1)
        hashes, segment = link_segment(key, events, after.seq, after.hash)
        put = Put(key, segment.encode(), None, True)  # noqa: FBT003 - faster than by name
        end = Position(last, hashes[-1])
        return PreparedSegment(after, tuple(events), hashes, segment, put, end)

    def encode_linked(self, block: EventBlock) -> Put:
        """Return the put that writes linked events as one segment.

        Raises:
            HoldfastError: The log is full.

        """
        check_seq(block.last)
        key = self.key(block.first)
        return Put(key, build_segment(key, block).encode(), if_absent=True)

    async def write(self, prepared: PreparedSegment, more: Sequence[Put] = ()) -> None:
        """Write a prepared segment and other entries, atomically if the store can.

        Raises:
            ConflictError: Another writer committed first; nothing was written.

        """
        await self.state_store.put_many([prepared.put, *more])
        self.head = prepared.end

    async def segments(
        self, after: Position, last: int | None = None, *, page: SegmentPage | None = None
    ) -> AsyncIterator[Segment]:
        """Yield the segments after a position, each verified to follow the one before.

        Stop with the segment of the event ``last``, if given. ``page`` is the first page, if the
        caller has read it already.

        Raises:
            NotFoundError: The events were pruned.
            IntegrityError: A segment is missing or damaged.

        """
        hash_, seq = after.hash, after.seq
        page = page or await self.page(seq, last)
        relisted: int | None = None
        while True:
            for key, entry in page.items():
                if key != self.key(seq + 1) and relisted != seq:
                    # Listings are not snapshots: one may miss a segment written during it and
                    # include a later one. A second listing has it, unless it is really missing.
                    relisted = seq
                    break
                if entry is None:
                    raise damaged_segment_error(key, "it is listed but cannot be read")
                segment = decode_segment(key, entry.value)
                if key != self.key(seq + 1) or segment.first != seq + 1:
                    raise self.missing_segment_error(seq + 1)
                if segment.prev != hash_:
                    raise damaged_segment_error(key, "it does not follow the previous segment")
                if segment.is_pruned:
                    raise pruned_segment_error(segment)
                yield segment
                seq, hash_ = segment.last, segment.hash
            else:
                if len(page) < PAGE_SIZE:
                    return
            page = await self.page(seq, last)

    async def page(self, seq: int, last: int | None = None) -> SegmentPage:
        """Read a page of segments that start after ``seq`` and not after ``last``, undecoded."""
        end = None if last is None else self.key(last)
        start = self.key(seq) if seq else ""
        # Each segment has an event, and one more key shows that there are no others.
        limit = PAGE_SIZE if last is None else max(1, min(PAGE_SIZE, last - seq + 1))
        keys: list[str] = []
        while True:
            listing = self.state_store.list(self.prefix, start_after=start, limit=limit)
            listed = [key async for key in listing]
            keys += [
                key for key in listed if self.is_segment_key(key) and (end is None or key <= end)
            ]
            is_all = len(listed) < limit or (end is not None and listed[-1] > end)
            if is_all or len(keys) >= PAGE_SIZE:
                break
            start = listed[-1]
        found = await self.state_store.get_many(keys)
        return {key: found.get(key) for key in keys}

    async def read(
        self,
        first: int = 1,
        last: int | None = None,
        *,
        after: Position = Position(),  # noqa: B008
    ) -> AsyncIterator[Event]:
        """Yield the events from ``first`` to ``last``, both included.

        ``after`` is a position at or before ``first`` where a segment ends; reading starts there.

        Raises:
            NotFoundError: The events were pruned.
            IntegrityError: A segment is missing or damaged.

        """
        async for segment in self.segments(after, last):
            if segment.last < first:
                continue
            for event in segment.events():
                if last is not None and event.seq > last:
                    return
                if event.seq >= first:
                    yield event

    async def inspect(
        self,
        after: Position = Position(),  # noqa: B008
    ) -> AsyncIterator[Segment | Damage]:
        """Yield every segment after a position, fully verified, and continue after damage."""
        expected: int | None = after.seq + 1
        hash_: str | None = after.hash
        keys = await self.keys(after.seq)
        relisted: int | None = None
        while keys:
            found = await read_entries(self.state_store, keys[:PAGE_SIZE])
            for at, key in enumerate(keys[:PAGE_SIZE]):
                if expected is not None and key != self.key(expected):
                    if relisted != expected:
                        relisted = expected  # as in segments()
                        keys = sorted({*keys[at:], *await self.keys(expected - 1)})
                        break
                    yield Damage(self.key(expected), "it is missing")
                    hash_ = None
                try:
                    if key not in found:
                        raise damaged_segment_error(key, "it is listed but cannot be read")
                    segment = decode_segment(key, require_entry(found[key]).value)
                    if key != self.key(segment.first):
                        raise damaged_segment_error(
                            key, f"its events start at {segment.first}, not at the seq of its key"
                        )
                    if hash_ is not None and segment.prev != hash_:
                        raise damaged_segment_error(key, "it does not follow the previous segment")
                    if not segment.is_pruned:
                        segment.events()
                except UnsupportedValueError:
                    raise
                except HoldfastError as error:
                    yield Damage(key, str(error))
                    expected = hash_ = None
                    continue
                yield segment
                expected, hash_ = segment.last + 1, segment.hash
            else:
                keys = keys[PAGE_SIZE:]

    async def verify(self, after: Position = Position()) -> list[Damage]:  # noqa: B008
        """Recompute the hash chain after a position, and return all damage."""
        return [each async for each in self.inspect(after) if isinstance(each, Damage)]

    async def keys(self, seq: int = 0) -> list[str]:
        """List the keys of the segments that start after ``seq``, in order."""
        listing = self.state_store.list(self.prefix, start_after=self.key(seq) if seq else "")
        return [key async for key in listing if self.is_segment_key(key)]

    def is_segment_key(self, key: str) -> bool:
        """Return whether a key below the log's prefix names a segment; other keys are ignored."""
        return SEGMENT_NAME.fullmatch(key, len(self.prefix)) is not None

    def key(self, seq: int) -> str:
        """Return the key of the segment that starts with the event ``seq``."""
        return f"{self.prefix}{seq:012}.json"

    def missing_segment_error(self, seq: int) -> IntegrityError:
        """Return the error for a gap before the event ``seq``."""
        return IntegrityError(
            f"log segment {self.key(seq)} is missing; restore it from a backup or a document"
        )


def check_seq(last: int) -> None:
    """Raise HoldfastError if the log has no key for the event ``last``."""
    if last > MAX_SEQ:
        raise HoldfastError(
            f"log is full: event number {last} is past {MAX_SEQ}; fork the session to continue in "
            "a new log"
        )
