"""Writing what was recorded: the commit, what to do where another writer was first, reloading.

A commit is one conditional write at the end of the log. Whatever becomes of it, a lost answer or a
cancelled task, the events keep their ids and wait, and the next attempt finds out by them whether
they were written.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from typing import Literal, Self, TypeAlias

from holdfast.errors import ConflictError, IntegrityError, NotFoundError, short_repr
from holdfast.log.changes import fold_changes
from holdfast.log.event import Event, EventDraft
from holdfast.log.event_log import Position
from holdfast.log.segment import Segment, decode_segment
from holdfast.log.timeline import Timeline
from holdfast.sessions.contention import GIVE_UP_AFTER, CommitAttempts, Contention
from holdfast.sessions.event_view import LogTail
from holdfast.sessions.rebase import rebase_pending, touched_entries
from holdfast.sessions.working_state import WorkingState
from holdfast.snapshots.incarnation import PASSIVE_EVENT_TYPES, Incarnation, ReplacedError
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store
from holdfast.stores.base import StateStore
from holdfast.stores.entries import Put

OnConflict: TypeAlias = Literal["raise", "rebase"]
RecordBuilder: TypeAlias = Callable[[Position, Snapshot], Put]
"""Makes the record of a snapshot, once its position and its state are known."""
PutsBuilder: TypeAlias = Callable[[Sequence[Event]], list[Put]]
"""Makes what else belongs to events, once their places are known."""

YOURS_WAITS = "Nothing of yours was written, and it still waits"
YOURS_WAS_WRITTEN = "Yours was written before that, and its answer was lost"
REBASE = 'await session.commit(on_conflict="rebase") puts it on top where keys differ'
RELOAD = "await session.reload() drops it and takes what is there"


class Committer:
    """A session's state and its new events, and their way to the ``StateStore``."""

    def __init__(
        self,
        state_store: StateStore,
        location: SnapshotLocation,
        timeline: Timeline,
        working: WorkingState,
        tail: LogTail,
        incarnation: Incarnation,
    ) -> None:
        self.state_store = state_store
        self.location = location
        self.timeline = timeline
        self.working = working
        self.tail = tail
        self.incarnation = incarnation
        self.origin_active_at: dt.datetime | None = None
        """When the session that this one was made from was active; it counts as active then."""
        self.contention = Contention()
        self.tried_to_create = False
        """Whether a creation was attempted whose outcome is not known."""

    @classmethod
    async def open(cls, state_store: StateStore, location: SnapshotLocation) -> Self:
        """Open a session at its head, or prepare a new one."""
        incarnation, timeline, opened = await Incarnation.open(state_store, location)
        tail = LogTail(
            incarnation.manifest.log_start, opened.base_keyframe.position, opened.segments
        )
        working = WorkingState(opened.store, opened.end)
        return cls(state_store, location, timeline, working, tail, incarnation)

    @classmethod
    async def new(cls, state_store: StateStore, location: SnapshotLocation) -> Self:
        """Prepare a new session.

        Raises:
            ConflictError: The session exists.

        """
        incarnation = await Incarnation.read(state_store, location)
        if incarnation.is_created:
            raise ConflictError(f"there is a session {location.session_id} already")
        working = WorkingState(Store(max_history=0), Position())
        tail = LogTail(Position(), Position(), [])
        return cls(state_store, location, incarnation.timeline(), working, tail, incarnation)

    async def write(
        self,
        on_conflict: OnConflict,
        record: RecordBuilder | None = None,
        also: PutsBuilder | None = None,
    ) -> None:
        """Write what waits as one segment, and with it the record of a snapshot of it.

        ``also`` is for those who write several at once, and not with ``"rebase"``.
        """
        more: list[Put] = []
        attempts = CommitAttempts(self.contention)
        while await attempts.next():
            is_late = bool(self.working.pending) and not attempts.is_optimistic
            if is_late and await self.is_behind():
                # Read after the pause: what was read before it is out of date.
                await self.resolve_conflict(on_conflict)
            if not self.working.pending:
                await self._write_rest(record, more)
                return
            if also is not None:
                more = also(self.working.events())
            if await self._commit(record, more):
                attempts.won()
                return
            if on_conflict == "raise":
                await self.resolve_conflict(on_conflict)
        raise self.stale(f"other writers were first for {GIVE_UP_AFTER:g} seconds")

    async def _write_rest(self, record: RecordBuilder | None, more: Sequence[Put]) -> None:
        """Write what belongs to events that are in the log already."""
        puts = list(more)
        if record is not None:
            puts.append(record(self.working.end, self.working.base))
        if puts:
            with self._explaining():
                await self.incarnation.write(
                    [], puts, end=self.working.end, seen=self.tail.segments[-1:]
                )

    async def _create(self, puts: Sequence[Put], records: Sequence[Put], at: dt.datetime) -> None:
        """Create the session with its first segment."""
        active_at = at if self.origin_active_at is None else min(at, self.origin_active_at)
        self.tried_to_create = True
        await self.incarnation.create(puts, records, started_at=at, active_at=active_at)

    async def _commit(self, record: RecordBuilder | None, also: Sequence[Put]) -> bool:
        """Write the pending events at the end of the log; False where another writer was first."""
        if self.tried_to_create and not self.incarnation.is_created and await self._adopt():
            return False
        working, timeline = self.working, self.timeline
        mark = working.mark()
        sealed = timeline.log.prepare_segment(working.events())
        records = list(also)
        if record is not None:
            records.append(record(sealed.end, mark.state))
        try:
            if self.incarnation.is_created:
                active = [
                    each.at for each in working.pending if each.type not in PASSIVE_EVENT_TYPES
                ]
                await self.incarnation.write(
                    [sealed.put],
                    records,
                    end=working.end,
                    seen=self.tail.segments[-1:],
                    active_at=max(active, default=None),
                )
            else:
                await self._create([sealed.put], records, working.pending[0].at)
        except ConflictError as error:
            if error.key in (None, sealed.put.key):
                return False
            if error.key == self.location.manifest_key and working.end.seq == 0:
                # Nothing of this object is committed, so any session of that id will do.
                await self._adopt()
                return False
            if isinstance(error, ReplacedError):
                raise self.stale(str(error), ways_out=RELOAD) from error
            raise
        timeline.advance(sealed)
        working.committed(mark, sealed.end)
        self.tail.add(decode_segment(sealed.put.key, sealed.put.value))
        await timeline.write_keyframe_if_due(mark.state)
        return True

    async def _adopt(self) -> bool:
        """Continue with the session that was created by now; return whether there is one."""
        incarnation = await Incarnation.read(self.state_store, self.location)
        if incarnation.is_created and incarnation.manifest.log_start.seq:
            raise self.stale("the session was imported by another writer", ways_out=RELOAD)
        self.incarnation = incarnation
        self.timeline = incarnation.timeline()
        self.tried_to_create = False
        return incarnation.is_created

    def origin_time(self) -> dt.datetime | None:
        """Return the activity that a session made from this one counts as: just before its own."""
        active_at = self.incarnation.manifest.active_at
        return None if active_at is None else active_at - dt.timedelta(microseconds=1)

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        """Turn the refusal of an incarnation into the error of a stale session."""
        try:
            yield
        except ReplacedError as error:
            raise self.stale(str(error), ways_out=RELOAD) from error

    async def commit_alone(self, event: EventDraft) -> None:
        """Commit one event on its own, on top of what is committed; the others stay pending.

        Where those conflict with what other writers committed, this object stays where it was,
        behind the log, and the next commit of the pending events reports the conflict.

        Raises:
            ConflictError: Another writer changed the same entries; the event was not written.

        """
        other = self._beside()
        other.working.add(event)
        try:
            await other.write("rebase")
        except ConflictError:
            self._join(other)
            # The answer to an earlier attempt may have been lost after it was written.
            if not await self._holds(event):
                raise
            with suppress(ConflictError):
                await self.resolve_conflict("rebase")
            return
        with suppress(ConflictError):
            self._take(other, event)

    def _beside(self) -> Self:
        """Return a writer at the same position that has nothing pending."""
        other = copy(self)
        other.timeline, other.tail = copy(self.timeline), copy(self.tail)
        other.timeline.log = copy(self.timeline.log)
        other.tail.segments = list(self.tail.segments)
        other.working = self.working.at_base()
        return other

    def _take(self, other: Self, event: EventDraft) -> None:
        """Continue where a writer beside this one is, with the pending events on top."""
        new = [each for each in other.tail.segments if each.first > self.working.end.seq]
        if new[0].first != self.working.end.seq + 1:
            return  # so many that they are not in memory: the next commit reads them
        touched = touched_entries(each.changes for each in self.working.pending)
        if new[0].last == other.working.end.seq and not touched & touched_entries([event.changes]):
            self.working.insert(event, other.working.end)
        else:
            self._rebase(new)
        self.timeline, self.tail = other.timeline, other.tail
        self.incarnation, self.tried_to_create = other.incarnation, other.tried_to_create

    def _join(self, other: Self) -> None:
        """Continue with the session that a writer beside this one found, if this one has none."""
        if self.incarnation is not other.incarnation and self.working.end.seq == 0:
            self.incarnation = other.incarnation
            self.timeline = self.incarnation.timeline()

    async def _holds(self, event: EventDraft) -> bool:
        """Tell whether the log has an event after what this object knows."""
        async for segment in self.timeline.log.segments(self.working.end):
            if any(each.id == event.id for each in segment.events()):
                return True
        return False

    async def is_behind(self) -> bool:
        """Whether the log goes on after what this object knows."""
        log = self.timeline.log
        start = log.key(log.head.seq) if log.head.seq else ""
        async for key in self.state_store.list(log.prefix, start_after=start):
            if log.is_segment_key(key):
                return True
        return False

    async def catch_up(self) -> None:
        """Apply what other writers committed, and rebase the pending events on top."""
        if not self.incarnation.is_created:
            await self._adopt()
        while await self.is_behind():
            await self.resolve_conflict("rebase")

    async def resolve_conflict(self, on_conflict: OnConflict) -> None:
        """Read what was committed after this object's position, and resolve the conflict."""
        working = self.working
        try:
            found = [each async for each in self.timeline.log.segments(working.end)]
        except NotFoundError as error:
            problem = "other writers were first, and their events are pruned"
            written = YOURS_WAITS if not await self._is_own_stub() else YOURS_WAS_WRITTEN
            raise self.stale(problem, written=written, ways_out=RELOAD) from error
        except IntegrityError:
            # A deletion takes the log away while it is read.
            await self.check_incarnation()
            raise
        if not found:
            if not self.incarnation.is_created:
                return  # the session of the other writer is not created, or was deleted again
            await self.check_incarnation()
            raise self.stale("the segment at the head of the log disappeared")
        ids = [event.id for event in found[0].events()]
        if ids == [each.id for each in working.pending[: len(ids)]]:
            # This object's own write, whose answer was lost.
            await self.check_incarnation()
            mark = working.mark_of(len(ids))
            self._follow(found[:1])
            working.committed(mark, self.timeline.log.head)
        elif on_conflict == "raise":
            raise self.stale(f"another writer was first and is at event {found[-1].last}")
        else:
            self._rebase(found)

    async def _is_own_stub(self) -> bool:
        """Whether what is left of the pruned events are one's own."""
        key = self.timeline.log.key(self.working.end.seq + 1)
        entry = await self.state_store.get(key)
        if entry is None:
            return False
        found = decode_segment(key, entry.value)
        own = self.working.events()[: found.last - found.first + 1]
        return bool(own) and own[-1].hash == found.hash

    def _rebase(self, found: list[Segment]) -> None:
        """Take the events of others in, and put one's own on top."""
        store = Store(max_history=0)
        store.restore(self.working.base)
        theirs = [changes for each in found for changes in each.changes()]
        fold_changes(store, theirs)
        there = WorkingState(store, Position(found[-1].last, found[-1].hash))
        try:
            on_top = rebase_pending(self.working, there, theirs)
        except ConflictError as error:
            raise self.stale(str(error), error.conflicts, ways_out=RELOAD) from error
        self.working = on_top
        self._follow(found)

    def _follow(self, found: list[Segment]) -> None:
        """Know of segments that are there already."""
        for each in found:
            self.timeline.log.head = Position(each.last, each.hash)
            self.timeline.segments += 1
            self.timeline.size += each.size
            self.tail.add(each)

    async def check_incarnation(self) -> None:
        """Check that the session was not deleted, replaced or pruned since it was read.

        Raises:
            ConflictError: It was; pending events were not written.

        """
        with self._explaining():
            await self.incarnation.refresh(self.working.end, self.tail.segments[-1:])

    def stale(
        self,
        what: str,
        conflicts: list[tuple[str, str]] | None = None,
        *,
        written: str = YOURS_WAITS,
        ways_out: str = f"{REBASE}, {RELOAD}",
    ) -> ConflictError:
        """The error for a session that others have taken further, and the ways out of it."""
        seq = self.working.end.seq
        return ConflictError(
            f"the session {self.location.session_id} of {self.location.scope_id} could not be "
            f"committed after event {seq}: {what}. {written}: {ways_out}",
            conflicts or (),
            key=self.timeline.log.key(seq + 1),
        )


def validate_on_conflict(on_conflict: object) -> None:
    """Refuse what is no way to treat a conflict."""
    if on_conflict not in ("raise", "rebase"):
        raise ValueError(f'on_conflict is "raise" or "rebase", not {short_repr(on_conflict)}')
