"""The suite of snapshot storages, over the archive on every backend."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest

from holdfast import SnapshotArchive
from holdfast.testing import SnapshotStorageSuite


class TestSnapshotArchive(SnapshotStorageSuite):
    @pytest.fixture
    def new_storage(self, new_state_store):
        @asynccontextmanager
        async def opened():
            async with new_state_store() as state_store:
                yield SnapshotArchive(state_store)

        return opened
