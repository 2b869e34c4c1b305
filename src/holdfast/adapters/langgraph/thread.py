"""A LangGraph thread as a session: each checkpoint is one event in its log, and a snapshot.

The state of the session is that of the current checkpoint. The next checkpoint writes only the
difference: of a list of messages that grew by three, these three. The writes of tasks are stored
beside their checkpoint; they leave the state with the next one, but stay in the log.

    put, put_writes   queue a change, take the lock, and commit all queued changes at once
    PendingChange     records its events at the head of the log, and again after a conflict
    Committer.commit_once
                      writes the events and the records of their snapshots in one batch

A thread belongs to one event loop, or to all OS threads that call the saver's blocking methods.
Between these the store detects conflicts, as it does between processes.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeAlias

from langgraph.checkpoint.base import ChannelVersions, Checkpoint

from holdfast.adapters.langgraph.checkpoint import (
    CheckpointChanges,
    ItemCopies,
    invalidate_copies,
)
from holdfast.adapters.langgraph.codec import Codec
from holdfast.adapters.langgraph.layout import (
    CHECKPOINT_EVENT,
    LATE,
    STATUSES,
    WRITES_EVENT,
    checkpoint_tags,
    get_checkpoint_entry,
    snapshot_id_for,
    writes_space,
)
from holdfast.adapters.langgraph.writes import ParentState, Write, write_from_dict
from holdfast.errors import ConflictError, IntegrityError, NotFoundError
from holdfast.log.event import format_time
from holdfast.log.event_log import Position
from holdfast.sessions.backoff import CommitAttempts, Contention
from holdfast.sessions.commit import Committer
from holdfast.sessions.event_view import load_event
from holdfast.sessions.working_state import STARTED
from holdfast.snapshots.delete import delete_session
from holdfast.snapshots.envelope import encode_envelope
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.snapshots.records import StoredRecord
from holdfast.snapshots.session_snapshot import utc_now
from holdfast.snapshots.session_state import PENDING, SESSION, STATUS
from holdfast.snapshots.tool_calls import ToolCallIndex
from holdfast.state.diff import Changes
from holdfast.state.snapshot import Snapshot
from holdfast.stores.base import StateStore
from holdfast.stores.entries import Put
from holdfast.stores.local import RUN_INLINE
from holdfast.values.binary_encoding import decode, encode
from holdfast.values.json_encoding import EncodedValue

NO_WRITES = encode([])
MAX_LATE = 64
MAX_REPLACED = 256
MAX_LOADED = 4
MAX_DEFERRED = 64
"""Changes in the queue from which on the callers of more of them wait."""
LINGER_SECONDS = 0.005
"""How long writes of a task wait for the checkpoint that usually follows, to share its commit."""

RecordFunction: TypeAlias = Callable[[Committer], Awaitable[StoredRecord | None]]
"""Records an event, and returns the record of the snapshot after it, if it gets one, without a
position."""


class Thread:
    """One thread, with its state cached between commits."""

    def __init__(
        self,
        state_store: StateStore,
        location: SnapshotLocation,
        flush_later: Callable[[Thread], bool],
    ) -> None:
        self.state_store = state_store
        self.location = location
        self._flush_later = flush_later
        """Makes another OS thread call `flush`; returns False at the end of the process."""
        self.lock = InlineLock() if RUN_INLINE.get() else asyncio.Lock()
        self._manifest_key = location.manifest_key
        self._history_prefix = location.history_prefix
        self._committer: Committer | None = None
        self._copies: dict[str, ItemCopies] = {}
        """The items of lists of the current checkpoints as they were stored, by namespace."""
        self._late: dict[int, bytes] = {}
        """Encoded late writes by the number of their event; a cache."""
        self.replaced: OrderedDict[tuple[str, str], Snapshot] = OrderedDict()
        """The last states in which checkpoints were current, by namespace and id; a cache.

        They share most of their memory with the current state.
        """
        self.loaded: OrderedDict[tuple[str, str], Snapshot] = OrderedDict()
        """A few that were loaded from the log, which share nothing; a cache."""
        self._entries: dict[str, Mapping[str, Any]] = {}
        """The entries of the current checkpoints that were put last, by namespace."""
        self._tool_calls = ToolCallIndex()
        self._contention = Contention()
        self._pending: deque[PendingChange] = deque()
        self.process = os.getpid()
        self.has_deferred = False
        """Whether there are changes that are committed in the background."""
        self._failure: Exception | None = None
        """The error of a change that was committed in the background."""
        self.is_stale = False
        """Whether the cached state must be checked, as checkpoints may have been removed."""

    # ------------------------------------------------------------------------------------ head

    async def head(self) -> Committer:
        """Return a committer at the head of the log, with the commits of other writers applied.

        The caller must hold the lock.
        """
        committer = self._committer
        if committer is None or not await self._refresh(committer):
            self.reset()
            committer = self._committer = await Committer.open(self.state_store, self.location)
        self.is_stale = False
        return committer

    async def _refresh(self, committer: Committer) -> bool:
        """Apply the commits of other writers; return False if the log must be opened again."""
        log, manifest = committer.timeline.log, self._manifest_key
        end = log.head.seq
        following = log.key(end + 1)
        found = await self.state_store.get_many([following, manifest])
        etag = found[manifest].etag if manifest in found else None
        if etag != committer.incarnation.etag:
            if not committer.incarnation.is_created:
                return False
            try:
                await committer.check_incarnation()
            except ConflictError:
                return False
            if committer.incarnation.manifest.log_start != committer.tail.log_start:
                return False
        if following not in found:
            return not self.is_stale
        try:
            await committer.resolve_conflict("rebase")
        except (ConflictError, IntegrityError, NotFoundError):
            return False
        self._forget_puts()
        new = [each for each in committer.tail.segments if each.first > end]
        if new and new[0].first == end + 1:
            invalidate_copies(self._copies, [each for segment in new for each in segment.changes()])
        else:
            self._copies.clear()  # more segments than are kept in memory
        return True

    async def state(self) -> Snapshot:
        """Return the current state of the session. The caller must hold the lock."""
        return (await self.head()).working.base

    async def load_contents(self) -> None:
        """Read the large values of the current state ahead, unless the caller blocks anyway."""
        if self._committer is not None and not RUN_INLINE.get():
            await self._committer.load_contents()

    @property
    def copies(self) -> dict[str, ItemCopies]:
        """The items of lists of the current checkpoints, by namespace, as far as they are known."""
        return dict(self._copies)

    def reset(self) -> None:
        """Drop all cached state."""
        self._committer = None
        self._late.clear()
        self._copies.clear()
        self._forget_puts()

    def _forget_puts(self) -> None:
        """Drop what is known about the state from the last puts."""
        self._entries.clear()
        self.replaced.clear()
        self.loaded.clear()

    async def delete_all(self) -> None:
        """Delete the thread. The caller must hold the lock."""
        self.reset()
        await delete_session(self.state_store, self.location.session_id)

    # ------------------------------------------------------------------------------- writing

    async def put(
        self,
        codec: Codec,
        ns: str,
        parent: str | None,
        checkpoint: Checkpoint,
        metadata: Mapping[str, Any],
        versions: ChannelVersions,
        parent_state: ParentState | None = None,
        *,
        is_deferred: bool = False,
    ) -> None:
        """Store a checkpoint.

        ``parent_state`` is the state of its parent, if that is not the current checkpoint. If it
        ``is_deferred``, it is committed in the background.
        """
        id_ = checkpoint["id"]

        async def record(committer: Committer) -> StoredRecord:
            working = committer.working
            before = self._get_entry(committer, ns)
            change = CheckpointChanges(codec, ns, working.store, self._copies)
            entry = change.put_checkpoint(
                checkpoint, before, parent, metadata, versions, parent_state
            )
            if before is not None:
                self._cache_replaced(ns, before["id"], working.store.snapshot())
            late = f"{ns}|{id_}"
            for seq in working.store.get(LATE, late, ()):
                for write in await self._late_writes(committer, late, seq):
                    change.add_write(write)
                self._late.pop(seq, None)
            change.delete(LATE, late)
            about = {"checkpoint_id": id_, "ns": ns, "parent": parent, "step": metadata.get("step")}
            working.record_owned(CHECKPOINT_EVENT, about, change.changes())
            self._copies.update(change.new_copies)
            self._entries[ns] = entry
            self.loaded.pop((ns, id_), None)
            return self._describe(committer, id_, ns, parent, metadata)

        key = self._snapshot_key(snapshot_id_for(id_))
        await self._commit(PendingChange(record, f"{ns}|{id_}", key), is_deferred=is_deferred)

    def _get_entry(self, committer: Committer, ns: str) -> Mapping[str, Any] | None:
        """Return the entry of the current checkpoint."""
        return self._entries.get(ns) or get_checkpoint_entry(committer.working.store, ns)

    def _describe(
        self,
        committer: Committer,
        id_: str,
        ns: str,
        parent: str | None,
        metadata: Mapping[str, Any],
    ) -> StoredRecord:
        """Return the record of a checkpoint that was put just now, without its position."""
        working = committer.working
        state = working.store.snapshot()
        return StoredRecord(
            snapshot_id=snapshot_id_for(id_),
            parent_id=None if parent is None else snapshot_id_for(parent),
            created_at=format_time(utc_now()),
            seq=0,
            hash="",
            keyframe=committer.timeline.base_keyframe.position.seq,
            incarnation=committer.incarnation.id,
            status=str(state.get(SESSION, STATUS, PENDING)),
            messages=working.message_count,
            bytes=state.size_bytes,
            tags=checkpoint_tags(metadata, ns),
            unfinished=bool(self._tool_calls.unfinished(state)),
        )

    async def put_writes(
        self,
        codec: Codec,
        ns: str,
        id_: str,
        writes: Sequence[Write],
        *,
        is_deferred: bool = False,
    ) -> None:
        """Store the writes of a task after a checkpoint; in the background, if ``is_deferred``."""
        # Encoded now, because they are written later and the caller may change them.
        encoded = [
            codec.encode_dict(each.fields, {"value": each.value}, f"a write to {each.channel!r}")
            for each in writes
        ]
        names = [each.channel for each in writes]
        about = {"checkpoint_id": id_, "ns": ns, "task_id": writes[0].task_id, "channels": names}

        async def record(committer: Committer) -> None:
            working = committer.working
            current = self._get_entry(committer, ns)
            if current is None or current["id"] != id_:
                self._record_late(committer, about, encoded)
                return
            space, known = writes_space(ns), working.store.contains
            sets: list[tuple[str, str, Any]] = [
                (space, each.key, value)
                for each, value in zip(writes, encoded, strict=True)
                if each.index < 0 or not known(space, each.key)
            ]
            if sets:
                status = next((STATUSES[name] for name in names if name in STATUSES), None)
                if status is not None and not ns:
                    sets.append((SESSION, STATUS, status))
                working.record_owned(WRITES_EVENT, about, {"set": sets, "delete": []})

        change = PendingChange(record, f"{ns}|{id_}")
        await self._commit(change, linger=LINGER_SECONDS, is_deferred=is_deferred)

    def _record_late(
        self, committer: Committer, about: dict[str, Any], writes: Sequence[EncodedValue]
    ) -> None:
        """Record writes to a checkpoint that is not current in the event, not in the state.

        The state has the numbers of such events.
        """
        working = committer.working
        key = f"{about['ns']}|{about['checkpoint_id']}"
        seq = working.head.seq + len(working.pending) + 1
        known = working.store.get(LATE, key, [])
        stored = [decode(each.data) for each in writes]
        changes: Changes = {"set": [(LATE, key, [*known, seq])], "delete": []}
        working.record_owned(WRITES_EVENT, {**about, "writes": stored}, changes)
        self._cache_late(seq, encode(stored))

    def _cache_replaced(self, ns: str, id_: str, state: Snapshot) -> None:
        add_newest(self.replaced, (ns, id_), state, MAX_REPLACED)

    def cache_loaded(self, ns: str, id_: str, state: Snapshot) -> None:
        """Cache the last state in which a checkpoint was current."""
        add_newest(self.loaded, (ns, id_), state, MAX_LOADED)

    def _cache_late(self, seq: int, writes: bytes) -> None:
        """Cache the late writes of an event; the log has those that are evicted."""
        self._late[seq] = writes
        while len(self._late) > MAX_LATE:
            del self._late[next(iter(self._late))]

    async def find_late_writes(self, state: Snapshot, ns: str, id_: str) -> tuple[Write, ...]:
        """Return the writes to a checkpoint that were stored while it was not current.

        ``state`` is the current state. The caller must hold the lock.
        """
        key = f"{ns}|{id_}"
        seqs = state.get(LATE, key, ())
        if not seqs or self._committer is None:
            return ()
        return tuple(
            [each for seq in seqs for each in await self._late_writes(self._committer, key, seq)]
        )

    async def _late_writes(self, committer: Committer, key: str, seq: int) -> list[Write]:
        """Return the late writes to a checkpoint that are in the data of an event.

        Empty if the log was pruned, or if this is a fork, whose log starts with a copied state.
        """
        if (
            seq not in self._late
            and committer.tail.log_start.seq < seq <= committer.working.head.seq
        ):
            async for event in committer.timeline.events(seq, seq):
                if event.type != WRITES_EVENT:
                    continue
                data = (await load_event(event, committer.timeline.contents)).data
                if f"{data['ns']}|{data['checkpoint_id']}" == key:
                    self._cache_late(seq, encode(data.get("writes", [])))
        return [write_from_dict(each) for each in decode(self._late.get(seq, NO_WRITES))]

    async def append(self, record: RecordFunction) -> None:
        """Commit what a function records. The caller must hold the lock."""
        change = PendingChange(record)
        self._pending.append(change)
        await self._commit_pending()
        self._copies.clear()
        self._forget_puts()
        change.raise_error()

    # ------------------------------------------------------------------------------- commits

    async def _commit(
        self, change: PendingChange, *, linger: float = 0, is_deferred: bool = False
    ) -> None:
        """Commit a change, and return when it is durable, or at once if it ``is_deferred``.

        Changes that arrive during a commit share the next one. For ``linger`` seconds, starting
        that commit is left to another change.
        """
        change.is_deferred = is_deferred and len(self._pending) < MAX_DEFERRED
        if change.is_deferred:
            self.raise_failure()
        self._pending.append(change)
        if change.is_deferred and self._defer():
            return
        try:
            await change.wait(linger)
            if not change.is_done:
                async with self.lock:
                    if not change.is_done:
                        await self._commit_pending()
        except BaseException:
            # A cancelled change must not be written by a later commit.
            change.is_done = True
            raise
        change.raise_error()

    def _defer(self) -> bool:
        """Have the pending changes committed in the background; return False if that is over."""
        if not self.has_deferred:
            self.has_deferred = True  # before the other thread looks at it
            if not self._flush_later(self):
                self.has_deferred = False
                return False
        return True

    async def flush(self) -> None:
        """Commit the deferred changes."""
        async with self.lock:
            while self.has_deferred:
                await self._commit_pending()
                self.has_deferred = False
                # A change that was queued before that found it set, and leaves its commit to this.
                self.has_deferred = bool(self._pending)

    def raise_failure(self) -> None:
        """Raise the error of a change that was committed in the background, once."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def _commit_pending(self) -> None:
        """Commit all pending changes; on a conflict, apply the other commit and retry."""
        pending: list[PendingChange] = []
        attempts = CommitAttempts(self._contention)
        try:
            while await attempts.next():
                self._take_pending(pending)
                if await self._try_commit(pending, is_known=attempts.is_optimistic):
                    attempts.won()
                    for change in pending:
                        change.finish(None)
                    return
            problem = ConflictError(
                f"thread {self.location.session_id!r} could not be written: other writers "
                f"committed first in {attempts.count} attempts; run it in fewer processes at a time"
            )
            for change in pending:
                change.finish(problem)
        except BaseException as error:
            # Drop recorded events that were not written.
            self.reset()
            if not isinstance(error, Exception):
                # Cancelled: the callers of the other changes retry.
                for change in reversed(pending):
                    if not change.is_done:
                        change.may_be_written = True
                        self._pending.appendleft(change)
                raise
            for change in pending:
                change.finish(error)
        finally:
            for change in pending:
                if change.is_deferred and change.error is not None:
                    self._failure = change.error

    def _take_pending(self, pending: list[PendingChange]) -> None:
        """Add the queued changes to a list, and move writes behind the checkpoint they are for."""
        while self._pending:
            pending.append(self._pending.popleft())
        if len(pending) == 1:
            return
        puts = {each.target for each in pending if each.key}
        early: dict[str, list[PendingChange]] = {}
        ordered: list[PendingChange] = []
        for change in pending:
            if change.key:
                ordered += (change, *early.pop(change.target, ()))
                puts.discard(change.target)
            elif change.target in puts:
                early.setdefault(change.target, []).append(change)
            else:
                ordered.append(change)
        pending[:] = ordered

    async def _try_commit(self, pending: Sequence[PendingChange], *, is_known: bool) -> bool:
        """Record changes at the head of the log and commit them; return False on a conflict."""
        committer = self._committer
        if committer is None or self.is_stale or not is_known:
            committer = await self.head()
        working = committer.working
        copies, end = dict(self._copies), working.head.seq
        if end == 0:
            names = {"agent_id": self.location.scope_id, "session_id": self.location.session_id}
            first: Changes = {"set": [(SESSION, STATUS, "running")], "delete": []}
            working.record_owned(STARTED, names, first)
        recorded: list[tuple[int, StoredRecord]] = []
        for change in pending:
            record = await change.record_on(committer)
            if record is not None:
                recorded.append((len(working.pending) - 1, record))
        if working.is_unchanged:
            if working.pending:
                self.reset()
            return True

        def build_records(positions: Sequence[Position]) -> list[Put]:
            return [self._build_record(record, positions[at]) for at, record in recorded]

        try:
            await committer.commit_once(build_records)
        except ConflictError:
            # Nothing was written.
            working.pending.clear()
            self.is_stale = True
            self._copies = copies
            self._forget_puts()
            self._late = {seq: each for seq, each in self._late.items() if seq <= end}
            return False
        return True

    def _build_record(self, record: StoredRecord, position: Position) -> Put:
        """Return the write of a snapshot's record, given the position of its event."""
        record.seq, record.hash = position.seq, position.hash
        return Put(self._snapshot_key(record.snapshot_id), encode_envelope(record))

    def _snapshot_key(self, snapshot_id: str) -> str:
        return f"{self._history_prefix}{snapshot_id}.json"


