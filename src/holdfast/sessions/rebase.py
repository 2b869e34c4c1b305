"""Resolve conflicts: rebase the pending events on top of what another writer committed.

This is possible if both writers touched different entries, or made them equal. Appended messages
never conflict: they have no fixed number, so the pending ones move behind those of the other
writer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias

from holdfast.blobs.contents import BlobContents
from holdfast.blobs.writer import BlobWriter
from holdfast.errors import ConflictError, IntegrityError, NotFoundError
from holdfast.log.changes import fold_changes
from holdfast.log.encoded_event import EncodedEvent, encode_event
from holdfast.log.event_log import Position
from holdfast.log.segment import Segment, decode_segment
from holdfast.log.timeline import Timeline
from holdfast.sessions.event_view import LogTail
from holdfast.sessions.working_state import APPENDED, ONCE_DONE, STARTED, WorkingState
from holdfast.snapshots.incarnation import Incarnation, ReplacedError
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.snapshots.session_state import MESSAGES, message_key, message_number
from holdfast.state.diff import Changes, Pair
from holdfast.state.snapshot import Snapshot, find_referring
from holdfast.state.store import Store
from holdfast.stores.base import StateStore
from holdfast.stores.local import RUN_INLINE
from holdfast.values.binary_encoding import decode
from holdfast.values.json_encoding import encode_stored
from holdfast.values.references import (
    BlobReference,
    ReferringData,
    find_references,
    is_keeping_references,
)

OnConflict: TypeAlias = Literal["raise", "rebase"]

NO_MESSAGE = 10**12
NOT_WRITTEN = "pending events were not written"
WERE_WRITTEN = "pending events were written, and the response was lost"
REBASE_OR_RELOAD = 'call commit(on_conflict="rebase") or reload()'
RELOAD = "call reload()"


class StaleSessionError(ConflictError):
    """The session in memory is behind the store; ``location`` names the session."""

    location: SnapshotLocation


class LogTracker:
    """A session in memory that follows its log: it applies what other writers commit.

    ``working`` is the state with the pending events, ``timeline`` and ``tail`` the log as far as it
    was read, ``incarnation`` the condition of every write.
    """

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
        self.blobs = BlobWriter(state_store, location.prefix)
        self._read_ahead: Snapshot | None = None
        """The state whose large values were read ahead."""
        self._tried_to_create = False
        """Whether the outcome of an attempt to create the session is unknown."""

    async def refresh(self) -> None:
        """Apply what other writers committed, and rebase the pending events on top.

        Raises:
            StaleSessionError: The pending events conflict with those of another writer; or the
                session was deleted, replaced or pruned.

        """
        if self.incarnation.is_created:
            following = self.timeline.log.key(self.timeline.log.head.seq + 1)
            is_behind = await self.check_incarnation(following)
            self.tail.log_start = self.incarnation.manifest.log_start
            if not is_behind:
                return
        await self.catch_up()

    async def read_ahead(self) -> None:
        """Read the large values of the state ahead, unless the store is local.

        From a local store a value is read when it is accessed. That blocks the event loop about as
        long as recording it does, and most callers need only some of the values.

        Raises:
            StateStoreError: The store failed.

        """
        if not (self.state_store.is_local or RUN_INLINE.get()):
            await self.load_contents()

    async def load_contents(self) -> None:
        """Read the large values of the state, so that they are decoded without blocking.

        Only those that are new since the last call: the cost depends on what changed. Inside
        `keep_references`, nothing needs them.

        Raises:
            StateStoreError: The store failed.

        """
        if is_keeping_references():
            return
        wanted: dict[BlobContents, set[BlobReference]] = {}
        state = self.working.base
        for data in find_referring(state, self._read_ahead):
            if isinstance(data, ReferringData) and isinstance(data.contents, BlobContents):
                found = find_references(decode(bytes(data)))
                wanted.setdefault(data.contents, set()).update(found)
        for contents, references in wanted.items():
            await contents.load(sorted(references, key=lambda each: each.size))
        self._read_ahead = state

    async def catch_up(self) -> None:
        """Like `refresh`, without checking that the session was not deleted or replaced."""
        if not self.incarnation.is_created:
            await self._adopt()
        while await self.is_behind():
            count = len(self.working.pending)
            await self.resolve_conflict("rebase")
            if len(self.working.pending) == count:
                # All that was there is applied. Do not follow a writer that commits all the time.
                return

    async def _adopt(self) -> bool:
        """Continue with the session that another writer created; return whether there is one."""
        incarnation = await Incarnation.read(self.state_store, self.location)
        if incarnation.is_created and incarnation.manifest.log_start.seq:
            raise self.stale_error("another writer imported the session", remedy=RELOAD)
        self.incarnation = incarnation
        self.timeline = incarnation.timeline()
        self.blobs.forget()
        self._tried_to_create = False
        return incarnation.is_created

    async def is_behind(self) -> bool:
        """Return whether the log has segments after the known head."""
        log = self.timeline.log
        start = log.key(log.head.seq) if log.head.seq else ""
        async for key in self.state_store.list(log.prefix, start_after=start):
            if log.is_segment_key(key):
                return True
        return False

    async def resolve_conflict(self, on_conflict: OnConflict) -> None:
        """Read what was committed after the known head, and apply it or raise.

        A segment of this object's own, whose response was lost, is no conflict.

        Raises:
            StaleSessionError: With ``"raise"``, another writer committed; with ``"rebase"``, the
                pending events conflict with what it committed. Or its events are pruned.

        """
        working = self.working
        try:
            found = [each async for each in self.timeline.log.segments(working.head)]
        except NotFoundError as error:
            outcome = WERE_WRITTEN if await self._is_own_tombstone() else NOT_WRITTEN
            raise self.stale_error(
                "other writers committed first, and their events were pruned",
                outcome=outcome,
                remedy=RELOAD,
            ) from error
        except IntegrityError:
            # A concurrent deletion of the session removes the log while it is read.
            await self.check_incarnation()
            raise
        if not found:
            if not self.incarnation.is_created:
                return  # the other writer's session is not created yet, or was deleted again
            await self.check_incarnation()
            raise self.stale_error("the segment at the head of the log disappeared")
        ids = [event.id for event in found[0].events()]
        if ids == [each.id for each in working.pending[: len(ids)]]:
            # This object's own write, whose response was lost.
            await self.check_incarnation()
            point = working.commit_point(len(ids))
            self._follow(found[:1])
            working.committed(point, self.timeline.log.head)
        elif on_conflict == "raise":
            raise self.stale_error(f"another writer committed events up to {found[-1].last}")
        else:
            self._rebase(found)

    async def _is_own_tombstone(self) -> bool:
        """Return whether the pruned segment after the known head held the pending events."""
        key = self.timeline.log.key(self.working.head.seq + 1)
        entry = await self.state_store.get(key)
        if entry is None:
            return False
        found = decode_segment(key, entry.value)
        own = self.working.events()[: found.last - found.first + 1]
        return bool(own) and own[-1].hash == found.hash

    def _rebase(self, found: list[Segment]) -> None:
        """Apply the segments of other writers, and rebase the pending events on top."""
        store = Store(max_history=0)
        store.restore(self.working.base)
        theirs = [changes for each in found for changes in each.changes()]
        fold_changes(store, theirs, self.timeline.contents)
        committed = WorkingState(store, Position(found[-1].last, found[-1].hash))
        try:
            rebased = rebase_pending(self.working, committed, theirs)
        except ConflictError as error:
            raise self.stale_error(str(error), error.conflicts, remedy=RELOAD) from error
        self.working = rebased
        self._follow(found)

    def _follow(self, found: list[Segment]) -> None:
        """Advance the known head over segments that are in the store."""
        for each in found:
            self.timeline.log.head = Position(each.last, each.hash)
            self.timeline.segments += 1
            self.timeline.size += each.size
            self.tail.add(each)

    async def check_incarnation(self, following: str | None = None) -> bool:
        """Check that the session was not deleted, replaced or pruned since it was read.

        Return whether the key ``following`` exists, which is read with the rest.

        Raises:
            StaleSessionError: It was; pending events were not written.

        """
        with self._replaced_as_stale():
            seen = self.tail.segments[-1:]
            return await self.incarnation.refresh(self.working.head, seen, following)

    @contextmanager
    def _replaced_as_stale(self) -> Iterator[None]:
        try:
            yield
        except ReplacedError as error:
            raise self.stale_error(str(error), remedy=RELOAD) from error

    def stale_error(
        self,
        problem: str,
        conflicts: list[tuple[str, str]] | None = None,
        *,
        outcome: str = NOT_WRITTEN,
        remedy: str = REBASE_OR_RELOAD,
    ) -> StaleSessionError:
        """Return the error for a session that is behind the store, with the remedies."""
        seq = self.working.head.seq
        error = StaleSessionError(
            f"cannot commit session {self.location.session_id} of {self.location.scope_id} after "
            f"event {seq}: {problem}; {outcome}; {remedy}",
            conflicts or (),
            key=self.timeline.log.key(seq + 1),
        )
        error.location = self.location
        return error


def rebase_pending(
    ours: WorkingState, theirs: WorkingState, their_changes: Iterable[Changes]
) -> WorkingState:
    """Return ``theirs`` with the pending events of ``ours`` on top.

    ``theirs`` has no pending events, and ``their_changes`` lead to it from the base of ``ours``.

    Raises:
        ConflictError: Both changed the same entries, which ``conflicts`` lists.

    """
    first = ours.base_next_message
    shift = theirs.next_message - first
    if restores_messages(ours, first):
        # Restored messages have fixed numbers, so nothing moves.
        first, shift = NO_MESSAGE, 0
    drafts = [renumber_messages(each, first, shift) for each in ours.pending]
    if ours.head.seq == 0 and drafts and drafts[0].type == STARTED:
        # Both started the session; it starts once.
        del drafts[0]
    # Appended messages have no number yet, so no other writer can have touched them.
    ours_touched = {
        (space, key)
        for each in ours.pending
        for space, key in each.touched
        if not is_new_message(space, key, first)
    }
    both = ours_touched & touched_entries(their_changes)
    # A restored state contains results of earlier effects; only new ones are done twice.
    done = {pair for each in ours.pending if each.type == ONCE_DONE for pair in each.touched}
    done_twice = sorted(both & done)
    if done_twice:
        raise ConflictError(
            "another writer did the same side effect concurrently: "
            + ", ".join(key for _, key in done_twice[:5]),
            done_twice,
        )
    result = WorkingState(theirs.store.fork(), theirs.head)
    for each in drafts:
        result.add(each)
    diff = result.store.snapshot().diff(theirs.store.snapshot())
    changed = {*diff["added"], *diff["removed"], *diff["changed"]}
    different = sorted(both & changed)
    if different:
        raise ConflictError(
            "another writer changed the same entries: "
            + ", ".join(f"{space}/{key}" for space, key in different[:5])
            + (" and more" if len(different) > 5 else ""),
            different,
        )
    return result


def restores_messages(ours: WorkingState, first: int) -> bool:
    """Return whether an event sets messages from a number on that it did not append."""
    # A number is used again after its message was removed, and a rollback may restore either.
    appended: dict[str, list[object]] = {}
    for event in ours.pending:
        messages = {
            key: data for space, key, data in event.batch_rows() if space == MESSAGES and data
        }
        if event.type == APPENDED:
            for key, value in messages.items():
                appended.setdefault(key, []).append(value)
        elif any(
            is_new_message(MESSAGES, key, first) and value not in appended.get(key, ())
            for key, value in messages.items()
        ):
            return True
    return False


def renumber_messages(event: EncodedEvent, first: int, shift: int) -> EncodedEvent:
    """Return an event whose messages from a number on have moved by ``shift``."""
    if shift == 0:
        return event
    changes: Changes = {"set": [], "delete": []}
    for space, key, data in event.batch_rows():
        moved = renumber_key(space, key, first, shift)
        if data is None:
            changes["delete"].append((space, moved))
        else:
            changes["set"].append((space, moved, encode_stored(data)))
    renumbered = encode_event(event.id, event.type, event.at, event.data, changes)
    renumbered.refers, renumbered.sources = event.refers, event.sources
    return renumbered


def renumber_key(space: str, key: str, first: int, shift: int) -> str:
    """Return the key of an entry after messages from a number on have moved."""
    return message_key(int(key) + shift) if is_new_message(space, key, first) else key


def is_new_message(space: str, key: str, first: int) -> bool:
    """Return whether an entry is a message with this number or a later one."""
    number = message_number(key) if space == MESSAGES else None
    return number is not None and number >= first


def touched_entries(changes: Iterable[Changes]) -> set[Pair]:
    """Return the entries that changes set or delete."""
    found: set[Pair] = set()
    for each in changes:
        found.update((space, key) for space, key, _ in each["set"])
        found.update(each["delete"])
    return found
