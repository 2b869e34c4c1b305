"""Small batches and few segments per keyframe."""

from __future__ import annotations

import pytest

from holdfast.log import timeline
from holdfast.transfer import copy, repair


@pytest.fixture
def often(monkeypatch):
    """Write a keyframe after few segments, and entries in small batches."""
    monkeypatch.setattr(timeline, "MAX_SEGMENTS", 3)
    monkeypatch.setattr(copy, "BATCH_SIZE", 4)
    monkeypatch.setattr(repair, "BATCH_SIZE", 4)