def add_newest(
    cache: OrderedDict[tuple[str, str], Snapshot],
    key: tuple[str, str],
    state: Snapshot,
    limit: int,
) -> None:
    """Add a state to a cache, and drop the oldest one if there are too many."""
    cache[key] = state
    cache.move_to_end(key)
    if len(cache) > limit:
        cache.popitem(last=False)


# ----------------------------------------------------------------------------------- pending


class PendingChange:
    """A change to record, and its outcome.

    ``target`` names the checkpoint that it puts or writes to. Only a put has a ``key``, that of the
    snapshot that is written with it.
    """

    __slots__ = (
        "_waiter",
        "error",
        "is_deferred",
        "is_done",
        "key",
        "may_be_written",
        "record",
        "target",
    )

    def __init__(self, record: RecordFunction, target: str = "", key: str = "") -> None:
        self.record = record
        self.target = target
        self.key = key
        self.is_done = False
        """Whether it was written, failed, or was cancelled."""
        self.error: Exception | None = None
        self.is_deferred = False
        """Whether its caller does not wait for it."""
        self.may_be_written = False
        """Whether a cancelled attempt may have written it already."""
        self._waiter: threading.Event | asyncio.Future[None] | None = None

    async def wait(self, seconds: float) -> None:
        """Wait until it is done, or the time is over."""
        if not RUN_INLINE.get():
            self._waiter = asyncio.get_running_loop().create_future()
            # Even for no time: changes of the same iteration of the loop join.
            await asyncio.wait([self._waiter], timeout=seconds)
        elif seconds:
            self._waiter = threading.Event()
            if not self.is_done:
                self._waiter.wait(seconds)

    async def record_on(self, committer: Committer) -> StoredRecord | None:
        """Record it at the head; an error goes to its caller, not to the other changes."""
        if self.is_done:
            return None
        if self.may_be_written and self.key:
            entry = await committer.state_store.get(self.key)
            if entry is not None:
                self.finish(None)
                return None
        try:
            return await self.record(committer)
        except Exception as error:  # noqa: BLE001 - raised by the caller
            self.finish(error)
            return None

    def finish(self, error: Exception | None) -> None:
        """Set the outcome, and wake the caller."""
        if self.is_done:
            return
        self.error = error
        self.is_done = True
        if isinstance(self._waiter, threading.Event):
            self._waiter.set()
        elif self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def raise_error(self) -> None:
        """Raise the error of the change, if it failed."""
        if self.error is not None:
            raise self.error


class InlineLock:
    """A lock for coroutines that run inline: it blocks their OS thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    async def __aenter__(self) -> None:
        self._lock.acquire()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lock.release()
