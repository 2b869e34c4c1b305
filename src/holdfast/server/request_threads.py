"""Threads that do the work of requests, so that the event loop only moves bytes.

A request makes several calls of the store, and a hop to a thread and back costs more than such a
call. So all of its work moves to a thread, where it runs inline: a local store works in place. That
also keeps long work, such as folding a large log, from delaying other requests.

A store that cannot run inline has connections that belong to the event loop of the server: requests
to it stay on that loop.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from contextlib import nullcontext, suppress
from contextvars import copy_context
from functools import cache, partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from holdfast.stores.base import StateStore
from holdfast.stores.portal import run_inline

T = TypeVar("T")

THREADS = 8
"""Threads of a process. They never stop, since stores have a connection for each of them."""


class RequestThreads:
    """Runs the work of one app in the threads of the process."""

    def __init__(self, state_store: StateStore) -> None:
        self._is_used = state_store.runs_inline
        self._running = 0
        self._idle = asyncio.Event()

    async def run(
        self, work: Callable[[], Coroutine[Any, Any, T]], *, lock: asyncio.Lock | None = None
    ) -> T:
        """Return what a coroutine function returns, called in a thread if the store allows it.

        Work that has started in a thread runs to its end, even if the caller is cancelled, and the
        ``lock`` is held until then.
        """
        if not self._is_used:
            async with lock or nullcontext():
                return await work()
        jobs = start_threads(os.getpid())
        if lock is not None:
            await lock.acquire()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        context = copy_context()

        def run_in_context() -> None:
            respond: Callable[[], object] = answer.cancel
            if not answer.cancelled():
                try:
                    result = context.run(run_inline, work())
                except BaseException as error:  # noqa: BLE001 - raised in the caller
                    respond = partial(answer.set_exception, error)
                else:
                    respond = partial(answer.set_result, result)
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(end, respond)

        def end(respond: Callable[[], object]) -> None:
            self._running -= 1
            if not self._running:
                self._idle.set()
            if lock is not None:
                lock.release()
            if not answer.done():
                respond()

        self._running += 1
        self._idle.clear()
        jobs.put(run_in_context)
        return await answer

    async def wait_until_idle(self, seconds: float) -> None:
        """Wait for work whose caller was cancelled, before the store is closed."""
        if self._running:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), seconds)


@cache
def start_threads(process: int) -> SimpleQueue[Callable[[], None]]:
    """Start the threads of a process, and return their queue. A forked child has its own."""
    jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def serve() -> None:
        while True:
            jobs.get()()

    for number in range(THREADS):
        Thread(target=serve, name=f"holdfast-request-{process}-{number}", daemon=True).start()
    return jobs
