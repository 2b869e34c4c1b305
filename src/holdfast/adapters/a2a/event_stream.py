"""The events of a task for subscribers in any replica, read from the log of its session.

A save commits its event with the task, so an event is in the log before it is published, and a
subscriber that continues after a version finds each later event once and in order. It looks for the
next segment of the log, one small read, when a save wakes it: one of this process, or of any if the
store wakes other processes. Otherwise it looks with pauses that grow while nothing happens.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack

from a2a.server.cluster.event_stream import TaskEventStream, VersionedEvent
from a2a.server.cluster.version import TaskVersion

from holdfast.adapters.a2a.codec import decode_event
from holdfast.adapters.a2a.current import read_seq
from holdfast.adapters.a2a.ids import find_task_locations
from holdfast.adapters.a2a.layout import EVENT_PREFIX
from holdfast.adapters.a2a.task_store import LAST_USED, HoldfastTaskStore
from holdfast.blobs.contents import BlobContents
from holdfast.errors import IntegrityError, NotFoundError, StateStoreError, short_repr
from holdfast.log.event import Event
from holdfast.log.event_log import EventLog, Position, SegmentPage
from holdfast.log.segment import decode_segment
from holdfast.log.timeline import Timeline
from holdfast.sessions.event_view import load_event
from holdfast.snapshots.discovery import find_first_key
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.snapshots.manifest import read_manifest, read_manifests, select_manifest
from holdfast.stores.base import StateStore

POLL_INTERVAL = 0.05
MAX_POLL_INTERVAL = 1.0

logger = logging.getLogger(__name__)


class HoldfastTaskEventStream(TaskEventStream):
    """The events of the tasks in a `HoldfastTaskStore`, for replicas on the same ``StateStore``.

    ``poll_interval`` is the first pause in seconds between two looks at the store, and
    ``max_poll_interval`` the longest, which all are if the store wakes other processes.
    """

    def __init__(
        self,
        task_store: HoldfastTaskStore,
        *,
        poll_interval: float = POLL_INTERVAL,
        max_poll_interval: float = MAX_POLL_INTERVAL,
    ) -> None:
        if not isinstance(task_store, HoldfastTaskStore):
            raise TypeError(
                f"task_store must be a HoldfastTaskStore, got {short_repr(task_store)}; "
                "pass the one that the request handler uses"
            )
        if not 0 < poll_interval <= max_poll_interval:
            raise ValueError(
                f"poll_interval must be positive and at most max_poll_interval, got {poll_interval}"
                f" and {max_poll_interval}"
            )
        self.task_store = task_store
        self.poll_interval = poll_interval
        self.max_poll_interval = max_poll_interval

    async def publish(self, task_id: str, event: VersionedEvent) -> None:
        """Wake the subscribers of this process; the save has stored the event for all others."""
        del event
        self.task_store.watchers.wake(task_id)

    async def subscribe(
        self, task_id: str, *, after: TaskVersion
    ) -> AsyncGenerator[VersionedEvent, None]:
        """Yield the events of a task that are newer than a version, each once and in order.

        It waits for a task that does not exist yet, and ends when the task is deleted. Transient
        errors of the store are retried.

        Raises:
            NotFoundError: Events after the version were pruned.
            ValueError: Several owners have a task with this id, and this request has used none.
            IntegrityError: The log is damaged.
            StateStoreError: The store failed, and retrying would not help.

        """
        seq = read_seq(after)
        reader: TaskLogReader | None = None
        state_store = self.task_store.state_store
        first_pause = pause = self.poll_interval
        async with AsyncExitStack() as stack:
            watcher = stack.enter_context(self.task_store.watchers.watch(task_id))
            while True:
                is_last = watcher.is_ended
                found: list[VersionedEvent] = []
                try:
                    if reader is None:
                        reader = await self._open_reader(task_id, seq)
                        if reader is not None:
                            context = state_store.watch(reader.location.prefix)
                            watch = await stack.enter_async_context(context)
                            watcher.use(watch)
                            if watch.hears_others:
                                first_pause = pause = self.max_poll_interval
                    if reader is not None:
                        found = await reader.read()
                except StateStoreError as error:
                    if not error.transient:
                        raise
                    logger.debug("reading the events of task %s failed: %s", task_id, error)
                for event in found:
                    yield event
                if reader is not None and reader.is_deleted:
                    return
                if found:
                    pause = first_pause
                elif is_last:
                    return
                elif await watcher.wait(pause):
                    pause = first_pause
                else:
                    pause = min(2 * pause, self.max_poll_interval)

    async def destroy(self, task_id: str) -> None:
        """End the subscriptions of this process after the events that are stored now."""
        self.task_store.watchers.end(task_id)

    async def _open_reader(self, task_id: str, seq: int) -> TaskLogReader | None:
        """Return a reader of a task's log, or None if the task does not exist yet."""
        store = self.task_store
        used = LAST_USED.get()
        if used is not None and used.task_id == task_id:
            locations = [store.location(task_id, used.owner)]
        else:
            locations = await find_task_locations(store.state_store, store.agent_id, task_id)
        found = await read_manifests(store.state_store, locations)
        if len(found) > 1:
            raise ValueError(
                f"{len(found)} owners have a task {short_repr(task_id)}; "
                "call get() of the task store in the same request before subscribe()"
            )
        for location, manifest in found.items():
            reader = TaskLogReader(store.state_store, location, manifest.incarnation, seq)
            await reader.start()
            return reader
        return None


