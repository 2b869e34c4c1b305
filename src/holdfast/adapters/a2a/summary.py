"""What a list of tasks needs to know of each: context, state and time of the status.

A save writes the summary of its task beside the session, in the same batch. It names the position
that it was made at: if the log has grown since, by a restore or another tool, the summary is made
again from the session. So a list reads a few small entries per task, and only the tasks of its page
in full.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress

import msgspec
from a2a.types.a2a_pb2 import ListTasksRequest, Task
from a2a.utils.errors import InvalidParamsError
from a2a.utils.task import ListTasksCursor, decode_list_tasks_cursor, decode_page_token

from holdfast.adapters.a2a.ids import TaskName, parse_session_id
from holdfast.errors import IntegrityError, InvalidDocumentError
from holdfast.log.event_log import EventLog
from holdfast.process_fork import ForkSafeLock
from holdfast.snapshots.envelope import decode_envelope, encode_envelope
from holdfast.snapshots.keys import SnapshotLocation, agent_index_prefix, parse_index_key
from holdfast.snapshots.manifest import read_manifests
from holdfast.stores.base import StateStore
from holdfast.stores.batch_read import iterate_entries
from holdfast.stores.entries import Entry
from holdfast.stores.local import gather

MAX_SUMMARIES = 20_000
LOADED_AT_ONCE = 16


class TaskSummary(msgspec.Struct, frozen=True):
    """A task in a list, at a position of its session's log."""

    log: str
    """The id of the log, which is another one after the session was deleted and created again."""
    seq: int
    context_id: str = ""
    state: int = 0
    timestamp: int | None = None
    """The time of the status in nanoseconds."""
    is_task: bool = True
    """Whether the session holds a task at all."""

    def sort_key(self, task_id: str) -> tuple[bool, int, str]:
        """Return the place in a list, which is in descending order."""
        return self.timestamp is not None, self.timestamp or 0, task_id


class ListedTask(msgspec.Struct, frozen=True):
    """A task in a list and where it is stored."""

    location: SnapshotLocation
    task_id: str
    summary: TaskSummary

    @property
    def sort_key(self) -> tuple[bool, int, str]:
        """The place in a list, which is in descending order."""
        return self.summary.sort_key(self.task_id)

    @property
    def cursor(self) -> ListTasksCursor:
        """The position after this task, for a page token."""
        return ListTasksCursor(timestamp_ns=self.summary.timestamp, task_id=self.task_id)


def summarize_task(task: Task | None, log_id: str, seq: int) -> TaskSummary:
    """Return the summary of a task, or of a session that holds none."""
    if task is None:
        return TaskSummary(log_id, seq, is_task=False)
    timestamp = None
    if task.HasField("status") and task.status.HasField("timestamp"):
        timestamp = task.status.timestamp.ToNanoseconds()
    return TaskSummary(log_id, seq, task.context_id, task.status.state, timestamp)


def summary_key(location: SnapshotLocation) -> str:
    """Return the key of the summary of a session's task."""
    return f"{location.prefix}a2a/summary.json"


def encode_summary(summary: TaskSummary) -> bytes:
    """Return a summary as it is stored."""
    return encode_envelope(summary)


def decode_summary(key: str, data: bytes) -> TaskSummary | None:
    """Return a stored summary; None if it is damaged, so that it is made again."""
    with suppress(IntegrityError, InvalidDocumentError, msgspec.ValidationError):
        return msgspec.convert(decode_envelope(key, data, "summary"), TaskSummary)
    return None


