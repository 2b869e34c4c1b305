"""Test suites for implementations of ``StateStore`` and ``SnapshotStorage``, and tests of agents.

Agents are tested with baselines and fault injection. Needs pytest and Hypothesis:
``pip install 'holdfast[testing]'``.
"""

from __future__ import annotations

from holdfast.extras import require_extra

with require_extra("testing"):
    import pytest

# Before the imports, so that failed asserts show the compared values.
for _suite in (
    "checks",
    "writing_suite",
    "conditions_suite",
    "listing_suite",
    "concurrency_suite",
    "state_machine",
    "snapshot_checks",
    "snapshot_saving_suite",
    "snapshot_listing_suite",
    "snapshot_order_suite",
    "snapshot_locations_suite",
    "snapshot_concurrency_suite",
):
    pytest.register_assert_rewrite(f"holdfast.testing.{_suite}")

with require_extra("testing"):
    from holdfast.testing.baselines import assert_matches_baseline
    from holdfast.testing.faulty_store import Crash, Fault, FaultyStateStore
    from holdfast.testing.snapshot_storage_suite import SnapshotStorageSuite
    from holdfast.testing.state_machine import compare_with_memory
    from holdfast.testing.state_store_suite import StateStoreSuite

__all__ = [
    "Crash",
    "Fault",
    "FaultyStateStore",
    "SnapshotStorageSuite",
    "StateStoreSuite",
    "assert_matches_baseline",
    "compare_with_memory",
]
