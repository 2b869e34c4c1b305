"""The suite that every ``StateStore`` passes, ours and others'.

    from holdfast.testing import StateStoreSuite

    class TestMyStore(StateStoreSuite):
        @pytest.fixture
        def new_store(self, tmp_path):
            return lambda: MyStore(tmp_path)

``new_store`` is a function that opens the store, on one place that is empty when the test begins:
called twice, it gives two stores that share their content (unless the store is not ``durable``).
"""

from __future__ import annotations

from holdfast.testing.checks import STRANGE_KEYS, content, increment, listed
from holdfast.testing.conditions_suite import ConditionsSuite
from holdfast.testing.listing_suite import ListingSuite
from holdfast.testing.sharing_suite import SharingSuite
from holdfast.testing.writing_suite import WritingSuite

__all__ = ["STRANGE_KEYS", "StateStoreSuite", "content", "increment", "listed"]


class StateStoreSuite(WritingSuite, ConditionsSuite, ListingSuite, SharingSuite):
    """Subclass it, and give the fixture ``new_store``."""
