"""What every test may use."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

from holdfast.state.trie import HASHING

# Times on a shared machine say nothing, so Hypothesis has no deadlines here.
settings.register_profile(
    "quick", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "thorough", deadline=None, max_examples=2000, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HOLDFAST_HYPOTHESIS", "quick"))


@pytest.fixture(params=[-1, 0, 0b111111, 0b1000001], ids=["spread", "one hash", "64", "deep"])
def hash_mask(request: pytest.FixtureRequest):
    """Runs a test with the real hash, and with hashes that have only the given bits."""
    HASHING.mask = request.param
    yield request.param
    HASHING.mask = -1
