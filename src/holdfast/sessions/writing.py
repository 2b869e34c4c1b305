"""Writing what was recorded: the commit, what to do where another writer was first, reloading.

A commit is one conditional write at the end of the log. Whatever becomes of it, a lost answer or a
cancelled task, the events keep their ids and wait, and the next attempt finds out by them whether
they were written.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal, Self, TypeAlias

from holdfast.errors import ConflictError, NotFoundError, shown
from holdfast.log import segments
from holdfast.log.changes import fold
from holdfast.log.event_log import Position
from holdfast.log.segments import Segment
from holdfast.log.timeline import Timeline
from holdfast.sessions.event_view import Tail
from holdfast.sessions.rebasing import rebased
from holdfast.sessions.recording import Recording
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.founding import founding
from holdfast.snapshots.layout import SnapshotLocation
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store
from holdfast.stores.contract import StateStore
from holdfast.stores.entries import Put

OnConflict: TypeAlias = Literal["raise", "rebase"]
Record: TypeAlias = Callable[[Position, Snapshot], Put]
"""Makes the record of a snapshot, once its position and its state are known."""

REBASE = 'await session.commit(on_conflict="rebase") puts it on top where keys differ'
RELOAD = "await session.reload() drops it and takes what is there"

ATTEMPTS = 16
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
    ) -> None:
        self.state_store = state_store
        self.location = location
        self.timeline = timeline
        self.recording = recording
        self.tail = tail
        self.touched = time.time()

    @classmethod
    async def open(cls, state_store: StateStore, location: SnapshotLocation) -> Self:
        """What is committed, to go on from there."""
        manifest = await SnapshotArchive(state_store).settle(location)
        timeline = Timeline(state_store, location.place)
        opened = await timeline.open()
        tail = Tail(manifest.floor, opened.anchor.position, opened.segments)
        return cls(state_store, location, timeline, Recording(opened.store, opened.end), tail)

    @classmethod
    async def new(cls, state_store: StateStore, location: SnapshotLocation) -> Self:
        """A place where nothing is, as far as this object knows."""
        await SnapshotArchive(state_store).settle(location)
        timeline = Timeline(state_store, location.place)
        recording = Recording(Store(max_history=0), Position())
        return cls(state_store, location, timeline, recording, Tail(Position(), Position(), []))

    async def write(self, on_conflict: OnConflict, record: Record | None = None) -> None:
        """Write what waits as one segment, and with it the record of a snapshot of it."""
        for _ in range(ATTEMPTS):
            if not self.recording.pending:
                if record is not None:
                    put = record(self.recording.end, self.recording.base)
                    await self.state_store.put_many([put])
                return
            if not 0 <= time.time() - self.touched < IDLE and await self.is_behind():
                await self.meet_others(on_conflict)
            elif await self._commit(record):
                return
            else:
                await self.meet_others(on_conflict)
        raise self.stale(f"other writers were first {ATTEMPTS} times")

    async def _commit(self, record: Record | None) -> bool:
        """Write what waits at the end of the log; False where somebody is there already."""
        recording, timeline = self.recording, self.timeline
        mark = recording.mark()
        sealed = timeline.log.seal(recording.events())
        more = []
        if recording.end.seq == 0:
            more = founding(self.location, recording.pending[0].at)
        if record is not None:
            more.append(record(sealed.end, mark.state))
        try:
            await timeline.commit(sealed, more)
        except ConflictError as error:
            if error.key not in (None, sealed.put.key):
                raise
            return False
        recording.committed(mark, sealed.end)
        self.tail.add(segments.decoded(sealed.put.key, sealed.put.value))
        self.touched = time.time()
        await timeline.keep_keyframes(mark.state)
        return True

    async def is_behind(self) -> bool:
        """Whether the log goes on after what this object knows."""
        log = self.timeline.log
        start = log.key(log.end.seq) if log.end.seq else ""
        async for _ in self.state_store.list(log.prefix, start_after=start, limit=1):
            return True
        self.touched = time.time()
        return False

    async def catch_up(self) -> None:
        """Take in what other writers did since, and put one's own on top."""
        if await self.is_behind():
            await self.meet_others("rebase")

    async def meet_others(self, on_conflict: OnConflict) -> None:
        """Find out what stands where this object wanted to write, and do what can be done."""
        recording = self.recording
        try:
            found = [each async for each in self.timeline.log.segments(recording.end)]
        except NotFoundError as error:
            problem = "other writers were first, and their events are pruned"
            raise self.stale(problem, ways_out=RELOAD) from error
        if not found:
            raise self.stale("what stood at the end of the log is gone again")
        ids = [event.id for event in found[0].events()]
        if ids == [each.id for each in recording.pending[: len(ids)]]:
            # One's own write, whose answer was lost on the way.
            mark = recording.mark_of(len(ids))
            self._follow(found[:1])
            recording.committed(mark, self.timeline.log.end)
        elif on_conflict == "raise":
            raise self.stale(f"another writer was first and is at event {found[-1].last}")
        else:
            self._rebase(found)

    def _rebase(self, found: list[Segment]) -> None:
        """Take the events of others in, and put one's own on top."""
        store = Store(max_history=0)
        store.restore(self.recording.base)
        theirs = [changes for each in found for changes in each.changes()]
        fold(store, theirs)
        there = Recording(store, Position(found[-1].last, found[-1].hash))
        try:
            self.recording = rebased(self.recording, there, theirs)
        except ConflictError as error:
            raise self.stale(str(error), error.conflicts, ways_out=RELOAD) from error
        self._follow(found)

    def _follow(self, found: list[Segment]) -> None:
        """Know of segments that are there already."""
        for each in found:
            self.timeline.log.end = Position(each.last, each.hash)
            self.timeline.segments += 1
            self.timeline.size += each.size
            self.tail.add(each)
        self.touched = time.time()

    async def check_floor(self) -> None:
        """Refuse to keep a snapshot at a place that was pruned since this object was there."""
        floor = (
            await SnapshotArchive(self.state_store).load_manifest(location=self.location)
        ).floor
        if self.recording.end.seq < floor.seq:
            raise self.stale(f"the events up to {floor.seq} were pruned")

    def stale(
        self,
        what: str,
        conflicts: list[tuple[str, str]] | None = None,
        *,
        ways_out: str = f"{REBASE}, {RELOAD}",
    ) -> ConflictError:
        """The error for a session that others have taken further, and the ways out of it."""
        seq = self.recording.end.seq
        return ConflictError(
            f"the session {self.location.session_id} of {self.location.scope_id} could not be "
            f"committed after event {seq}: {what}. Nothing of yours was written, and it still "
            f"waits: {ways_out}",
            conflicts or (),
            key=self.timeline.log.key(seq + 1),
        )


def checked_choice(on_conflict: object) -> None:
    """Refuse what is no way to treat a conflict."""
    if on_conflict not in ("raise", "rebase"):
        raise ValueError(f'on_conflict is "raise" or "rebase", not {shown(on_conflict)}')
