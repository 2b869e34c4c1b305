"""Memory stores."""

from __future__ import annotations

import pytest

from holdfast import open_state_store
from holdfast.adapters.langgraph import HoldfastStore


@pytest.fixture
def memory():
    """A memory store on an empty store in memory."""
    with HoldfastStore(open_state_store("memory:")) as found:
        yield found
