"""Wake those who wait for writes: of this process, and of others where a backend has notifications.

A watch is a hint to read again, and never more. It may wake without a reason, and a wake-up may be
lost: the waiting reader reads what is stored, and also reads after a time without any.

All stores of a process share one hub. Each successful write is reported to it by its keys, whatever
store object it went through: two objects on one SQLite file wake each other. Different stores with
equal keys do, too, which costs a read.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from threading import Lock
from types import TracebackType

from holdfast.process_fork import ForkAware

MAX_KEYS = 1000
"""How many written keys a watch remembers between two waits."""


class StoreWatch:
    """Waits for writes below a prefix. For one task of the event loop it was created in.

    A backend with notifications returns a subclass of ``ProcessWatch`` that subscribes in
    ``__aenter__`` and calls ``notify`` of the watch for the writes of other processes too, in any
    thread. After an interruption, in which notifications may have been lost, it calls
    ``notify(None)``. While notifications are received, it sets ``hears_others``.
    """

    hears_others: bool = False
    """Whether writes of other processes wake it now, and not only in general."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        self._lock = Lock()
        self._is_notified = False
        self._keys: set[str] | None = set()

    def notify(self, keys: Iterable[str] | None) -> None:
        """Wake the next wait, or the current one. May be called in any thread.

        Args:
            keys: The keys that were written or deleted, all below the prefix; None if they are not
                known, so that any key below it may have changed.

        """
        with self._lock:
            if keys is None:
                self._keys = None
            elif self._keys is not None:
                self._keys.update(keys)
                if len(self._keys) > MAX_KEYS:
                    self._keys = None
            if self._is_notified:
                return
            self._is_notified = True
        try:
            self._loop.call_soon_threadsafe(self._event.set)
        except RuntimeError:
            return  # the loop was closed, and with it the task that waits

    async def wait(self, timeout: float) -> bool:  # noqa: ASYNC109 - the usual end of a wait
        """Wait for a write, at most some seconds.

        Returns:
            True if something below the prefix may have been written since the last wait, False if
            the time passed.

        """
        if not self._event.is_set():
            try:
                async with asyncio.timeout(timeout):
                    await self._event.wait()
            except TimeoutError:
                return False
        with self._lock:
            self._event.clear()
            self._is_notified = False
        return True

    def take_keys(self) -> frozenset[str] | None:
        """Return the keys that were written since the last call, and forget them.

        Returns:
            The keys, some of which may not have changed, or None if any key below the prefix may
            have changed.

        """
        with self._lock:
            keys, self._keys = self._keys, set()
        return None if keys is None else frozenset(keys)


class PrefixedWatch(StoreWatch):
    """A watch on a store within a store, with keys as the inner store has them."""

    def __init__(self, inner: StoreWatch, prefix: str) -> None:
        self._inner = inner
        self._prefix = prefix

    def notify(self, keys: Iterable[str] | None) -> None:
        """Wake the next wait, or the current one."""
        self._inner.notify(None if keys is None else [self._prefix + key for key in keys])

    @property
    def hears_others(self) -> bool:  # type: ignore[override]
        """Whether writes of other processes wake it now, and not only in general."""
        return self._inner.hears_others

    async def wait(self, timeout: float) -> bool:  # noqa: ASYNC109 - as above
        """Wait for a write, at most some seconds."""
        return await self._inner.wait(timeout)

    def take_keys(self) -> frozenset[str] | None:
        """Return the keys that were written since the last call, without the prefix."""
        keys = self._inner.take_keys()
        return None if keys is None else frozenset(key[len(self._prefix) :] for key in keys)


class PrefixedWatchContext(AbstractAsyncContextManager[StoreWatch]):
    """The context of a watch on a store within a store."""

    def __init__(self, inner: AbstractAsyncContextManager[StoreWatch], prefix: str) -> None:
        self._inner = inner
        self._prefix = prefix

    async def __aenter__(self) -> StoreWatch:
        return PrefixedWatch(await self._inner.__aenter__(), self._prefix)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await self._inner.__aexit__(kind, error, trace)


class WatchHub(ForkAware):
    """The watches of this process, by prefix."""

    def __init__(self) -> None:
        self.watches: dict[str, list[StoreWatch]] = {}
        self._lengths: Counter[int] = Counter()
        self._lock = Lock()
        self._taken = False
        super().__init__()

    def add(self, prefix: str, watch: StoreWatch) -> None:
        """Start to report writes below a prefix to a watch."""
        with self._lock:
            self.watches.setdefault(prefix, []).append(watch)
            self._lengths[len(prefix)] += 1

    def remove(self, prefix: str, watch: StoreWatch) -> None:
        """Stop to report to a watch."""
        with self._lock:
            watches = self.watches.get(prefix, [])
            if watch not in watches:
                return  # this process is a fork of the one that added it
            watches.remove(watch)
            if not watches:
                del self.watches[prefix]
            self._lengths[len(prefix)] -= 1
            if not self._lengths[len(prefix)]:
                del self._lengths[len(prefix)]

    def report(self, keys: Iterable[str]) -> None:
        """Wake the watches on prefixes of these keys."""
        written: dict[StoreWatch, list[str]] = {}
        with self._lock:
            for key in keys:
                for length in self._lengths:  # few: prefixes have the lengths of ids
                    if length <= len(key):
                        for watch in self.watches.get(key[:length], ()):
                            written.setdefault(watch, []).append(key)
        for watch, below in written.items():
            watch.notify(below)

    def before_fork(self, deadline: float) -> None:
        """Take the lock."""
        self._taken = self._lock.acquire(timeout=max(0.0, deadline - time.monotonic()))

    def after_fork_in_parent(self) -> None:
        """Release the lock."""
        if self._taken:
            self._lock.release()

    def after_fork_in_child(self) -> None:
        """Forget the watches: their event loops run in the parent."""
        self.watches = {}
        self._lengths = Counter()
        self._lock = Lock()


HUB = WatchHub()


class ProcessWatch(AbstractAsyncContextManager[StoreWatch]):
    """A watch on the writes of this process below a prefix, while its context is entered.

    A class, and not a generator: asyncio closes abandoned generators in any order when it shuts
    down, and so might close this one before the follower that uses it.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._watches: list[StoreWatch] = []

    async def __aenter__(self) -> StoreWatch:
        watch = StoreWatch()
        self._watches.append(watch)
        HUB.add(self._prefix, watch)
        return watch

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        HUB.remove(self._prefix, self._watches.pop())


def report_writes(keys: Iterable[str]) -> None:
    """Wake those in this process who wait for writes of these keys. May be called in any thread.

    To be called after each write, also if its outcome is unknown.
    """
    if HUB.watches:
        HUB.report(keys)
