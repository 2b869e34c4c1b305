"""Object stores: Amazon S3 and compatible servers, Google Cloud Storage, Azure Blob Storage."""

from __future__ import annotations

from holdfast.extras import require_extra

with require_extra("objectstore"):
    from holdfast.stores.objectstore.store import ObjectStateStore, open_url

__all__ = ["ObjectStateStore", "open_url"]
