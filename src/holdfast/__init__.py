"""Holdfast stores the state of AI agents: snapshot, diff, roll back, fork, resume after a crash.

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
from holdfast.state.diff import Changes, Diff
from holdfast.state.merge_conflict import MISSING, Conflict
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store
from holdfast.state.trie import COMPILED
from holdfast.stores import Condition, Entry, Put, StateStore, open_state_store
from holdfast.values import register_type
from holdfast.values.references import Attachment
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
    from holdfast.sessions import (
        BlockingSession,
        BlockingWorkspace,
        Session,
        Step,
        UnfinishedCall,
        Workspace,
        replay,
    )
    from holdfast.snapshots import (
        Catalog,
        PruneResult,
        RetentionPolicy,
        SessionChange,
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
    from holdfast.workspaces import (
        CaptureReport,
        FileChange,
        FileEntry,
        RestoreReport,
        SkippedFile,
        WorkspaceChangedError,
        WorkspaceDiff,
        WorkspaceError,
    )

__version__ = VERSION

compiled: bool = COMPILED
"""Whether the hot code was compiled by mypyc, or runs interpreted."""

__all__ = [
    "MISSING",
    "Attachment",
    "BlockingSession",
    "BlockingWorkspace",
    "CaptureReport",
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
    "FileChange",
    "FileEntry",
    "HoldfastError",
    "ImportResult",
    "IntegrityError",
    "InvalidDocumentError",
    "NotFoundError",
    "PruneResult",
    "Put",
    "Redactor",
    "RestoreReport",
    "RetentionPolicy",
    "Session",
    "SessionChange",
    "SessionEntry",
    "SessionPage",
    "SessionSnapshot",
    "SessionState",
    "SessionSummary",
    "SkippedFile",
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
    "Workspace",
    "WorkspaceChangedError",
    "WorkspaceDiff",
    "WorkspaceError",
    "__version__",
    "compiled",
    "open_state_store",
    "read_document",
    "register_type",
    "replay",
    "write_document",
]

_LAZY_NAMES = {
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
        "BlockingWorkspace",
        "Session",
        "Step",
        "UnfinishedCall",
        "Workspace",
        "replay",
    ),
    "holdfast.snapshots": (
        "Catalog",
        "PruneResult",
        "RetentionPolicy",
        "SessionChange",
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
    "holdfast.workspaces": (
        "CaptureReport",
        "FileChange",
        "FileEntry",
        "RestoreReport",
        "SkippedFile",
        "WorkspaceChangedError",
        "WorkspaceDiff",
        "WorkspaceError",
    ),
}
_MODULE_OF = {name: module for module, names in _LAZY_NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import names that need asyncio on first use: a program may only need a Store."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_MODULE_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
