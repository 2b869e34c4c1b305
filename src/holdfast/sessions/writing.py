"""Writing what was recorded: the commit, what to do where another writer was first, reloading.

A commit is one conditional write at the end of the log. Whatever becomes of it, a lost answer or a
cancelled task, the events keep their ids and wait, and the next attempt finds out by them whether
they were written.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import takewhile
from typing import Literal, Self, TypeAlias

from holdfast.errors import ConflictError, IntegrityError, NotFoundError, shown
from holdfast.log import segments
from holdfast.log.changes import fold
from holdfast.log.event_log import Position
from holdfast.log.events import Event
from holdfast.log.segments import Segment
from holdfast.log.timeline import Timeline
from holdfast.sessions.event_view import Tail
from holdfast.sessions.rebasing import rebased
from holdfast.sessions.recording import Recording
from holdfast.snapshots import manifest as manifests
from holdfast.snapshots import records
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.founding import founding
from holdfast.snapshots.layout import SnapshotLocation, deleted_key
from holdfast.snapshots.manifest import SnapshotManifest
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store
from holdfast.stores.contract import StateStore
from holdfast.stores.entries import Entry, Put

OnConflict: TypeAlias = Literal["raise", "rebase"]
Record: TypeAlias = Callable[[Position, Snapshot], Put]
"""Makes the record of a snapshot, once its position and its state are known."""
Also: TypeAlias = Callable[[Sequence[Event]], list[Put]]
"""Makes what else belongs to events, once their places are known."""

YOURS_WAITS = "Nothing of yours was written, and it still waits"
YOURS_WAS_WRITTEN = "Yours was written before that, and its answer was lost"
REBASE = 'await session.commit(on_conflict="rebase") puts it on top where keys differ'
RELOAD = "await session.reload() drops it and takes what is there"

ATTEMPTS = 16
LOOK_AFTER = 5.0
"""Seconds after which a writer looks whether its session is still there, and not pruned.

