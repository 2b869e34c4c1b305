"""The test suite of snapshot storages, run on `SnapshotArchive`.

All of it runs on memory, SQLite and one server. On the other backends only the concurrent writers
run, where backends differ; `test_backends` covers the basics on each.
"""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest

from holdfast import SnapshotArchive
from holdfast.testing import SnapshotStorageSuite
from holdfast.testing.snapshot_storage_suite import ConcurrentSnapshotsSuite
from support.backends import BACKENDS

WHOLE_SUITE = ("memory", "sqlite", "redis")
OTHERS = tuple(backend for backend in BACKENDS if backend not in WHOLE_SUITE)


@pytest.fixture
def new_storage(new_state_store):
    @asynccontextmanager
    async def opened():
        async with new_state_store() as state_store:
            yield SnapshotArchive(state_store)

    return opened


@pytest.mark.parametrize("new_state_store", WHOLE_SUITE, indirect=True)
class TestSnapshotArchive(SnapshotStorageSuite):
    pass


@pytest.mark.parametrize("new_state_store", OTHERS, indirect=True)
class TestConcurrentWriters(ConcurrentSnapshotsSuite):
    pass
