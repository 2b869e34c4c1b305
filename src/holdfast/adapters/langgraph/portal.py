"""The thread in which a saver does what a graph that is not async waits for."""

from __future__ import annotations

import os
from collections.abc import Coroutine
from typing import Any, TypeVar

from holdfast.process_fork import ForkSafeLock
from holdfast.sessions.portal import Portal
from holdfast.stores.base import StateStore

T = TypeVar("T")


class SaverPortal:
    """A portal of one saver, begun when it is first needed, and anew after a fork."""

    def __init__(self) -> None:
        self._lock = ForkSafeLock("a saver", wait_on_fork=False)
        self._portal: Portal | None = None

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """What a coroutine gives."""
        with self._lock:
            if self._portal is None or self._portal.process != os.getpid():
                self._portal = Portal(in_place=True)
            here = self._portal
        return here.call(work)

    def close(self, state_store: StateStore) -> None:
        """Close a store, and end the thread."""
        self.call(state_store.close())
        self.end()

    def end(self) -> None:
        """End the thread, if there is one."""
        with self._lock:
            here, self._portal = self._portal, None
        if here is not None:
            here.close()