Stubs would tell it too; but how long they stay is up to the clock of whoever prunes. And whoever
writes on and on meets nobody where a session was deleted.
"""
IDLE = 3600.0
"""Seconds after which a writer looks where the log ends before it writes: see `pruning`."""


class Since:
    """A moment, and how long ago that is by two clocks.

    One jumps, and the other stands still while the machine sleeps.
    """

    def __init__(self) -> None:
        self.wall = self.steady = 0.0
        self.begin()

    def begin(self) -> None:
        """It is now."""
        self.wall, self.steady = time.time(), time.monotonic()

    def is_within(self, seconds: float) -> bool:
        """Whether it is less than that ago; not where the clock was set back."""
        gone = time.time() - self.wall
        return 0 <= gone < seconds and time.monotonic() - self.steady < seconds


class Writer:
    """A session's state and its new events, and their way to the ``StateStore``."""

    def __init__(
        self,
        state_store: StateStore,
        location: SnapshotLocation,
        timeline: Timeline,
        recording: Recording,
        tail: Tail,
        manifest: SnapshotManifest,
    ) -> None:
        self.state_store = state_store
        self.location = location
        self.timeline = timeline
        self.recording = recording
        self.tail = tail
        self.extra = manifest.extra
        """What somebody put into the manifest before the session began."""
        self.started_at = manifest.started_at
        self.is_founded = manifest.started_at is not None
        self.wrote = Since()
        """When this object was at the end of the log."""
        self.looked = Since()
        """When this object saw that its session is there."""
        self.seen = tail.segments[-1:]
        """The last segment then, if there was one."""

    @classmethod
    async def open(cls, state_store: StateStore, location: SnapshotLocation) -> Self:
        """What is committed, to go on from there."""
        manifest = await SnapshotArchive(state_store).settle(location)
        timeline = Timeline(state_store, location.place)
        opened = await timeline.open()
        tail = Tail(manifest.floor, opened.anchor.position, opened.segments)
        recording = Recording(opened.store, opened.end)
        return cls(state_store, location, timeline, recording, tail, manifest)

    @classmethod
    async def new(cls, state_store: StateStore, location: SnapshotLocation) -> Self:
        """A place where nothing is; ``ConflictError`` where there is something."""
        manifest = await SnapshotArchive(state_store).settle(location)
        if manifest.started_at is not None:
            raise ConflictError(f"there is a session {location.session_id} already")
        timeline = Timeline(state_store, location.place)
        recording = Recording(Store(max_history=0), Position())
        tail = Tail(Position(), Position(), [])
        return cls(state_store, location, timeline, recording, tail, manifest)

    async def write(
        self,
        on_conflict: OnConflict,
        record: Record | None = None,
        also: Also | None = None,
    ) -> None:
        """Write what waits as one segment, and with it the record of a snapshot of it.

        ``also`` is for those who write several at once, and not with ``"rebase"``.
        """
        more: list[Put] = []
        for attempt in range(ATTEMPTS):
            if not self.recording.pending:
                await self._write_rest(record, more)
                return
            if also is not None:
                more = also(self.recording.events())
            if not self.looked.is_within(LOOK_AFTER):
                await self.check_there()
            if not self.wrote.is_within(IDLE) and await self.is_behind():
                await self.meet_others(on_conflict)
                continue
            if await self._commit(record, more):
                return
            if attempt:
                # Those who meet again and again take turns. Who waits first and looks then, writes
                # after what it just saw; the other way round, the longer it waits the surer it
                # is late once more.
                await asyncio.sleep(random.uniform(0, 0.01 * attempt))  # noqa: S311
            await self.meet_others(on_conflict)
        raise self.stale(f"other writers were first {ATTEMPTS} times")

    async def _write_rest(self, record: Record | None, more: Sequence[Put]) -> None:
        """Write what belongs to events that are in the log already."""
        puts = [*self._founding(), *more]
        if record is not None:
            puts.append(record(self.recording.end, self.recording.base))
        if puts:
            await self.state_store.put_many(puts)
        self.is_founded = True
        if record is None:
            return
        try:
            await self.check_there()
        except ConflictError:
            # Somebody who has not seen it in time is about to prune the events that it is at.
            await self.state_store.delete(puts[-1].key)
            raise

    def _founding(self) -> list[Put]:
        """What the first commit writes beside its segment."""
        if self.is_founded or self.started_at is None:
            return []
        return founding(self.location, self.started_at, extra=self.extra)

    async def _commit(self, record: Record | None, also: Sequence[Put]) -> bool:
        """Write what waits at the end of the log; False where somebody is there already."""
        recording, timeline = self.recording, self.timeline
        mark = recording.mark()
        sealed = timeline.log.seal(recording.events())
        if recording.end.seq == 0:
            self.started_at, self.is_founded = recording.pending[0].at, False
        more = [*self._founding(), *also]
        if record is not None:
            more.append(record(sealed.end, mark.state))
        try:
            await timeline.commit(sealed, more)
        except ConflictError as error:
            if error.key not in (None, sealed.put.key):
                raise
            return False
        self.is_founded = True
        recording.committed(mark, sealed.end)
        self.tail.add(segments.decoded(sealed.put.key, sealed.put.value))
        self.wrote.begin()
        await timeline.keep_keyframes(mark.state)
        return True

    async def is_behind(self) -> bool:
        """Whether the log goes on after what this object knows."""
        log = self.timeline.log
        start = log.key(log.end.seq) if log.end.seq else ""
        async for key in self.state_store.list(log.prefix, start_after=start):
            if log.is_segment(key):
                return True
        return False

    async def catch_up(self) -> None:
        """Take in what other writers did since, and put one's own on top."""
        if not self.looked.is_within(LOOK_AFTER):
            await self.check_there()
        while await self.is_behind():
            await self.meet_others("rebase")

    async def meet_others(self, on_conflict: OnConflict) -> None:
        """Find out what stands where this object wanted to write, and do what can be done."""
        recording = self.recording
        try:
            found = [each async for each in self.timeline.log.segments(recording.end)]
        except NotFoundError as error:
            problem = "other writers were first, and their events are pruned"
            written = YOURS_WAITS if not await self._is_own_stub() else YOURS_WAS_WRITTEN
            raise self.stale(problem, written=written, ways_out=RELOAD) from error
        except IntegrityError:
            # Another session under the same id follows nothing that this one had.
            await self.check_there()
            raise
        if not found:
            raise self.stale("what stood at the end of the log is gone again")
        ids = [event.id for event in found[0].events()]
        if ids == [each.id for each in recording.pending[: len(ids)]]:
            # One's own write, whose answer was lost on the way.
            mark = recording.mark_of(len(ids))
            if recording.end.seq == 0:
                self.started_at = recording.pending[0].at
            self._follow(found[:1])
            recording.committed(mark, self.timeline.log.end)
        elif on_conflict == "raise":
            raise self.stale(f"another writer was first and is at event {found[-1].last}")
        else:
            began = recording.end.seq == 0
            self._rebase(found)
            if began:
                # Whoever began it may not have come to the end of that.
                manifest = await SnapshotArchive(self.state_store).settle(self.location)
                self.started_at, self.is_founded = manifest.started_at, True

    async def _is_own_stub(self) -> bool:
        """Whether what is left of the pruned events are one's own."""
        key = self.timeline.log.key(self.recording.end.seq + 1)
        entry = await self.state_store.get(key)
        if entry is None:
            return False
        found = segments.decoded(key, entry.value)
        own = self.recording.events()[: found.last - found.first + 1]
        return bool(own) and own[-1].hash == found.hash

    def _rebase(self, found: list[Segment]) -> None:
        """Take the events of others in, and put one's own on top."""
        store = Store(max_history=0)
        store.restore(self.recording.base)
        theirs = [changes for each in found for changes in each.changes()]
        fold(store, theirs)
        there = Recording(store, Position(found[-1].last, found[-1].hash))
        try:
            on_top = rebased(self.recording, there, theirs)
        except ConflictError as error:
            raise self.stale(str(error), error.conflicts, ways_out=RELOAD) from error
        self.recording = on_top
        self._follow(found)

    def _follow(self, found: list[Segment]) -> None:
        """Know of segments that are there already."""
        for each in found:
            self.timeline.log.end = Position(each.last, each.hash)
            self.timeline.segments += 1
            self.timeline.size += each.size
            self.tail.add(each)
        self.wrote.begin()

    async def check_there(self) -> None:
        """Refuse to go on with what was pruned or deleted since this object was there."""
        mark, mine = deleted_key(self.location.session_id), [*self.seen, *self.tail.segments[-1:]]
        wanted = {mark, self.location.manifest, *(each.key for each in mine)}
        found = await self.state_store.get_many(sorted(wanted))
        known = SnapshotManifest()
        if entry := found.get(self.location.manifest):
            known = manifests.decoded(self.location.manifest, entry.value)
        if self.recording.end.seq < known.last_gone:
            problem = f"the events up to {known.last_gone} were pruned"
            raise self.stale(problem, ways_out=RELOAD)
        if self.is_founded and (mark in found or known.started_at != self.started_at):
            raise await self._gone("it was deleted by somebody else")
        # One that was put back from a backup began when this one did, and may lack what it had.
        if any(known.last_gone < each.last and not is_in(found, each) for each in mine):
            raise await self._gone("what it had committed is not there any more")
        self.looked.begin()
        self.seen = self.tail.segments[-1:]

    async def _gone(self, problem: str) -> ConflictError:
        """The error for a session that is not there any more, after taking one's own rest away.

        What was committed after a deletion, before this object noticed, follows nothing; and nobody
        could open a session of that id with it.
        """
        known = self.tail.segments
        found = await self.state_store.get_many([each.key for each in known])
        left = list(takewhile(partial(is_in, found), reversed(known)))
        if left and len(left) < len(known):
            doomed = await self._records_of({each.hash for each in left})
            doomed += [(each.key, found[each.key].etag) for each in left]
            for key, etag in doomed:
                with suppress(ConflictError):
                    await self.state_store.delete(key, if_match=etag)
            problem += ", and what was committed since then went with it"
        return self.stale(problem, ways_out=RELOAD)

    async def _records_of(self, hashes: set[str]) -> list[tuple[str, str]]:
        """The records of snapshots at events with these hashes, with their etags."""
        location = self.location
        listing = self.state_store.list(location.history)
        keys = [key async for key in listing if location.is_history_key(key)]
        found = await self.state_store.get_many([*keys, location.latest])
        return [
            (key, entry.etag)
            for key, entry in found.items()
            if records.decoded(key, entry.value, location).hash in hashes
        ]

    def stale(
        self,
        what: str,
        conflicts: list[tuple[str, str]] | None = None,
        *,
        written: str = YOURS_WAITS,
        ways_out: str = f"{REBASE}, {RELOAD}",
    ) -> ConflictError:
        """The error for a session that others have taken further, and the ways out of it."""
        seq = self.recording.end.seq
        return ConflictError(
            f"the session {self.location.session_id} of {self.location.scope_id} could not be "
            f"committed after event {seq}: {what}. {written}: {ways_out}",
            conflicts or (),
            key=self.timeline.log.key(seq + 1),
        )


def is_in(found: Mapping[str, Entry], segment: Segment) -> bool:
    """Whether a segment, or the stub of it, is among what was found."""
    entry = found.get(segment.key)
    return entry is not None and segment.hash.encode() in entry.value


def checked_choice(on_conflict: object) -> None:
    """Refuse what is no way to treat a conflict."""
    if on_conflict not in ("raise", "rebase"):
        raise ValueError(f'on_conflict is "raise" or "rebase", not {shown(on_conflict)}')
