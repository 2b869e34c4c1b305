"""Find the checkpoints of a thread: the current one, one by its id, the newest ones, or all.

A checkpoint is current from the event that sets its entry in the state until the next event that
does, by a put, a restore or a fork. The last state before that has the checkpoint with all writes
of its tasks. Its snapshot's record has the position of that first event, so a checkpoint is found
without reading the log before the nearest keyframe.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    PendingWrite,
)

from holdfast.adapters.langgraph.checkpoint import ItemCopies
from holdfast.adapters.langgraph.codec import Codec
from holdfast.adapters.langgraph.layout import (
    CHECKPOINT_PREFIX,
    CHECKPOINTS,
    DELETED,
    checkpoint_key,
    get_checkpoint_entry,
    get_entry_id,
    items_space,
    list_current_ids,
    snapshot_id_for,
    values_space,
    writes_space,
)
from holdfast.adapters.langgraph.thread import Thread
from holdfast.adapters.langgraph.writes import (
    SEEDS,
    ParentState,
    Write,
    channels_with_value,
    list_carried_writes,
    list_value_entries,
    sort_writes,
    write_from_dict,
)
from holdfast.errors import IntegrityError, InvalidDocumentError, NotFoundError
from holdfast.log.changes import fold_changes
from holdfast.log.event_log import PAGE_SIZE, Position
from holdfast.log.segment import Segment
from holdfast.log.timeline import Timeline
from holdfast.sessions.commit import Committer
from holdfast.snapshots.history import iterate_newest_first
from holdfast.snapshots.lookup import find_snapshot_info
from holdfast.snapshots.order import is_uuid7
from holdfast.snapshots.records import SnapshotInfo, decode_record
from holdfast.state.diff import Changes
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store

FIRST_PAGE = 8
"""Events after a snapshot that are read first; each further page has twice as many."""


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A checkpoint, and the last state in which it was current."""

    ns: str
    id: str
    state: Snapshot
    late: tuple[Write, ...] = ()
    since: int = 0
    """The event that first made it current; known after a scan."""
    copies: Mapping[str, ItemCopies] = field(default_factory=dict)
    """Copies of the items of its lists, by namespace, if they are known."""

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
        state = found.state
        values = {
            name: codec.decode(state.get(values_space(ns, name), name)) for name in entry["values"]
        }
        for name in entry["lists"]:
            space = items_space(ns, name)
            copies = found.copies.get(space)
            items = None if copies is None else copies.build(state.count(space))
            values[name] = codec.decode_all(state.values(space)) if items is None else items
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
    except (InvalidDocumentError, NotFoundError) as error:  # or a large value is not stored
        raise damaged_checkpoint_error(thread_id, found.id, str(error)) from error
    except (KeyError, TypeError, AttributeError) as error:
        raise damaged_checkpoint_error(thread_id, found.id, repr(error)) from error


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


@contextmanager
def damage_reported(thread: Thread) -> Iterator[None]:
    """Report an entry that is not a checkpoint."""
    try:
        yield
    except (KeyError, TypeError, AttributeError) as error:
        raise damaged_checkpoint_error(thread.location.session_id, None, str(error)) from error


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
    """Return the current checkpoint of a graph or subgraph. The caller must hold the lock."""
    return await select_current(thread, ns, await thread.state())


async def select_current(thread: Thread, ns: str, state: Snapshot) -> StoredCheckpoint | None:
    """Return the checkpoint that is current in the current state."""
    entry = state.get(CHECKPOINTS, checkpoint_key(ns), None)
    if entry is None:
        return None
    with damage_reported(thread):
        id_ = get_entry_id(entry)
    late = await thread.find_late_writes(state, ns, id_)
    return StoredCheckpoint(ns, id_, state, late, copies=thread.copies)


async def find_checkpoint(thread: Thread, ns: str, id_: str) -> StoredCheckpoint | None:
    """Return a checkpoint by its id. The caller must hold the lock."""
    now = await thread.state()
    found = await select_current(thread, ns, now)
    if found is not None and found.id == id_:
        return found
    if now.contains(DELETED, f"{ns}|{id_}"):
        return None
    state = thread.replaced.get((ns, id_)) or thread.loaded.get((ns, id_))
    if state is None:
        state = await load_recorded_state(thread, ns, id_)
        if state is None:
            # Forked or imported without snapshots: find it in the log.
            scan = await scan_checkpoints(thread, ns)
            return next((each for each in scan if each.id == id_), None)
        thread.cache_loaded(ns, id_, state)
    return StoredCheckpoint(ns, id_, state, await thread.find_late_writes(now, ns, id_))


