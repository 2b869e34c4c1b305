"""Durable snapshots: named positions in the log of a session.

    layout.py            where everything of a session is kept: the keys
    records.py           what is kept of a snapshot: a position, tags, counts
    manifest.py          what is known of all of them together
    sealed.py            how both notice damage
    session_state.py     what the state of a session looks like
    session_snapshot.py  SessionSnapshot
    document.py          its JSON form
    document_reading.py  reading that, with all its checks
    document_checks.py   its digest, and its events against its state
    document_limits.py   what one may cost to read
    document_files.py    as files
    documents.py         read_document and write_document
    signing.py           signed, with the keys of signing_keys.py
    migrations.py        documents of older versions
    comparing.py         what differs between two states
    paths.py             places in a document, as a user names them
    storage.py           the interface SnapshotStorage
    archive.py           SnapshotArchive: the interface over any StateStore
    history.py           the kept snapshots from the newest back
    catalog.py           agents and sessions
    listing.py           the sessions of several agents in one list
    summary.py           what such a list says of each
    filters.py           by status, tags and time
    tool_calls.py        tool calls without a result
    founding.py          how a session begins and is deleted
    retention.py         which snapshots to keep
    pruning.py           giving back the space of the others
    verifying.py         checking all of it

A snapshot costs the same few hundred bytes for ten messages or a million.
"""

from __future__ import annotations

from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.catalog import Catalog, SessionEntry, SessionPage
from holdfast.snapshots.document_limits import DocumentLimits
from holdfast.snapshots.documents import read_document, write_document
from holdfast.snapshots.layout import SnapshotLocation
from holdfast.snapshots.manifest import SnapshotManifest
from holdfast.snapshots.migrations import ValueMigrations
from holdfast.snapshots.pruning import Pruned
from holdfast.snapshots.records import SnapshotInfo
from holdfast.snapshots.retention import RetentionPolicy
from holdfast.snapshots.session_snapshot import SessionSnapshot
from holdfast.snapshots.session_state import SessionState
from holdfast.snapshots.storage import SnapshotPage, SnapshotStorage
from holdfast.snapshots.summary import SessionSummary, SummaryPage
from holdfast.snapshots.verifying import Verification

__all__ = [
    "Catalog",
    "DocumentLimits",
    "Pruned",
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
    "ValueMigrations",
    "Verification",
    "read_document",
    "write_document",
]
