"""A session in memory, for tests that need no loop, and stores whose parts are small."""

from __future__ import annotations

import pytest

from holdfast.log import timeline
from holdfast.sessions import copying, mending
from holdfast.stores.memory import MemoryStateStore
from loops import done
from sessions.conversations import opened


@pytest.fixture
def session():
    """A session that has just begun, with nothing committed."""

    async def begun():
        return await opened(MemoryStateStore())

    return done(begun())


@pytest.fixture
def often(monkeypatch):
    """A keyframe after few segments, and few entries at once."""
    monkeypatch.setattr(timeline, "MOST_SEGMENTS", 3)
    monkeypatch.setattr(copying, "AT_ONCE", 4)
    monkeypatch.setattr(mending, "AT_ONCE", 4)
