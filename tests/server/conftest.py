"""An empty store in memory, and somebody who asks the app on it."""

from __future__ import annotations

import pytest

import holdfast
from server.world import TOKENS, client


@pytest.fixture
def store():
    """An empty store."""
    return holdfast.open_state_store("memory://")


@pytest.fixture
def api(store):
    """Asks the app on the store from this machine."""
    return client(store)


@pytest.fixture
def guarded(store):
    """Asks an app with tokens, from elsewhere and without one."""
    return client(store, address=("203.0.113.7", 1234), tokens=TOKENS)
