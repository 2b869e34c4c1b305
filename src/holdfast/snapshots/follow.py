"""Follow the log of a session: every committed event once, in order, as it is committed.

A follower reads the log by seq: the segment after the last one is stored under a key that is known
beforehand, so a new commit costs one read, however long the log is. Each segment is verified to
continue the hash chain. A watch on the session's keys wakes the follower (see `stores.watch`); a
wake-up is only a hint, and without one the follower reads after a pause that grows from
``FIRST_PAUSE`` to ``MAX_PAUSE``, or every ``SAFETY_PAUSE`` while a server notifies it of writes.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import NoReturn, Self

from holdfast.errors import IntegrityError, InvalidDocumentError, NotFoundError, short_repr
from holdfast.log.event import Event
from holdfast.log.event_log import EventLog, Position, SegmentPage
from holdfast.log.segment import Segment, decode_segment
from holdfast.snapshots.follow_start import (
    describe_session,
    find_head,
    find_start,
    pruned_error,
)
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.snapshots.manifest import StoredManifest, read_manifest, select_manifest
from holdfast.snapshots.shared_read import SharedPoll, share_read
from holdfast.stores.base import StateStore
from holdfast.stores.entries import Entry
from holdfast.stores.local import run_in_thread

FIRST_PAUSE, MAX_PAUSE = 0.01, 1.0
"""Seconds between reads of a log that does not grow: the first pause, doubled up to the last."""
MIN_PAUSE_READS = 4
"""How many times as long as a read a pause is at least: polling must not overload a store."""
SAFETY_PAUSE = 3.0
"""Seconds after which a follower reads without being woken: a wake-up may have been lost."""
CHECK_SECONDS = 30.0
"""Seconds after which a follower looks for a gap, in a log that does not grow."""
PAGE_SIZE = 16
"""How many segments are read at once to catch up. They are in memory while the caller is slow."""
LIST_SIZE = 1000
"""How many keys are listed at once. On some stores, a listing reads all names of the log."""
SINGLE_READS = 4
"""How many segments are read one by one before a page is read, which needs a listing."""
LARGE = 256 * 1024
"""The size in bytes from which a segment is decoded in a thread."""


def follow_events(
    state_store: StateStore, location: SnapshotLocation, after: int | None = None
) -> AsyncGenerator[Event, None]:
    """Yield the committed events of a session after an event, and then each new one.

    Without ``after``, yield those that are committed after the first call of ``anext``; with 0,
    start at the beginning of the log. If the session does not exist, wait for it.

    Raises:
        NotFoundError: The log does not have the event ``after``, or the events after it were
            pruned. Or the session was deleted, or deleted and created again, while it is followed.
        IntegrityError: The log is damaged.
        StateStoreError: The store failed. Continue after the last event that was received.
        TypeError: ``after`` is not an int.
        ValueError: ``after`` is negative.

    """
    return LogFollower(state_store, location, validate_after(after)).events()


def validate_after(after: object) -> int | None:
    """Return the number of an event, 0 for the beginning of the log, or None.

    Raises:
        TypeError: It is not an int.
        ValueError: It is negative.

    """
    if after is None:
        return None
    if not isinstance(after, int) or isinstance(after, bool):
        raise TypeError(f"after must be the number of an event or None, got {short_repr(after)}")
    if after < 0:
        raise ValueError(f"after must not be negative, got {after}; events are numbered from 1")
    return after


class LogFollower(AbstractAsyncContextManager["LogFollower"]):
    """Reads the log of one session as it grows, while its context is entered.

    ``after`` is the event to start after, or a position where a segment ends, or None for the head
    of the log. ``incarnation`` is the one that the caller has read, if any: another one is then an
    error.
    """

    def __init__(
        self,
        state_store: StateStore,
        location: SnapshotLocation,
        after: int | Position | None,
        incarnation: str | None = None,
    ) -> None:
        self._state_store = state_store
        self._location = location
        self._after = after.seq if isinstance(after, Position) else after
        self._incarnation = incarnation
        self._stored = StoredManifest()
        self._log = EventLog(state_store, location.prefix, "")
        self._start = after if isinstance(after, Position) else None
        self._position = Position()
        """Where the next segment starts. It may be before ``after``."""
        self._last_key: str | None = None
        """The key of the last segment that was read."""
        self._listed: Sequence[str] = ()
        """Keys of the next segments, if they were listed."""
        self._segments: deque[Segment] = deque()
        """Segments that were read, and not received yet."""
        self._problem: Exception | None = None
        """The error after them."""
        self._found = 0
        """How many reads in a row found as much as they could."""
        self._context = state_store.watch(location.prefix)
        self._is_woken = True
        """Whether the last wait ended because of a write."""
        self._pause = FIRST_PAUSE
        self._read_seconds = 0.0
        """How long the last read took."""
        self._checked_at = time.monotonic()

    async def events(self) -> AsyncGenerator[Event, None]:
        """Yield the events after the start. See `follow_events`."""
        async with self:
            while True:
                for event in await self.receive():
                    yield event

    async def __aenter__(self) -> Self:
        """Find the position to start at. If the session does not exist, wait for it.

        Raises what `follow_events` does.
        """
        self._watch = await self._context.__aenter__()
        self._poll = SharedPoll.get(self._state_store, self._location.prefix)
        self._poll.watches.add(self._watch)
        try:
            await self._open()
        except BaseException:
            await self.__aexit__(*sys.exc_info())
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._poll.watches.discard(self._watch)
        await self._context.__aexit__(kind, error, trace)

    async def receive(self, seconds: float | None = None) -> list[Event]:
        """Return the events of the next commit; none if there is none within some seconds.

        Raises what `follow_events` does.
        """
        end = None if seconds is None else time.monotonic() + seconds
        while True:
            if self._segments:
                segment = self._segments.popleft()
                after = self._after or 0
                return [each for each in await decode_events(segment) if each.seq > after]
            if self._problem is not None:
                await self.raise_problem(self._problem)
            await self._read()
            if self._segments or self._problem is not None:
                continue
            await self._check_continuity()
            if not await self._wait(end):
                return []

    # ------------------------------------------------------------------------------------ start

    async def _open(self) -> None:
        is_new = False
        while True:
            stored = await read_manifest(self._state_store, self._location)
            if stored.manifest.is_created:
                break
            if self._incarnation is not None:
                raise self._deleted_error()
            is_new = True
            await self._wait(None)
        self._pause = FIRST_PAUSE
        self._use(stored)
        self._position = Position(self._after or stored.manifest.log_start.seq)
        try:
            if self._start is not None:
                self._position = self._start
            elif self._after == 0 or (self._after is None and is_new):
                self._position = stored.manifest.log_start
            else:
                self._position = await find_start(
                    self._state_store, self._location, stored.manifest, self._after
                )
        except (IntegrityError, NotFoundError) as error:
            await self.raise_problem(error)
        if self._after is None:
            self._after = self._position.seq

    # ---------------------------------------------------------------------------------- reading

    async def _read(self) -> None:
        """Read the next segment, or a page of them if there are several.

        If one is damaged, the error is kept for when those before it are received.
        """
        is_page = self._found >= SINGLE_READS
        segments: list[Segment] = []
        started = time.monotonic()
        try:
            if is_page:
                name = (self._log.prefix, self._position.seq)
                page, self._listed = await share_read(self._state_store, name, self._read_page)
            else:
                page = await self._read_next()
            if page:
                async for segment in self._log.segments(self._position, page=page):
                    segments.append(segment)
                    if len(segments) == PAGE_SIZE:
                        break
        except (IntegrityError, InvalidDocumentError, NotFoundError) as error:
            self._problem = error
        if segments:
            self._segments.extend(segments)
            last = segments[-1]
            self._position, self._last_key = Position(last.last, last.hash), last.key
            self._checked_at = time.monotonic()
            self._pause = FIRST_PAUSE
            if not self._is_woken:
                self._poll.wake_others(self._watch, last.key)
                self._is_woken = True
        elif self._problem is None:
            self._poll.note_end(self._position.seq, started)
        self._read_seconds = time.monotonic() - started
        is_more = len(segments) == (PAGE_SIZE if is_page else 1)
        self._found = self._found + 1 if is_more else 0

    async def _read_next(self) -> SegmentPage:
        """Read the manifest and the next segment, in one call."""
        next_key = self._log.key(self._position.seq + 1)
        keys = (self._location.manifest_key, next_key)
        found = await share_read(self._state_store, keys, lambda: self._state_store.get_many(keys))
        self._check(found)
        if next_key in found:
            return {next_key: found[next_key]}
        if self._position.seq < self._stored.manifest.log_start.seq:
            raise self._pruned_error()
        return {}

    async def _read_page(self) -> tuple[SegmentPage, Sequence[str]]:
        """Read the next segments; also return the keys that were listed after them."""
        keys = self._listed
        if not keys or keys[0] != self._log.key(self._position.seq + 1):
            keys = await self._list_keys(LIST_SIZE)
        page: SegmentPage = dict.fromkeys(keys[:PAGE_SIZE])
        page |= await self._state_store.get_many(page)
        return page, keys[PAGE_SIZE:]

    async def _list_keys(self, limit: int) -> list[str]:
        """List the keys of the next segments."""
        seq = self._position.seq
        start = self._log.key(seq) if seq else ""
        listing = self._state_store.list(self._log.prefix, start_after=start, limit=limit)
        return [key async for key in listing if self._log.is_segment_key(key)]

    async def _wait(self, end: float | None) -> bool:
        """Wait until it is time to read again; return False if the end comes first."""
        while True:
            if self._watch.hears_others:
                pause = SAFETY_PAUSE
            else:
                pause = max(self._pause, MIN_PAUSE_READS * self._read_seconds)
                self._pause = min(2 * self._pause, MAX_PAUSE)
            now = time.monotonic()
            left = pause if end is None else min(pause, end - now)
            if left <= 0:
                return False
            self._is_woken = await self._watch.wait(left)
            if self._is_woken:
                return True
            # Another follower of the same log may have read just now.
            now = time.monotonic()
            if not self._poll.is_fresh(self._position.seq, now, pause):
                return end is None or now < end

    # ----------------------------------------------------------------------------------- checks

    def _check(self, found: Mapping[str, Entry]) -> None:
        """Check with entries that were just read that this is still the same session."""
        entry = found.get(self._location.manifest_key)
        if entry is None or entry.etag != self._stored.etag:
            self._use(select_manifest(self._location, found))

    def _use(self, stored: StoredManifest) -> None:
        manifest = stored.manifest
        if not manifest.is_created:
            raise self._deleted_error()
        if self._incarnation not in (None, manifest.incarnation):
            raise NotFoundError(
                f"{self._describe()} was deleted and created again; follow it from the beginning "
                "with after=0"
            )
        self._stored = stored
        if self._incarnation is None:
            self._incarnation = manifest.incarnation
        self._log = EventLog(self._state_store, self._location.prefix, manifest.incarnation)

    async def _check_continuity(self) -> None:
        """Now and then, check that the log did not lose its end, and has no gap behind it."""
        now = time.monotonic()
        if now - self._checked_at < CHECK_SECONDS:
            return
        self._checked_at = now
        # Only what is inconsistent twice counts: other processes write in between.
        seq = self._position.seq
        if not await self._has_last_segment():
            await self._read_next()
            if self._stored.manifest.log_start.seq < seq:
                raise self._lost_error()
        keys = await self._list_keys(1)
        if keys and keys[0] != self._log.key(seq + 1):
            self._found = SINGLE_READS  # a page shows whether there is a gap

    async def _has_last_segment(self) -> bool:
        """Return whether the last segment that was read is stored as it was."""
        key = self._last_key
        if key is None:  # none was read since the start
            head = await find_head(self._state_store, self._location, self._stored.manifest)
            return head.seq > self._position.seq or head == self._position
        entry = await self._state_store.get(key)
        return entry is not None and decode_segment(key, entry.value).hash == self._position.hash

    async def raise_problem(self, problem: Exception, seq: int | None = None) -> NoReturn:
        """Raise an error of reading an event, or what explains it: a deleted or pruned log.

        ``seq`` is the event, by default the one after those that were read.
        """
        found = await self._state_store.get_many([self._location.manifest_key])
        self._check(found)
        if (seq or self._position.seq + 1) <= self._stored.manifest.log_start.seq:
            raise self._pruned_error() from problem
        if self._last_key is not None and not await self._has_last_segment():
            raise self._lost_error() from problem
        raise problem

    def _describe(self) -> str:
        return describe_session(self._location)

    def _deleted_error(self) -> NotFoundError:
        return NotFoundError(f"{self._describe()} was deleted while it was followed")

    def _lost_error(self) -> NotFoundError:
        return NotFoundError(
            f"{self._describe()} lost event {self._position.seq} while it was followed: it was "
            "restored from a backup; follow it from an event that it has"
        )

    def _pruned_error(self) -> NotFoundError:
        return pruned_error(self._location, self._stored.manifest)


async def decode_events(segment: Segment) -> list[Event]:
    """Return the events of a segment, decoded in a thread if there is much to decode."""
    if segment.size < LARGE:
        return segment.events()
    return await run_in_thread(segment.events)
