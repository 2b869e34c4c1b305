"""Strands sessions in Holdfast: ``SnapshotSessionManager(storage=HoldfastStorage(…))``.

A Strands snapshot holds the whole agent. Here it becomes the state of a session, of which a save
writes only what changed. Reads return the same bytes.
"""

from __future__ import annotations

from holdfast.adapters.requirement import require_version

# The first release whose snapshot sessions use a storage of bytes.
require_version("strands-agents", "1.52", "strands", before="2")

from holdfast.adapters.strands.manager import HoldfastSessionManager  # noqa: E402
from holdfast.adapters.strands.storage import HoldfastStorage  # noqa: E402

__all__ = ["HoldfastSessionManager", "HoldfastStorage"]
