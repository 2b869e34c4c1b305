"""Stores whose parts are small."""

from __future__ import annotations

import pytest

from holdfast.log import timeline
from holdfast.transfer import copy as copying
from holdfast.transfer import repair as mending


@pytest.fixture
def often(monkeypatch):
    """A keyframe after few segments, and few entries at once."""
    monkeypatch.setattr(timeline, "MOST_SEGMENTS", 3)
    monkeypatch.setattr(copying, "AT_ONCE", 4)
    monkeypatch.setattr(mending, "AT_ONCE", 4)