class TaskLogReader:
    """Reads the events in the log of one task, from a position on."""

    def __init__(
        self, state_store: StateStore, location: SnapshotLocation, log_id: str, after: int
    ) -> None:
        self.state_store = state_store
        self.location = location
        self.log = EventLog(state_store, location.prefix, log_id)
        self._contents = BlobContents(state_store, location.prefix)
        self.log_id = log_id
        self.after = after
        self.is_deleted = False
        """Whether the task was deleted, so that no events follow."""
        self._seq = after
        self._hash: str | None = None
        self._is_behind = True
        """Whether more than one segment may follow, so that they are listed."""

    async def start(self) -> None:
        """Find the position to read from; that of a version is the end of a segment."""
        if self.after and not await self._is_end_of_segment():
            self._seq = 0  # inside a segment, as in a copy of a session: read them all

    async def _is_end_of_segment(self) -> bool:
        """Tell whether the next segment starts after the position, or the log ends there."""
        first = await find_first_key(self.state_store, self.log.prefix, self.log.key(self.after))
        if first is not None:
            return first == self.log.key(self.after + 1)
        timeline = Timeline(self.state_store, self.location.prefix, self.log_id)
        key, _ = await timeline.change_token()
        entry = await self.state_store.get(key) if key else None
        return entry is None or decode_segment(key, entry.value).last == self.after

    async def read(self) -> list[VersionedEvent]:
        """Return the events after those that were returned before, as far as they are stored.

        Raises:
            NotFoundError: They were pruned.
            IntegrityError: The log is damaged.
            StateStoreError: The store failed; the next call returns the same events.

        """
        following = self.log.key(self._seq + 1)
        found = await self.state_store.get_many([self.location.manifest_key, following])
        manifest = select_manifest(self.location, found).manifest
        if manifest.incarnation != self.log_id:
            self.is_deleted = True
            return []
        if following not in found:
            self._check_not_pruned(manifest.log_start.seq)
            self._is_behind = False
            return []
        position = Position(
            self._seq, self._hash or decode_segment(following, found[following].value).prev
        )
        page: SegmentPage | None = None if self._is_behind else {following: found[following]}
        try:
            segments = [each async for each in self.log.segments(position, page=page)]
        except IntegrityError:
            # A deletion of the task removes the log while it is read.
            self.is_deleted = await self._is_replaced()
            if self.is_deleted:
                return []
            raise
        events = [
            await self._decode_event(event)
            for segment in segments
            for event in segment.events()
            if event.type.startswith(EVENT_PREFIX) and event.data is not None
        ]
        self._seq, self._hash = segments[-1].last, segments[-1].hash
        self._is_behind = True
        return [each for each in events if read_seq(each.version) > self.after]

    async def _decode_event(self, event: Event) -> VersionedEvent:
        """Return an A2A event with its version; its large parts are read."""
        data = (await load_event(event, self._contents)).data
        return VersionedEvent(
            event=decode_event(data, f"the data of event {event.seq}"),
            version=TaskVersion(event.seq),
        )

    async def _is_replaced(self) -> bool:
        stored = await read_manifest(self.state_store, self.location)
        return stored.manifest.incarnation != self.log_id

    def _check_not_pruned(self, log_start: int) -> None:
        if self._seq < log_start:
            raise NotFoundError(
                f"the events of session {self.location.session_id} up to {log_start} were pruned; "
                "get the task, and subscribe after its version"
            )
