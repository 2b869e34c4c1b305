"""Holdfast keeps the state of AI agents: freeze, compare, roll back, branch, survive a crash.

import holdfast

store = holdfast.Store()
store.set("workflow", "onboarding", {"step": 3})
snapshot = store.snapshot()
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

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
from holdfast.stores import Condition, Entry, Put, StateStore, open_state_store
from holdfast.values import register_type
from holdfast.version import VERSION

if TYPE_CHECKING:
    from holdfast.documents import (
        Document,
        DocumentLimits,
        ValueMigrations,
        read_document,
        write_document,
    )
    from holdfast.log import Event, EventLog
    from holdfast.redaction import Redactor
    from holdfast.sessions import BlockingSession, Session, Step, UnfinishedCall, replay
    from holdfast.snapshots import (
        Catalog,
        PruneResult,
        RetentionPolicy,
        SessionEntry,
        SessionPage,
        SessionSnapshot,
        SessionState,
        SessionSummary,
        SnapshotArchive,
        SnapshotInfo,
        SnapshotLocation,
        SnapshotManifest,
        SnapshotPage,
        SnapshotStorage,
        SummaryPage,
        Verification,
    )
    from holdfast.transfer import ImportResult, SnapshotManager

__version__ = VERSION

compiled: bool = COMPILED
"""Whether the hot code runs compiled by mypyc, or the same source interpreted."""

__all__ = [
    "MISSING",
    "BlockingSession",
    "Catalog",
    "Changes",
    "Condition",
    "Conflict",
    "ConflictError",
    "Diff",
    "Document",
    "DocumentLimits",
    "Entry",
    "Event",
    "EventLog",
    "HoldfastError",
    "ImportResult",
    "IntegrityError",
    "InvalidDocumentError",
    "NotFoundError",
    "PruneResult",
    "Put",
    "Redactor",
    "RetentionPolicy",
    "Session",
    "SessionEntry",
    "SessionPage",
    "SessionSnapshot",
    "SessionState",
    "SessionSummary",
    "Snapshot",
    "SnapshotArchive",
    "SnapshotInfo",
    "SnapshotLocation",
    "SnapshotManager",
    "SnapshotManifest",
    "SnapshotPage",
    "SnapshotStorage",
    "StateStore",
    "StateStoreError",
    "Step",
    "Store",
    "SummaryPage",
    "UnfinishedCall",
    "UnsupportedValueError",
    "ValueMigrations",
    "Verification",
    "__version__",
    "compiled",
    "open_state_store",
    "read_document",
    "register_type",
    "replay",
    "write_document",
]

_ON_FIRST_USE = {
    "holdfast.documents": (
        "Document",
        "DocumentLimits",
        "ValueMigrations",
        "read_document",
        "write_document",
    ),
    "holdfast.log": (
        "Event",
        "EventLog",
    ),
    "holdfast.redaction": ("Redactor",),
    "holdfast.sessions": (
        "BlockingSession",
        "Session",
        "Step",
        "UnfinishedCall",
        "replay",
    ),
    "holdfast.snapshots": (
        "Catalog",
        "PruneResult",
        "RetentionPolicy",
        "SessionEntry",
        "SessionPage",
        "SessionSnapshot",
        "SessionState",
        "SessionSummary",
        "SnapshotArchive",
        "SnapshotInfo",
        "SnapshotLocation",
        "SnapshotManifest",
        "SnapshotPage",
        "SnapshotStorage",
        "SummaryPage",
        "Verification",
    ),
    "holdfast.transfer": (
        "ImportResult",
        "SnapshotManager",
    ),
}
_HOME = {name: home for home, names in _ON_FIRST_USE.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import what needs asyncio when it is first used: a program may want a Store and no more."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(_HOME[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
