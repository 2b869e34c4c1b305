"""A loop in a thread of its own, for callers that are not async."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from holdfast.process_fork import ForkSafeLock
from holdfast.stores.local import RUN_INLINE

T = TypeVar("T")

_lock = ForkSafeLock("the loop of blocking calls", wait_on_fork=False)
_portals: dict[int, Portal] = {}


class Portal:
    """Runs coroutines in a loop that lives in a thread, until it is closed.

    With ``in_place`` a store on this machine does its work in that thread too: it takes turns then,
    and needs no handing over. A child of a fork has the object and not the thread: the first call
    there starts another.
    """

    def __init__(self, *, in_place: bool = False) -> None:
        self._in_place = in_place
        self._lock = ForkSafeLock("a portal", wait_on_fork=False)
        self._start()

    def _start(self) -> None:
        self.process = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="holdfast-portal", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """What a coroutine gives. An interruption while waiting cancels it."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError(
                "a blocking call was made from inside the loop that would have to do it: use the "
                "async Session there"
            )
        future = self._begin(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def call_from_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of a coroutine, to a caller in another loop.

        Coroutines begin in the order of the calls, and each runs to its end, even where its caller
        is cancelled: what a caller does after a cancellation comes after what was cancelled.
        """
        # Not the future of the work itself, as a cancellation of that would reach the work.
        answer: Future[T] = Future()
        self._begin(work).add_done_callback(partial(copy_outcome, answer))
        return await asyncio.wrap_future(answer)

    def _begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        with self._lock:
            if self.process != os.getpid():
                self._start()
        return asyncio.run_coroutine_threadsafe(self._running(work), self._loop)

    async def _running(self, work: Coroutine[Any, Any, T]) -> T:
        if self._in_place:
            RUN_INLINE.set(True)
        return await work

    def close(self) -> None:
        """End the thread."""
        if self.process == os.getpid():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


def copy_outcome(answer: Future[T], done: Future[T]) -> None:
    """Give the outcome of a future to another one, unless that was cancelled."""
    if not answer.set_running_or_notify_cancel():
        return
    try:
        result = done.result()
    except BaseException as error:  # noqa: BLE001 - it is for the caller that waits
        answer.set_exception(error)
    else:
        answer.set_result(result)


def get_portal() -> Portal:
    """The portal of this process."""
    with _lock:
        # Threads do not survive a fork: a child makes its own.
        if os.getpid() not in _portals:
            _portals.clear()
            _portals[os.getpid()] = Portal()
        return _portals[os.getpid()]
