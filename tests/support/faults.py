"""The store that fails on purpose, with what tests of one fault at a time need beside it."""

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
"""What comes of them."""


class FaultyStateStore(faulty_store.FaultyStateStore):
    """Lets one call fail, and others do something while it is under way."""

    meanwhile: Callable[[], None] | None = None
    """Done while the next write is under way, as another task would."""

    @property
    def happened(self) -> Fault | None:
        """The fault that was planned, once it has happened."""
        return self.faults[-1] if self.faults else None

    def _next(self, of: Calls) -> Fault | None:
        fault = super()._next(of)
        if of == "writes":
            meanwhile, self.meanwhile = self.meanwhile, None
            if meanwhile is not None:
                meanwhile()
        return fault
