"""Find the checkpoints of a thread, in the current state or by reading the log.

A checkpoint is current from the event that sets its entry in the state until the next event that
does, by a put, a restore or a fork. The last state before that has the checkpoint with all writes
of its tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    PendingWrite,
)

from holdfast.adapters.langgraph.checkpoint_entry import get_checkpoint_entry
from holdfast.adapters.langgraph.codec import Codec
from holdfast.adapters.langgraph.deltas import (
    SEEDS,
    ParentState,
    channels_with_value,
    list_carried_writes,
    list_value_entries,
    sort_writes,
)
from holdfast.adapters.langgraph.keys import (
    CHECKPOINT_PREFIX,
    CHECKPOINTS,
    DELETED,
    LATE,
    checkpoint_key,
    items_space,
    snapshot_id_for,
    values_space,
    writes_space,
)
from holdfast.adapters.langgraph.thread import WRITES_EVENT, Thread
from holdfast.adapters.langgraph.writes import Write, write_from_dict
from holdfast.errors import IntegrityError, InvalidDocumentError, short_repr
from holdfast.log.changes import fold_changes
from holdfast.log.event import Event
from holdfast.log.timeline import Timeline
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.state.diff import Changes
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A checkpoint, and the last state in which it was current."""

    ns: str
    id: str
    state: Snapshot
    late: tuple[Write, ...] = ()
    since: int = 0
    """The event that first made it current; known after a scan."""

    @property
    def entry(self) -> Mapping[str, Any]:
        """The entry of the checkpoint: id, parent, versions and metadata."""
        found: Mapping[str, Any] = self.state.get(CHECKPOINTS, checkpoint_key(self.ns))
        return found


def make_config(thread_id: str, ns: str, id_: str) -> RunnableConfig:
    """Return the config that names a checkpoint in LangGraph."""
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ns, "checkpoint_id": id_}}


