"""Walking through what happened, step by step, with the state before and after each event."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass

from holdfast.documents.export import pruned_events_error
from holdfast.errors import NotFoundError, short_repr
from holdfast.log.changes import fold_changes
from holdfast.log.event import Event
from holdfast.log.timeline import Timeline
from holdfast.sessions.blocking import BlockingSession
from holdfast.sessions.portal import get_portal
from holdfast.sessions.session import Session
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.snapshots.session_snapshot import SessionSnapshot
from holdfast.state.diff import Changes
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store


@dataclass(frozen=True, slots=True)
class Step:
    """One event, and what it did."""

    event: Event
    before: Snapshot
    after: Snapshot

    @property
    def changes(self) -> Changes:
        """What it set and deleted."""
        return self.event.changes


class Replay:
    """The steps of a session or of a document, for ``async for`` and for a plain loop.

    Made by `replay`.
    """

    def __init__(
        self, source: Session | SessionSnapshot, first: int | None, last: int | None
    ) -> None:
        self._source = source
        self._first = first
        self._last = last

    async def __aiter__(self) -> AsyncIterator[Step]:
        source = self._source
        if isinstance(source, SessionSnapshot):
            for step in self._of_document(source):
                yield step
            return
        if (self._first or 1) > source._working.end.seq:
            return
        manifest = await source.archive.load_manifest(location=source.location)
        log_start = manifest.log_start
        self._check_kept(source.location, log_start.seq)
        first = self._first or log_start.seq + 1
        timeline = Timeline(source.state_store, source.location.prefix, manifest.incarnation)
        there = await timeline.load(first - 1) if first > 1 else None
        store = Store(max_history=0) if there is None else there.store
        # Reading begins at the keyframe before, as a segment may begin before the first event.
        after = log_start if there is None else there.base_keyframe.position
        async for event in timeline.log.read(first, self._last, after=after):
            yield apply_step(store, event)

    def __iter__(self) -> Iterator[Step]:
        if isinstance(self._source, SessionSnapshot):
            yield from self._of_document(self._source)
            return
        steps = self.__aiter__()
        while (step := get_portal().call(next_step(steps))) is not None:
            yield step

    def _of_document(self, document: SessionSnapshot) -> Iterator[Step]:
        if document.event_log_count and not document.events:
            raise NotFoundError(
                f"the snapshot {document.snapshot_id} has no events with it: replay the session, "
                "or what session.export() gave"
            )
        if document.events:
            log_start = document.events[0].seq - 1
        else:
            log_start = 0 if document.position is None else document.position.seq
        self._check_kept(document.location, log_start)
        store = Store(max_history=0)
        if document.base is not None:
            store.restore(document.base)
        yield from self._steps(store, document.events)

    def _check_kept(self, location: SnapshotLocation, log_start: int) -> None:
        """Refuse events that were pruned, the last of which is ``log_start``."""
        first, last = self._first, self._last
        if (first is not None and first <= log_start) or (
            last is not None and 0 < last <= log_start
        ):
            begin, end = first or 1, log_start if last is None else min(last, log_start)
            if begin <= end:
                raise pruned_events_error(location, begin, end, log_start)

    def _steps(self, store: Store, events: Iterable[Event]) -> Iterator[Step]:
        for event in events:
            step = apply_step(store, event)
            if self._last is not None and event.seq > self._last:
                return
            if event.seq >= (self._first or 1):
                yield step


def replay(
    source: Session | SessionSnapshot, *, first: int | None = None, last: int | None = None
) -> Replay:
    """The steps from one event to another, both included, of a session or of a document.

    Each has its event, the state before and after it, and what it changed. Of a session, what is
    committed is replayed. Without ``first`` it begins with the first event that was not pruned;
    after the last event there are no steps.

    Raises:
        NotFoundError: ``first`` or ``last`` was pruned. Raised when the steps are asked for.

    """
    if first is not None and first < 1:
        raise ValueError(f"events are counted from 1, not from {first}")
    given: object = source
    if isinstance(given, BlockingSession):
        given = given._session
    if not isinstance(given, Session | SessionSnapshot):
        raise TypeError(f"replay takes a session or a document, not {short_repr(source)}")
    return Replay(given, first, last)


def apply_step(store: Store, event: Event) -> Step:
    """Take one step in a store."""
    before = store.snapshot()
    fold_changes(store, [event.changes])
    return Step(event, before, store.snapshot())


async def next_step(steps: AsyncIterator[Step]) -> Step | None:
    """The next step, or None at the end."""
    return await anext(steps, None)
