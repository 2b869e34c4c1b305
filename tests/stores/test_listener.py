"""The task that receives notifications, whatever the driver below it does."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from holdfast.stores.listener import Listener
from holdfast.stores.watch import StoreWatch
from support.async_tests import async_test


class IgnorantListener(Listener):
    """A listener whose driver ignores a cancellation, as ``asyncio.wait_for`` may."""

    def __init__(self, *, connects: bool) -> None:
        super().__init__(timeout=1.0, explain=str)
        self._connects = connects
        self.is_connecting = asyncio.Event()

    async def _listen(self, set_ready):
        with suppress(asyncio.CancelledError):
            self.is_connecting.set()
            await asyncio.Event().wait()
        if not self._connects:
            raise OSError("refused")
        set_ready()
        await asyncio.Event().wait()


@pytest.mark.parametrize("connects", [False, True])
@async_test
async def test_a_driver_that_ignores_its_cancellation_does_not_keep_the_listener(connects):
    listener = IgnorantListener(connects=connects)
    await listener.is_connecting.wait()
    stopping = asyncio.create_task(listener.stop())
    done, _ = await asyncio.wait([stopping], timeout=5)
    listener._task.cancel()
    assert done == {stopping}


class FailingListener(Listener):
    """A listener whose driver has a bug, after it has connected."""

    attempts = 0

    async def _listen(self, set_ready):
        self.attempts += 1
        set_ready()
        if self.attempts == 1:
            raise AttributeError("'NoneType' object has no attribute 'drain'")
        await asyncio.Event().wait()


@async_test
async def test_an_unexpected_error_of_a_driver_does_not_end_the_listener():
    listener = FailingListener(timeout=1.0, explain=str)
    watch = StoreWatch()
    await listener.add("a/", watch)
    async with asyncio.timeout(10):
        while listener.attempts < 2:
            await watch.wait(0.1)
    assert watch.hears_others
    await listener.stop()
    assert not watch.hears_others
