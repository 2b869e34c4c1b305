"""The test suite for implementations of ``SnapshotStorage``.

    from holdfast.testing import SnapshotStorageSuite

    class TestMyStorage(SnapshotStorageSuite):
        @pytest.fixture
        def new_storage(self, tmp_path):
            return lambda: MyStorage(tmp_path)

``new_storage`` returns a function that opens the storage. It is empty at the start of a test. Two
calls return storages that share their data. To close a storage, return an async context manager.
"""

from __future__ import annotations

from holdfast.testing.snapshot_checks import EVERY_VALUE, HOSTILE_IDS
from holdfast.testing.snapshot_concurrency_suite import ConcurrentSnapshotsSuite
from holdfast.testing.snapshot_listing_suite import ListingSnapshotsSuite
from holdfast.testing.snapshot_locations_suite import SnapshotLocationsSuite
from holdfast.testing.snapshot_order_suite import SnapshotOrderSuite
from holdfast.testing.snapshot_saving_suite import SavingSnapshotsSuite

__all__ = [
    "EVERY_VALUE",
    "HOSTILE_IDS",
    "ConcurrentSnapshotsSuite",
    "ListingSnapshotsSuite",
    "SavingSnapshotsSuite",
    "SnapshotLocationsSuite",
    "SnapshotOrderSuite",
    "SnapshotStorageSuite",
]


class SnapshotStorageSuite(
    SavingSnapshotsSuite,
    ListingSnapshotsSuite,
    SnapshotOrderSuite,
    SnapshotLocationsSuite,
    ConcurrentSnapshotsSuite,
):
    """Subclass it and define the fixture ``new_storage``."""
