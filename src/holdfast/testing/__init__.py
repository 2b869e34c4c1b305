"""Suites that anybody can run over a ``StateStore`` or a ``SnapshotStorage`` of their own.

They need pytest and Hypothesis: ``pip install 'holdfast[testing]'``.
"""

from __future__ import annotations

import pytest

# Before they are imported: or else a check that fails would not say what was compared.
for _suite in (
    "writing_suite",
    "listing_suite",
    "sharing_suite",
    "state_machine",
    "snapshot_checks",
    "snapshot_saving_suite",
    "snapshot_listing_suite",
    "snapshot_places_suite",
    "snapshot_sharing_suite",
):
    pytest.register_assert_rewrite(f"holdfast.testing.{_suite}")

from holdfast.testing.baselines import assert_matches_baseline  # noqa: E402
from holdfast.testing.snapshot_storage_suite import SnapshotStorageSuite  # noqa: E402
from holdfast.testing.state_machine import compare_with_memory  # noqa: E402
from holdfast.testing.state_store_suite import StateStoreSuite  # noqa: E402

__all__ = [
    "SnapshotStorageSuite",
    "StateStoreSuite",
    "assert_matches_baseline",
    "compare_with_memory",
]
