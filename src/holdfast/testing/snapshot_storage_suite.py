"""The suite that every ``SnapshotStorage`` passes, ours and others'.

    from holdfast.testing import SnapshotStorageSuite

    class TestMyStorage(SnapshotStorageSuite):
        @pytest.fixture
        def new_storage(self, tmp_path):
            return lambda: MyStorage(tmp_path)

``new_storage`` is a function that opens the storage, on one place that is empty when the test
begins: called twice, it gives two storages that share their content. Where a storage must be
closed, the function gives an async context manager of it.
"""

from __future__ import annotations

from holdfast.testing.snapshot_checks import EVERY_VALUE, HOSTILE_IDS
from holdfast.testing.snapshot_listing_suite import ListingSnapshotsSuite
from holdfast.testing.snapshot_order_suite import SnapshotOrderSuite
from holdfast.testing.snapshot_places_suite import SnapshotPlacesSuite
from holdfast.testing.snapshot_saving_suite import SavingSnapshotsSuite
from holdfast.testing.snapshot_sharing_suite import SharingSnapshotsSuite

__all__ = [
    "EVERY_VALUE",
    "HOSTILE_IDS",
    "ListingSnapshotsSuite",
    "SavingSnapshotsSuite",
    "SharingSnapshotsSuite",
    "SnapshotOrderSuite",
    "SnapshotPlacesSuite",
    "SnapshotStorageSuite",
]


class SnapshotStorageSuite(
    SavingSnapshotsSuite,
    ListingSnapshotsSuite,
    SnapshotOrderSuite,
    SnapshotPlacesSuite,
    SharingSnapshotsSuite,
):
    """Subclass it, and give the fixture ``new_storage``."""
