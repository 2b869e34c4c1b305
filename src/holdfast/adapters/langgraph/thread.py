"""A LangGraph thread as a session: each checkpoint one event in its log, and a snapshot.

The state of the session is that of the checkpoint that was put last. A checkpoint writes what
differs from it: of a list of messages that grew by three, these three. What tasks wrote after it is
kept beside it, and leaves the state with the next checkpoint; the log still has it.
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
    snapshot_id_for,
    writes_space,
)
from holdfast.adapters.langgraph.pending import PendingChange, PendingSnapshot, RecordFunction
from holdfast.adapters.langgraph.writes import Write, write_from_dict
from holdfast.errors import ConflictError, IntegrityError, NotFoundError
from holdfast.log.event import Event
from holdfast.sessions.commit import Committer
from holdfast.sessions.contention import CommitAttempts, Contention
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
"""Seconds for which what a task wrote waits for the checkpoint that mostly follows it at once."""


class Thread:
    """One thread, for as long as nobody else writes to it."""

    def __init__(self, state_store: StateStore, location: SnapshotLocation) -> None:
        self.state_store = state_store
        self.location = location
        self.lock = asyncio.Lock()
        self._committer: Committer | None = None
        self._copies: dict[str, ItemCopies] = {}
        """What the lists of the current checkpoints held when they were kept."""
        self._late: dict[int, bytes] = {}
        """Writes by the events that have them, encoded, which this object wrote or read."""
        self._ledger = ToolCallIndex()
        self._contention = Contention()
        self._waiting: list[PendingChange] = []
        self.is_doubtful = False
        """Whether somebody, maybe in another loop, has taken away what this object knows of."""

    # -------------------------------------------------------------------------------- the head

    async def head(self) -> Committer:
        """Return a writer at the end of the log, with every commit of other writers applied."""
        writer = self._committer
        if writer is None or not await self._refresh(writer):
            self.forget()
            writer = self._committer = await Committer.open(self.state_store, self.location)
        self.is_doubtful = False
        return writer

    async def _refresh(self, writer: Committer) -> bool:
        """Apply what other writers committed since; False where the log must be opened again."""
        log, manifest = writer.timeline.log, self.location.manifest_key
        end = log.head.seq
        following = log.key(end + 1)
        found = await self.state_store.get_many([following, manifest])
        etag = found[manifest].etag if manifest in found else None
        if etag != writer.incarnation.etag:
            if not writer.incarnation.is_created:
                return False
            try:
                await writer.check_incarnation()
            except ConflictError:
                return False
            if writer.incarnation.manifest.log_start != writer.tail.log_start:
                return False
        if following not in found:
            return not self.is_doubtful
        try:
            await writer.resolve_conflict("rebase")
        except (ConflictError, IntegrityError, NotFoundError):
            return False
        new = [each for each in writer.tail.segments if each.first > end]
        if new and new[0].first == end + 1:
            invalidate_copies(self._copies, [each for segment in new for each in segment.changes()])
        else:
            self._copies.clear()  # There are more of them than are kept in memory.
        return True

    async def state(self) -> Snapshot:
        """The state of the session now."""
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
        base: ParentState | None = None,
    ) -> None:
        """Keep a checkpoint; ``base`` is its parent, where the thread stands at another one."""

        async def record(writer: Committer) -> PendingSnapshot:
            change = CheckpointChanges(codec, ns, writer.working.store, self._copies)
            change.checkpoint(checkpoint, parent, metadata, versions, base)
            await self._adopt_late(writer, ns, checkpoint["id"], change)
            step = metadata.get("step")
            data = {"checkpoint_id": checkpoint["id"], "ns": ns, "parent": parent, "step": step}
            writer.working.record(CHECKPOINT_EVENT, data, change.changes())
            self._copies.update(change.kept)
            return self._kept(writer, checkpoint["id"], ns, parent, metadata)

        await self._written(record, self.location.snapshot_key(snapshot_id_for(checkpoint["id"])))

    async def _adopt_late(
        self, writer: Committer, ns: str, id_: str, change: CheckpointChanges
    ) -> None:
        """Put beside a checkpoint what tasks wrote to it before it was here itself."""
        key = f"{ns}|{id_}"
        for seq in writer.working.store.get(LATE, key, []):
            for write in await self._late_writes(writer, key, seq):
                change.write(write)
            self._late.pop(seq, None)
        change.delete(LATE, key)

    async def late_writes(self, key: str, seq: int) -> list[Write]:
        """The writes to a checkpoint that an event has in its data.

        None where the event is gone, or is another one: the log was pruned, or this is a fork,
        which has the state of another session and a log of its own.
        """
        return await self._late_writes(await self.head(), key, seq)

    async def _late_writes(self, writer: Committer, key: str, seq: int) -> list[Write]:
        if seq not in self._late and writer.tail.log_start.seq < seq <= writer.working.head.seq:
            async for event in writer.timeline.events(seq, seq):
                data = event.data
                if event.type == WRITES_EVENT and f"{data['ns']}|{data['checkpoint_id']}" == key:
                    self._remember_late(seq, encode(data.get("writes", [])))
        return [write_from_dict(each) for each in decode(self._late.get(seq, NO_WRITES))]

    def _kept(
        self,
        writer: Committer,
        id_: str,
        ns: str,
        parent: str | None,
        metadata: Mapping[str, Any],
    ) -> PendingSnapshot:
        """The snapshot of the checkpoint that was recorded last."""
        state = writer.working.store.snapshot()
        tags = {name: str(metadata[name]) for name in ("source", "step") if name in metadata}
        if ns:
            tags["subgraph"] = ns
        info = SnapshotInfo(
            snapshot_id=snapshot_id_for(id_),
            parent_id=None if parent is None else snapshot_id_for(parent),
            agent_id=self.location.scope_id,
            session_id=self.location.session_id,
            scope=self.location.scope,
            created_at=utc_now(),
            tags=tags,
            status=str(state.get(SESSION, STATUS, PENDING)),
            message_count=writer.working.message_count,
            size_bytes=state.size_bytes,
            keyframe=writer.timeline.base_keyframe.position.seq,
            incarnation=writer.incarnation.id,
            unfinished=bool(self._ledger.unfinished(state)),
        )
        return PendingSnapshot(len(writer.working.pending) - 1, info)

    async def put_writes(self, codec: Codec, ns: str, id_: str, writes: Sequence[Write]) -> None:
        """Keep what a task wrote after a checkpoint."""
        kept = []
        for each in writes:
            data = codec.encoded(each.value, f"a write to {each.channel!r}")
            # A copy, as it is written later, and those who made it may go on with it.
            kept.append(replace(each, value=decode(encode(data))))
        names = [each.channel for each in writes]
        about = {"checkpoint_id": id_, "ns": ns, "task_id": kept[0].task_id, "channels": names}

        async def record(writer: Committer) -> None:
            store = writer.working.store
            current = get_checkpoint_entry(store, ns)
            if current is None or current["id"] != id_:
                self._record_late(writer, about, kept)
                return
            space = writes_space(ns)
            new = [each for each in kept if each.index < 0 or not store.contains(space, each.key)]
            changes: Changes = {
                "set": [(space, each.key, each.data()) for each in new],
                "delete": [],
            }
            status = next((STATUSES[name] for name in names if name in STATUSES), None)
            if status is not None and not ns:
                changes["set"].append((SESSION, STATUS, status))
            if new:
                writer.working.record(WRITES_EVENT, about, changes)

        await self._written(record, lingers=LINGER_SECONDS)

    def _record_late(self, writer: Committer, data: dict[str, Any], kept: list[Write]) -> None:
        """Record writes to a checkpoint that is not the current one: in the event, not the state.

        The state has the numbers of such events, so that they are found.
        """
        working = writer.working
        key = f"{data['ns']}|{data['checkpoint_id']}"
        seq = working.head.seq + len(working.pending) + 1
        known = working.store.get(LATE, key, [])
        event = {**data, "writes": [each.data() for each in kept]}
        changes: Changes = {"set": [(LATE, key, [*known, seq])], "delete": []}
        working.record(WRITES_EVENT, event, changes)
        self._remember_late(seq, encode(event["writes"]))

    def _remember_late(self, seq: int, writes: bytes) -> None:
        """Have the writes of an event at hand; the oldest are let go, as the log has them too."""
        self._late[seq] = writes
        while len(self._late) > MAX_LATE:
            del self._late[next(iter(self._late))]

    async def delete(
        self, ids: Sequence[tuple[str, str]], heads: Mapping[str, Snapshot | None]
    ) -> None:
        """Take checkpoints away; ``heads`` are the states of those that become the current ones.

        For whoever holds the lock.
        """

        async def record(writer: Committer) -> None:
            changes: Changes = {"set": [], "delete": []}
            changes["set"] += [(DELETED, f"{ns}|{id_}", True) for ns, id_ in ids]
            here = writer.working.store.snapshot()
            for ns, state in heads.items():
                current = get_checkpoint_entry(here, ns)
                if current is not None and (ns, current["id"]) not in ids:
                    continue  # Somebody has gone on from what is to go.
                kept = [] if state is None else list_checkpoint_entries(state, ns)
                changes["set"] += kept
                gone = {each[:2] for each in list_checkpoint_entries(here, ns)} - {
                    each[:2] for each in kept
                }
                changes["delete"] += sorted(gone)
            writer.working.record(DELETED_EVENT, {"checkpoints": [id_ for _, id_ in ids]}, changes)

        await self.append(record)
        for _, id_ in ids:
            await self.state_store.delete(self.location.snapshot_key(snapshot_id_for(id_)))

    async def append(self, record: RecordFunction) -> None:
        """Commit what a function records; for a caller that holds the lock."""
        act = PendingChange(record, asyncio.get_running_loop().create_future())
        self._waiting.append(act)
        await self._write_all()
        await act.done
        self._copies.clear()

    async def _written(self, record: RecordFunction, key: str = "", *, lingers: float = 0) -> None:
        """Record something and wait until it is durable. ``key`` is that of its snapshot.

        What others want to write meanwhile waits, and is written with the next commit together;
        one that ``lingers`` leaves it to another to begin that commit, for so long.
        """
        act = PendingChange(record, asyncio.get_running_loop().create_future(), key)
        self._waiting.append(act)
        try:
            # Whoever came in the same moment joins in.
            await asyncio.wait([act.done], timeout=lingers)
            async with self.lock:
                if not act.done.done():
                    await self._write_all()
            await act.done
        except BaseException:
            # What nobody waits for any more is not written later, when it may be out of place.
            act.done.cancel()
            raise

    async def _write_all(self) -> None:
        """Commit all pending acts; where another writer was first, apply its commit and retry."""
        acts, self._waiting = self._waiting, []
        attempts = CommitAttempts(self._contention)
        try:
            while await attempts.next():
                acts, self._waiting = acts + self._waiting, []
                if await self._write(acts, is_known=attempts.is_optimistic):
                    attempts.won()
                    for act in acts:
                        act.finish(None)
                    return
            problem = ConflictError(
                f"thread {self.location.session_id!r} could not be written: other writers "
                f"committed first in {attempts.count} attempts; run it in fewer processes at a time"
            )
            for act in acts:
                act.finish(problem)
        except BaseException as error:
            # What is recorded and not written is not to be written by the next one.
            self.forget()
            if not isinstance(error, Exception):
                # Who is cancelled does not take the others along: they try by themselves.
                others = [act for act in acts if not act.done.done()]
                for act in others:
                    act.is_again = True
                self._waiting = others + self._waiting
                raise
            for act in acts:
                act.finish(error)

    async def _write(self, acts: Sequence[PendingChange], *, is_known: bool) -> bool:
        """Record acts at the end of the log and commit them; False where another was first."""
        is_known = is_known and not self.is_doubtful
        writer = self._committer if is_known and self._committer else await self.head()
        for act in acts:
            await act.check_again(self.state_store)
        copies, end = dict(self._copies), writer.working.head.seq
        self._begin(writer)
        kept = [await act.recorded(writer) for act in acts]
        try:
            await writer.commit("raise", build_puts=partial(self._records, kept))
        except ConflictError:
            # Nothing was written: what others committed replaces what was recorded.
            writer.working.pending.clear()
            self.is_doubtful = True
            self._copies = copies
            self._late = {seq: each for seq, each in self._late.items() if seq <= end}
            return False
        return True

    def _begin(self, writer: Committer) -> None:
        """Record the beginning of a session that has none."""
        if writer.working.head.seq == 0 and not writer.working.pending:
            begin = {"agent_id": self.location.scope_id, "session_id": self.location.session_id}
            first: Changes = {"set": [(SESSION, STATUS, "running")], "delete": []}
            writer.working.record("session.started", begin, first)

    def _records(
        self, kept: Sequence[PendingSnapshot | None], events: Sequence[Event]
    ) -> list[Put]:
        """The records of snapshots, now that the places of their events are known."""
        found = []
        for each in kept:
            if each is not None:
                event = events[each.index]
                info = replace(each.info, seq=event.seq, hash=event.hash)
                key = self.location.snapshot_key(info.snapshot_id)
                found.append(Put(key, info.encode(self.location)))
        return found

    def forget(self) -> None:
        """Look anew next time."""
        self._committer = None
        self._late.clear()
        self._copies.clear()

    async def delete_all(self) -> None:
        """Remove the thread."""
        self.forget()
        await delete_session(self.state_store, self.location.session_id)

    # ------------------------------------------------------------------------------- reading

    async def events(self) -> AsyncIterator[Event]:
        """All events that were not pruned."""
        writer = await self.head()
        log_start = writer.tail.log_start
        async for event in writer.timeline.log.read(log_start.seq + 1, after=log_start):
            yield event
