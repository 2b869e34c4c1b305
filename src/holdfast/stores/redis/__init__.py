"""Redis."""

from __future__ import annotations

from holdfast.extras import extra

with extra("redis"):
    from holdfast.stores.redis.store import RedisStateStore, open_url

__all__ = ["RedisStateStore", "open_url"]
