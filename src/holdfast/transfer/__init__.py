"""Move sessions: export and import documents, copy and back up stores."""

from __future__ import annotations

from holdfast.transfer.import_document import ImportResult
from holdfast.transfer.manager import SnapshotManager

__all__ = ["ImportResult", "SnapshotManager"]
