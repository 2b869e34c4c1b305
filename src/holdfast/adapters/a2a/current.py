"""The task of a session at its last commit, and its version.

The version is the position in the session's log after the last commit that changed the task. So it
only grows, also when the session is restored to an earlier state, and values that are written
beside the task do not change it. A subscriber knows from it where to continue in the log.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from a2a.server.cluster.version import TaskVersion
from a2a.types.a2a_pb2 import Task, TaskState

from holdfast.adapters.a2a.codec import damaged_entry_error
from holdfast.adapters.a2a.ids import parse_session_id
from holdfast.adapters.a2a.layout import (
    A2A,
    SAVED,
    TERMINAL_STATES,
    advance_task,
    has_task,
    read_task,
    touches_task,
)
from holdfast.process_fork import ForkSafeLock
from holdfast.sessions.session import Session
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.state.snapshot import Snapshot

MAX_TASKS = 64


class LogVersion(TaskVersion):
    """A version that names the log it is a position of: that of a deleted task is stale."""

    __slots__ = ("log_id",)

    def __init__(self, seq: int, log_id: str) -> None:
        super().__init__(seq)
        self.log_id = log_id


@dataclass(frozen=True, slots=True)
class CurrentTask:
    """A task and its version. The task is shared and must not be changed."""

    task: Task
    version: int


@dataclass(frozen=True, slots=True)
class KnownTask:
    """A task as it was at a position of its session, and the state there."""

    log_id: str
    seq: int
    state: Snapshot
    current: CurrentTask


class TaskCache:
    """Tasks in memory, each as it was at a position of its session."""

    def __init__(self) -> None:
        self._guard = ForkSafeLock("the tasks of an adapter", wait_on_fork=False)
        self._tasks: OrderedDict[SnapshotLocation, KnownTask] = OrderedDict()

    def load(self, session: Session) -> CurrentTask | None:
        """Return the task of a session as it is in memory, or None if it holds none.

        Raises:
            IntegrityError: An entry of the task is damaged.

        """
        state = session.snapshot()
        name = parse_session_id(session.session_id)
        if name is None or not has_task(state):
            return None
        with self._guard:
            known = self._tasks.get(session.location)
        task = None
        if known is not None and known.log_id == session.committer.incarnation.id:
            if known.seq == session.committer.working.head.seq:
                return known.current
            task = advance_task(known.current.task, known.state, state)
        if task is None:
            task = read_task(state, name.task_id)
        return self.keep(session, CurrentTask(task, find_version(session)))

    def keep(self, session: Session, current: CurrentTask) -> CurrentTask:
        """Remember the task of a session at its last commit; return it."""
        committer = session.committer
        known = KnownTask(
            committer.incarnation.id, committer.working.head.seq, session.snapshot(), current
        )
        with self._guard:
            self._tasks[session.location] = known
            self._tasks.move_to_end(session.location)
            while len(self._tasks) > MAX_TASKS:
                self._tasks.popitem(last=False)
        return current


def find_version(session: Session) -> int:
    """Return the position after the last commit that changed the task of a session.

    Commits that are not in memory any more are taken to have changed it.
    """
    committer = session.committer
    saved = session.snapshot().get(A2A, SAVED)
    if not isinstance(saved, dict) or not isinstance(seq := saved.get("seq"), int):
        raise damaged_entry_error(f"{A2A}/{SAVED}", "it has no position")
    # In a fork or a copy, the position is one in the log of another session.
    version = seq if saved.get("log") == committer.incarnation.id else 0
    if version == committer.working.head.seq:
        return version
    version = max(version, committer.tail.after.seq)
    for segment in reversed(committer.tail.segments):
        if segment.last <= version:
            break
        if touches_task(segment):
            return segment.last
    return version


def is_stale(
    current: CurrentTask | None, head: LogVersion, task: Task, prev_version: TaskVersion
) -> bool:
    """Tell whether a save must be refused, by the rules of ``VersionedTaskStore.save``.

    A cancellation needs no version: it replaces any task that has not ended.
    """
    if task.status.state == TaskState.TASK_STATE_CANCELED:
        return current is None or current.task.status.state in TERMINAL_STATES
    if prev_version.is_missing:
        return current is not None
    if isinstance(prev_version, LogVersion) and prev_version.log_id != head.log_id:
        return True
    return current is None or not current.version <= read_seq(prev_version) <= read_seq(head)


def read_seq(version: TaskVersion) -> int:
    """Return the position that a version stands for.

    Raises:
        TypeError: It is the version of another kind of store.

    """
    value = version._value  # as the SDK's own stores do
    if not isinstance(value, int):
        raise TypeError(f"version must be one of this task store, got {version!r}")
    return value
