"""The log of one session, over any ``StateStore``: append, and read a range, checked.

    <place>log/<incarnation>/<first seq, 12 digits>.json      one segment per commit

A commit writes its segment ``if_absent`` at the next seq: that one conditional write is the commit,
and of two writers one gets ``ConflictError`` with nothing of its own written.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from holdfast.errors import HoldfastError, IntegrityError, UnsupportedValueError
from holdfast.log.event import Event, EventDraft
from holdfast.log.hash_chain import GENESIS, link_events
from holdfast.log.segment import (
    Segment,
    damaged_segment_error,
    decode_segment,
    encode_segment,
    pruned_segment_error,
)
from holdfast.stores.base import StateStore
from holdfast.stores.entries import Entry, Put

PAGE_SIZE = 256
SEGMENT_NAME = re.compile(r"[0-9]{12}\.json")
MAX_SEQ = 10**12 - 1
"""The last event that has a key: keys have twelve digits."""

SegmentPage: TypeAlias = dict[str, Entry | None]
"""Entries by their keys, in order; None for one that was listed and is not there."""


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the log: after this event."""

    seq: int = 0
    hash: str = GENESIS


@dataclass(frozen=True, slots=True)
class Damage:
    """An entry that is not as it was written, and what is wrong with it."""

    key: str
    problem: str


@dataclass(frozen=True, slots=True)
class PreparedSegment:
    """Events at their places, and the write that makes them durable."""

    events: Sequence[Event]
    put: Put

    @property
    def end(self) -> Position:
        """Where the log ends once it is written."""
        return Position(self.events[-1].seq, self.events[-1].hash)


class EventLog:
    """The append-only, hash-chained log below one place of a ``StateStore``.

    ``end`` is where this object believes the log to end: what it appends goes there.
    """

    def __init__(
        self,
        state_store: StateStore,
        place: str,
        incarnation: str,
        end: Position = Position(),  # noqa: B008
    ) -> None:
        self.state_store = state_store
        self.prefix = f"{place}log/{incarnation}/"
        self.head = end

    async def append(self, drafts: Sequence[EventDraft]) -> PreparedSegment:
        """Write events as one segment. ``ConflictError`` where another writer was first."""
        sealed = self.prepare_segment(link_events(drafts, self.head.seq, self.head.hash))
        await self.write(sealed)
        return sealed

    def prepare_segment(self, events: Sequence[Event]) -> PreparedSegment:
        """Return the write that makes durable the events that follow the end of the log.

        Raises:
            HoldfastError: The log has no number for them; nothing is written.

        """
        if events[-1].seq > MAX_SEQ:
            raise HoldfastError(
                f"log is full: event number {events[-1].seq} is past {MAX_SEQ}; fork the session "
                "to continue in a new log"
            )
        return PreparedSegment(
            events, Put(self.key(events[0].seq), encode_segment(events), if_absent=True)
        )

    async def write(self, sealed: PreparedSegment, more: Sequence[Put] = ()) -> None:
        """Write sealed events, and with them what belongs to them, in one step if it can be.

        ``ConflictError`` where another writer was first; nothing is written then.
        """
        await self.state_store.put_many([sealed.put, *more])
        self.head = sealed.end

    async def segments(
        self, after: Position, last: int | None = None, *, page: SegmentPage | None = None
    ) -> AsyncIterator[Segment]:
        """The segments that follow a position, each bound to the one before, up to a seq.

        ``page`` is the first of them, where the caller has read it already.
        """
        hash_, seq = after.hash, after.seq
        page = page or await self.page(seq, last)
        relisted: int | None = None
        while True:
            for key, entry in page.items():
                if key != self.key(seq + 1) and relisted != seq:
                    # A listing is not a snapshot: it may miss a segment that was written during it
                    # and show a later one. The next listing has it, unless it is really missing.
                    relisted = seq
                    break
                if entry is None:
                    raise damaged_segment_error(key, "it is listed but not there")
                segment = decode_segment(key, entry.value)
                if key != self.key(seq + 1) or segment.first != seq + 1:
                    raise self.missing(seq + 1)
                if segment.prev != hash_:
                    raise damaged_segment_error(key, "it does not follow the one before it")
                if segment.is_pruned:
                    raise pruned_segment_error(segment)
                yield segment
                seq, hash_ = segment.last, segment.hash
            else:
                if len(page) < PAGE_SIZE:
                    return
            page = await self.page(seq, last)

    async def page(self, seq: int, last: int | None = None) -> SegmentPage:
        """Some of the segments that begin after a seq and not after another, as they are stored."""
        end = None if last is None else self.key(last)
        start = self.key(seq) if seq else ""
        keys: list[str] = []
        while True:
            listing = self.state_store.list(self.prefix, start_after=start, limit=PAGE_SIZE)
            listed = [key async for key in listing]
            keys += [
                key for key in listed if self.is_segment_key(key) and (end is None or key <= end)
            ]
            is_all = len(listed) < PAGE_SIZE or (end is not None and listed[-1] > end)
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
        """The events from one seq to another, both included.

        ``after`` is a position at or before ``first`` where a segment ends: reading begins there.
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
        """Every segment that follows a position, checked to its last event.

        What is not whole is a `Damage`, and reading goes on behind it.
        """
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
                        raise damaged_segment_error(key, "it is listed but not there")
                    segment = decode_segment(key, require_entry(found[key]).value)
                    if key != self.key(segment.first):
                        raise damaged_segment_error(
                            key, f"it holds the events from {segment.first}"
                        )
                    if hash_ is not None and segment.prev != hash_:
                        raise damaged_segment_error(key, "it does not follow the one before it")
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
        """All that is wrong with what follows a position: the chain is computed anew."""
        return [each async for each in self.inspect(after) if isinstance(each, Damage)]

    async def keys(self, seq: int = 0) -> list[str]:
        """The keys of the segments that begin after a seq, in order."""
        listing = self.state_store.list(self.prefix, start_after=self.key(seq) if seq else "")
        return [key async for key in listing if self.is_segment_key(key)]

    def is_segment_key(self, key: str) -> bool:
        """Whether a key below the log's prefix is that of a segment. Others are ignored."""
        return SEGMENT_NAME.fullmatch(key, len(self.prefix)) is not None

    def key(self, seq: int) -> str:
        """The key of the segment that begins with a seq."""
        return f"{self.prefix}{seq:012}.json"

    def missing(self, seq: int) -> IntegrityError:
        """The error for a gap."""
        return IntegrityError(
            f"the log's segment {self.key(seq)} is missing: restore it from a backup or a document"
        )


async def read_entries(
    state_store: StateStore, keys: Iterable[str]
) -> dict[str, Entry | IntegrityError]:
    """What the keys hold; the error of one that cannot be decrypted or unpacked any more.

    A store refuses all keys together for one of them, so they are read singly then, and only then.
    """
    wanted = list(keys)
    with suppress(IntegrityError):
        return dict(await state_store.get_many(wanted))
    found: dict[str, Entry | IntegrityError] = {}
    for key in wanted:
        try:
            entry = await state_store.get(key)
        except IntegrityError as error:
            found[key] = error
        else:
            if entry is not None:
                found[key] = entry
    return found


def require_entry(found: Entry | IntegrityError) -> Entry:
    """An entry that was read, or the error of one that was not."""
    if isinstance(found, IntegrityError):
        raise found
    return found
