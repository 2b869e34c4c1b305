"""Tasks of A2A servers in Holdfast: a versioned task store, and event streams between replicas."""

from __future__ import annotations

from holdfast.adapters.requirement import require_version

# The first release with versioned task stores and event streams.
require_version("a2a-sdk", "1.3", "a2a", before="2")

from holdfast.adapters.a2a.event_stream import HoldfastTaskEventStream  # noqa: E402
from holdfast.adapters.a2a.task_store import HoldfastTaskStore  # noqa: E402

__all__ = ["HoldfastTaskEventStream", "HoldfastTaskStore"]
