"""Roll threads back to a time: the checkpoint that was current then becomes current again.

The time of a checkpoint is its ``ts``, which LangGraph shows; that of any other event is when it
was recorded. The state of the session becomes what it was: the checkpoints of the graph and its
subgraphs, and the writes of tasks by then. Nothing is removed: the rollback is appended as an
event, and later checkpoints stay in the history.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from holdfast.adapters.langgraph.codec import Codec
from holdfast.adapters.langgraph.history import list_touched_entries
from holdfast.adapters.langgraph.layout import (
    CHECKPOINT_EVENT,
    CHECKPOINTS,
    DELETED,
    LATE,
    STATUSES,
    WRITES_EVENT,
    checkpoint_key,
    list_current_ids,
    snapshot_id_for,
    writes_space,
)
from holdfast.adapters.langgraph.thread import Thread
from holdfast.adapters.langgraph.writes import write_from_dict
from holdfast.errors import HoldfastError, short_repr
from holdfast.log.changes import fold_changes
from holdfast.log.event import Event
from holdfast.sessions.commit import Committer
from holdfast.sessions.restore import compute_restore_changes
from holdfast.snapshots.session_state import SESSION, STATUS
from holdfast.state.diff import Changes
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store
from holdfast.values.references import restore_value

RESTORED_EVENT = "state.restored"
END_OF_TIME = dt.datetime.max.replace(tzinfo=dt.UTC)
NO_CONTENTS: Mapping[str, bytes] = {}

Outcome: TypeAlias = Literal[
    "rolled_back", "unchanged", "started_later", "pruned", "not_found", "failed"
]


@dataclass(frozen=True, slots=True)
class ThreadRollback:
    """The result of a rollback for one thread.

    ``outcome`` is ``rolled_back``; ``unchanged`` if the thread has not changed since then;
    ``started_later``; ``pruned`` if its state at that time is no longer stored; ``not_found``; or
    ``failed``, with the ``error``. Only ``rolled_back`` changes the thread.
    """

    thread_id: str
    outcome: Outcome
    checkpoint_id: str | None = None
    """The current checkpoint after the rollback."""
    previous_checkpoint_id: str | None = None
    """The current checkpoint before it."""
    error: HoldfastError | None = None


def parse_time(time: object, name: str = "to") -> dt.datetime:
    """Return a time given as a datetime or ISO 8601 text; ``name`` is that of the argument.

    Raises:
        TypeError: It is neither.
        ValueError: It is not a valid time, or has no time zone.

    """
    try:
        parsed = dt.datetime.fromisoformat(time) if isinstance(time, str) else time
    except ValueError:
        raise ValueError(
            f"{name} must be an ISO 8601 time such as 2026-11-16T12:00:00Z, got {short_repr(time)}"
        ) from None
    if not isinstance(parsed, dt.datetime):
        raise TypeError(f"{name} must be a datetime or its ISO 8601 text, got {short_repr(time)}")
    if parsed.tzinfo is None:
        raise ValueError(
            f"{name} must have a time zone, got {short_repr(time)}; add tzinfo=datetime.UTC"
        )
    return parsed


async def rollback_thread(thread: Thread, codec: Codec, to: dt.datetime) -> ThreadRollback:
    """Roll one thread back; its errors are part of the result."""
    thread_id = thread.location.session_id
    try:
        async with thread.lock:
            return await rollback_locked_thread(thread, codec, to)
    except HoldfastError as error:
        return ThreadRollback(thread_id, "failed", error=error)


async def rollback_locked_thread(thread: Thread, codec: Codec, to: dt.datetime) -> ThreadRollback:
    """Roll one thread back. The caller must hold its lock."""
    thread_id = thread.location.session_id
    now = await thread.state()
    here = list_current_ids(now)
    if not here:
        return ThreadRollback(thread_id, "not_found")
    state = await find_state_at(thread, codec, to)
    if isinstance(state, str):
        return ThreadRollback(thread_id, state, here.get(""), here.get(""))
    there = list_current_ids(state)
    data = {"snapshot_id": None, "checkpoint_id": there.get(""), "to": to.isoformat()}
    if "" in there:
        data["snapshot_id"] = snapshot_id_for(there[""])
    outcome: Outcome = "unchanged"

    async def record(committer: Committer) -> None:
        nonlocal outcome
        changes = changes_to_restore(state, there, committer.working.store)
        if changes["set"] or changes["delete"]:
            committer.working.record_owned(RESTORED_EVENT, data, changes)
            outcome = "rolled_back"

    await thread.append(record)
    return ThreadRollback(thread_id, outcome, there.get(""), here.get(""))


async def find_state_at(
    thread: Thread, codec: Codec, to: dt.datetime
) -> Snapshot | Literal["started_later", "pruned"]:
    """Return the last state up to a time whose checkpoints still exist, or the reason for none."""
    committer = await thread.head()
    deleted = {key for _, key, _ in committer.working.base.items(DELETED)}
    log_start = committer.tail.log_start
    contents = committer.timeline.contents
    store = Store(max_history=0)
    best: Snapshot | None = None
    if log_start.seq:
        store = (await committer.timeline.load(log_start.seq)).store
        if all(
            get_checkpoint_time(codec, value) <= to
            for _, _, value in store.snapshot().items(CHECKPOINTS)
        ):
            best = snapshot_unless_deleted(store, deleted)
    is_open = best is not None
    early: dict[str, list[Event]] = {}
    async for event in committer.timeline.log.read(log_start.seq + 1, after=log_start):
        if event.type == WRITES_EVENT and "writes" in event.data:
            early.setdefault(get_target(event), []).append(event)
        if list_touched_entries(event.changes):
            if get_event_time(codec, event, contents) > to:
                break
            writes = early.pop(get_target(event), []) if event.type == CHECKPOINT_EVENT else []
            fold_changes(store, [changes_until(to, event, writes)], contents)
            found = snapshot_unless_deleted(store, deleted)
            is_open, best = found is not None, found or best
        else:
            # Writes of tasks; they may be later than the checkpoint they were committed with.
            fold_changes(store, [event.changes], contents)
            is_open = is_open and event.at <= to
            best = store.snapshot() if is_open else best
    return best or ("pruned" if log_start.seq else "started_later")


def snapshot_unless_deleted(store: Store, deleted: set[str]) -> Snapshot | None:
    """Return the state, or None if it has no checkpoints or one was deleted since."""
    state = store.snapshot()
    current = list_current_ids(state)
    if not current or any(f"{ns}|{id_}" in deleted for ns, id_ in current.items()):
        return None
    return state


def get_target(event: Event) -> str:
    """Return the checkpoint that an event puts or writes to."""
    return f"{event.data['ns']}|{event.data['checkpoint_id']}"


def changes_until(to: dt.datetime, event: Event, writes: Sequence[Event]) -> Changes:
    """Return the changes of an event, without writes to its checkpoint after a time.

    ``writes`` are the events that stored writes before the checkpoint itself, which LangGraph puts
    in the background. They became part of the state with it, though they are newer than its ``ts``.
    """
    if all(each.at <= to for each in writes):
        return event.changes
    ns = event.data["ns"]
    space = writes_space(ns)
    kept: dict[tuple[str, str], Any] = {
        (name, key): value for name, key, value in event.changes["set"] if name != space
    }
    if (SESSION, STATUS) in kept:
        kept[SESSION, STATUS] = "running"
    for written in writes:
        for data in written.data["writes"] if written.at <= to else ():
            write = write_from_dict(data)
            if write.index < 0 or (space, write.key) not in kept:
                kept[space, write.key] = data
            if write.channel in STATUSES and not ns:
                kept[SESSION, STATUS] = STATUSES[write.channel]
    return {
        "set": [(name, key, value) for (name, key), value in kept.items()],
        "delete": event.changes["delete"],
    }


def get_event_time(codec: Codec, event: Event, contents: Mapping[str, bytes]) -> dt.datetime:
    """Return the time of an event that makes a checkpoint current."""
    if event.type == CHECKPOINT_EVENT:
        key = checkpoint_key(event.data["ns"])
        for space, name, value in event.changes["set"]:
            if (space, name) == (CHECKPOINTS, key):
                return get_checkpoint_time(codec, value, event.at, contents)
    return event.at


def get_checkpoint_time(
    codec: Codec,
    entry: Any,
    otherwise: dt.datetime = END_OF_TIME,
    contents: Mapping[str, bytes] = NO_CONTENTS,
) -> dt.datetime:
    """Return the ``ts`` of a checkpoint, or another time if it has none."""
    try:
        stored = restore_value(entry["checkpoint"], contents)
        time = dt.datetime.fromisoformat(codec.decode(stored)["ts"])
    except (KeyError, TypeError, ValueError):
        return otherwise
    return time if time.tzinfo else time.replace(tzinfo=dt.UTC)


def changes_to_restore(state: Snapshot, current: dict[str, str], store: Store) -> Changes:
    """Return the changes back to a state; deletions and writes to other checkpoints are kept."""
    own = {f"{ns}|{id_}" for ns, id_ in current.items()}
    changes = compute_restore_changes(state, store)

    def is_kept(space: str, key: str) -> bool:
        return space == DELETED or (space == LATE and key not in own)

    return {
        "set": [each for each in changes["set"] if not is_kept(each[0], each[1])],
        "delete": [pair for pair in changes["delete"] if not is_kept(*pair)],
    }
