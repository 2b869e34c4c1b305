"""The events of a session as a sequence: the last ones are in memory, older ones are read.

``async for`` reads events without blocking the event loop. Indexing and plain loops block while
they read, which is fine in scripts and for the last few events.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, aclosing
from typing import Protocol, overload

from holdfast.blobs.contents import BlobContents
from holdfast.errors import NotFoundError
from holdfast.log.event import Event, find_event_references, restore_event
from holdfast.log.event_log import Position
from holdfast.log.segment import Segment
from holdfast.log.timeline import Timeline
from holdfast.sessions.working_state import WorkingState
from holdfast.snapshots.follow import LogFollower
from holdfast.stores.portal import sync

MAX_SEGMENTS_IN_MEMORY = 1024


class LogTail:
    """The last segments of a log, in memory.

    Events after ``after`` are in memory; the log starts after ``log_start``.
    """

    def __init__(self, log_start: Position, after: Position, segments: Sequence[Segment]) -> None:
        self.log_start = log_start
        self.after = after
        self.segments = list(segments)

    def add(self, segment: Segment) -> None:
        """Append a segment; the oldest ones are dropped when there are too many."""
        self.segments.append(segment)
        if len(self.segments) > MAX_SEGMENTS_IN_MEMORY:
            last = self.segments[MAX_SEGMENTS_IN_MEMORY // 2 - 1]
            self.after = Position(last.last, last.hash)
            del self.segments[: MAX_SEGMENTS_IN_MEMORY // 2]

    def read(self, first: int, last: int) -> Iterator[Event]:
        """Yield the events in memory from one number to another."""
        for segment in self.segments:
            if segment.last >= first and segment.first <= last:
                yield from (event for event in segment.events() if first <= event.seq <= last)


class EventSource(Protocol):
    """The part of a `Committer` that an event view reads."""

    timeline: Timeline
    working: WorkingState
    tail: LogTail


class EventView(Sequence[Event]):
    """The events of a session; index 0 is the first one that was not pruned.

    Pending events are at the end, with the positions that they get if no other writer commits.
    """

    def __init__(
        self, source: Callable[[], EventSource], guard: AbstractContextManager[object]
    ) -> None:
        self._source = source
        self._guard = guard

    def __len__(self) -> int:
        with self._guard:
            source = self._source()
            working = source.working
            return working.head.seq - source.tail.log_start.seq + len(working.pending)

    @overload
    def __getitem__(self, index: int) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> list[Event]: ...
    def __getitem__(self, index: int | slice) -> Event | list[Event]:
        with self._guard:
            wanted = range(len(self))[index]
            if isinstance(wanted, int):
                return self._between(wanted, wanted)[0]
            if not wanted:
                return []
            low, high = min(wanted), max(wanted)
            found = self._between(low, high)
            return [found[each - low] for each in wanted]

    def __iter__(self) -> Iterator[Event]:
        with self._guard:
            return iter(self._between(0, len(self) - 1))

    def __aiter__(self) -> AsyncIterator[Event]:
        return self.read()

    def __repr__(self) -> str:
        return f"<EventView: {len(self)} events>"

    async def read(self, first: int = 1, last: int | None = None) -> AsyncIterator[Event]:
        """Yield the events from one number to another, both included.

        Raises:
            IntegrityError: The stored log is damaged.
            StateStoreError: The store failed.

        """
        source = self._source()
        first = max(first, source.tail.log_start.seq + 1)
        after = source.tail.after
        in_memory = read_from_memory(source, max(first, after.seq + 1), last)
        if first <= after.seq:
            until = after.seq if last is None else min(last, after.seq)
            async for event in source.timeline.log.read(first, until, after=source.tail.log_start):
                yield await load_event(event, source.timeline.contents)
        for event in in_memory:
            yield await load_event(event, source.timeline.contents)

    def _between(self, low: int, high: int) -> list[Event]:
        """Return the events from one index to another; block while reading older ones."""
        source = self._source()
        log_start, after = source.tail.log_start, source.tail.after
        first, last = log_start.seq + 1 + low, log_start.seq + 1 + high
        found: list[Event] = []
        if first <= min(last, after.seq):
            found += sync(read_from_store(source, first, min(last, after.seq)))
        found += read_from_memory(source, max(first, after.seq + 1), last)
        return [restore_event(event, source.timeline.contents) for event in found]


async def load_event(event: Event, contents: BlobContents) -> Event:
    """Return an event with its large values, which are read if they are blobs."""
    references = find_event_references(event)
    if not references:
        return event
    await contents.load(references)
    return restore_event(event, contents)


async def follow_loaded(
    follower: LogFollower, contents: BlobContents
) -> AsyncGenerator[Event, None]:
    """Yield the events of a follower with their large values."""
    async with aclosing(follower.events()) as events:
        async for event in events:
            try:
                loaded = await load_event(event, contents)
            except NotFoundError as error:
                await follower.raise_problem(error, event.seq)
            yield loaded


def read_from_memory(source: EventSource, first: int, last: int | None) -> list[Event]:
    """Return the events in memory from one number to another, or to the last pending one."""
    working = source.working
    committed = working.head.seq
    end = committed + len(working.pending) if last is None else last
    found = list(source.tail.read(first, min(end, committed)))
    if end > committed:
        found += [each for each in working.events() if first <= each.seq <= end]
    return found


async def read_from_store(source: EventSource, first: int, last: int) -> list[Event]:
    """Return the events from one number to another, read from the store."""
    events = source.timeline.log.read(first, last, after=source.tail.log_start)
    return [event async for event in events]
