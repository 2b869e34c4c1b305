"""How a task is laid out in the state of its session, and what a new version of it changes.

    messages                      the history, one entry per message
    state/task/status             state, time and message of the status
    state/task/context_id
    state/task/metadata
    state/artifacts/<n>           an artifact without its parts
    state/artifacts/<n>/<m>       a part; a chunk that is appended is one new entry
    session/status                the status, in Holdfast's words
    a2a/task                      the position of the last save
    a2a/rest                      fields of a newer protocol, as bytes

All entries hold the protocol's JSON. A save is one commit; its last event has the type
``a2a.<kind>``, such as ``a2a.status_update``, and the A2A event as its data.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from a2a.types.a2a_pb2 import Artifact, Message, Part, Task, TaskState, TaskStatus
from google.protobuf.struct_pb2 import Struct
from google.protobuf.unknown_fields import UnknownFieldSet

from holdfast.adapters.a2a.codec import damaged_entry_error, decode_message, encode_message
from holdfast.log.segment import Segment
from holdfast.sessions.run_status import CANCELLED, COMPLETED, FAILED, RUNNING, WAITING
from holdfast.snapshots.session_state import MESSAGES, PENDING, STATE
from holdfast.state.diff import Pair
from holdfast.state.snapshot import Snapshot

A2A = "a2a"
SAVED = "task"
REST = "rest"
TASK_STATUS = "task/status"
CONTEXT_ID = "task/context_id"
METADATA = "task/metadata"
ARTIFACT_KEY = re.compile(r"artifacts/([0-9]{6})(?:/([0-9]{9}))?")
EVENT_PREFIX = "a2a."
FIELDS = ("id", "context_id", "status", "artifacts", "history", "metadata")

RUN_STATUSES = {
    TaskState.TASK_STATE_SUBMITTED: PENDING,
    TaskState.TASK_STATE_WORKING: RUNNING,
    TaskState.TASK_STATE_COMPLETED: COMPLETED,
    TaskState.TASK_STATE_FAILED: FAILED,
    TaskState.TASK_STATE_CANCELED: CANCELLED,
    TaskState.TASK_STATE_INPUT_REQUIRED: WAITING,
    TaskState.TASK_STATE_REJECTED: FAILED,
    TaskState.TASK_STATE_AUTH_REQUIRED: WAITING,
}
TERMINAL_STATES = frozenset(
    {
        TaskState.TASK_STATE_COMPLETED,
        TaskState.TASK_STATE_CANCELED,
        TaskState.TASK_STATE_FAILED,
        TaskState.TASK_STATE_REJECTED,
    }
)


@dataclass(slots=True)
class TaskChanges:
    """What a new version of a task changes in the state of its session."""

    removed: list[str] = field(default_factory=list)
    """The keys of messages to remove."""
    added: list[dict[str, Any]] = field(default_factory=list)
    """Messages to append."""
    set: list[tuple[str, str, Any]] = field(default_factory=list)
    """Other entries to set."""
    delete: list[Pair] = field(default_factory=list)
    """Other entries to delete."""

    def put(self, key: str, old: object, new: object) -> None:
        """Set a value of the task, or delete it if it is None, unless it is as before."""
        if new == old:
            return
        if new is None:
            self.delete.append((STATE, key))
        else:
            self.set.append((STATE, key, new))


# -------------------------------------------------------------------------------------- reading


def has_task(state: Snapshot) -> bool:
    """Tell whether a session holds a task."""
    return state.get(A2A, SAVED) is not None


def read_task(state: Snapshot, task_id: str) -> Task:
    """Return the task of a session.

    Raises:
        IntegrityError: An entry is not what a save writes.

    """
    task = Task()
    rest = state.get(A2A, REST)
    if rest is not None:
        if not isinstance(rest, bytes):
            raise damaged_entry_error(f"{A2A}/{REST}", f"it must be bytes, got {type(rest)}")
        task = decode_message(Task, {"_protobuf": rest}, f"{A2A}/{REST}")
    task.id = task_id
    for _, key, value in state.items(MESSAGES):
        task.history.append(decode_message(Message, value, f"message {key}"))
    for _, key, value in sorted(state.items(STATE), key=lambda row: row[1]):
        read_value(task, key, value)
    return task


def advance_task(old: Task, before: Snapshot, state: Snapshot) -> Task | None:
    """Return the task of a session whose state was ``before`` when its task was ``old``.

    It reads only what changed. None if more changed than a run adds: read it all then.

    Raises:
        IntegrityError: An entry is not what a save writes.

    """
    changes = state.changes(before)
    if any(is_task_entry(space, key) for space, key in changes["delete"]):
        return None
    values = sorted((key, value) for space, key, value in changes["set"] if space == STATE)
    messages = sorted((key, value) for space, key, value in changes["set"] if space == MESSAGES)
    if messages:
        last = max((key for space, key in before.keys if space == MESSAGES), default="")
        if messages[0][0] <= last:
            return None  # not appended
    if any((space, key) == (A2A, REST) for space, key, _ in changes["set"]):
        return None
    task = Task()
    task.CopyFrom(old)
    for key, value in messages:
        task.history.append(decode_message(Message, value, f"message {key}"))
    for key, value in values:
        read_value(task, key, value)
    return task


def read_value(task: Task, key: str, value: object) -> None:
    """Set what an entry of the state holds of a task; other values are none of its business."""
    if key == TASK_STATUS:
        task.status.CopyFrom(decode_message(TaskStatus, value, key))
    elif key == METADATA:
        task.metadata.CopyFrom(decode_message(Struct, value, key))
    elif key == CONTEXT_ID:
        if not isinstance(value, str):
            raise damaged_entry_error(key, f"it must be a str, got {type(value)}")
        task.context_id = value
    elif found := ARTIFACT_KEY.fullmatch(key):
        read_artifact_entry(task, key, value, int(found[1]), found[2])


def read_artifact_entry(task: Task, key: str, value: object, number: int, part: str | None) -> None:
    """Add or replace an artifact without its parts, or one part."""
    if number > len(task.artifacts) - (part is not None):
        raise damaged_entry_error(key, "the entry before it is missing")
    if number == len(task.artifacts):
        task.artifacts.add()
    artifact = task.artifacts[number]
    if part is None:
        parts = list(artifact.parts)
        artifact.CopyFrom(decode_message(Artifact, value, key))
        artifact.parts.extend(parts)
        return
    index = int(part)
    if index > len(artifact.parts):
        raise damaged_entry_error(key, "the entry before it is missing")
    if index == len(artifact.parts):
        artifact.parts.add()
    artifact.parts[index].CopyFrom(decode_message(Part, value, key))


def touches_task(segment: Segment) -> bool:
    """Tell whether a commit changed the task, and not only values beside it."""
    return any(
        is_task_entry(space, key)
        for changes in segment.changes()
        for space, key in [*((space, key) for space, key, _ in changes["set"]), *changes["delete"]]
    )


def is_task_entry(space: str, key: str) -> bool:
    """Tell whether an entry belongs to the task."""
    if space == STATE:
        return key in (TASK_STATUS, CONTEXT_ID, METADATA) or bool(ARTIFACT_KEY.fullmatch(key))
    return space in (A2A, MESSAGES)


# -------------------------------------------------------------------------------------- writing


def compute_changes(old: Task, new: Task, message_keys: Sequence[str]) -> TaskChanges:
    """Return what changes between two versions of a task; only what differs is encoded.

    ``message_keys`` are the keys of the old history.
    """
    changes = TaskChanges()
    same = count_equal(old.history, new.history)
    changes.removed = list(message_keys[same:])
    changes.added = [encode_message(each) for each in new.history[same:]]
    changes.put(CONTEXT_ID, old.context_id or None, new.context_id or None)
    for name, key in (("status", TASK_STATUS), ("metadata", METADATA)):
        before = getattr(old, name) if old.HasField(name) else None
        after = getattr(new, name) if new.HasField(name) else None
        if before != after and after is not None:
            changes.set.append((STATE, key, encode_message(after)))
        elif before != after:
            changes.delete.append((STATE, key))
    for number in range(max(len(old.artifacts), len(new.artifacts))):
        before = old.artifacts[number] if number < len(old.artifacts) else None
        after = new.artifacts[number] if number < len(new.artifacts) else None
        if before != after:
            compare_artifacts(changes, number, before, after)
    before_rest, after_rest = encode_rest(old), encode_rest(new)
    if before_rest != after_rest:
        if after_rest:
            changes.set.append((A2A, REST, after_rest))
        else:
            changes.delete.append((A2A, REST))
    return changes


def compare_artifacts(
    changes: TaskChanges, number: int, old: Artifact | None, new: Artifact | None
) -> None:
    """Add what changes in an artifact."""
    key = f"artifacts/{number:06}"
    before, after = encode_header(old), encode_header(new)
    changes.put(key, before, after)
    old_parts: Sequence[Part] = old.parts if old else ()
    new_parts: Sequence[Part] = new.parts if new else ()
    for index in range(count_equal(old_parts, new_parts), max(len(old_parts), len(new_parts))):
        name = f"{key}/{index:09}"
        if index >= len(new_parts):
            changes.delete.append((STATE, name))
        elif index >= len(old_parts) or old_parts[index] != new_parts[index]:
            changes.set.append((STATE, name, encode_message(new_parts[index])))


def encode_header(artifact: Artifact | None) -> dict[str, Any] | None:
    """Return an artifact without its parts."""
    if artifact is None:
        return None
    header = Artifact()
    header.CopyFrom(artifact)
    header.ClearField("parts")
    return encode_message(header)


def encode_rest(task: Task) -> bytes:
    """Return the fields of a task that this version of the protocol does not have."""
    if not len(UnknownFieldSet(task)):
        return b""
    rest = Task()
    rest.CopyFrom(task)
    for name in FIELDS:
        rest.ClearField(name)
    return bytes(rest.SerializeToString(deterministic=True))


def count_equal(old: Sequence[object], new: Sequence[object]) -> int:
    """Return how many items at the start of two sequences are equal."""
    count = 0
    for before, after in zip(old, new, strict=False):
        if before != after:
            break
        count += 1
    return count
