"""The events of a session as a sequence: the last ones are in memory, older ones are read.

``async for`` reads what is not in memory as it should be read. Plain indexing and looping do the
same by waiting for it, which is right for scripts and for looking at the last few.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import overload

from holdfast.log.event_log import EventLog, Position
from holdfast.log.events import Event
from holdfast.log.segments import Segment
from holdfast.sessions.portal import portal
from holdfast.sessions.recording import Recording

MOST_IN_MEMORY = 1024


class Tail:
    """The last segments of a log, in memory, where it has them without asking."""

    def __init__(self, floor: Position, after: Position, segments: Sequence[Segment]) -> None:
        self.floor = floor
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


class Events(Sequence[Event]):
    """The events of a session, the first one that was not pruned at index 0.

    Those that wait to be committed are at the end, at the places that they will have if no other
    writer is first.
    """

    def __init__(self, log: EventLog, tail: Tail, recording: Recording) -> None:
        self._log = log
        self._tail = tail
        self._recording = recording

    def __len__(self) -> int:
        return self._recording.end.seq - self._tail.floor.seq + len(self._recording.pending)

    @overload
    def __getitem__(self, index: int) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> list[Event]: ...
    def __getitem__(self, index: int | slice) -> Event | list[Event]:
        places = range(len(self))[index]
        if isinstance(places, int):
            return next(self._between(places, places))
        if not places:
            return []
        low, high = min(places), max(places)
        found = list(self._between(low, high))
        return [found[place - low] for place in places]

    def __iter__(self) -> Iterator[Event]:
        return self._between(0, len(self) - 1)

    def __aiter__(self) -> AsyncIterator[Event]:
        return self.read()

    def __repr__(self) -> str:
        return f"<Events: {len(self)}>"

    async def read(self, first: int = 1, last: int | None = None) -> AsyncIterator[Event]:
        """The events from one seq to another, both included."""
        first = max(first, self._tail.floor.seq + 1)
        after = self._tail.after
        if first <= after.seq:
            until = after.seq if last is None else min(last, after.seq)
            async for event in self._log.read(first, until, after=self._tail.floor):
                yield event
        for event in self._here(max(first, after.seq + 1), last):
            yield event

    def _between(self, low: int, high: int) -> Iterator[Event]:
        """The events at places from 0, by waiting for those that are not in memory."""
        first, last = self._tail.floor.seq + 1 + low, self._tail.floor.seq + 1 + high
        after = self._tail.after
        if first <= min(last, after.seq):
            yield from portal().call(self._read_all(first, min(last, after.seq)))
        yield from self._here(max(first, after.seq + 1), last)

    async def _read_all(self, first: int, last: int) -> list[Event]:
        return [event async for event in self._log.read(first, last, after=self._tail.floor)]

    def _here(self, first: int, last: int | None) -> Iterator[Event]:
        committed = self._recording.end.seq
        end = committed + len(self._recording.pending) if last is None else last
        yield from self._tail.read(first, min(end, committed))
        if end > committed:
            events = self._recording.copied_events()
            yield from (event for event in events if first <= event.seq <= end)
