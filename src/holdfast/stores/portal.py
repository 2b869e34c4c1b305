"""Run coroutines outside of the caller's event loop: in a loop of their own, in threads, or inline.

Portal       an event loop in its own thread
Lanes        threads without an event loop, for stores with ``runs_inline``
run_inline   the calling thread, for a caller that is not async
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar, cast

from holdfast.process_fork import ForkSafeLock
from holdfast.stores.local import RUN_INLINE

T = TypeVar("T")

LANE_THREADS = 16

_lock = ForkSafeLock("the loop of blocking calls", wait_on_fork=False)
_portals: dict[tuple[int, str], Portal] = {}


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


class Lanes:
    """Runs coroutines inline in threads; those of one lane in order, one at a time.

    One switch to a thread and back is cheaper than the event loop of a portal, which needs others
    for its calls of the store. A forked child starts with empty lanes.
    """

    def __init__(self) -> None:
        self._lock = ForkSafeLock("lanes", wait_on_fork=False)
        self._start()

    def _start(self) -> None:
        self._process = os.getpid()
        self._threads = ThreadPoolExecutor(LANE_THREADS, "holdfast-lane")
        self._waiting: dict[Hashable, deque[Callable[[], None]]] = {}
        """The pending jobs of each lane that is running one."""

    async def call_from_loop(self, lane: Hashable, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in a lane for a caller in an event loop, and return its result.

        It runs to its end even if its caller is cancelled. It may await what `run_inline` may.
        """
        return await asyncio.wrap_future(self.submit(lane, work))

    def submit(self, lane: Hashable, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine in a lane. Cancelling the result does not cancel the work."""
        answer: Future[T] = Future()
        job = partial(copy_context().run, run_job, answer, work)
        with self._lock:
            if self._process != os.getpid():
                self._start()
            if lane in self._waiting:
                self._waiting[lane].append(job)
            else:
                waiting: deque[Callable[[], None]] = deque()
                try:
                    self._threads.submit(self._run_lane, lane, waiting, job)
                except RuntimeError:  # no thread can be started, or the process ends
                    work.close()
                    raise
                self._waiting[lane] = waiting
        return answer

    def _run_lane(
        self, lane: Hashable, waiting: deque[Callable[[], None]], job: Callable[[], None]
    ) -> None:
        """Run a job, and then the pending ones of its lane."""
        with self._lock:
            if self._waiting.get(lane) is not waiting:
                return  # its caller got an error when it was submitted
        while True:
            job()
            with self._lock:
                if not waiting:
                    del self._waiting[lane]
                    return
                job = waiting.popleft()


LANES = Lanes()
"""The lanes of this process, each named by what its work uses."""


def run_job(answer: Future[T], work: Coroutine[Any, Any, T]) -> None:
    """Run a coroutine inline, and set its outcome unless the answer was cancelled."""
    try:
        result = run_inline(work)
    except BaseException as error:  # noqa: BLE001 - passed on to the caller
        if answer.set_running_or_notify_cancel():
            answer.set_exception(error)
    else:
        if answer.set_running_or_notify_cancel():
            answer.set_result(result)


def get_portal(name: str = "") -> Portal:
    """Return a portal of this process, by default that of all blocking calls."""
    process = os.getpid()
    with _lock:
        # Threads do not survive a fork: a child needs its own.
        for each in [key for key in _portals if key[0] != process]:
            del _portals[each]
        if (process, name) not in _portals:
            _portals[process, name] = Portal()
        return _portals[process, name]


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
