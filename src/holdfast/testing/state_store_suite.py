"""The test suite for implementations of ``StateStore``.

    from holdfast.testing import StateStoreSuite

    class TestMyStore(StateStoreSuite):
        @pytest.fixture
        def new_store(self, tmp_path):
            return lambda: MyStore(tmp_path)

``new_store`` returns a function that opens the store. It is empty at the start of a test. Two calls
return stores that share their data, unless the store is not ``durable``.
"""

from __future__ import annotations

from holdfast.testing.checks import STRANGE_KEYS, collect_keys, increment, read_all
from holdfast.testing.concurrency_suite import ConcurrencySuite
from holdfast.testing.conditions_suite import ConditionsSuite
from holdfast.testing.listing_suite import ListingSuite
from holdfast.testing.watch_suite import WatchSuite
from holdfast.testing.writing_suite import WritingSuite

__all__ = ["STRANGE_KEYS", "StateStoreSuite", "collect_keys", "increment", "read_all"]


class StateStoreSuite(WritingSuite, ConditionsSuite, ListingSuite, ConcurrencySuite, WatchSuite):
    """Subclass it and define the fixture ``new_store``."""
