"""A session in memory, for tests that do not need an event loop."""

from __future__ import annotations

import pytest

from holdfast.stores.memory import MemoryStateStore
from support.async_tests import run_async
from support.conversations import open_session


@pytest.fixture
def session():
    """A new session without commits."""

    async def open_new():
        return await open_session(MemoryStateStore())

    return run_async(open_new())
