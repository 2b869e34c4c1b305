"""Stores whose parts are small."""

from __future__ import annotations

import pytest

from holdfast.log import timeline
from holdfast.transfer import copy, repair


@pytest.fixture
def often(monkeypatch):
    """A keyframe after few segments, and few entries at once."""
    monkeypatch.setattr(timeline, "MAX_SEGMENTS", 3)
    monkeypatch.setattr(copy, "BATCH_SIZE", 4)
    monkeypatch.setattr(repair, "BATCH_SIZE", 4)
