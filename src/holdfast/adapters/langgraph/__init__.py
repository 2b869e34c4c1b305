"""A LangGraph checkpointer and a store for long-term memory. Needs the extra ``langgraph``."""

from __future__ import annotations

from holdfast.adapters.requirement import require_version

# The first version that defines the order in which writes of tasks are applied.
require_version("langgraph-checkpoint", "4.3", "langgraph", before="5")

from holdfast.adapters.langgraph.codec import BlockedTypeWarning  # noqa: E402
from holdfast.adapters.langgraph.memory.history import MemoryVersion  # noqa: E402
from holdfast.adapters.langgraph.memory.store import HoldfastStore  # noqa: E402
from holdfast.adapters.langgraph.observability import MetricsSink  # noqa: E402
from holdfast.adapters.langgraph.rollback import ThreadRollback  # noqa: E402
from holdfast.adapters.langgraph.saver import HoldfastSaver  # noqa: E402

__all__ = [
    "BlockedTypeWarning",
    "HoldfastSaver",
    "HoldfastStore",
    "MemoryVersion",
    "MetricsSink",
    "ThreadRollback",
]
