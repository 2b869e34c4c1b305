"""A session in memory, for tests that need no loop."""

from __future__ import annotations

import pytest

from holdfast.stores.memory import MemoryStateStore
from loops import done
from sessions.conversations import opened


@pytest.fixture
def session():
    """A session that has just begun, with nothing committed."""

    async def begun():
        return await opened(MemoryStateStore())

    return done(begun())
