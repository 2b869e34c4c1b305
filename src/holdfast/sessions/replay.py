"""Replay a session or a document event by event, with the state before and after each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, replace

from holdfast.documents.document import Document, require_document
from holdfast.errors import NotFoundError
from holdfast.log.changes import fold_changes
from holdfast.log.event import Event, restore_event
from holdfast.log.linked_events import LinkedEvents
from holdfast.log.timeline import Timeline
from holdfast.sessions.blocking import BlockingSession
from holdfast.sessions.event_view import load_event
from holdfast.sessions.session import Session
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.event_state import pruned_events_error
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.state.diff import Changes
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store
from holdfast.stores.portal import sync
from holdfast.values.references import is_keeping_references, keep_references


@dataclass(frozen=True, slots=True)
class Step:
    """One event, with the state before and after it."""

    event: Event
    before: Snapshot
    after: Snapshot

    @property
    def changes(self) -> Changes:
        """The entries that the event set and deleted."""
        return self.event.changes


class Replay:
    """The steps of a session or a document, for ``async for`` and plain loops. See `replay`."""

    def __init__(self, source: Session | Document, first: int | None, last: int | None) -> None:
        self._source = source
        self._first = first
        self._last = last

    async def __aiter__(self) -> AsyncIterator[Step]:
        source = self._source
        if isinstance(source, Document):
            for step in self._replay_document(source):
                yield step
            return
        if (self._first or 1) <= source.log.head.seq:
            contents = source.committer.timeline.contents
            steps = replay_stored(source.archive, source.location, self._first, self._last)
            async for step in steps:
                event = await load_event(step.event, contents)
                yield step if event is step.event else replace(step, event=event)

    def __iter__(self) -> Iterator[Step]:
        if isinstance(self._source, Document):
            yield from self._replay_document(self._source)
            return
        steps = self.__aiter__()
        while (step := sync(next_step(steps))) is not None:
            yield step

    def _replay_document(self, document: Document) -> Iterator[Step]:
        if document.event_log_count and not document.events:
            raise NotFoundError(
                f"snapshot {document.snapshot_id} has no events; replay the session or a document "
                "from session.export()"
            )
        if document.events:
            with keep_references():
                log_start = document.events[0].seq - 1
        else:
            log_start = 0 if document.position is None else document.position.seq
        check_not_pruned(document.location, log_start, self._first, self._last)
        store = Store(max_history=0)
        if document.base is not None:
            store.restore(document.base)
        yield from self._steps(store, document)

    def _steps(self, store: Store, document: Document) -> Iterator[Step]:
        events = document.events
        refers = isinstance(events, LinkedEvents) and any(each.refers for each in events.blocks)
        for event in events.iterate_references() if isinstance(events, LinkedEvents) else events:
            step = apply_step(store, event, document.blobs)
            if self._last is not None and event.seq > self._last:
                return
            if event.seq >= (self._first or 1):
                if refers and not is_keeping_references():
                    step = replace(step, event=restore_event(event, document.blobs))
                yield step


def replay(
    source: Session | Document, *, first: int | None = None, last: int | None = None
) -> Replay:
    """Return the steps of a session or a document from one event to another, both included.

    A session is replayed up to its last commit. The default range is all events that were not
    pruned. The steps are read, and errors raised, during the iteration.

    Raises:
        NotFoundError: ``first`` or ``last`` was pruned, or a document has no events.
        IntegrityError: Stored data is damaged.
        StateStoreError: The store failed.

    """
    if first is not None and first < 1:
        raise ValueError(f"first must be at least 1, got {first}")
    given: object = source
    if isinstance(given, BlockingSession):
        given = given._session
    if not isinstance(given, Session):
        given = require_document(given, "replay", "a Session or a Document")
    return Replay(given, first, last)


async def replay_stored(
    archive: SnapshotArchive,
    location: SnapshotLocation,
    first: int | None = None,
    last: int | None = None,
) -> AsyncIterator[Step]:
    """Yield the steps of a stored session, reading from the last keyframe before the first one.

    ``first`` must be an event of the log, or the next one.

    Raises:
        NotFoundError: ``first`` or ``last`` was pruned.
        IntegrityError: Stored data is damaged.
        StateStoreError: The store failed.

    """
    manifest = await archive.load_manifest(location=location)
    log_start = manifest.log_start
    check_not_pruned(location, log_start.seq, first, last)
    first = first or log_start.seq + 1
    timeline = Timeline(archive.state_store, location.prefix, manifest.incarnation)
    loaded = await timeline.load(first - 1) if first > 1 else None
    store = Store(max_history=0) if loaded is None else loaded.store
    # Reads from the keyframe before, because a segment may start before the first event.
    after = log_start if loaded is None else loaded.base_keyframe.position
    async for event in timeline.log.read(first, last, after=after):
        yield apply_step(store, event, timeline.contents)


def check_not_pruned(
    location: SnapshotLocation, log_start: int, first: int | None, last: int | None
) -> None:
    """Raise if an event of the range is among the pruned ones, which end at ``log_start``."""
    if (first is not None and first <= log_start) or (last is not None and 0 < last <= log_start):
        begin, end = first or 1, log_start if last is None else min(last, log_start)
        if begin <= end:
            raise pruned_events_error(location, begin, end, log_start)


def apply_step(store: Store, event: Event, contents: Mapping[str, bytes] | None = None) -> Step:
    """Apply an event to a store and return the step."""
    before = store.snapshot()
    fold_changes(store, [event.changes], contents)
    return Step(event, before, store.snapshot())


async def next_step(steps: AsyncIterator[Step]) -> Step | None:
    """Return the next step, or None at the end."""
    return await anext(steps, None)