async def load_parent_state(thread: Thread, ns: str, id_: str) -> ParentState | None:
    """Return the state of a parent checkpoint, or None if it is current or missing."""
    entry = get_checkpoint_entry(await thread.state(), ns)
    if entry is not None and entry["id"] == id_:
        return None
    found = await find_checkpoint(thread, ns, id_)
    return None if found is None else ParentState(found.state, merge_writes(found))


async def load_recorded_state(thread: Thread, ns: str, id_: str) -> Snapshot | None:
    """Return the last state in which a checkpoint was current, found by its snapshot."""
    info = await find_snapshot_info(thread.state_store, thread.location, snapshot_id_for(id_))
    if info is None:
        return None
    with damage_reported(thread):
        scan = await load_scan(thread, info)
    if scan.current.get(checkpoint_key(ns)) != id_:
        return None
    log_start = (await thread.head()).tail.log_start
    if info.seq < log_start.seq:
        return scan.snapshot()  # what followed was pruned
    async for seq, changes in scan.following_changes():
        if checkpoint_key(ns) in list_touched_entries(changes):
            break
        scan.step(seq, changes)
    return scan.snapshot()


def list_touched_entries(changes: Changes) -> set[str]:
    """Return the keys of checkpoint entries that an event sets or deletes."""
    found = {key for space, key, _ in changes["set"] if space == CHECKPOINTS}
    return found | {key for space, key in changes["delete"] if space == CHECKPOINTS}


# ---------------------------------------------------------------------------- some checkpoints


class CheckpointScan:
    """Collects the checkpoints of a thread in one pass over its log, from a position on.

    ``segment`` is the one that contains the position, if there is one.
    """

    def __init__(
        self, timeline: Timeline, store: Store, start: Position, segment: Segment | None = None
    ) -> None:
        self._timeline = timeline
        self._store = store
        self._start = start
        self._segment = segment
        self.current: dict[str, str] = {}
        """The ids of the current checkpoints by the key of their entry."""
        self.since: dict[tuple[str, str], int] = {}
        """The events that first made checkpoints current, by namespace and id."""
        self.found: dict[tuple[str, str], Snapshot] = {}
        """The states of the checkpoints that were replaced, by namespace and id."""
        for key in store.keys(CHECKPOINTS):
            self._set_current(start.seq, key, store.get(CHECKPOINTS, key))

    async def following_changes(self, page: int = FIRST_PAGE) -> AsyncIterator[tuple[int, Changes]]:
        """Yield the changes of each event after the position, read in pages that grow."""
        end, segment = self._start, self._segment
        if segment is not None and segment.last > end.seq:
            for seq, changes in enumerate(segment.changes(), segment.first):
                if seq > end.seq:
                    yield seq, changes
            end = Position(segment.last, segment.hash)
        while True:
            before = end
            async for segment in self._timeline.log.segments(end, end.seq + page):
                for seq, changes in enumerate(segment.changes(), segment.first):
                    yield seq, changes
                end = Position(segment.last, segment.hash)
            if end == before:
                return
            page *= 2

    def step(self, seq: int, changes: Changes) -> None:
        """Process the changes of one event."""
        self._save_states([key for key in list_touched_entries(changes) if key in self.current])
        fold_changes(self._store, [changes], self._timeline.contents)
        for space, key in changes["delete"]:
            if space == CHECKPOINTS:
                self.current.pop(key, None)
        for space, key, value in changes["set"]:
            if space == CHECKPOINTS:
                self._set_current(seq, key, value)

    def _set_current(self, seq: int, key: str, entry: object) -> None:
        """Note that a checkpoint became current."""
        if key.startswith(CHECKPOINT_PREFIX):
            id_ = self.current[key] = get_entry_id(entry)
            self.since.setdefault((key.removeprefix(CHECKPOINT_PREFIX), id_), seq)

    def _save_states(self, keys: Iterable[str]) -> None:
        """Save the state of checkpoints before they are replaced."""
        state = None
        for key in keys:
            state = state or self._store.snapshot()
            self.found[key.removeprefix(CHECKPOINT_PREFIX), self.current[key]] = state

    def snapshot(self) -> Snapshot:
        """Return the state as far as the log was read."""
        return self._store.snapshot()

    def finish(self) -> None:
        """Save the states of the checkpoints that were not replaced."""
        self._save_states(self.current)


async def load_scan(thread: Thread, info: SnapshotInfo) -> CheckpointScan:
    """Return a scan that starts at a snapshot."""
    timeline = Timeline(thread.state_store, thread.location.prefix, info.incarnation)
    loaded = await timeline.load(info.seq, near=info.keyframe)
    if loaded.end.hash != info.hash:
        raise IntegrityError(
            f"snapshot {info.snapshot_id} of thread {thread.location.session_id} does not match "
            f"event {info.seq} of the log; restore the session from a backup"
        )
    segment = loaded.segments[-1] if loaded.segments else None
    return CheckpointScan(timeline, loaded.store, loaded.end, segment)


