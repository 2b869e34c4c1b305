"""Wake the subscribers of a task in this process: when it is saved, and when they have to end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from holdfast.process_fork import ForkSafeLock
from holdfast.stores.watch import StoreWatch


class Watcher:
    """One subscriber, in its event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._store_watch: StoreWatch | None = None
        self.is_ended = False
        """Whether the subscription ends when everything that is stored was read."""

    def use(self, store_watch: StoreWatch) -> None:
        """Wait for the writes that wake a watch of the store, from now on."""
        self._store_watch = store_watch
        store_watch.notify(None)  # this subscriber may have been woken just before

    def wake(self) -> None:
        """Wake the subscriber, from any thread."""
        if self._store_watch is not None:
            self._store_watch.notify(None)
            return
        with suppress(RuntimeError):  # its loop was closed, so nothing waits there
            self._loop.call_soon_threadsafe(self._changed.set)

    async def wait(self, seconds: float) -> bool:
        """Wait until the task was saved or the time is over; return whether it was saved."""
        if self._store_watch is not None:
            return await self._store_watch.wait(seconds)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        was_saved = self._changed.is_set()
        self._changed.clear()
        return was_saved


class TaskWatchers:
    """The subscribers in this process, by the id of their task."""

    def __init__(self) -> None:
        self._guard = ForkSafeLock("the subscribers of an adapter", wait_on_fork=False)
        self._watchers: dict[str, set[Watcher]] = {}

    @contextmanager
    def watch(self, task_id: str) -> Iterator[Watcher]:
        """Return a watcher of a task for the duration of a block."""
        watcher = Watcher()
        with self._guard:
            self._watchers.setdefault(task_id, set()).add(watcher)
        try:
            yield watcher
        finally:
            with self._guard:
                remaining = self._watchers[task_id]
                remaining.discard(watcher)
                if not remaining:
                    del self._watchers[task_id]

    def wake(self, task_id: str) -> None:
        """Wake the subscribers of a task."""
        for watcher in self._find(task_id):
            watcher.wake()

    def end(self, task_id: str) -> None:
        """End the subscriptions of a task after what is stored now."""
        for watcher in self._find(task_id):
            watcher.is_ended = True
            watcher.wake()

    def _find(self, task_id: str) -> list[Watcher]:
        with self._guard:
            return list(self._watchers.get(task_id, ()))
