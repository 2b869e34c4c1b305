"""What tests of snapshots may use."""

from __future__ import annotations

import pytest

from holdfast.log import timeline
from holdfast.snapshots import prune as pruning


@pytest.fixture
def often(monkeypatch):
    """A keyframe after few segments, chains of few keyframes, and few entries at once."""
    monkeypatch.setattr(timeline, "MOST_SEGMENTS", 4)
    monkeypatch.setattr(timeline, "LONGEST_CHAIN", 3)
    monkeypatch.setattr(pruning, "AT_ONCE", 3)
