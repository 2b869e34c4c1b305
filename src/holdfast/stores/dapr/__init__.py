"""Dapr: a state component, through the sidecar."""

from __future__ import annotations

from holdfast.extras import require_extra

with require_extra("dapr"):
    from holdfast.stores.dapr.store import DaprStateStore, open_url

__all__ = ["DaprStateStore", "open_url"]
