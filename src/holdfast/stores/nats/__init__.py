"""NATS: a JetStream key-value bucket."""

from __future__ import annotations

from holdfast.extras import require_extra

with require_extra("nats"):
    from holdfast.stores.nats.store import NatsStateStore, open_url

__all__ = ["NatsStateStore", "open_url"]
