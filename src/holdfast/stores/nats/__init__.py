"""NATS: the store, its connection, what its subjects are called, and what its failures mean."""

from __future__ import annotations

from holdfast.extras import require_extra

with require_extra("nats"):
    from holdfast.stores.nats.store import NatsStateStore, open_url

__all__ = ["NatsStateStore", "open_url"]
