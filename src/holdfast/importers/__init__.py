"""Import sessions from files and databases that other tools wrote."""

from __future__ import annotations

from holdfast.importers.history import History
from holdfast.importers.registry import Reader, read, register_reader, unregister_reader
from holdfast.importers.snapshots import save_snapshots
from holdfast.importers.source import Source

__all__ = [
    "History",
    "Reader",
    "Source",
    "read",
    "register_reader",
    "save_snapshots",
    "unregister_reader",
]
