"""Receive a server's notifications, for all watches of a store in one event loop.

The first watch starts a task that connects and subscribes, and the last one ends it. When the
connection is lost, the task wakes all watches, because notifications may be lost with it, connects
again and wakes them once more. If the server refuses, they are left to the time limits of their
waits, which is logged once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from weakref import WeakKeyDictionary

from holdfast.errors import StateStoreError
from holdfast.process_fork import ForkSafeLock
from holdfast.stores.notification import Notification, get_process_id
from holdfast.stores.watch import StoreWatch, WatchHub

SETTLE_SECONDS = 1.0
"""When all watches are woken again after subscribing, for a write that was on its way then."""
FIRST_PAUSE = 0.05
MAX_PAUSE = 30.0
"""Bounds, in seconds, of the pauses between attempts to connect."""

logger = logging.getLogger(__name__)


class Listener(ABC):
    """The notifications of a store in one event loop."""

    failures: tuple[type[Exception], ...] = ()
    """The driver's exceptions."""

    def __init__(self, *, timeout: float, explain: Callable[[Exception], str]) -> None:
        self._timeout = timeout
        self._explain = explain
        self._errors: tuple[type[Exception], ...] = (*self.failures, StateStoreError, OSError)
        self.on_refused: Callable[[str], None] = lambda _reason: None
        """Called with the reason whenever no connection can be made."""
        self.process = os.getpid()
        self._hub = WatchHub()
        self._tried = asyncio.Event()
        self._is_ready = False
        self._task = asyncio.create_task(self._run())

    @property
    def prefixes(self) -> list[str]:
        """The prefixes that are watched."""
        return list(self._hub.watches)

    async def add(self, prefix: str, watch: StoreWatch) -> None:
        """Start to wake a watch, and wait until that works or is known to fail."""
        self._hub.add(prefix, watch)
        try:
            async with asyncio.timeout(self._timeout):
                await self._tried.wait()
                if self._is_ready:
                    await self._subscribe(prefix)
            watch.hears_others = self._is_ready
        except self._errors as error:
            logger.debug("cannot subscribe to notifications: %s", self._explain(error))

    async def remove(self, prefix: str, watch: StoreWatch) -> bool:
        """Stop to wake a watch; return whether it was the last."""
        self._hub.remove(prefix, watch)
        if not self._hub.watches:
            return True
        if self._is_ready and prefix not in self._hub.watches:
            try:
                async with asyncio.timeout(self._timeout):
                    await self._unsubscribe(prefix)
            except self._errors as error:  # a TimeoutError is one
                logger.debug("cannot unsubscribe from notifications: %s", self._explain(error))
        return False

    async def stop(self) -> None:
        """Disconnect, and wake the watches that are left."""
        self._task.cancel()
        await asyncio.wait([self._task])
        self._set_ready(is_ready=False)

    def report(self, notification: Notification) -> None:
        """Wake the watches that a notification concerns."""
        if notification.process_id == get_process_id():
            return  # they were woken when the write returned
        if notification.keys is not None:
            self._hub.report(notification.keys)
            return
        written = notification.prefix
        for prefix, watches in list(self._hub.watches.items()):
            if prefix.startswith(written) or written.startswith(prefix):
                for watch in list(watches):
                    watch.notify(None)

    def wake_all(self) -> None:
        """Wake all watches, whatever was written."""
        self.report(Notification("", None))

    def _set_ready(self, *, is_ready: bool) -> None:
        """Wake all watches, and tell them whether notifications are received from now on."""
        self._is_ready = is_ready
        for watches in list(self._hub.watches.values()):
            for watch in list(watches):
                watch.hears_others = is_ready
        self.wake_all()

    @abstractmethod
    async def _listen(self, set_ready: Callable[[], None]) -> None:
        """Connect, subscribe to all prefixes, call ``set_ready``, and report notifications.

        Raises:
            Exception: One of ``failures``, StateStoreError or OSError: there is no connection, or
                it was lost.

        """

    async def _subscribe(self, prefix: str) -> None:  # noqa: B027 - if all are received anyway
        """Subscribe to a prefix, if it is new, over the connection that there is."""

    async def _unsubscribe(self, prefix: str) -> None:  # noqa: B027 - if all are received anyway
        """Cancel the subscription of a prefix that is not watched any more."""

    async def _run(self) -> None:
        pauses = growing_pauses()
        settling: asyncio.TimerHandle | None = None

        def set_ready() -> None:
            nonlocal pauses, settling
            check_not_cancelled()
            pauses = growing_pauses()
            self._set_ready(is_ready=True)
            self._tried.set()
            settling = asyncio.get_running_loop().call_later(SETTLE_SECONDS, self.wake_all)

        while True:
            try:
                await self._listen(set_ready)
                reason = "the connection was closed"
            except self._errors as error:
                reason = self._explain(error)
            except Exception as error:  # noqa: BLE001 - of a driver; its text may have a secret
                reason = f"unexpected {type(error).__name__}"
            finally:
                if settling is not None:
                    settling.cancel()
            check_not_cancelled()
            self._tried.set()
            if self._is_ready:
                logger.info("lost the notifications of a server, connecting again: %s", reason)
                self._set_ready(is_ready=False)
            else:
                self.on_refused(reason)
            await asyncio.sleep(next(pauses))


