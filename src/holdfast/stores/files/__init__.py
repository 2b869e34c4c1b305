"""One readable file per key."""

from __future__ import annotations

from holdfast.stores.files.store import FileStateStore, open_url

__all__ = ["FileStateStore", "open_url"]
