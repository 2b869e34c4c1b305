"""One SQLite file: the default backend."""

from __future__ import annotations

from holdfast.stores.sqlite.store import SqliteStateStore, open_url

__all__ = ["SqliteStateStore", "open_url"]
