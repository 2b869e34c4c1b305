"""Fixtures for tests of snapshots."""

from __future__ import annotations

import pytest

from holdfast.log import timeline
from holdfast.stores import batch_read


@pytest.fixture
def often(monkeypatch):
    """Write keyframes after few segments, with short chains, and read in small batches."""
    monkeypatch.setattr(timeline, "MAX_SEGMENTS", 4)
    monkeypatch.setattr(timeline, "MAX_CHAIN", 3)
    monkeypatch.setattr(batch_read, "BATCH_SIZE", 3)