class TaskIndex:
    """The summaries of the tasks of an agent; those that were read are kept in memory."""

    def __init__(
        self,
        state_store: StateStore,
        agent_id: str,
        load: Callable[[SnapshotLocation], Awaitable[TaskSummary]],
    ) -> None:
        self.state_store = state_store
        self.agent_id = agent_id
        self._load = load
        self._guard = ForkSafeLock("the summaries of an adapter", wait_on_fork=False)
        self._known: OrderedDict[SnapshotLocation, TaskSummary] = OrderedDict()

    async def list_tasks(self, owner: str) -> list[ListedTask]:
        """Return the tasks of an owner, in the order of A2A's lists.

        Raises:
            IntegrityError: A session that has to be read is damaged.
            StateStoreError: The store failed.

        """
        names = await self._find_sessions(owner)
        manifests = await read_manifests(self.state_store, names)
        logs = {location: each.incarnation for location, each in manifests.items()}
        with self._guard:
            known = {each: self._known[each] for each in logs if each in self._known}
        found = await self._select_current(logs, known)
        missing = [each for each in logs if each not in found]
        found |= await self._select_current(logs, await self._read_summaries(missing))
        missing = [each for each in missing if each not in found]
        for start in range(0, len(missing), LOADED_AT_ONCE):
            chunk = missing[start : start + LOADED_AT_ONCE]
            found |= zip(chunk, await gather(map(self._load, chunk)), strict=True)
        self._remember(found)
        listed = [
            ListedTask(location, names[location].task_id, summary)
            for location, summary in found.items()
            if summary.is_task
        ]
        return sorted(listed, key=lambda each: each.sort_key, reverse=True)

    async def _find_sessions(self, owner: str) -> dict[SnapshotLocation, TaskName]:
        """Return the sessions of an owner's tasks, by the keys of the agent's index alone."""
        found: dict[SnapshotLocation, TaskName] = {}
        async for key in self.state_store.list(agent_index_prefix(self.agent_id)):
            parsed = parse_index_key(key)
            name = None if parsed is None else parse_session_id(parsed[0].session_id)
            if parsed is not None and name is not None and name.owner == owner:
                found[parsed[0]] = name
        return found

    async def _read_summaries(
        self, locations: Iterable[SnapshotLocation]
    ) -> dict[SnapshotLocation, TaskSummary]:
        keys = {summary_key(each): each for each in locations}
        found: dict[SnapshotLocation, TaskSummary] = {}
        async for key, entry in iterate_entries(self.state_store, keys):
            summary = decode_summary(key, entry.value) if isinstance(entry, Entry) else None
            if summary is not None:
                found[keys[key]] = summary
        return found

    async def _select_current(
        self,
        logs: dict[SnapshotLocation, str],
        summaries: dict[SnapshotLocation, TaskSummary],
    ) -> dict[SnapshotLocation, TaskSummary]:
        """Return the summaries after which nothing was committed."""
        following: dict[str, SnapshotLocation] = {}
        for location, summary in summaries.items():
            if summary.log == logs[location]:
                log = EventLog(self.state_store, location.prefix, summary.log)
                following[log.key(summary.seq + 1)] = location
        changed = await self.state_store.get_many(following)
        return {
            location: summaries[location]
            for key, location in following.items()
            if key not in changed
        }

    def _remember(self, found: dict[SnapshotLocation, TaskSummary]) -> None:
        with self._guard:
            for location, summary in found.items():
                self._known[location] = summary
                self._known.move_to_end(location)
            while len(self._known) > MAX_SUMMARIES:
                self._known.popitem(last=False)


# -------------------------------------------------------------------------------------- filters


def filter_tasks(tasks: Sequence[ListedTask], params: ListTasksRequest) -> list[ListedTask]:
    """Return the tasks that match a request, on any page."""
    since = None
    if params.HasField("status_timestamp_after"):
        since = params.status_timestamp_after.ToNanoseconds()
    return [
        each
        for each in tasks
        if params.context_id in ("", each.summary.context_id)
        and params.status in (0, each.summary.state)
        and (
            since is None
            or (each.summary.timestamp is not None and each.summary.timestamp >= since)
        )
    ]


def find_page_start(tasks: Sequence[ListedTask], page_token: str) -> int:
    """Return the index of the first task of a page.

    Raises:
        InvalidParamsError: The token is not one of a page.

    """
    if not page_token:
        return 0
    cursor = decode_list_tasks_cursor(page_token)
    if cursor is not None:
        after = cursor.sort_key()
        later = (index for index, task in enumerate(tasks) if task.sort_key < after)
        return next(later, len(tasks))
    first = decode_page_token(page_token)  # of an older release: the id of the first task
    for index, task in enumerate(tasks):
        if task.task_id == first:
            return index
    raise InvalidParamsError(f"Invalid page token: {page_token}")