async def scan_checkpoints(thread: Thread, ns: str | None = None) -> list[StoredCheckpoint]:
    """Return all checkpoints of a thread, or of one graph in it, newest first."""
    committer = await thread.head()
    now, log_start = committer.working.base, committer.tail.log_start
    store = Store(max_history=0)
    if log_start.seq:
        store = (await committer.timeline.load(log_start.seq)).store
    with damage_reported(thread):
        scan = CheckpointScan(committer.timeline, store, log_start)
        # A deleted checkpoint stays deleted if the state is restored to an earlier one.
        deleted = set(store.keys(DELETED))
        async for seq, changes in scan.following_changes(PAGE_SIZE):
            scan.step(seq, changes)
            deleted.update(key for space, key, _ in changes["set"] if space == DELETED)
        scan.finish()
    found = [
        StoredCheckpoint(
            *names, state, await thread.find_late_writes(now, *names), scan.since[names]
        )
        for names, state in scan.found.items()
        if ns in (None, names[0]) and "|".join(names) not in deleted
    ]
    return sorted(found, key=lambda each: each.id, reverse=True)


async def list_newest(
    thread: Thread, ns: str | None, before: str | None, limit: int
) -> list[StoredCheckpoint]:
    """Return the newest checkpoints of a thread, or of one graph in it, newest first.

    ``before`` is the id of a checkpoint that is newer than all of them.
    """
    committer = await thread.head()
    infos = await find_newest_records(thread, committer, ns, before, limit)
    with damage_reported(thread):
        found = [] if infos is None else await load_recorded(thread, committer, infos)
    if len(found) < limit:
        # There may be others without a record: forked, or imported without snapshots.
        everything = await scan_checkpoints(thread, ns)
        found = [each for each in everything if before is None or each.id < before]
    return sorted(found, key=lambda each: each.id, reverse=True)[:limit]


async def find_newest_records(
    thread: Thread, committer: Committer, ns: str | None, before: str | None, limit: int
) -> list[SnapshotInfo] | None:
    """Return the records of the newest checkpoints, or None if they do not show the order."""
    end = None if before is None else snapshot_id_for(before)
    if end is not None and not is_uuid7(end):
        return None
    found: list[SnapshotInfo] = []
    keys: list[str] = []

    async def read() -> None:
        entries = await thread.state_store.get_many(keys)
        for key, entry in entries.items():
            info = decode_record(key, entry.value, thread.location)
            if (
                info.incarnation == committer.incarnation.id
                and info.seq >= committer.tail.log_start.seq
                and ns in (None, info.tags.get("subgraph", ""))
            ):
                found.append(info)
        keys.clear()

    async for each in iterate_newest_first(thread.state_store, thread.location):
        if each.stamp is not None or not is_uuid7(each.snapshot_id):
            return None
        if end is None or each.snapshot_id < end:
            keys.append(each.key)
            if len(keys) >= limit - len(found):
                await read()
                if len(found) >= limit:
                    break
    return found


async def load_recorded(
    thread: Thread, committer: Committer, infos: Sequence[SnapshotInfo]
) -> list[StoredCheckpoint]:
    """Return the checkpoints of some snapshots; those that are not checkpoints are left out."""
    now = committer.working.base
    states = dict(thread.replaced)
    states.update(dict.fromkeys(list_current_ids(now).items(), now))
    known = {snapshot_id_for(id_) for _, id_ in states}
    missing = [info for info in infos if info.snapshot_id not in known]
    if missing:
        scan = await load_scan(thread, min(missing, key=lambda info: info.seq))
        wanted, last = {info.snapshot_id for info in missing}, max(info.seq for info in missing)
        async for seq, changes in scan.following_changes():
            scan.step(seq, changes)
            if seq > last and wanted <= {snapshot_id_for(id_) for _, id_ in scan.found}:
                break
        states = {**scan.found, **states}
    wanted = {info.snapshot_id for info in infos}
    return [
        StoredCheckpoint(
            *names,
            state,
            await thread.find_late_writes(now, *names),
            copies=thread.copies if state is now else {},
        )
        for names, state in states.items()
        if snapshot_id_for(names[1]) in wanted and not now.contains(DELETED, "|".join(names))
    ]


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
                seeds[name] = load_seed(codec, here, name)
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
            seeds[name] = load_seed(codec, found, name)


def load_seed(codec: Codec, found: StoredCheckpoint, name: str) -> Any:
    """Return the last full value of a channel."""
    entries = list_value_entries(found.state, found.ns, name)
    values = codec.decode_all(list(entries.values()))
    return values[0] if (values_space(found.ns, name), name) in entries else values
