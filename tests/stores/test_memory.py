"""The in-memory store, which is the model of all others."""

from __future__ import annotations

import pytest

from holdfast.stores.memory import MemoryStateStore
from holdfast.testing import StateStoreSuite


class TestMemory(StateStoreSuite):
    @pytest.fixture
    def new_store(self):
        return MemoryStateStore
