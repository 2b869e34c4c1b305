"""The events of a session as a sequence: the last ones are in memory, older ones are read.

``async for`` reads what is not in memory as it should be read. Plain indexing and looping do the
same by waiting for it, which is right for scripts and for looking at the last few.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, overload

from holdfast.log.event import Event
from holdfast.log.event_log import Position
from holdfast.log.segment import Segment
from holdfast.log.timeline import Timeline
from holdfast.sessions.portal import get_portal
from holdfast.sessions.working_state import WorkingState

MOST_IN_MEMORY = 1024


class LogTail:
    """The last segments of a log, in memory, where it has them without asking."""

    def __init__(self, log_start: Position, after: Position, segments: Sequence[Segment]) -> None:
        self.log_start = log_start
        """Where the log begins: what is before it was pruned."""
        self.after = after
        """What comes after this is in memory."""
        self.segments = list(segments)

    def add(self, segment: Segment) -> None:
        """One more; the oldest are let go."""
        self.segments.append(segment)
        if len(self.segments) > MOST_IN_MEMORY:
            last = self.segments[MOST_IN_MEMORY // 2 - 1]
            self.after = Position(last.last, last.hash)
            del self.segments[: MOST_IN_MEMORY // 2]

    def read(self, first: int, last: int) -> Iterator[Event]:
        """The events from one seq to another that are in memory."""
        for segment in self.segments:
            if segment.last >= first and segment.first <= last:
                yield from (event for event in segment.events() if first <= event.seq <= last)


class EventSource(Protocol):
    """What the events of a session are taken from."""

    timeline: Timeline
    working: WorkingState
    tail: LogTail


class EventView(Sequence[Event]):
    """The events of a session, the first one that was not pruned at index 0.

    Those that wait to be committed are at the end, at the places that they will have if no other
    writer is first.
    """

    def __init__(
        self, writer: Callable[[], EventSource], turn: AbstractContextManager[object]
    ) -> None:
        self._committer = writer
        self._turn = turn

    def __len__(self) -> int:
        with self._turn:
            source = self._committer()
            return source.working.end.seq - source.tail.log_start.seq + len(source.working.pending)

    @overload
    def __getitem__(self, index: int) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> list[Event]: ...
    def __getitem__(self, index: int | slice) -> Event | list[Event]:
        with self._turn:
            places = range(len(self))[index]
            if isinstance(places, int):
                return self._between(places, places)[0]
            if not places:
                return []
            low, high = min(places), max(places)
            found = self._between(low, high)
            return [found[place - low] for place in places]

    def __iter__(self) -> Iterator[Event]:
        with self._turn:
            return iter(self._between(0, len(self) - 1))

    def __aiter__(self) -> AsyncIterator[Event]:
        return self.read()

    def __repr__(self) -> str:
        return f"<Events: {len(self)}>"

    async def read(self, first: int = 1, last: int | None = None) -> AsyncIterator[Event]:
        """The events from one seq to another, both included."""
        source = self._committer()
        first = max(first, source.tail.log_start.seq + 1)
        after = source.tail.after
        here = self._here(source, max(first, after.seq + 1), last)
        if first <= after.seq:
            until = after.seq if last is None else min(last, after.seq)
            async for event in source.timeline.log.read(first, until, after=source.tail.log_start):
                yield event
        for event in here:
            yield event

    def _between(self, low: int, high: int) -> list[Event]:
        """The events at places from 0, by waiting for those that are not in memory."""
        source = self._committer()
        log_start, after = source.tail.log_start, source.tail.after
        first, last = log_start.seq + 1 + low, log_start.seq + 1 + high
        found: list[Event] = []
        if first <= min(last, after.seq):
            found += get_portal().call(read_events(source, first, min(last, after.seq)))
        return found + self._here(source, max(first, after.seq + 1), last)

    @staticmethod
    def _here(source: EventSource, first: int, last: int | None) -> list[Event]:
        working = source.working
        committed = working.end.seq
        end = committed + len(working.pending) if last is None else last
        found = list(source.tail.read(first, min(end, committed)))
        if end > committed:
            found += [each for each in working.copied_events() if first <= each.seq <= end]
        return found


async def read_events(source: EventSource, first: int, last: int) -> list[Event]:
    """The events from one seq to another, read from the store."""
    reading = source.timeline.log.read(first, last, after=source.tail.log_start)
    return [event async for event in reading]
