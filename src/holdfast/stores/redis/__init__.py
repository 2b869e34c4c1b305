"""Redis, or a compatible server."""

from __future__ import annotations

from holdfast.extras import require_extra

with require_extra("redis"):
    from holdfast.stores.redis.store import RedisStateStore, open_url

__all__ = ["RedisStateStore", "open_url"]
