"""Writing what was recorded: the commit, what to do where another writer was first, reloading.

A commit is one conditional write at the end of the log. Whatever becomes of it, a lost answer or a
cancelled task, the events keep their ids and wait, and the next attempt finds out by them whether
they were written.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from typing import Literal, Self, TypeAlias

from holdfast.errors import ConflictError, NotFoundError, shown
from holdfast.log import segments
from holdfast.log.changes import fold
from holdfast.log.event_log import Position
from holdfast.log.events import Event
from holdfast.log.segments import Segment
from holdfast.log.timeline import Timeline
from holdfast.sessions.event_view import Tail
from holdfast.sessions.rebasing import rebased
from holdfast.sessions.recording import Recording
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.founding import founding
from holdfast.snapshots.layout import SnapshotLocation
from holdfast.snapshots.manifest import SnapshotManifest
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store
from holdfast.stores.contract import StateStore
from holdfast.stores.entries import Put

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

Stubs would tell it too; but how long they stay is up to the clock of whoever prunes.
"""
IDLE = 3600.0
"""Seconds after which a writer looks where the log ends before it writes: see `pruning`."""


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
        self.touched = self.steady = 0.0
        self._touch()

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
            idle = self._idle()
            if not 0 <= idle < min(LOOK_AFTER, IDLE):
                await self.check_there()
            if not 0 <= idle < IDLE and await self.is_behind():
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
        self._touch()
        await timeline.keep_keyframes(mark.state)
        return True

    def _touch(self) -> None:
        """Note that this object knows now what is there."""
        self.touched, self.steady = time.time(), time.monotonic()

    def _idle(self) -> float:
        """Seconds since then: less than none where the clock was set back.

        One clock jumps, and the other stands still while the machine sleeps.
        """
        idle = time.time() - self.touched
        return idle if idle < 0 else max(idle, time.monotonic() - self.steady)

    async def is_behind(self) -> bool:
        """Whether the log goes on after what this object knows."""
        log = self.timeline.log
        start = log.key(log.end.seq) if log.end.seq else ""
        async for _ in self.state_store.list(log.prefix, start_after=start, limit=1):
            return True
        return False

    async def catch_up(self) -> None:
        """Take in what other writers did since, and put one's own on top."""
        if not 0 <= self._idle() < min(LOOK_AFTER, IDLE):
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
        self._touch()

    async def check_there(self) -> None:
        """Refuse to go on with what was pruned or deleted since this object was there."""
        archive = SnapshotArchive(self.state_store)
        manifest = await archive.load_manifest(location=self.location)
        if self.recording.end.seq < manifest.last_gone:
            problem = f"the events up to {manifest.last_gone} were pruned"
            raise self.stale(problem, ways_out=RELOAD)
        if self.is_founded and manifest.started_at != self.started_at:
            raise self.stale("it was deleted by somebody else", ways_out=RELOAD)

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


def checked_choice(on_conflict: object) -> None:
    """Refuse what is no way to treat a conflict."""
    if on_conflict not in ("raise", "rebase"):
        raise ValueError(f'on_conflict is "raise" or "rebase", not {shown(on_conflict)}')
