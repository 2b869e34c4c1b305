"""Run coroutines for callers that are not async: in an event loop in its own thread, or inline."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar, cast

from holdfast.process_fork import ForkSafeLock
from holdfast.stores.local import RUN_INLINE

T = TypeVar("T")

_lock = ForkSafeLock("the loop of blocking calls", wait_on_fork=False)
_portals: dict[int, Portal] = {}


class Portal:
    """Runs coroutines in an event loop in a thread, until it is closed.

    In a forked child the first call starts a new thread.
    """

    def __init__(self) -> None:
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
        """Run a coroutine and return its result. An interrupt while waiting cancels it."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError(
                "blocking call from inside Holdfast's event loop; use the async Session there"
            )
        future = self._submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def call_from_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine for a caller in another event loop, and return its result.

        Coroutines start in the order of the calls, and each runs to its end even if its caller is
        cancelled, so later calls see its outcome.
        """
        # Cancelling this future does not cancel the work.
        answer: Future[T] = Future()
        self._submit(work).add_done_callback(partial(copy_outcome, answer))
        return await asyncio.wrap_future(answer)

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        with self._lock:
            if self.process != os.getpid():
                self._start()
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """Stop the thread."""
        if self.process == os.getpid():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


def copy_outcome(answer: Future[T], done: Future[T]) -> None:
    """Copy the outcome of one future to another, unless that was cancelled."""
    if not answer.set_running_or_notify_cancel():
        return
    try:
        result = done.result()
    except BaseException as error:  # noqa: BLE001 - passed on to the caller
        answer.set_exception(error)
    else:
        answer.set_result(result)


def get_portal() -> Portal:
    """Return the portal of this process."""
    with _lock:
        # Threads do not survive a fork: a child needs its own.
        if os.getpid() not in _portals:
            _portals.clear()
            _portals[os.getpid()] = Portal()
        return _portals[os.getpid()]


def sync(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in the portal of this process, and return its result."""
    return get_portal().call(work)


def run_inline(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the calling thread without an event loop, and return its result.

    It may only await stores with ``runs_inline``, and the functions of `stores.local`.

    Raises:
        RuntimeError: It awaits something else, which needs an event loop.

    """
    token = RUN_INLINE.set(True)
    try:
        work.send(None)
    except StopIteration as done:
        return cast("T", done.value)
    finally:
        RUN_INLINE.reset(token)
    work.close()
    raise RuntimeError(f"{work!r} needs an event loop; set runs_inline of its store to False")
