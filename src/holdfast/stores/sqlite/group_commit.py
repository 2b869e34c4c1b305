"""Group commit: the calls that are queued for a database are written in one transaction.

Syncing the disk takes longer than all the rest of a small write, so calls that arrive during a sync
wait and share the next one. The thread that holds the lock writes for all: the store's own, or a
thread that runs its call inline. A call stays in the queue until it is done, so a writer that is
interrupted leaves it to the next one.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from copy import copy
from pathlib import Path
from threading import Lock
from weakref import WeakSet, WeakValueDictionary

from holdfast.errors import StateStoreError
from holdfast.process_fork import ForkAware, ForkSafeLock
from holdfast.stores.sqlite.connections import Connections, primary_code, reclaim_space
from holdfast.stores.sqlite.errors import explain_error, may_be_written
from holdfast.stores.sqlite.write_calls import WriteCall, apply_calls, write_alone

# Of one transaction. A call that is larger gets its own.
MAX_CALLS = 512
MAX_BYTES = 8 * 1024 * 1024
RECLAIM_INTERVAL = 64


class GroupCommit(ForkAware):
    """The queue of calls that write to one database, for all stores of this process on it."""

    def __init__(self, connections: Connections) -> None:
        self.connections = connections
        self.users: WeakSet[object] = WeakSet()
        self._start()
        super().__init__()

    def _start(self) -> None:
        self._queue: deque[WriteCall] = deque()
        self._lock = Lock()  # held by the thread that writes
        self._thread = ThreadPoolExecutor(1, "holdfast-sqlite-write")
        self._waking: asyncio.AbstractEventLoop | None = None  # the loop that is about to wake it
        self._failed = 0  # calls at the front of the queue to try alone
        self._writes = 0  # since space was last reclaimed

    def before_fork(self, deadline: float) -> None:
        """Do nothing: the connections wait until the group in progress is written."""

    def after_fork_in_parent(self) -> None:
        """Do nothing."""

    def after_fork_in_child(self) -> None:
        """Start with an empty queue, because the parent writes what is queued."""
        self._start()

    def submit(self, call: WriteCall) -> asyncio.Future[list[str]]:
        """Write in the store's own thread. A call that is cancelled before its turn is not written.

        The future raises:
            ConflictError: A condition does not hold.
            StateStoreError: The database cannot be written.
            RuntimeError: The queue is closed.

        """
        loop = asyncio.get_running_loop()
        future = call.future = loop.create_future()
        self._queue.append(call)
        if self._waking is not loop:
            # Not at once: the calls of other tasks that are ready now join the group, and the loop
            # does not compete with the thread for the interpreter.
            self._waking = loop
            loop.call_soon(self._wake_thread)
        return future

    def _wake_thread(self) -> None:
        self._waking = None
        try:
            self._thread.submit(self._write_queue)
        except RuntimeError as error:  # closed
            with self._lock:
                self._fail(list(self._queue), error)

    def run(self, call: WriteCall) -> list[str]:
        """Write in the current thread, together with the queued calls of others.

        Raises:
            ConflictError: A condition does not hold.
            StateStoreError: The database cannot be written.

        """
        self._queue.append(call)
        try:
            with self._lock:
                while not call.is_done:
                    self._write_group()
        except BaseException:
            call.is_abandoned = True  # it has no caller any more
            raise
        if call.error is not None:
            raise call.error
        return call.result

    def close(self) -> None:
        """Write what is queued, remove unused space from the file, and close its connections."""
        self._thread.shutdown()
        with self._lock:
            while self._queue:
                self._write_group()
            self.connections.begin_use()
            try:
                self.connections.reclaim_all_space()
            finally:
                self.connections.end_use()
        self.connections.close()

    def _write_queue(self) -> None:
        while self._queue:
            with self._lock:
                self._write_group()

    def _write_group(self) -> None:
        """Write the first calls of the queue. The current thread holds the lock."""
        self._remove_finished()
        waiting = len(self._queue)
        if not waiting:
            return
        group: list[WriteCall] = []
        connections = self.connections
        connections.begin_use()
        try:
            database = connections.writing()
            group = self._write_alone(database) if waiting == 1 else []
            try:
                if not group:
                    # Calls that are queued while this waits for other processes join the group.
                    connections.begin(database)
                    group = self._choose_group()
                    apply_calls(database, group)
                    database.execute("COMMIT")
            except BaseException as error:
                # SQLite may have rolled back by itself, as on a full disk.
                if database.in_transaction:
                    database.execute("ROLLBACK")
                elif not isinstance(error, Exception):
                    self._finish(group)  # an interrupt, just after the commit
                raise
            connections.check_file()
        except Exception as error:  # noqa: BLE001 - raised by the calls
            if len(group) > 1 and not concerns_all(error):
                self._failed = len(group)  # one of them may be the cause: try each alone
            else:
                self._fail(group or [self._queue[at] for at in range(waiting)], error)
        else:
            self._finish(group)
            self._reclaim_space(database, group)
        finally:
            connections.end_use()

    def _write_alone(self, database: sqlite3.Connection) -> list[WriteCall]:
        """Write the only call of the queue; return it, or nothing if it was not written.

        It does not wait for the lock of another process: its caller may cancel it during the wait.
        """
        call = self._queue[0]
        try:
            return [call] if write_alone(database, call) else []
        except BaseException as error:
            if isinstance(error, sqlite3.Error) and primary_code(error) == sqlite3.SQLITE_BUSY:
                return []
            if not isinstance(error, Exception):  # an interrupt, maybe after the commit
                self._fail([call], StateStoreError("the write was interrupted, maybe after it"))
            raise

    def _choose_group(self) -> list[WriteCall]:
        """Return the first calls of the queue that are not cancelled, up to the limits."""
        group: list[WriteCall] = []
        size = 0
        limit = 1 if self._failed else MAX_CALLS
        for at in range(len(self._queue)):
            call = self._queue[at]
            if call.is_done or call.is_cancelled():
                continue
            size += sum([len(put.value) for put in call.puts])
            if len(group) == limit or (group and size > MAX_BYTES):
                break
            group.append(call)
        self._failed = max(0, self._failed - 1)
        return group

    def _fail(self, group: Sequence[WriteCall], error: Exception) -> None:
        """Give each call its own copy of an error, because each adds its traceback."""
        for call in group:
            explained = explain_error(error, self.connections)
            call.error = copy(error) if explained is error else explained
            call.error.__cause__ = error
        self._finish(group)

    def _finish(self, group: Sequence[WriteCall]) -> None:
        """Wake the callers, with one message to each event loop, and remove their calls."""
        by_loop: dict[asyncio.AbstractEventLoop, list[WriteCall]] = {}
        for call in group:
            call.is_done = True
            if call.future is not None:
                by_loop.setdefault(call.future.get_loop(), []).append(call)
        for loop, calls in by_loop.items():
            with suppress(RuntimeError):  # the loop was closed
                loop.call_soon_threadsafe(set_outcomes, calls)
        self._remove_finished()

    def _remove_finished(self) -> None:
        while self._queue and (self._queue[0].is_done or self._queue[0].is_cancelled()):
            self._queue.popleft()

    def _reclaim_space(self, database: sqlite3.Connection, group: Sequence[WriteCall]) -> None:
        self._writes += len(group)
        if self._writes >= RECLAIM_INTERVAL or any(call.deletes for call in group):
            self._writes = 0
            reclaim_space(database)


_queues: WeakValueDictionary[tuple[str, float, str], GroupCommit] = WeakValueDictionary()
_guard = ForkSafeLock("the list of open databases", wait_on_fork=False)


def share_queue(
    path: str | os.PathLike[str], display_url: str, timeout: float, user: object
) -> GroupCommit:
    """Return the queue of a file, which is the same for all users in this process.

    With one connection that writes, they do not wait for each other's locks.
    """
    # Absolute from the start, because the working folder may change before it is connected.
    absolute = Path(path).absolute()
    key = (str(absolute), timeout, display_url)
    with _guard:
        queue = _queues.get(key)
        if queue is None or queue.connections.is_file_replaced():
            queue = _queues[key] = GroupCommit(Connections(absolute, display_url, timeout))
        queue.users.add(user)
    return queue


def release_queue(queue: GroupCommit, user: object) -> None:
    """Close a queue and its connections, if it has no other user."""
    with _guard:
        queue.users.discard(user)
        if queue.users:
            return
        for key, each in list(_queues.items()):
            if each is queue:
                del _queues[key]
    queue.close()


def concerns_all(error: Exception) -> bool:
    """Whether an error within a transaction is not due to one of its calls."""
    return isinstance(error, StateStoreError) or may_be_written(error)


def set_outcomes(calls: Sequence[WriteCall]) -> None:
    """Give the callers in the current event loop their results and errors."""
    for call in calls:
        if call.future is None or call.future.done():
            continue  # cancelled
        if call.error is None:
            call.future.set_result(call.result)
        else:
            call.future.set_exception(call.error)