def to_checkpoint_tuple(codec: Codec, thread: Thread, found: StoredCheckpoint) -> CheckpointTuple:
    """Return a checkpoint as LangGraph's tuple."""
    entry, ns = found.entry, found.ns
    thread_id = thread.location.session_id
    try:
        values = {name: load_channel(codec, found, name) for name in entry["values"]}
        for name in entry["lists"]:
            values[name] = load_channel(codec, found, name)
        checkpoint = {
            **codec.decode(entry["checkpoint"]),
            "id": found.id,
            "channel_values": values,
            "channel_versions": entry["versions"],
        }
        parent = entry["parent"]
        return CheckpointTuple(
            make_config(thread_id, ns, found.id),
            cast("Checkpoint", checkpoint),
            cast("CheckpointMetadata", codec.decode(entry["metadata"])),
            None if parent is None else make_config(thread_id, ns, parent),
            load_pending_writes(codec, found),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise damaged_checkpoint_error(thread_id, found.id, repr(error)) from error
    except InvalidDocumentError as error:
        raise damaged_checkpoint_error(thread_id, found.id, str(error)) from error


def load_metadata(codec: Codec, thread: Thread, found: StoredCheckpoint) -> dict[str, Any]:
    """Return the metadata of a checkpoint."""
    try:
        metadata: dict[str, Any] = codec.decode(found.entry["metadata"])
    except (KeyError, TypeError, InvalidDocumentError) as error:
        raise damaged_checkpoint_error(thread.location.session_id, found.id, repr(error)) from error
    return metadata


def damaged_checkpoint_error(thread_id: str, id_: str | None, problem: str) -> IntegrityError:
    """Return the error for a damaged checkpoint."""
    what = "a checkpoint" if id_ is None else f"checkpoint {id_}"
    return IntegrityError(
        f"{what} of thread {thread_id} is damaged: {problem}; use another checkpoint, or restore "
        f"session {thread_id} from a backup"
    )


def load_channel(codec: Codec, found: StoredCheckpoint, name: str) -> Any:
    """Return the value of a channel at a checkpoint."""
    if name in found.entry["lists"]:
        return codec.decode_all(found.state.values(items_space(found.ns, name)))
    return codec.decode(found.state.get(values_space(found.ns, name), name))


def load_pending_writes(codec: Codec, found: StoredCheckpoint) -> list[PendingWrite]:
    """Return the writes after a checkpoint in the order in which LangGraph applies them."""
    return [to_pending_write(codec, each) for each in merge_writes(found)]


def to_pending_write(codec: Codec, write: Write) -> PendingWrite:
    """Return a write as LangGraph's tuple."""
    return write.task_id, write.channel, codec.decode(write.value)


def merge_writes(found: StoredCheckpoint) -> list[Write]:
    """Return the stored writes after a checkpoint, including late ones."""
    stored = [write_from_dict(data) for data in found.state.values(writes_space(found.ns))]
    known = {each.key: each for each in stored}
    for each in found.late:
        # Ordinary writes are not replaced; errors, interrupts and resume values are.
        if each.index < 0 or each.key not in known:
            known[each.key] = each
    return sort_writes(list(known.values()))


# -------------------------------------------------------------------------------- one checkpoint


async def find_current(thread: Thread, ns: str) -> StoredCheckpoint | None:
    """Return the current checkpoint of a graph or subgraph."""
    state = await thread.state()
    entry = state.get(CHECKPOINTS, checkpoint_key(ns), None)
    if entry is None:
        return None
    try:
        id_ = get_entry_id(entry)
    except TypeError as error:
        raise damaged_checkpoint_error(thread.location.session_id, None, str(error)) from error
    return StoredCheckpoint(ns, id_, state, await find_late_writes(thread, ns, id_))


def get_entry_id(entry: object) -> str:
    """Return the id in a checkpoint's entry; raise TypeError if it is damaged."""
    found = entry.get("id") if isinstance(entry, dict) else None
    if not isinstance(found, str):
        raise TypeError(f"entry has no id: {short_repr(entry)}")
    return found


async def find_checkpoint(thread: Thread, ns: str, id_: str) -> StoredCheckpoint | None:
    """Return a checkpoint by its id."""
    found = await find_current(thread, ns)
    if found is not None and found.id == id_:
        return found
    if (await thread.state()).contains(DELETED, f"{ns}|{id_}"):
        return None
    state = await load_recorded_state(thread, ns, id_)
    if state is None:
        # Forked or imported without snapshots: find it in the log.
        return next((each for each in await scan_checkpoints(thread, ns) if each.id == id_), None)
    return StoredCheckpoint(ns, id_, state, await find_late_writes(thread, ns, id_))


async def load_parent_state(thread: Thread, ns: str, id_: str) -> ParentState | None:
    """Return the state of a parent checkpoint, or None if it is current or missing."""
    entry = get_checkpoint_entry(await thread.state(), ns)
    if entry is not None and entry["id"] == id_:
        return None
    found = await find_checkpoint(thread, ns, id_)
    return None if found is None else ParentState(found.state, merge_writes(found))


async def find_late_writes(thread: Thread, ns: str, id_: str) -> tuple[Write, ...]:
    """Return the writes to a checkpoint that were stored while it was not current."""
    key = f"{ns}|{id_}"
    seqs = (await thread.state()).get(LATE, key, [])
    return tuple([write for seq in seqs for write in await thread.late_writes(key, seq)])


async def load_recorded_state(thread: Thread, ns: str, id_: str) -> Snapshot | None:
    """Return the last state in which a checkpoint was current, found by its snapshot."""
    archive = SnapshotArchive(thread.state_store)
    info = await archive.load_info(location=thread.location, snapshot_id=snapshot_id_for(id_))
    if info is None:
        return None
    timeline = Timeline(thread.state_store, thread.location.prefix, info.incarnation)
    loaded = await timeline.load(info.seq, near=info.keyframe)
    if loaded.end.hash != info.hash:
        raise IntegrityError(
            f"checkpoint {id_} of thread {thread.location.session_id} does not match event "
            f"{info.seq} of the log; restore the session from a backup"
        )
    store = loaded.store
    entry = get_checkpoint_entry(store, ns)
    if entry is None or entry["id"] != id_:
        return None
    async for event in timeline.events(info.seq + 1):
        if checkpoint_key(ns) in list_touched_entries(event.changes):
            break
        fold_changes(store, [event.changes])
    return store.snapshot()


def list_touched_entries(changes: Changes) -> set[str]:
    """Return the keys of checkpoint entries that an event sets or deletes."""
    found = {key for space, key, _ in changes["set"] if space == CHECKPOINTS}
    return found | {key for space, key in changes["delete"] if space == CHECKPOINTS}


# ------------------------------------------------------------------------------- all checkpoints


class CheckpointScan:
    """Collects all checkpoints of a thread in one pass over its log."""

    def __init__(self, store: Store, log_start: int) -> None:
        self._store = store
        self._current: dict[str, str] = {}
        self._since: dict[tuple[str, str], int] = {}
        self._late: dict[tuple[str, int], list[Write]] = {}
        self._found: dict[tuple[str, str], Snapshot] = {}
        # A deleted checkpoint stays deleted if the state is restored to an earlier one.
        self._deleted = set(store.keys(DELETED))
        for key in store.keys(CHECKPOINTS):
            self._set_current(log_start, key, store.get(CHECKPOINTS, key))

    def step(self, event: Event) -> None:
        """Process one event."""
        changes, data = event.changes, event.data
        self._save_states([key for key in self._current if key in list_touched_entries(changes)])
        fold_changes(self._store, [changes])
        for space, key in changes["delete"]:
            if space == CHECKPOINTS:
                self._current.pop(key, None)
        for space, key, value in changes["set"]:
            if space == CHECKPOINTS:
                self._set_current(event.seq, key, value)
            elif space == DELETED:
                self._deleted.add(key)
        if event.type == WRITES_EVENT and "writes" in data:
            at = f"{data['ns']}|{data['checkpoint_id']}", event.seq
            self._late[at] = [write_from_dict(each) for each in data["writes"]]

    def _set_current(self, seq: int, key: str, entry: Mapping[str, Any]) -> None:
        """Note that a checkpoint became current."""
        if key.startswith(CHECKPOINT_PREFIX):
            id_ = self._current[key] = get_entry_id(entry)
            self._since.setdefault((key.removeprefix(CHECKPOINT_PREFIX), id_), seq)

    def _save_states(self, keys: Iterable[str]) -> None:
        """Save the state of checkpoints before they are replaced."""
        state = None
        for key in keys:
            state = state or self._store.snapshot()
            self._found[key.removeprefix(CHECKPOINT_PREFIX), self._current[key]] = state

    def checkpoints(self) -> list[StoredCheckpoint]:
        """Return all checkpoints that were not deleted."""
        self._save_states(self._current)
        return [
            StoredCheckpoint(ns, id_, state, self._late_of(f"{ns}|{id_}"), self._since[ns, id_])
            for (ns, id_), state in self._found.items()
            if f"{ns}|{id_}" not in self._deleted
        ]

    def _late_of(self, key: str) -> tuple[Write, ...]:
        seqs = self._store.get(LATE, key, [])
        return tuple(write for seq in seqs for write in self._late.get((key, seq), ()))


async def scan_checkpoints(thread: Thread, ns: str | None = None) -> list[StoredCheckpoint]:
    """Return all checkpoints of a thread, or of one graph in it, newest first."""
    committer = await thread.head()
    log_start = committer.tail.log_start
    store = Store(max_history=0)
    if log_start.seq:
        store = (await committer.timeline.load(log_start.seq)).store
    try:
        scan = CheckpointScan(store, log_start.seq)
        async for event in thread.events():
            scan.step(event)
        found = [each for each in scan.checkpoints() if ns is None or each.ns == ns]
    except (KeyError, TypeError, AttributeError) as error:
        raise damaged_checkpoint_error(thread.location.session_id, None, str(error)) from error
    return sorted(found, key=lambda each: each.id, reverse=True)


# --------------------------------------------------------------------------------- delta channels


def collect_delta_history(
    codec: Codec, found: Mapping[str, StoredCheckpoint], target: str | None, channels: Sequence[str]
) -> dict[str, DeltaChannelHistory]:
    """Return the writes of a checkpoint's ancestors to channels since their last full values."""
    written: dict[str, list[PendingWrite]] = {name: [] for name in channels}
    seeds: dict[str, Any] = {}
    here = found.get(target or "")
    seen: set[str] = set()
    while here is not None and len(seeds) < len(written):
        parent = here.entry["parent"]
        before = None if parent in seen else found.get(parent or "")
        if before is None:
            if parent is not None:
                add_carried_writes(codec, here, written, seeds)
            break
        here = before
        seen.add(here.id)
        for write in reversed(load_pending_writes(codec, here)):
            if write[1] in written and write[1] not in seeds:
                written[write[1]].append(write)
        for name in written.keys() - seeds.keys():
            if name in channels_with_value(here.entry):
                seeds[name] = load_channel(codec, here, name)
    result: dict[str, DeltaChannelHistory] = {}
    for name, writes in written.items():
        result[name] = {"writes": writes[::-1]}
        if name in seeds:
            result[name]["seed"] = seeds[name]
    return result


def add_carried_writes(
    codec: Codec,
    found: StoredCheckpoint,
    written: dict[str, list[PendingWrite]],
    seeds: dict[str, Any],
) -> None:
    """Add the carried writes of ancestors that are not in the log."""
    for name in written.keys() - seeds.keys():
        carried = [
            write_from_dict(data) for data in list_carried_writes(found.state, found.ns, name)
        ]
        written[name] += [to_pending_write(codec, each) for each in reversed(carried)]
        if name in found.entry.get(SEEDS, ()):
            entries = list_value_entries(found.state, found.ns, name)
            values = [codec.decode(each) for each in entries.values()]
            space = values_space(found.ns, name)
            seeds[name] = values[0] if (space, name) in entries else values
