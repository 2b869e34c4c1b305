"""Share reads between tasks of one event loop that follow the same log.

A commit wakes all followers of a session at once, and all of them read the same entries. A read
that was asked for starts in the next cycle of the event loop, and serves all who ask until then. It
is never joined after it started: it might not see a write that woke the one who asks.

If nothing wakes them, one of them polls for all: a follower does not read what another one has just
found to be missing, and the one that finds something wakes the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from holdfast.stores.base import StateStore
from holdfast.stores.watch import StoreWatch

T = TypeVar("T")
Key: TypeAlias = tuple[asyncio.AbstractEventLoop, int, Hashable]
"""The event loop, the id of the store, and what is read."""

_not_started: dict[Key, asyncio.Task[Any]] = {}


async def share_read(
    state_store: StateStore, what: Hashable, read: Callable[[], Awaitable[T]]
) -> T:
    """Return what a function reads, called once for all who ask for the same at the same time."""
    key = (asyncio.get_running_loop(), id(state_store), what)
    task: asyncio.Task[T] | None = _not_started.get(key)
    if task is None:
        task = asyncio.create_task(_run(key, read))
        _not_started[key] = task
        task.add_done_callback(lambda done: _forget(key, done))
    # Cancelling one of those who asked must not cancel the others.
    return await asyncio.shield(task)


async def _run(key: Key, read: Callable[[], Awaitable[T]]) -> T:
    await asyncio.sleep(0)
    del _not_started[key]
    return await read()


def _forget(key: Key, done: asyncio.Task[Any]) -> None:
    """Forget a read that was cancelled before it started."""
    if _not_started.get(key) is done:
        del _not_started[key]


class SharedPoll:
    """What the followers of one log in an event loop know about its end."""

    def __init__(self) -> None:
        self._seq = -1
        self._checked_at = 0.0
        self.watches: set[StoreWatch] = set()
        """Those of the followers."""

    @classmethod
    def get(cls, state_store: StateStore, prefix: str) -> SharedPoll:
        """Return the object that the followers of a log share, as long as one of them keeps it."""
        key = (asyncio.get_running_loop(), id(state_store), prefix)
        return _polls.setdefault(key, cls())

    def is_fresh(self, seq: int, now: float, seconds: float) -> bool:
        """Return whether a read of the last seconds found nothing after an event."""
        return self._seq == seq and now - self._checked_at < seconds

    def note_end(self, seq: int, checked_at: float) -> None:
        """Remember that there was nothing after an event at a time."""
        self._seq, self._checked_at = seq, checked_at

    def wake_others(self, watch: StoreWatch, key: str) -> None:
        """Wake the other followers, because a key was found without a wake-up."""
        for each in self.watches:
            if each is not watch:
                each.notify([key])


_polls: WeakValueDictionary[tuple[asyncio.AbstractEventLoop, int, str], SharedPoll] = (
    WeakValueDictionary()
)
