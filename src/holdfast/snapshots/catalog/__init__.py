"""Find agents and sessions without reading them all."""

from __future__ import annotations

from holdfast.snapshots.catalog.catalog import Catalog
from holdfast.snapshots.catalog.follow import SessionChange
from holdfast.snapshots.catalog.index import SessionEntry, SessionPage
from holdfast.snapshots.catalog.summary import SessionSummary, SummaryPage

__all__ = [
    "Catalog",
    "SessionChange",
    "SessionEntry",
    "SessionPage",
    "SessionSummary",
    "SummaryPage",
]
