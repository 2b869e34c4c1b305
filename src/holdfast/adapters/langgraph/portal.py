"""The background event loop that runs a saver's blocking methods."""

from __future__ import annotations

import os
from collections.abc import Coroutine
from typing import Any, TypeVar

from holdfast.process_fork import ForkSafeLock
from holdfast.sessions.portal import Portal
from holdfast.stores.base import StateStore

T = TypeVar("T")


class SaverPortal:
    """The `Portal` of one saver, started on first use and again after a process fork."""

    def __init__(self) -> None:
        self._lock = ForkSafeLock("a saver", wait_on_fork=False)
        self._portal: Portal | None = None

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result."""
        with self._lock:
            if self._portal is None or self._portal.process != os.getpid():
                self._portal = Portal(in_place=True)
            portal = self._portal
        return portal.call(work)

    def close(self, state_store: StateStore) -> None:
        """Close a store and stop the loop."""
        self.call(state_store.close())
        self.end()

    def end(self) -> None:
        """Stop the loop, if it runs."""
        with self._lock:
            portal, self._portal = self._portal, None
        if portal is not None:
            portal.close()
