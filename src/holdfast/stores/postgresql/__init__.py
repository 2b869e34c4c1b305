"""PostgreSQL."""

from __future__ import annotations

from holdfast.extras import require_extra

with require_extra("postgresql"):
    from holdfast.stores.postgresql.store import PostgresStateStore, open_url

__all__ = ["PostgresStateStore", "open_url"]
