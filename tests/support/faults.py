"""A faulty store for tests that inject one fault at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast import StateStoreError
from holdfast.testing import Crash, Fault, faulty_store
from holdfast.testing.faulty_store import Calls, Kind

__all__ = ["RAISED", "WAYS", "Crash", "Fault", "FaultyStateStore", "Kind"]

WAYS: list[tuple[Kind, bool]] = [
    ("error", False),
    ("unknown", False),
    ("unknown", True),
    ("cancelled", False),
    ("cancelled", True),
    ("crash", False),
    ("crash", True),
]
"""Every way in which a write can fail, not done and done."""

RAISED = (StateStoreError, asyncio.CancelledError, Crash)
"""What they raise."""


class FaultyStateStore(faulty_store.FaultyStateStore):
    """Makes one call fail, or runs a function during a write."""

    during_write: Callable[[], None] | None = None
    """Called once, during the next write, as another task would."""

    @property
    def happened(self) -> Fault | None:
        """The fault that was planned, once it has happened."""
        return self.faults[-1] if self.faults else None

    def _next(self, of: Calls) -> Fault | None:
        fault = super()._next(of)
        if of == "writes":
            during_write, self.during_write = self.during_write, None
            if during_write is not None:
                during_write()
        return fault
