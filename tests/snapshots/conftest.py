"""What tests of snapshots may use."""

from __future__ import annotations

import pytest

from holdfast.log import timeline
from holdfast.snapshots import prune


@pytest.fixture
def often(monkeypatch):
    """A keyframe after few segments, chains of few keyframes, and few entries at once."""
    monkeypatch.setattr(timeline, "MAX_SEGMENTS", 4)
    monkeypatch.setattr(timeline, "MAX_CHAIN", 3)
    monkeypatch.setattr(prune, "AT_ONCE", 3)
