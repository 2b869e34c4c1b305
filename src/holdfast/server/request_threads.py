"""Threads that do the work of requests, so that the event loop only moves bytes.

A request makes several calls of the store, and a hop to a thread and back costs more than such a
call. So all of its work moves to a thread, where a local store works in place. That also keeps long
work, such as folding a large log, from delaying other requests.

Each thread has an event loop of its own. A store whose connections belong to the event loop that
opened them cannot be used there: requests to it stay on the loop of the server.
"""

from __future__ import annotations

import asyncio
import os
import threading
from asyncio import events
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from types import coroutine
from typing import Any, Generic, TypeVar

from holdfast.stores.base import StateStore
from holdfast.stores.local import RUN_INLINE

T = TypeVar("T")

THREADS = 8
"""Threads of a process. They never stop, since stores have a connection for each of them."""


class Job(Generic[T]):
    """A coroutine function to call in a thread, and the future of its caller."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._work = work
        self._context = copy_context()
        self._context.run(RUN_INLINE.set, True)
        self._caller = asyncio.get_running_loop()
        self._task: asyncio.Task[T] | None = None
        self.answer: asyncio.Future[T] = self._caller.create_future()
        self.ended = threading.Event()

    def run(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run the work in the loop of this thread."""
        result: T | None = None
        problem: BaseException | None = None
        if not self.answer.cancelled():
            try:
                result = self._context.run(self._run, loop)
            except BaseException as error:  # noqa: BLE001 - raised in the caller
                problem = error
        self.ended.set()
        with suppress(RuntimeError):  # the caller's loop has ended
            self._caller.call_soon_threadsafe(self._respond, result, problem)

    def _run(self, loop: asyncio.AbstractEventLoop) -> T:
        """Return the result of the work. Without a wait, it needs no turn of the loop."""
        work = self._work()
        events._set_running_loop(loop)
        try:
            waits_for = work.send(None)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            events._set_running_loop(None)
        self._task = loop.create_task(resume(work, waits_for))
        return loop.run_until_complete(self._task)

    def _respond(self, result: Any, problem: BaseException | None) -> None:
        if self.answer.done():
            return
        if problem is None:
            self.answer.set_result(result)
        else:
            self.answer.set_exception(problem)

    def cancel(self) -> None:
        """Cancel the work, which ends when it next waits for something."""
        if self._task is not None:
            with suppress(RuntimeError):  # it ended just now
                self._task.get_loop().call_soon_threadsafe(self._task.cancel)


@coroutine
def resume(work: Coroutine[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:
    """Run a coroutine that was started and waits for something to its end."""
    while True:
        try:
            answer = yield waits_for
        except BaseException as error:  # noqa: BLE001 - passed on
            step = partial(work.throw, error)
        else:
            step = partial(work.send, answer)
        try:
            waits_for = step()
        except StopIteration as end:
            result: T = end.value
            return result


class RequestThreads:
    """Runs the work of one app in the threads of the process."""

    def __init__(self, state_store: StateStore) -> None:
        self._is_used = state_store.runs_inline
        self._jobs: set[Job[Any]] = set()

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return what a coroutine function returns, called in a thread if the store allows it."""
        if not self._is_used:
            return await work()
        job = Job(work)
        self._jobs.add(job)
        submit(job)
        try:
            return await job.answer
        except asyncio.CancelledError:
            job.cancel()
            raise
        finally:
            self._jobs = {each for each in self._jobs if not each.ended.is_set()}

    async def wait_until_idle(self, seconds: float) -> None:
        """Wait for work whose caller was cancelled, before the store is closed."""
        for job in self._jobs:
            await asyncio.to_thread(job.ended.wait, seconds)


# ------------------------------------------------------------------------- threads of the process


class ThreadLoop(asyncio.SelectorEventLoop):
    """The loop of a thread: what is left to another thread runs in this one."""

    def run_in_executor(  # type: ignore[override]
        self, _: object, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Return the outcome of a function."""
        outcome = self.create_future()
        try:
            outcome.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - raised in the caller
            outcome.set_exception(error)
        return outcome


class ThreadPool:
    """The threads of one process and their queue. A forked child starts its own."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.jobs: SimpleQueue[Job[Any]] = SimpleQueue()
        for number in range(THREADS):
            name = f"holdfast-request-{number}"
            threading.Thread(target=self._serve, name=name, daemon=True).start()

    def _serve(self) -> None:
        loop = ThreadLoop()
        while True:
            self.jobs.get().run(loop)


pool: ThreadPool | None = None


def submit(job: Job[Any]) -> None:
    """Queue a job."""
    global pool  # noqa: PLW0603 - the threads belong to the process
    if pool is None or pool.process != os.getpid():
        pool = ThreadPool()
    pool.jobs.put(job)
