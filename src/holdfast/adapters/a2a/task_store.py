"""A versioned task store for A2A servers: each task is a Holdfast session.

A save is one conditional commit: of two replicas that save the same version of a task, one gets
``ConcurrentTaskModificationError``. Only what changed is written, together with the event that
caused it, which `HoldfastTaskEventStream` reads in any replica.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

from a2a.server.cluster.task_store import (
    ConcurrentTaskModificationError,
    StoredTask,
    VersionedTaskStore,
)
from a2a.server.cluster.version import TaskVersion
from a2a.server.owner_resolver import OwnerResolver, resolve_user_scope
from a2a.server.tasks.task_store import TaskStore
from a2a.types.a2a_pb2 import ListTasksResponse, Task
from a2a.utils.constants import DEFAULT_LIST_TASKS_PAGE_SIZE
from a2a.utils.task import encode_list_tasks_cursor

from holdfast.adapters.a2a.codec import Event, encode_event
from holdfast.adapters.a2a.current import CurrentTask, LogVersion, TaskCache, is_stale
from holdfast.adapters.a2a.ids import TaskName, format_session_id
from holdfast.adapters.a2a.layout import (
    A2A,
    EVENT_PREFIX,
    RUN_STATUSES,
    SAVED,
    compute_changes,
)
from holdfast.adapters.a2a.summary import (
    TaskIndex,
    TaskSummary,
    encode_summary,
    filter_tasks,
    find_page_start,
    summarize_task,
    summary_key,
)
from holdfast.adapters.a2a.watchers import TaskWatchers
from holdfast.adapters.base import StoreAdapter
from holdfast.adapters.shared_session import SessionPool
from holdfast.log.event_log import Position
from holdfast.sessions.session import Session
from holdfast.snapshots.delete import delete_locations
from holdfast.snapshots.keys import AGENT, SnapshotLocation, validate_id
from holdfast.snapshots.session_state import MESSAGES, PENDING, SESSION, STATUS
from holdfast.state.snapshot import Snapshot
from holdfast.stores.base import StateStore
from holdfast.stores.entries import Put
from holdfast.stores.local import gather

if TYPE_CHECKING:
    from a2a.server.context import ServerCallContext
    from a2a.types.a2a_pb2 import ListTasksRequest

LAST_USED: ContextVar[TaskName | None] = ContextVar("a2a_last_used_task", default=None)
"""The task that the current request used last. A stream is opened without the owner of its task."""


class HoldfastTaskStore(StoreAdapter, VersionedTaskStore):
    """The tasks of an A2A server in a ``StateStore``.

    Pass it to ``DefaultRequestHandler`` together with a `HoldfastTaskEventStream`. For code that
    needs a plain ``TaskStore``, use `as_task_store`.
    """

    def __init__(
        self,
        state_store: StateStore,
        *,
        agent_id: str = "a2a",
        owner_resolver: OwnerResolver = resolve_user_scope,
    ) -> None:
        super().__init__(state_store)
        self.agent_id = validate_id(agent_id, "agent_id")
        self.owner_resolver = owner_resolver
        self.watchers = TaskWatchers()
        self._pool = SessionPool(state_store)
        self._cache = TaskCache()
        self._index = TaskIndex(state_store, self.agent_id, self._load_summary)

    def location(self, task_id: str, owner: str = "") -> SnapshotLocation:
        """Return the location of the session of a task.

        Raises:
            ValueError: The ids are empty or too long.

        """
        return SnapshotLocation(format_session_id(task_id, owner), AGENT, self.agent_id)

    @property
    def as_task_store(self) -> TaskStore:
        """The same tasks as a plain ``TaskStore``, whose saves replace any version."""
        return PlainTaskStore(self)

    # ---------------------------------------------------------------------- the SDK's interface

    async def save(
        self,
        task: Task,
        *,
        event: Event | None = None,
        prev: Task | None = None,
        prev_version: TaskVersion,
        context: ServerCallContext,
    ) -> TaskVersion:
        """Store a task and the event that led to it, and return its new version.

        ``prev`` is not needed: what changed is found by comparing with what is stored.

        Raises:
            ConcurrentTaskModificationError: Another writer saved the task since ``prev_version``;
                or the task is to be canceled, and has ended or does not exist. Nothing was written.
            StateStoreError: The store failed.

        """
        del prev
        return await self._save(task, event, prev_version, context)

    async def get(self, task_id: str, context: ServerCallContext) -> StoredTask | None:
        """Return a task of the caller and its version, or None.

        Raises:
            IntegrityError: Stored data is damaged.
            StateStoreError: The store failed.

        """
        owner = self.owner_resolver(context)
        try:
            location = self.location(task_id, owner)
        except ValueError:
            return None  # it cannot have been saved

        def read(session: Session) -> StoredTask | None:
            current = self._cache.load(session)
            if current is None:
                return None
            version = LogVersion(current.version, session.committer.incarnation.id)
            return StoredTask(copy_task(current.task), version)

        stored = await self._pool.read(location, read)
        if stored is not None:
            LAST_USED.set(TaskName(task_id, owner))
        return stored

    async def list(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        """Return a page of the caller's tasks, those with the newest status first.

        Tasks are complete, as those of the SDK's own stores: the request handler removes what the
        request does not include.

        Raises:
            InvalidParamsError: The page token is invalid.
            IntegrityError: Stored data is damaged.
            StateStoreError: The store failed.

        """
        owner = self.owner_resolver(context)
        tasks = filter_tasks(await self._index.list_tasks(owner), params)
        start = find_page_start(tasks, params.page_token)
        page_size = params.page_size or DEFAULT_LIST_TASKS_PAGE_SIZE
        end = start + page_size
        page = tasks[start:end]
        stored = await gather(self.get(each.task_id, context) for each in page)
        return ListTasksResponse(
            tasks=[each.task for each in stored if each is not None],
            next_page_token=(
                encode_list_tasks_cursor(tasks[end - 1].cursor) if end < len(tasks) else None
            ),
            total_size=len(tasks),
            page_size=page_size,
        )

    async def delete(self, task_id: str, context: ServerCallContext) -> None:
        """Delete a task of the caller and everything that is stored of its session.

        Raises:
            ConflictError: Other processes delete it at the same time.
            StateStoreError: The store failed.

        """
        try:
            location = self.location(task_id, self.owner_resolver(context))
        except ValueError:
            return  # it cannot have been saved
        await delete_locations(self.state_store, location.session_id, [location])
        self.watchers.wake(task_id)

    # -------------------------------------------------------------------------------- internals

    async def save_any_version(self, task: Task, context: ServerCallContext) -> None:
        """Store a task whatever version is stored.

        Raises:
            StateStoreError: The store failed.

        """
        await self._save(task, None, None, context)

    async def _save(
        self,
        task: Task,
        event: Event | None,
        prev_version: TaskVersion | None,
        context: ServerCallContext,
    ) -> TaskVersion:
        owner = self.owner_resolver(context)
        location = self.location(task.id, owner)
        new = copy_task(task)
        kind, data = ("saved", None) if event is None else encode_event(event)

        async def apply(session: Session) -> LogVersion:
            committer = session.committer
            current = self._cache.load(session)
            head = LogVersion(committer.working.head.seq, committer.incarnation.id)
            if prev_version is not None and is_stale(current, head, new, prev_version):
                raise ConcurrentTaskModificationError(new.id)
            record_task(session, current, new, f"{EVENT_PREFIX}{kind}", data)

            def build_summary(end: Position, state: Snapshot) -> Put:
                del state
                summary = summarize_task(new, committer.incarnation.id, end.seq)
                return Put(summary_key(location), encode_summary(summary))

            await committer.commit("raise", build_summary)
            version = committer.working.head.seq
            self._cache.keep(session, CurrentTask(new, version))
            return LogVersion(version, committer.incarnation.id)

        try:
            # Without a read: if another writer committed in the meantime, it runs again.
            version = await self._pool.update(location, apply, must_refresh=False)
        except ConcurrentTaskModificationError:
            # The state in memory may be behind the version of the caller.
            version = await self._pool.update(location, apply)
        LAST_USED.set(TaskName(task.id, owner))
        self.watchers.wake(task.id)
        return version

    async def _load_summary(self, location: SnapshotLocation) -> TaskSummary:
        """Return the summary of a session whose stored summary is not current."""

        def read(session: Session) -> TaskSummary:
            committer = session.committer
            current = self._cache.load(session)
            return summarize_task(
                None if current is None else current.task,
                committer.incarnation.id,
                committer.working.head.seq,
            )

        return await self._pool.read(location, read)


class PlainTaskStore(TaskStore):
    """The tasks of a `HoldfastTaskStore` without versions."""

    def __init__(self, versioned: HoldfastTaskStore) -> None:
        self.versioned = versioned

    async def save(self, task: Task, context: ServerCallContext) -> None:
        """Store a task, whatever version is stored."""
        await self.versioned.save_any_version(task, context)

    async def get(self, task_id: str, context: ServerCallContext) -> Task | None:
        """Return a task of the caller, or None."""
        stored = await self.versioned.get(task_id, context)
        return None if stored is None else stored.task

    async def list(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        """Return a page of the caller's tasks."""
        return await self.versioned.list(params, context)

    async def delete(self, task_id: str, context: ServerCallContext) -> None:
        """Delete a task of the caller."""
        await self.versioned.delete(task_id, context)


def record_task(
    session: Session,
    current: CurrentTask | None,
    new: Task,
    event_type: str,
    data: dict[str, object] | None,
) -> None:
    """Record what changes in a task, with the event that caused it as the last of the commit."""
    working = session.committer.working
    keys = working.store.keys(MESSAGES)
    changes = compute_changes(Task() if current is None else current.task, new, keys)
    if changes.removed:
        removed = [(MESSAGES, key) for key in changes.removed]
        session.record("message.removed", changes={"set": [], "delete": removed})
    for message in changes.added:
        session.append_message(message)
    status = RUN_STATUSES.get(new.status.state, PENDING)
    if session.status != status:
        changes.set.append((SESSION, STATUS, status))
    seq = working.head.seq + len(working.pending) + 1
    changes.set.append((A2A, SAVED, {"seq": seq, "log": session.committer.incarnation.id}))
    session.record(event_type, data, changes={"set": changes.set, "delete": changes.delete})


def copy_task(task: Task) -> Task:
    """Return a copy of a task."""
    copy = Task()
    copy.CopyFrom(task)
    return copy
