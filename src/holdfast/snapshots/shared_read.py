"""Share reads between tasks that ask for the same keys at the same time.

A commit wakes all followers of a session at once, and all of them read the same entries. A read
that was asked for starts in the next cycle of the event loop, and serves all who ask until then. It
is never joined after it started: it might not see a write that woke the one who asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TypeAlias

from holdfast.stores.base import StateStore
from holdfast.stores.entries import Entry

Read: TypeAlias = tuple[asyncio.AbstractEventLoop, int, tuple[str, ...]]
"""The event loop, the id of the store, and the keys."""

_not_started: dict[Read, asyncio.Task[Mapping[str, Entry]]] = {}


async def read_shared(state_store: StateStore, *keys: str) -> Mapping[str, Entry]:
    """Return the existing entries of some keys, as ``get_many`` does."""
    read = (asyncio.get_running_loop(), id(state_store), keys)
    task = _not_started.get(read)
    if task is None:
        task = asyncio.create_task(_run(state_store, read))
        _not_started[read] = task
        task.add_done_callback(lambda done: _forget(read, done))
    # Cancelling one of those who asked must not cancel the others.
    return await asyncio.shield(task)


async def _run(state_store: StateStore, read: Read) -> Mapping[str, Entry]:
    await asyncio.sleep(0)
    del _not_started[read]
    return await state_store.get_many(read[2])


def _forget(read: Read, done: asyncio.Task[Mapping[str, Entry]]) -> None:
    """Forget a read that was cancelled before it started."""
    if _not_started.get(read) is done:
        del _not_started[read]
