"""The task that receives notifications, whatever the driver below it does."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from holdfast.stores.listener import Listener
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
