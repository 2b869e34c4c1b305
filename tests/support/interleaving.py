"""Run several actors on one store, in a chosen order of their store calls.

An actor is a coroutine that is driven by hand, without an event loop or threads. It stops before
every call of its `ScheduledStore`, so a schedule decides which call happens next. An actor that is
not continued is a process that was killed there.
"""

from __future__ import annotations

import contextvars
import types

from holdfast.stores.base import StateStore
from holdfast.stores.local import RUN_INLINE
from holdfast.stores.wrappers.base import WrappedStateStore


@types.coroutine
def stop():
    """Return to the driver of the actor."""
    yield


class ScheduledStore(WrappedStateStore):
    """A store that stops before every call.

    ``atomic`` and ``conditional`` tell what ``put_many`` can do.
    """

    def __init__(self, inner, *, atomic=True, conditional=True):
        super().__init__(inner)
        self.atomic_put_many = atomic
        self.conditional_put_many = conditional

    async def get(self, key):
        await stop()
        return await self.inner.get(key)

    async def get_many(self, keys):
        if self.atomic_put_many:
            await stop()
            return await self.inner.get_many(keys)
        return await StateStore.get_many(self, keys)

    async def put(self, key, value, **conditions):
        await stop()
        return await self.inner.put(key, value, **conditions)

    async def put_many(self, puts, *, conditions=()):
        self._require_conditions(conditions)
        if self.atomic_put_many:
            await stop()
            return await self.inner.put_many(puts, conditions=conditions)
        return await StateStore.put_many(self, puts)

    async def delete(self, key, **conditions):
        await stop()
        return await self.inner.delete(key, **conditions)

    async def list(self, prefix="", **bounds):
        await stop()
        async for key in self.inner.list(prefix, **bounds):
            yield key


class Actor:
    """A coroutine that runs from one store call to the next."""

    def __init__(self, work):
        self.work = work
        self.is_done = False
        self.result = None
        self.error = None
        self._context = contextvars.copy_context()
        self._context.run(RUN_INLINE.set, True)

    def run(self, calls=None):
        """Run for a number of store calls, or to the end; return how many there were."""
        count = 0
        while not self.is_done and (calls is None or count < calls):
            try:
                self._context.run(self.work.send, None)
            except StopIteration as done:
                self.is_done, self.result = True, done.value
            except Exception as error:  # noqa: BLE001 - kept for the test
                self.is_done, self.error = True, error
            count += 1
        return count

    def kill(self):
        """Do not continue."""
        if not self.is_done:
            self.is_done = True
            self._context.run(self.work.close)


def run_schedule(actors, schedule, killed=()):
    """Run actors for the numbers of calls of a schedule, kill some, and finish the rest."""
    for at, calls in schedule:
        actors[at].run(calls)
    for at in killed:
        actors[at].kill()
    for actor in actors:
        actor.run()
