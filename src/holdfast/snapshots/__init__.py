"""Durable snapshots: named positions in the log of a session."""

from __future__ import annotations

from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.catalog.catalog import Catalog
from holdfast.snapshots.catalog.follow import SessionChange
from holdfast.snapshots.catalog.index import SessionEntry, SessionPage
from holdfast.snapshots.catalog.summary import SessionSummary, SummaryPage
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.snapshots.manifest import SnapshotManifest
from holdfast.snapshots.prune import PruneResult
from holdfast.snapshots.records import SnapshotInfo
from holdfast.snapshots.retention import RetentionPolicy
from holdfast.snapshots.session_snapshot import SessionSnapshot
from holdfast.snapshots.session_state import SessionState
from holdfast.snapshots.storage import SnapshotPage, SnapshotStorage
from holdfast.snapshots.verify import Verification

__all__ = [
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
]
