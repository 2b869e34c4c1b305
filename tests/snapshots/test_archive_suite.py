"""The suite of snapshot storages, over the archive on every backend.

On those that are slow to answer, it is the part in which backends differ: names and many writers.
"""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest

from holdfast import SnapshotArchive
from holdfast.testing import SnapshotStorageSuite
from holdfast.testing.snapshot_storage_suite import ConcurrentSnapshotsSuite, SnapshotLocationsSuite
from support.backends import BACKENDS

SLOW = ("postgresql", "s3", "nats", "dapr")
QUICK = tuple(backend for backend in BACKENDS if backend not in SLOW)


@pytest.fixture
def new_storage(new_state_store):
    @asynccontextmanager
    async def opened():
        async with new_state_store() as state_store:
            yield SnapshotArchive(state_store)

    return opened


@pytest.mark.parametrize("new_state_store", QUICK, indirect=True)
class TestSnapshotArchive(SnapshotStorageSuite):
    pass


@pytest.mark.parametrize("new_state_store", SLOW, indirect=True)
class TestWhereAnswersAreSlow(SnapshotLocationsSuite, ConcurrentSnapshotsSuite):
    pass
