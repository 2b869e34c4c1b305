"""Commit the pending events of a session.

A commit is one conditional write at the head of the log. If its outcome is unknown, because the
response was lost or the task was cancelled, the events stay pending with their ids, and the next
attempt finds out by these ids whether they were written. What happens if another writer was first
is in `rebase`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import copy
from typing import Self, TypeAlias

from holdfast.errors import ConflictError, short_repr
from holdfast.log.encoded_event import EncodedEvent
from holdfast.log.event_log import Position, PreparedSegment
from holdfast.log.timeline import Timeline
from holdfast.sessions.backoff import CommitAttempts, Contention
from holdfast.sessions.event_view import LogTail
from holdfast.sessions.rebase import (
    NOT_WRITTEN,
    RELOAD,
    WERE_WRITTEN,
    LogTracker,
    OnConflict,
)
from holdfast.sessions.working_state import CommitPoint, WorkingState
from holdfast.snapshots.incarnation import Incarnation, ReplacedError
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.snapshots.save import write_segment
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store
from holdfast.stores.base import StateStore
from holdfast.stores.entries import Put

RecordBuilder: TypeAlias = Callable[[Position, Snapshot], Put]
"""Builds the record of a snapshot, given its position and state."""
RecordsBuilder: TypeAlias = Callable[[Sequence[Position]], list[Put]]
"""Builds the records of snapshots after some of the pending events, given the positions of all."""


class Committer(LogTracker):
    """Writes the pending events of one session to its ``StateStore``."""

    def __init__(
        self,
        state_store: StateStore,
        location: SnapshotLocation,
        timeline: Timeline,
        working: WorkingState,
        tail: LogTail,
        incarnation: Incarnation,
    ) -> None:
        super().__init__(state_store, location, timeline, working, tail, incarnation)
        self.origin_active_at: dt.datetime | None = None
        """The last activity of the session that this one is a fork of; the fork inherits it."""
        self._contention = Contention()

    @classmethod
    async def open(cls, state_store: StateStore, location: SnapshotLocation) -> Self:
        """Read a session at its head, or prepare a new one.

        Raises:
            IntegrityError: The log or a keyframe is damaged.

        """
        incarnation, timeline, opened = await Incarnation.open(state_store, location)
        tail = LogTail(
            incarnation.manifest.log_start, opened.base_keyframe.position, opened.segments
        )
        working = WorkingState(opened.store, opened.end)
        return cls(state_store, location, timeline, working, tail, incarnation)

    @classmethod
    async def create(cls, state_store: StateStore, location: SnapshotLocation) -> Self:
        """Prepare a new session. Nothing is written before its first commit.

        Raises:
            ConflictError: The session exists.

        """
        incarnation = await Incarnation.read(state_store, location)
        if incarnation.is_created:
            raise ConflictError(f"session {location.session_id} already exists")
        working = WorkingState(Store(max_history=0), Position())
        tail = LogTail(Position(), Position(), [])
        return cls(state_store, location, incarnation.timeline(), working, tail, incarnation)

    # -------------------------------------------------------------------------------- commit

    async def commit(
        self, on_conflict: OnConflict, build_record: RecordBuilder | None = None
    ) -> None:
        """Write the pending events as one segment, and with them the record of a snapshot.

        Raises:
            StaleSessionError: Another writer committed first and the conflict was not resolved;
                or the session was deleted, replaced or pruned. Nothing was written.

        """
        attempts = CommitAttempts(self._contention)
        while attempts.start_at_once() or await attempts.next():
            is_late = bool(self.working.pending) and not attempts.is_optimistic
            if is_late and await self.is_behind():
                # After the pause of a retry: a position from before it would be out of date.
                await self.resolve_conflict(on_conflict)
            if not self.working.pending:
                if build_record is not None:
                    await self._write_records([build_record(self.working.head, self.working.base)])
                return
            if not await self._adopt_if_unsure():
                point = self.working.commit_point()
                prepared = self.timeline.log.prepare(self.working.pending, self.working.head)
                records = [] if build_record is None else [build_record(prepared.end, point.state)]
                if await self._write_segment(prepared, point, records):
                    attempts.won()
                    return
            if on_conflict == "raise":
                await self.resolve_conflict(on_conflict)
        raise self.stale_error(f"other writers committed first in {attempts.count} attempts")

    async def commit_once(self, build_records: RecordsBuilder) -> None:
        """Write the pending events as one segment, and records of them, in one attempt.

        Raises:
            StaleSessionError: Another writer committed first; or the session was deleted, replaced
                or pruned. Nothing was written.

        """
        records: list[Put] = []
        if not await self._adopt_if_unsure():
            prepared = self.timeline.log.prepare(self.working.pending, self.working.head)
            records = build_records(prepared.positions)
            if await self._write_segment(prepared, self.working.commit_point(), records):
                return
        await self.resolve_conflict("raise")
        if self.working.pending:
            raise self.stale_error("another writer is creating the session")
        # They were written by an attempt whose response was lost.
        await self._write_records(records)

    async def _adopt_if_unsure(self) -> bool:
        """After an attempt to create the session, adopt that of another writer, if there is one."""
        is_unsure = self._tried_to_create and not self.incarnation.is_created
        return is_unsure and await self._adopt()

    async def _write_records(self, records: Sequence[Put]) -> None:
        """Write records that belong to events that are already committed."""
        if records:
            with self._replaced_as_stale():
                await self.incarnation.write(
                    [], records, end=self.working.head, seen=self.tail.segments[-1:]
                )

    async def _write_segment(
        self, segment: PreparedSegment, point: CommitPoint, records: Sequence[Put]
    ) -> bool:
        """Write the pending events at the head; return False if another writer was first."""
        working, timeline = self.working, self.timeline
        if not self.incarnation.is_created:
            self._tried_to_create = True
        try:
            await write_segment(
                self.incarnation,
                timeline,
                segment,
                records,
                blobs=self.blobs,
                seen=self.tail.segments[-1:],
                origin_active_at=self.origin_active_at,
            )
        except ConflictError as error:
            if error.key in (None, segment.put.key):
                return False
            if error.key == self.location.manifest_key and working.head.seq == 0:
                # Nothing is committed here, so any session with this id can be adopted.
                await self._adopt()
                return False
            if isinstance(error, ReplacedError):
                # An earlier attempt whose response was lost may have been pruned since.
                outcome = WERE_WRITTEN if await self._is_own_tombstone() else NOT_WRITTEN
                raise self.stale_error(str(error), outcome=outcome, remedy=RELOAD) from error
            raise
        working.committed(point, segment.end)
        self.tail.add(segment.segment)
        if timeline.is_keyframe_due(point.state):
            await timeline.write_keyframe_if_due(point.state)
        return True

    def origin_time(self) -> dt.datetime | None:
        """Return the last activity of a fork of this session: just before its own."""
        active_at = self.incarnation.manifest.active_at
        return None if active_at is None else active_at - dt.timedelta(microseconds=1)

    # ---------------------------------------------------------------------------- one event

    async def commit_alone(self, event: EncodedEvent) -> None:
        """Commit one event on top of the last commit; the pending events stay pending.

        If these conflict with what other writers committed, this object stays behind the log, and
        the next commit of the pending events reports the conflict.

        Raises:
            ConflictError: Another writer changed the same entries; the event was not written.

        """
        other = self._without_pending()
        other.working.add(event)
        try:
            await other.commit("rebase")
        except ConflictError:
            self._adopt_incarnation(other)
            # An earlier attempt may have been written although its response was lost.
            if not await self._is_in_log(event):
                raise
            with suppress(ConflictError):
                await self.resolve_conflict("rebase")
            return
        with suppress(ConflictError):
            self._advance_to(other, event)

    def _without_pending(self) -> Self:
        """Return a committer at the same position without pending events."""
        other = copy(self)
        other.timeline, other.tail = copy(self.timeline), copy(self.tail)
        other.timeline.log = copy(self.timeline.log)
        other.tail.segments = list(self.tail.segments)
        other.working = self.working.at_base()
        return other

    def _advance_to(self, other: Self, event: EncodedEvent) -> None:
        """Continue at the position of another committer, with the pending events on top."""
        new = [each for each in other.tail.segments if each.first > self.working.head.seq]
        if new[0].first != self.working.head.seq + 1:
            return  # more than are kept in memory: the next commit reads them
        touched = {pair for each in self.working.pending for pair in each.touched}
        if new[0].last == other.working.head.seq and touched.isdisjoint(event.touched):
            self.working.insert(event, other.working.head)
        else:
            self._rebase(new)
        self.timeline, self.tail = other.timeline, other.tail
        self.incarnation, self._tried_to_create = other.incarnation, other._tried_to_create

    def _adopt_incarnation(self, other: Self) -> None:
        """Continue with the session that another committer found, if nothing is committed here."""
        if self.incarnation is not other.incarnation and self.working.head.seq == 0:
            self.incarnation = other.incarnation
            self.timeline = self.incarnation.timeline()

    async def _is_in_log(self, event: EncodedEvent) -> bool:
        """Return whether the log has an event after the known head."""
        async for segment in self.timeline.log.segments(self.working.head):
            if any(each.id == event.id for each in segment.events()):
                return True
        return False


def validate_on_conflict(on_conflict: object) -> None:
    """Raise ``ValueError`` unless the value is a way to treat a conflict."""
    if on_conflict not in ("raise", "rebase"):
        raise ValueError(f'on_conflict must be "raise" or "rebase", got {short_repr(on_conflict)}')