class Listeners:
    """The listeners of a store, one per event loop that has watches."""

    def __init__(self, create: Callable[[], Listener]) -> None:
        self._create = create
        self._is_warned = False
        self._lock = ForkSafeLock("the notifications of a store", wait_on_fork=False)
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Listener] = WeakKeyDictionary()

    async def add(self, prefix: str, watch: StoreWatch) -> None:
        """Start to wake a watch for notifications below a prefix."""
        with self._lock:
            for ended in [each for each in self._by_loop if each.is_closed()]:
                del self._by_loop[ended]
            loop = asyncio.get_running_loop()
            listener = self._by_loop.get(loop)
            if listener is None:
                listener = self._by_loop[loop] = self._create()
                listener.on_refused = self._warn_once
        await listener.add(prefix, watch)

    def _warn_once(self, reason: str) -> None:
        level = logging.DEBUG if self._is_warned else logging.WARNING
        self._is_warned = True
        logger.log(level, "no notifications of a server, so watches poll: %s", reason)

    async def remove(self, prefix: str, watch: StoreWatch) -> None:
        """Stop to wake a watch. Does nothing if the store was closed."""
        loop = asyncio.get_running_loop()
        listener = self._by_loop.get(loop)
        if listener is not None and await listener.remove(prefix, watch):
            with self._lock:
                del self._by_loop[loop]
            await listener.stop()

    async def close(self) -> None:
        """Stop all listeners, also those of other event loops."""
        with self._lock:
            listeners = list(self._by_loop.items())
            self._by_loop.clear()
        for loop, listener in listeners:
            if listener.process != os.getpid():
                continue  # of the process that this one was forked from
            if loop is asyncio.get_running_loop():
                await listener.stop()
            elif loop.is_running():
                stopping = asyncio.run_coroutine_threadsafe(listener.stop(), loop)
                await asyncio.wrap_future(stopping)


class ListeningWatch(AbstractAsyncContextManager[StoreWatch]):
    """The context of a watch that is woken by this process, and by others with notifications."""

    def __init__(
        self,
        in_process: AbstractAsyncContextManager[StoreWatch],
        listeners: Listeners,
        prefix: str,
    ) -> None:
        self._in_process = in_process
        self._listeners = listeners
        self._prefix = prefix

    async def __aenter__(self) -> StoreWatch:
        self._watch = await self._in_process.__aenter__()
        try:
            await self._listeners.add(self._prefix, self._watch)
        except BaseException:
            await self.__aexit__(*sys.exc_info())
            raise
        return self._watch

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self._listeners.remove(self._prefix, self._watch)
        finally:
            await self._in_process.__aexit__(kind, error, trace)


def check_not_cancelled() -> None:
    """Raise the cancellation of the current task, if a driver has ignored it.

    Before Python 3.12, ``asyncio.wait_for`` does so if it ends at the same time.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def growing_pauses() -> Iterator[float]:
    """Yield the seconds to wait before each attempt to connect: doubling, with jitter."""
    pause = FIRST_PAUSE
    while True:
        yield pause * random.uniform(0.5, 1.0)  # noqa: S311 - not a secret
        pause = min(pause * 2, MAX_PAUSE)
