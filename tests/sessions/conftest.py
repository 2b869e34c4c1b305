"""A session in memory, for tests that need no loop, and stores whose parts are small."""

from __future__ import annotations

import pytest

from holdfast.stores.memory import MemoryStateStore
from support.async_tests import run_async
from support.conversations import opened


@pytest.fixture
def session():
    """A session that has just begun, with nothing committed."""

    async def begun():
        return await opened(MemoryStateStore())

    return run_async(begun())
