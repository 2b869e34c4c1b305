"""A LangGraph thread as a session: each checkpoint one event in its log, and a snapshot.

The state of the session is that of the checkpoint that was put last. A checkpoint writes what
differs from it: of a list of messages that grew by three, these three. What tasks wrote after it is
kept beside it, and leaves the state with the next checkpoint; the log still has it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.base import WRITES_IDX_MAP, ChannelVersions, Checkpoint

from holdfast.adapters.langgraph.codec import ROLES, Codec, cloned
from holdfast.adapters.langgraph.names import (
    DELETED,
    LATE,
    META,
    checkpoint_key,
    items_space,
    snapshot_id,
    values_space,
    writes_space,
)
from holdfast.errors import ConflictError
from holdfast.log.event_log import Position
from holdfast.log.events import Event
from holdfast.sessions.turns import CallLedger
from holdfast.sessions.writing import Writer
from holdfast.snapshots.founding import delete_session
from holdfast.snapshots.layout import SnapshotLocation
from holdfast.snapshots.records import SnapshotInfo
from holdfast.snapshots.session_snapshot import now
from holdfast.snapshots.session_state import PENDING, SESSION, STATUS, message_key
from holdfast.state.diff import Changes
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store
from holdfast.stores.contract import StateStore
from holdfast.stores.entries import Put
from holdfast.values.binary import encode

PUT = "langgraph.checkpoint"
WROTE = "langgraph.writes"
TAKEN = "langgraph.deleted"
ATTEMPTS = 16
MANY = 16
"""So many items make a list one that is kept item by item."""
LOOKED_AT_AGAIN = 8
"""So many of the last items are compared by what they hold, as somebody may have changed them."""
STATUSES = {"__interrupt__": "waiting", "__error__": "failed"}


@dataclass(slots=True)
class Write:
    """What a task wrote to a channel."""

    task_id: str
    task_path: str
    index: int
    channel: str
    value: Any

    @property
    def key(self) -> str:
        """Its key beside the checkpoint that it is for."""
        return f"{self.task_id}|{self.index}"

    def data(self) -> dict[str, Any]:
        """The same as a session keeps it."""
        return {
            "task_id": self.task_id,
            "path": self.task_path,
            "index": self.index,
            "channel": self.channel,
            "value": self.value,
        }


def write_of(data: Mapping[str, Any]) -> Write:
    """What was kept of a write."""
    return Write(data["task_id"], data["path"], data["index"], data["channel"], data["value"])


@dataclass(slots=True)
class Seen:
    """The very objects that a list had when it was kept, by which they are known again."""

    items: list[Any] = field(default_factory=list)
    copies: list[BaseMessage | None] = field(default_factory=list)
    """Messages like them that nobody else has, to make others of; None where that is not known."""


class Thread:
    """One thread, for as long as nobody else writes to it."""

    def __init__(self, state_store: StateStore, location: SnapshotLocation) -> None:
        self.state_store = state_store
        self.location = location
        self.lock = asyncio.Lock()
        self._writer: Writer | None = None
        self._seen: dict[str, Seen] = {}
        self._touched: list[Any] = []
        self._late: dict[int, list[Write]] = {}
        """Writes by the events that have them, which this object wrote or read."""
        self._ledger = CallLedger()

    # -------------------------------------------------------------------------------- the head

    async def head(self) -> Writer:
        """The thread as it is committed now, by whomever."""
        writer = self._writer
        if writer is None or not await self._is_current(writer):
            writer = await Writer.open(self.state_store, self.location)
            self._writer = writer
            self._seen.clear()
        return writer

    async def _is_current(self, writer: Writer) -> bool:
        """Whether the log ends where it did, with what it did."""
        log, segments = writer.timeline.log, writer.tail.segments
        following = log.key(log.end.seq + 1)
        last = segments[-1].key if segments else following
        found = await self.state_store.get_many([last, following])
        if following in found:
            return False
        # What was deleted and begun again may be as long; its hash is another.
        return not segments or (last in found and log.end.hash.encode() in found[last].value)

    def given_out(self, ns: str, values: Mapping[str, Any]) -> None:
        """Know again, when they come back, the items of the current checkpoint that a graph got."""
        for name, value in values.items():
            if is_list(name, value):
                seen = self._seen.setdefault(items_space(ns, name), Seen())
                seen.items = list(value)

    def items(self, codec: Codec, ns: str, name: str, state: Snapshot) -> list[Any]:
        """The items of a list of the current checkpoint, made anew for whoever asks."""
        space = items_space(ns, name)
        seen = self._seen.setdefault(space, Seen())
        copies = seen.copies
        if len(copies) != state.count(space):
            copies = seen.copies = [None] * state.count(space)
        found = []
        for number, copy in enumerate(copies):
            if copy is None:
                item = codec.decoded(state.get(space, message_key(number)))
                if type(item) in ROLES:
                    copies[number] = cloned(item)
            else:
                item = cloned(copy)
            found.append(item)
        return found

    async def state(self) -> Snapshot:
        """The state of the session now."""
        return (await self.head()).recording.base

    # ------------------------------------------------------------------------------- writing

    async def put(
        self,
        codec: Codec,
        ns: str,
        parent: str | None,
        checkpoint: Checkpoint,
        metadata: Mapping[str, Any],
        versions: ChannelVersions,
    ) -> None:
        """Keep a checkpoint."""

        async def record(writer: Writer) -> None:
            change = Change(codec, ns, writer.recording.store, self._seen)
            change.checkpoint(checkpoint, parent, metadata, versions, self._touched)
            await self._adopt_late(writer, ns, checkpoint["id"], change)
            step = metadata.get("step")
            data = {"checkpoint_id": checkpoint["id"], "ns": ns, "parent": parent, "step": step}
            writer.recording.record(PUT, data, change.changes())
            snapshot = self._record(checkpoint["id"], ns, parent, metadata)
            await writer.write("raise", snapshot)
            self._seen.update(change.seen)
            self._touched.clear()

        await self._written(record)

    async def _adopt_late(self, writer: Writer, ns: str, id_: str, change: Change) -> None:
        """Put beside a checkpoint what tasks wrote to it before it was here itself."""
        key = f"{ns}|{id_}"
        for seq in writer.recording.store.get(LATE, key, []):
            for write in await self.late_writes(seq):
                change.put(writes_space(ns), write.key, write.data())
            self._late.pop(seq, None)
        if writer.recording.store.contains(LATE, key):
            change.delete(LATE, key)

    async def late_writes(self, seq: int) -> list[Write]:
        """The writes that an event has in its data."""
        if seq not in self._late:
            timeline = (await self.head()).timeline
            async for event in timeline.events(seq, seq):
                self._late[seq] = [write_of(each) for each in event.data["writes"]]
        return self._late[seq]

    def _record(self, id_: str, ns: str, parent: str | None, metadata: Mapping[str, Any]) -> Any:
        """What makes the record of the snapshot of a checkpoint."""
        tags = {name: str(metadata[name]) for name in ("source", "step") if name in metadata}
        if ns:
            tags["subgraph"] = ns

        def record(end: Position, state: Snapshot) -> Put:
            assert self._writer is not None  # noqa: S101 - it is what writes this
            info = SnapshotInfo(
                snapshot_id=snapshot_id(id_),
                parent_id=None if parent is None else snapshot_id(parent),
                agent_id=self.location.scope_id,
                session_id=self.location.session_id,
                scope=self.location.scope,
                created_at=now(),
                tags=tags,
                status=str(state.get(SESSION, STATUS, PENDING)),
                message_count=self._writer.recording.message_count,
                size_bytes=state.size_bytes,
                seq=end.seq,
                hash=end.hash,
                keyframe=self._writer.timeline.anchor.position.seq,
                unfinished=bool(self._ledger.unfinished(state)),
            )
            return Put(self.location.snapshot(info.snapshot_id), info.encoded(self.location))

        return record

    async def put_writes(self, codec: Codec, ns: str, id_: str, writes: Sequence[Write]) -> None:
        """Keep what a task wrote after a checkpoint."""
        kept = [
            Write(
                each.task_id,
                each.task_path,
                each.index,
                each.channel,
                codec.encoded(each.value, f"a write to the channel {each.channel!r}"),
            )
            for each in writes
        ]
        for each in writes:
            self._touched += each.value if type(each.value) is list else [each.value]
        replaces = all(each.channel in WRITES_IDX_MAP for each in writes)
        names = [each.channel for each in writes]
        data = {"checkpoint_id": id_, "ns": ns, "task_id": kept[0].task_id, "channels": names}

        async def record(writer: Writer) -> None:
            store = writer.recording.store
            current = store.get(META, checkpoint_key(ns))
            changes: Changes = {"set": [], "delete": []}
            event: dict[str, Any] = data
            if current is not None and current["id"] == id_:
                space = writes_space(ns)
                new = [each for each in kept if replaces or not store.contains(space, each.key)]
                if not new:
                    return
                changes["set"] += [(space, each.key, each.data()) for each in new]
                status = next((STATUSES[name] for name in names if name in STATUSES), None)
                if status is not None and not ns:
                    changes["set"].append((SESSION, STATUS, status))
            else:
                known = store.get(LATE, f"{ns}|{id_}", [])
                seq = writer.recording.end.seq + len(writer.recording.pending) + 1
                event = {**data, "writes": [each.data() for each in kept], "replaces": replaces}
                changes["set"].append((LATE, f"{ns}|{id_}", [*known, seq]))
            writer.recording.record(WROTE, event, changes)
            await writer.write("raise")
            if "writes" in event:
                self._late[writer.recording.end.seq] = kept

        await self._written(record)

    async def delete(
        self, ids: Sequence[tuple[str, str]], heads: Mapping[str, Snapshot | None]
    ) -> None:
        """Take checkpoints away; ``heads`` are the states of those that become the current ones."""

        async def record(writer: Writer) -> None:
            changes: Changes = {"set": [], "delete": []}
            changes["set"] += [(DELETED, f"{ns}|{id_}", True) for ns, id_ in ids]
            here = writer.recording.store.snapshot()
            for ns, state in heads.items():
                kept = [] if state is None else parts(state, ns)
                changes["set"] += kept
                gone = {each[:2] for each in parts(here, ns)} - {each[:2] for each in kept}
                changes["delete"] += sorted(gone)
            writer.recording.record(TAKEN, {"checkpoints": [id_ for _, id_ in ids]}, changes)
            await writer.write("raise")

        await self._written(record)
        self._seen.clear()
        for _, id_ in ids:
            await self.state_store.delete(self.location.snapshot(snapshot_id(id_)))

    async def _written(self, record: Any) -> None:
        """Record on top of what is there, and again where another writer was first."""
        for attempt in range(ATTEMPTS):
            writer = await self.head() if attempt or self._writer is None else self._writer
            if writer.recording.end.seq == 0 and not writer.recording.pending:
                begin = {"agent_id": self.location.scope_id, "session_id": self.location.session_id}
                first: Changes = {"set": [(SESSION, STATUS, "running")], "delete": []}
                writer.recording.record("session.started", begin, first)
            try:
                await record(writer)
                return
            except ConflictError:
                self.forget()
            except BaseException:
                # What is recorded and not written is not to be written by the next one.
                self.forget()
                raise
        raise ConflictError(
            f"other writers were first {ATTEMPTS} times in the thread {self.location.session_id}: "
            "let one process at a time run it"
        )

    def forget(self) -> None:
        """Look anew next time."""
        self._writer = None
        self._late.clear()
        self._seen.clear()

    async def delete_all(self) -> None:
        """Remove the thread."""
        self.forget()
        await delete_session(self.state_store, self.location.session_id)

    # ------------------------------------------------------------------------------- reading

    async def events(self) -> AsyncIterator[Event]:
        """All events that were not pruned."""
        writer = await self.head()
        floor = writer.tail.floor
        async for event in writer.timeline.log.read(floor.seq + 1, after=floor):
            yield event


class Change:
    """What a checkpoint changes in the state of its session."""

    def __init__(self, codec: Codec, ns: str, store: Store, seen: Mapping[str, Seen]) -> None:
        self._codec = codec
        self._ns = ns
        self._store = store
        self._before = seen
        self.seen: dict[str, Seen] = {}
        self._set: dict[tuple[str, str], Any] = {}
        self._delete: set[tuple[str, str]] = set()

    def put(self, space: str, key: str, value: Any) -> None:
        """Set an entry."""
        self._set[space, key] = value
        self._delete.discard((space, key))

    def delete(self, space: str, key: str) -> None:
        """Delete an entry that is there."""
        if self._store.contains(space, key):
            self._delete.add((space, key))

    def changes(self) -> Changes:
        """All of it."""
        return {
            "set": [(space, key, value) for (space, key), value in self._set.items()],
            "delete": sorted(self._delete),
        }

    def checkpoint(
        self,
        checkpoint: Checkpoint,
        parent: str | None,
        metadata: Mapping[str, Any],
        versions: ChannelVersions,
        touched: Sequence[Any],
    ) -> None:
        """Lead from the state to a checkpoint."""
        before = self._store.get(META, checkpoint_key(self._ns), None)
        values = checkpoint["channel_values"]
        lists = [name for name, value in values.items() if is_list(name, value)]
        known = before["versions"] if before else {}
        written = {id(each) for each in touched}
        for name, value in values.items():
            if self._is_same(name, checkpoint, known, versions, before):
                continue
            if name in lists:
                self._items(name, value, written)
            else:
                self._value(name, value)
        self._drop(before, set(values), set(lists))
        for key in self._store.keys(writes_space(self._ns)):
            self.delete(writes_space(self._ns), key)
        if not self._ns and self._store.get(SESSION, STATUS) != "running":
            self.put(SESSION, STATUS, "running")
        kept = {name: value for name, value in checkpoint.items() if name not in SPLIT}
        self.put(
            META,
            checkpoint_key(self._ns),
            {
                "id": checkpoint["id"],
                "parent": parent,
                "values": sorted(values.keys() - set(lists)),
                "lists": sorted(lists),
                "versions": dict(checkpoint["channel_versions"]),
                "metadata": self._codec.encoded(dict(metadata), "the metadata"),
                "checkpoint": self._codec.encoded(kept, "the checkpoint"),
            },
        )

    def _is_same(
        self,
        name: str,
        checkpoint: Checkpoint,
        known: Mapping[str, Any],
        versions: ChannelVersions,
        before: Mapping[str, Any] | None,
    ) -> bool:
        """Whether a channel has the value that it has in the state, by its version alone."""
        version = checkpoint["channel_versions"].get(name)
        if before is None or name in versions or not isinstance(version, str):
            return False
        return known.get(name) == version and name in (*before["values"], *before["lists"])

    def _value(self, name: str, value: Any) -> None:
        space = values_space(self._ns, name)
        self._put_new(space, name, self._codec.encoded(value, f"the channel {name!r}"))

    def _put_new(self, space: str, key: str, data: Any) -> bool:
        """Set an entry, if it is not so already; whether it was set."""
        # By their bytes, as 1 and True are equal.
        is_new = self._store._find(space, key) != encode(data)
        if is_new:
            self.put(space, key, data)
        return is_new

    def _items(self, name: str, items: list[Any], written: set[int]) -> None:
        space = items_space(self._ns, name)
        seen = self._before.get(space, Seen()).items
        surely = min(len(seen), len(items)) - LOOKED_AT_AGAIN
        changed = []
        for number, item in enumerate(items):
            if number < surely and item is seen[number] and id(item) not in written:
                continue
            key = message_key(number)
            data = self._codec.encoded(item, f"the channel {name!r}, item {number},")
            if self._put_new(space, key, data):
                changed.append(number)
        number = len(items)
        while self._store.contains(space, message_key(number)):
            self.delete(space, message_key(number))
            number += 1
        copies = self._before.get(space, Seen()).copies[: len(items)]
        copies += [None] * (len(items) - len(copies))
        for number in changed:
            copies[number] = None
        self.seen[space] = Seen(list(items), copies)

    def _drop(self, before: Mapping[str, Any] | None, values: set[str], lists: set[str]) -> None:
        """Take away the channels that the checkpoint has no value of."""
        if before is None:
            return
        for name in before["values"]:
            if name not in values or name in lists:
                self.delete(values_space(self._ns, name), name)
        for name in before["lists"]:
            if name not in lists:
                space = items_space(self._ns, name)
                for key in self._store.keys(space):
                    self.delete(space, key)
                self.seen[space] = Seen()


SPLIT = frozenset(("id", "channel_values", "channel_versions"))


def is_list(name: str, value: Any) -> bool:
    """Whether a value is kept item by item: messages, and long lists."""
    if type(value) is not list:
        return False
    return name == "messages" or len(value) >= MANY


def parts(state: Snapshot, ns: str) -> list[tuple[str, str, Any]]:
    """All entries of the state that belong to the current checkpoint of a graph or subgraph."""
    meta = state.get(META, checkpoint_key(ns), None)
    if meta is None:
        return []
    found = [(META, checkpoint_key(ns), meta)]
    for name in meta["values"]:
        space = values_space(ns, name)
        found.append((space, name, state.get(space, name)))
    for name in meta["lists"]:
        found += state.items(items_space(ns, name))
    found += state.items(writes_space(ns))
    return found
