"""A loop in a thread of its own, for callers that are not async."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_lock = threading.Lock()
_portals: dict[int, Portal] = {}


class Portal:
    """Runs coroutines in a loop that lives in a thread, as long as the process does."""

    def __init__(self) -> None:
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
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


def portal() -> Portal:
    """The portal of this process."""
    with _lock:
        # Threads do not survive a fork: a child makes its own.
        if os.getpid() not in _portals:
            _portals.clear()
            _portals[os.getpid()] = Portal()
        return _portals[os.getpid()]
