"""A LangGraph thread as a session: each checkpoint is one event in its log, and a snapshot.

The state of the session is that of the current checkpoint. The next checkpoint writes only the
difference: of a list of messages that grew by three, these three. The writes of tasks are stored
beside their checkpoint; they leave the state with the next one, but stay in the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from langgraph.checkpoint.base import ChannelVersions, Checkpoint

from holdfast.adapters.langgraph.checkpoint_changes import (
    CheckpointChanges,
    list_checkpoint_entries,
)
from holdfast.adapters.langgraph.checkpoint_entry import get_checkpoint_entry
from holdfast.adapters.langgraph.codec import Codec
from holdfast.adapters.langgraph.deltas import ParentState
from holdfast.adapters.langgraph.item_copies import ItemCopies, invalidate_copies
from holdfast.adapters.langgraph.keys import (
    DELETED,
    LATE,
    STATUSES,
    checkpoint_tags,
    snapshot_id_for,
    writes_space,
)
from holdfast.adapters.langgraph.pending import PendingChange, PendingSnapshot, RecordFunction
from holdfast.adapters.langgraph.writes import Write, write_from_dict
from holdfast.errors import ConflictError, IntegrityError, NotFoundError
from holdfast.log.event import Event
from holdfast.log.event_log import Position
from holdfast.sessions.backoff import CommitAttempts, Contention
from holdfast.sessions.commit import Committer
from holdfast.snapshots.delete import delete_session
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.snapshots.records import SnapshotInfo
from holdfast.snapshots.session_snapshot import utc_now
from holdfast.snapshots.session_state import PENDING, SESSION, STATUS
from holdfast.snapshots.tool_calls import ToolCallIndex
from holdfast.state.diff import Changes
from holdfast.state.snapshot import Snapshot
from holdfast.stores.base import StateStore
from holdfast.stores.entries import Put
from holdfast.values.binary_encoding import decode, encode

CHECKPOINT_EVENT = "langgraph.checkpoint"
WRITES_EVENT = "langgraph.writes"
DELETED_EVENT = "langgraph.deleted"
NO_WRITES = encode([])
MAX_LATE = 64
LINGER_SECONDS = 0.002
"""How long writes of a task wait for the checkpoint that usually follows, to share its commit."""


class Thread:
    """One thread, with its state cached between commits."""

    def __init__(self, state_store: StateStore, location: SnapshotLocation) -> None:
        self.state_store = state_store
        self.location = location
        self.lock = asyncio.Lock()
        self._committer: Committer | None = None
        self._copies: dict[str, ItemCopies] = {}
        """The items of lists of the current checkpoints as they were stored, by namespace."""
        self._late: dict[int, bytes] = {}
        """Encoded late writes by the number of their event; a cache."""
        self._tool_calls = ToolCallIndex()
        self._contention = Contention()
        self._pending: list[PendingChange] = []
        self.is_stale = False
        """Whether the cached state must be checked, as checkpoints may have been removed."""

    # ------------------------------------------------------------------------------------ head

    async def head(self) -> Committer:
        """Return a committer at the head of the log, with the commits of other writers applied."""
        committer = self._committer
        if committer is None or not await self._refresh(committer):
            self.reset()
            committer = self._committer = await Committer.open(self.state_store, self.location)
        self.is_stale = False
        return committer

    async def _refresh(self, committer: Committer) -> bool:
        """Apply the commits of other writers; return False if the log must be opened again."""
        log, manifest = committer.timeline.log, self.location.manifest_key
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
        new = [each for each in committer.tail.segments if each.first > end]
        if new and new[0].first == end + 1:
            invalidate_copies(self._copies, [each for segment in new for each in segment.changes()])
        else:
            self._copies.clear()  # more segments than are kept in memory
        return True

    async def state(self) -> Snapshot:
        """Return the current state of the session."""
        return (await self.head()).working.base

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
    ) -> None:
        """Store a checkpoint.

        ``parent_state`` is the state of its parent, if that is not the current checkpoint.
        """

        async def record(committer: Committer) -> PendingSnapshot:
            change = CheckpointChanges(codec, ns, committer.working.store, self._copies)
            change.put_checkpoint(checkpoint, parent, metadata, versions, parent_state)
            await self._adopt_late(committer, ns, checkpoint["id"], change)
            step = metadata.get("step")
            data = {"checkpoint_id": checkpoint["id"], "ns": ns, "parent": parent, "step": step}
            committer.working.record(CHECKPOINT_EVENT, data, change.changes())
            self._copies.update(change.copies)
            return self._make_snapshot(committer, checkpoint["id"], ns, parent, metadata)

        await self._commit(record, self.location.snapshot_key(snapshot_id_for(checkpoint["id"])))

    async def _adopt_late(
        self, committer: Committer, ns: str, id_: str, change: CheckpointChanges
    ) -> None:
        """Add the writes that tasks stored before their checkpoint."""
        key = f"{ns}|{id_}"
        for seq in committer.working.store.get(LATE, key, []):
            for write in await self._late_writes(committer, key, seq):
                change.add_write(write)
            self._late.pop(seq, None)
        change.delete(LATE, key)

    async def late_writes(self, key: str, seq: int) -> list[Write]:
        """Return the late writes to a checkpoint that are in the data of an event.

        Empty if the log was pruned, or if this is a fork, whose log starts with a copied state.
        """
        return await self._late_writes(await self.head(), key, seq)

    async def _late_writes(self, committer: Committer, key: str, seq: int) -> list[Write]:
        if (
            seq not in self._late
            and committer.tail.log_start.seq < seq <= committer.working.head.seq
        ):
            async for event in committer.timeline.events(seq, seq):
                data = event.data
                if event.type != WRITES_EVENT:
                    continue
                if f"{data['ns']}|{data['checkpoint_id']}" == key:
                    self._cache_late(seq, encode(data.get("writes", [])))
        return [write_from_dict(each) for each in decode(self._late.get(seq, NO_WRITES))]

    def _make_snapshot(
        self,
        committer: Committer,
        id_: str,
        ns: str,
        parent: str | None,
        metadata: Mapping[str, Any],
    ) -> PendingSnapshot:
        """Return the snapshot of the checkpoint that was recorded last."""
        state = committer.working.store.snapshot()
        info = SnapshotInfo(
            snapshot_id=snapshot_id_for(id_),
            parent_id=None if parent is None else snapshot_id_for(parent),
            agent_id=self.location.scope_id,
            session_id=self.location.session_id,
            scope=self.location.scope,
            created_at=utc_now(),
            tags=checkpoint_tags(metadata, ns),
            status=str(state.get(SESSION, STATUS, PENDING)),
            message_count=committer.working.message_count,
            size_bytes=state.size_bytes,
            keyframe=committer.timeline.base_keyframe.position.seq,
            incarnation=committer.incarnation.id,
            unfinished=bool(self._tool_calls.unfinished(state)),
        )
        return PendingSnapshot(len(committer.working.pending) - 1, info)

    async def put_writes(self, codec: Codec, ns: str, id_: str, writes: Sequence[Write]) -> None:
        """Store the writes of a task after a checkpoint."""
        stored = []
        for each in writes:
            data = codec.encode(each.value, f"a write to {each.channel!r}")
            # Copied, because it is written later and the caller may change it.
            stored.append(replace(each, value=decode(encode(data))))
        names = [each.channel for each in writes]
        about = {"checkpoint_id": id_, "ns": ns, "task_id": stored[0].task_id, "channels": names}

        async def record(committer: Committer) -> None:
            store = committer.working.store
            current = get_checkpoint_entry(store, ns)
            if current is None or current["id"] != id_:
                self._record_late(committer, about, stored)
                return
            space = writes_space(ns)
            new = [each for each in stored if each.index < 0 or not store.contains(space, each.key)]
            changes: Changes = {
                "set": [(space, each.key, each.to_dict()) for each in new],
                "delete": [],
            }
            status = next((STATUSES[name] for name in names if name in STATUSES), None)
            if status is not None and not ns:
                changes["set"].append((SESSION, STATUS, status))
            if new:
                committer.working.record(WRITES_EVENT, about, changes)

        await self._commit(record, linger=LINGER_SECONDS)

    def _record_late(self, committer: Committer, data: dict[str, Any], writes: list[Write]) -> None:
        """Record writes to a checkpoint that is not current in the event, not in the state.

        The state has the numbers of such events.
        """
        working = committer.working
        key = f"{data['ns']}|{data['checkpoint_id']}"
        seq = working.head.seq + len(working.pending) + 1
        known = working.store.get(LATE, key, [])
        event = {**data, "writes": [each.to_dict() for each in writes]}
        changes: Changes = {"set": [(LATE, key, [*known, seq])], "delete": []}
        working.record(WRITES_EVENT, event, changes)
        self._cache_late(seq, encode(event["writes"]))

    def _cache_late(self, seq: int, writes: bytes) -> None:
        """Cache the late writes of an event; the log has those that are evicted."""
        self._late[seq] = writes
        while len(self._late) > MAX_LATE:
            del self._late[next(iter(self._late))]

    async def delete(
        self, ids: Sequence[tuple[str, str]], heads: Mapping[str, Snapshot | None]
    ) -> None:
        """Delete checkpoints; ``heads`` are the states of those that become current instead.

        The caller must hold the lock.
        """

        async def record(committer: Committer) -> None:
            changes: Changes = {"set": [], "delete": []}
            changes["set"] += [(DELETED, f"{ns}|{id_}", True) for ns, id_ in ids]
            here = committer.working.store.snapshot()
            for ns, state in heads.items():
                current = get_checkpoint_entry(here, ns)
                if current is not None and (ns, current["id"]) not in ids:
                    continue  # another writer has put a new one
                entries = [] if state is None else list_checkpoint_entries(state, ns)
                changes["set"] += entries
                removed = {each[:2] for each in list_checkpoint_entries(here, ns)} - {
                    each[:2] for each in entries
                }
                changes["delete"] += sorted(removed)
            committer.working.record(
                DELETED_EVENT, {"checkpoints": [id_ for _, id_ in ids]}, changes
            )

        await self.append(record)
        for _, id_ in ids:
            await self.state_store.delete(self.location.snapshot_key(snapshot_id_for(id_)))

    async def append(self, record: RecordFunction) -> None:
        """Commit what a function records. The caller must hold the lock."""
        change = PendingChange(record, asyncio.get_running_loop().create_future())
        self._pending.append(change)
        await self._commit_pending()
        await change.done
        self._copies.clear()

    async def _commit(self, record: RecordFunction, key: str = "", *, linger: float = 0) -> None:
        """Record a change and wait until it is durable.

        ``key`` is the key of its snapshot. Changes that arrive during a commit share the next one;
        for ``linger`` seconds, starting that commit is left to another change.
        """
        change = PendingChange(record, asyncio.get_running_loop().create_future(), key)
        self._pending.append(change)
        try:
            # Let changes of the same loop iteration join.
            await asyncio.wait([change.done], timeout=linger)
            async with self.lock:
                if not change.done.done():
                    await self._commit_pending()
            await change.done
        except BaseException:
            # A cancelled change must not be written by a later commit.
            change.done.cancel()
            raise

    async def _commit_pending(self) -> None:
        """Commit all pending changes; on a conflict, apply the other commit and retry."""
        pending, self._pending = self._pending, []
        attempts = CommitAttempts(self._contention)
        try:
            while await attempts.next():
                pending, self._pending = pending + self._pending, []
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
                others = [change for change in pending if not change.done.done()]
                for change in others:
                    change.may_be_written = True
                self._pending = others + self._pending
                raise
            for change in pending:
                change.finish(error)

    async def _try_commit(self, pending: Sequence[PendingChange], *, is_known: bool) -> bool:
        """Record changes at the head of the log and commit them; return False on a conflict."""
        is_known = is_known and not self.is_stale
        committer = self._committer if is_known and self._committer else await self.head()
        for change in pending:
            await change.finish_if_written(self.state_store)
        copies, end = dict(self._copies), committer.working.head.seq
        self._record_start(committer)
        snapshots = [await change.record_on(committer) for change in pending]
        try:
            await committer.commit("raise", build_puts=partial(self._snapshot_puts, snapshots))
        except ConflictError:
            # Nothing was written.
            committer.working.pending.clear()
            self.is_stale = True
            self._copies = copies
            self._late = {seq: each for seq, each in self._late.items() if seq <= end}
            return False
        return True

    def _record_start(self, committer: Committer) -> None:
        """Record the ``session.started`` event of a new session."""
        if committer.working.head.seq == 0 and not committer.working.pending:
            names = {"agent_id": self.location.scope_id, "session_id": self.location.session_id}
            first: Changes = {"set": [(SESSION, STATUS, "running")], "delete": []}
            committer.working.record("session.started", names, first)

    def _snapshot_puts(
        self, snapshots: Sequence[PendingSnapshot | None], positions: Sequence[Position]
    ) -> list[Put]:
        """Return the snapshot records, with the sequence numbers and hashes of their events."""
        found = []
        for each in snapshots:
            if each is not None:
                at = positions[each.index]
                info = replace(each.info, seq=at.seq, hash=at.hash)
                key = self.location.snapshot_key(info.snapshot_id)
                found.append(Put(key, info.encode(self.location)))
        return found

    def reset(self) -> None:
        """Drop all cached state."""
        self._committer = None
        self._late.clear()
        self._copies.clear()

    async def delete_all(self) -> None:
        """Delete the thread."""
        self.reset()
        await delete_session(self.state_store, self.location.session_id)

    # ------------------------------------------------------------------------------- reading

    async def events(self) -> AsyncIterator[Event]:
        """Yield all events that were not pruned."""
        committer = await self.head()
        log_start = committer.tail.log_start
        async for event in committer.timeline.log.read(log_start.seq + 1, after=log_start):
            yield event
