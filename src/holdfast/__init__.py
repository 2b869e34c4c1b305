"""Holdfast keeps the state of AI agents: freeze, compare, roll back, branch.

import holdfast

store = holdfast.Store()
store.set("workflow", "onboarding", {"step": 3})
snapshot = store.snapshot()
"""

from __future__ import annotations

from holdfast.errors import (
    ConflictError,
    HoldfastError,
    IntegrityError,
    InvalidDocumentError,
    NotFoundError,
    StateStoreError,
    UnsupportedValueError,
)
from holdfast.state.conflict import MISSING, Conflict
from holdfast.state.diff import Changes, Diff
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store
from holdfast.state.trie import COMPILED
from holdfast.stores import Entry, Put, StateStore, open_state_store
from holdfast.values import register_type
from holdfast.version import VERSION

__version__ = VERSION

compiled: bool = COMPILED
"""Whether the hot code runs compiled by mypyc, or the same source interpreted."""

__all__ = [
    "MISSING",
    "Changes",
    "Conflict",
    "ConflictError",
    "Diff",
    "Entry",
    "HoldfastError",
    "IntegrityError",
    "InvalidDocumentError",
    "NotFoundError",
    "Put",
    "Snapshot",
    "StateStore",
    "StateStoreError",
    "Store",
    "UnsupportedValueError",
    "__version__",
    "compiled",
    "open_state_store",
    "register_type",
]
