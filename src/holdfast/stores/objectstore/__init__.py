"""Object stores: the store, what its objects are called, and the buckets they are in."""

from __future__ import annotations

from holdfast.extras import extra

with extra("objectstore"):
    from holdfast.stores.objectstore.store import ObjectStateStore, open_url

__all__ = ["ObjectStateStore", "open_url"]
