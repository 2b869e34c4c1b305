"""Checkpoints of a thread as LangGraph wants them, from the state or by walking through the log.

A checkpoint is current from the event that puts its entry into the state until the next one does,
be that a put, a restore or a fork. The state just before that has it with all that tasks wrote
after it.
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

from holdfast.adapters.langgraph.checkpoint_entry import entry_of
from holdfast.adapters.langgraph.codec import Codec
from holdfast.adapters.langgraph.deltas import (
    SEEDS,
    Base,
    has,
    ordered,
    whole,
    writes_to,
)
from holdfast.adapters.langgraph.keys import (
    CHECKPOINT,
    DELETED,
    LATE,
    META,
    checkpoint_key,
    items_space,
    snapshot_id,
    values_space,
    writes_space,
)
from holdfast.adapters.langgraph.thread import WROTE, Thread
from holdfast.adapters.langgraph.writes import Write, write_of
from holdfast.errors import IntegrityError, InvalidDocumentError, shown
from holdfast.log.changes import fold
from holdfast.log.event import Event
from holdfast.log.timeline import Timeline
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.state.diff import Changes
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store


@dataclass(frozen=True, slots=True)
class Found:
    """A checkpoint, in the last state in which it was the current one."""

    ns: str
    id: str
    state: Snapshot
    late: tuple[Write, ...] = ()
    since: int = 0
    """The event that made it the current one for the first time; known after a walk."""

    @property
    def meta(self) -> Mapping[str, Any]:
        """What LangGraph keeps beside the values."""
        found: Mapping[str, Any] = self.state.get(META, checkpoint_key(self.ns))
        return found


def config_of(thread_id: str, ns: str, id_: str) -> RunnableConfig:
    """How LangGraph names a checkpoint."""
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ns, "checkpoint_id": id_}}


def tuple_of(codec: Codec, thread: Thread, found: Found) -> CheckpointTuple:
    """A checkpoint as LangGraph wants it."""
    meta, ns = found.meta, found.ns
    thread_id = thread.location.session_id
    try:
        values = {name: value_of(codec, found, name) for name in meta["values"]}
        for name in meta["lists"]:
            values[name] = value_of(codec, found, name)
        checkpoint = {
            **codec.decoded(meta["checkpoint"]),
            "id": found.id,
            "channel_values": values,
            "channel_versions": meta["versions"],
        }
        parent = meta["parent"]
        return CheckpointTuple(
            config_of(thread_id, ns, found.id),
            cast("Checkpoint", checkpoint),
            cast("CheckpointMetadata", codec.decoded(meta["metadata"])),
            None if parent is None else config_of(thread_id, ns, parent),
            pending(codec, found),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise damaged(thread_id, found.id, repr(error)) from error
    except InvalidDocumentError as error:
        raise damaged(thread_id, found.id, str(error)) from error


def metadata_of(codec: Codec, thread: Thread, found: Found) -> dict[str, Any]:
    """The metadata of a checkpoint."""
    try:
        metadata: dict[str, Any] = codec.decoded(found.meta["metadata"])
    except (KeyError, TypeError, InvalidDocumentError) as error:
        raise damaged(thread.location.session_id, found.id, repr(error)) from error
    return metadata


def damaged(thread_id: str, id_: str | None, problem: str) -> IntegrityError:
    """What whoever asks for a checkpoint gets to see."""
    what = "a checkpoint" if id_ is None else f"the checkpoint {id_}"
    return IntegrityError(
        f"{what} of the thread {thread_id} is not as it should be: {problem}. "
        f"Go back to another one, or restore the session {thread_id} from a backup"
    )


def value_of(codec: Codec, found: Found, name: str) -> Any:
    """The value of a channel at a checkpoint."""
    if name in found.meta["lists"]:
        return codec.decoded_all(found.state.values(items_space(found.ns, name)))
    return codec.decoded(found.state.get(values_space(found.ns, name), name))


def pending(codec: Codec, found: Found) -> list[PendingWrite]:
    """What tasks wrote after a checkpoint, in the order in which LangGraph applies it."""
    return [shown_write(codec, each) for each in writes_after(found)]


def shown_write(codec: Codec, write: Write) -> PendingWrite:
    """A write as LangGraph wants it."""
    return write.task_id, write.channel, codec.decoded(write.value)


def writes_after(found: Found) -> list[Write]:
    """What tasks wrote after a checkpoint, as it is kept."""
    kept = [write_of(data) for data in found.state.values(writes_space(found.ns))]
    known = {each.key: each for each in kept}
    for each in found.late:
        # What a task wrote to a channel stays; errors, interrupts and answers are replaced.
        if each.index < 0 or each.key not in known:
            known[each.key] = each
    return ordered(list(known.values()))


# ------------------------------------------------------------------------------------ finding one


async def current(thread: Thread, ns: str) -> Found | None:
    """The checkpoint that a thread stands at."""
    state = await thread.state()
    meta = state.get(META, checkpoint_key(ns), None)
    if meta is None:
        return None
    try:
        id_ = id_of(meta)
    except TypeError as error:
        raise damaged(thread.location.session_id, None, str(error)) from error
    return Found(ns, id_, state, await late_of(thread, ns, id_))


def id_of(meta: object) -> str:
    """The id of a checkpoint; TypeError where what is kept of it is damaged."""
    found = meta.get("id") if isinstance(meta, dict) else None
    if not isinstance(found, str):
        raise TypeError(f"it has no id: {shown(meta)}")
    return found


async def one(thread: Thread, ns: str, id_: str) -> Found | None:
    """A checkpoint by its id."""
    found = await current(thread, ns)
    if found is not None and found.id == id_:
        return found
    if (await thread.state()).contains(DELETED, f"{ns}|{id_}"):
        return None
    state = await by_record(thread, ns, id_)
    if state is None:
        # One that was imported or forked has no record of its own: the log has it.
        return next((each for each in await walked(thread, ns) if each.id == id_), None)
    return Found(ns, id_, state, await late_of(thread, ns, id_))


async def base(thread: Thread, ns: str, id_: str) -> Base | None:
    """A checkpoint that another one follows; None where the thread stands at it anyway."""
    meta = entry_of(await thread.state(), ns)
    if meta is not None and meta["id"] == id_:
        return None
    found = await one(thread, ns, id_)
    return None if found is None else Base(found.state, writes_after(found))


async def late_of(thread: Thread, ns: str, id_: str) -> tuple[Write, ...]:
    """What tasks wrote to a checkpoint when it was not the current one."""
    key = f"{ns}|{id_}"
    seqs = (await thread.state()).get(LATE, key, [])
    return tuple([write for seq in seqs for write in await thread.late_writes(key, seq)])


async def by_record(thread: Thread, ns: str, id_: str) -> Snapshot | None:
    """The last state in which a checkpoint was the current one, found by its snapshot."""
    archive = SnapshotArchive(thread.state_store)
    info = await archive.load_info(location=thread.location, snapshot_id=snapshot_id(id_))
    if info is None:
        return None
    timeline = Timeline(thread.state_store, thread.location.place, info.incarnation)
    loaded = await timeline.load(info.seq, near=info.keyframe)
    if loaded.end.hash != info.hash:
        raise IntegrityError(
            f"the checkpoint {id_} of the thread {thread.location.session_id} was put at another "
            f"event {info.seq} than the log has now: restore the session from a backup"
        )
    store = loaded.store
    meta = entry_of(store, ns)
    if meta is None or meta["id"] != id_:
        return None
    async for event in timeline.events(info.seq + 1):
        if checkpoint_key(ns) in touched(event.changes):
            break
        fold(store, [event.changes])
    return store.snapshot()


def touched(changes: Changes) -> set[str]:
    """The keys of current checkpoints that an event sets or deletes."""
    found = {key for space, key, _ in changes["set"] if space == META}
    return found | {key for space, key in changes["delete"] if space == META}


# ------------------------------------------------------------------------------------ finding all


class Walk:
    """All checkpoints of a thread, by going through its log once."""

    def __init__(self, store: Store, floor: int) -> None:
        self._store = store
        self._current: dict[str, str] = {}
        self._since: dict[tuple[str, str], int] = {}
        self._late: dict[tuple[str, int], list[Write]] = {}
        self._found: dict[tuple[str, str], Snapshot] = {}
        # Once deleted is deleted, also where the state was restored to before that.
        self._deleted = set(store.keys(DELETED))
        for key in store.keys(META):
            self._begin(floor, key, store.get(META, key))

    def step(self, event: Event) -> None:
        """One event."""
        changes, data = event.changes, event.data
        self._keep([key for key in self._current if key in touched(changes)])
        fold(self._store, [changes])
        for space, key in changes["delete"]:
            if space == META:
                self._current.pop(key, None)
        for space, key, value in changes["set"]:
            if space == META:
                self._begin(event.seq, key, value)
            elif space == DELETED:
                self._deleted.add(key)
        if event.type == WROTE and "writes" in data:
            at = f"{data['ns']}|{data['checkpoint_id']}", event.seq
            self._late[at] = [write_of(each) for each in data["writes"]]

    def _begin(self, seq: int, key: str, meta: Mapping[str, Any]) -> None:
        """A checkpoint becomes the current one."""
        if key.startswith(CHECKPOINT):
            id_ = self._current[key] = id_of(meta)
            self._since.setdefault((key.removeprefix(CHECKPOINT), id_), seq)

    def _keep(self, keys: Iterable[str]) -> None:
        """Keep the state of checkpoints that may be the current ones no more."""
        state = None
        for key in keys:
            state = state or self._store.snapshot()
            self._found[key.removeprefix(CHECKPOINT), self._current[key]] = state

    def found(self) -> list[Found]:
        """All that were not deleted."""
        self._keep(self._current)
        return [
            Found(ns, id_, state, self._late_of(f"{ns}|{id_}"), self._since[ns, id_])
            for (ns, id_), state in self._found.items()
            if f"{ns}|{id_}" not in self._deleted
        ]

    def _late_of(self, key: str) -> tuple[Write, ...]:
        seqs = self._store.get(LATE, key, [])
        return tuple(write for seq in seqs for write in self._late.get((key, seq), ()))


async def walked(thread: Thread, ns: str | None = None) -> list[Found]:
    """All checkpoints of a thread, or of one graph of it, the newest first."""
    writer = await thread.head()
    floor = writer.tail.floor
    store = Store(max_history=0)
    if floor.seq:
        store = (await writer.timeline.load(floor.seq)).store
    try:
        walk = Walk(store, floor.seq)
        async for event in thread.events():
            walk.step(event)
        found = [each for each in walk.found() if ns is None or each.ns == ns]
    except (KeyError, TypeError, AttributeError) as error:
        raise damaged(thread.location.session_id, None, str(error)) from error
    return sorted(found, key=lambda each: each.id, reverse=True)


# --------------------------------------------------------------------------------- delta channels


def deltas(
    codec: Codec, found: Mapping[str, Found], target: str | None, channels: Sequence[str]
) -> dict[str, DeltaChannelHistory]:
    """What the ancestors of a checkpoint wrote to channels since the last whole value of each."""
    written: dict[str, list[PendingWrite]] = {name: [] for name in channels}
    seeds: dict[str, Any] = {}
    here = found.get(target or "")
    seen: set[str] = set()
    while here is not None and len(seeds) < len(written):
        parent = here.meta["parent"]
        before = None if parent in seen else found.get(parent or "")
        if before is None:
            if parent is not None:
                from_state(codec, here, written, seeds)
            break
        here = before
        seen.add(here.id)
        for write in reversed(pending(codec, here)):
            if write[1] in written and write[1] not in seeds:
                written[write[1]].append(write)
        for name in written.keys() - seeds.keys():
            if name in has(here.meta):
                seeds[name] = value_of(codec, here, name)
    result: dict[str, DeltaChannelHistory] = {}
    for name, writes in written.items():
        result[name] = {"writes": writes[::-1]}
        if name in seeds:
            result[name]["seed"] = seeds[name]
    return result


def from_state(
    codec: Codec, found: Found, written: dict[str, list[PendingWrite]], seeds: dict[str, Any]
) -> None:
    """Add what a state carries along of ancestors that are not in the log."""
    for name in written.keys() - seeds.keys():
        kept = [write_of(data) for data in writes_to(found.state, found.ns, name)]
        written[name] += [shown_write(codec, each) for each in reversed(kept)]
        if name in found.meta.get(SEEDS, ()):
            entries = whole(found.state, found.ns, name)
            values = [codec.decoded(each) for each in entries.values()]
            space = values_space(found.ns, name)
            seeds[name] = values[0] if (space, name) in entries else values
