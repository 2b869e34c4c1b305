"""Stores that fail as planned or at random, for the tests of retries."""

from __future__ import annotations

import random

from holdfast import StateStoreError
from holdfast.stores.memory import MemoryStateStore
from holdfast.stores.wrappers.retry import RetryingStateStore


async def read_first_key(keys):
    """Return the first key of a listing."""
    return await anext(keys)


def refused_error(name="busy"):
    """Return the error of a write that was not applied."""
    return StateStoreError(name, transient=True)


def lost_error(name="cut off"):
    """Return the error of a write that may have been applied."""
    return StateStoreError(name, transient=True, unknown=True)


class FailBefore:
    """A failure before the call is applied."""

    def __init__(self, error):
        self.error = error


class FailAfter(FailBefore):
    """A failure after the call was applied: the response is lost."""


class FaultyStore(MemoryStateStore):
    """A store that fails as planned, call by call, and runs ``after_failure`` before it raises."""

    def __init__(self):
        super().__init__()
        self.plan = []
        self.calls = 0
        self.after_failure = None

    async def run_planned(self, work):
        self.calls += 1
        fault = self.plan.pop(0) if self.plan else None
        if fault is None:
            return await work()
        if isinstance(fault, FailAfter):
            await work()
        if self.after_failure is not None:
            await self.after_failure()
        raise fault.error

    async def _get(self, key):
        return await self.run_planned(lambda: MemoryStateStore._get(self, key))

    async def _get_many(self, keys):
        return await self.run_planned(lambda: MemoryStateStore._get_many(self, keys))

    async def _put(self, put):
        return (await self._put_many([put]))[0]

    async def _put_many(self, puts, conditions=()):
        return await self.run_planned(lambda: MemoryStateStore._put_many(self, puts, conditions))

    async def _delete(self, key, if_match):
        return await self.run_planned(lambda: MemoryStateStore._delete(self, key, if_match))

    async def _page(self, key_range, count):
        return await self.run_planned(lambda: MemoryStateStore._page(self, key_range, count))


class FaultyBatchStore(FaultyStore):
    """A store whose batches are not atomic, so that a failure can leave part of one."""

    atomic_put_many = False
    conditional_put_many = False

    async def _put(self, put):
        return (await FaultyStore._put_many(self, [put]))[0]

    async def _put_many(self, puts, conditions=()):
        return [await self._put(put) for put in puts]


class UnreliableStore(FaultyStore):
    """A store that refuses every third call, at random."""

    async def run_planned(self, work):
        if random.random() < 0.33:
            raise refused_error()
        return await work()


class UnreliableBatchStore(UnreliableStore):
    atomic_put_many = False
    conditional_put_many = False
    _put = FaultyBatchStore._put
    _put_many = FaultyBatchStore._put_many


def add_retries(inner, **options):
    """Return a store with retries and without pauses."""
    return RetryingStateStore(inner, **{"first_pause": 0.0, **options})
