"""Strands' snapshot sessions in Holdfast: ``SnapshotSessionManager(storage=HoldfastStorage(…))``.

    manager.py  HoldfastSessionManager: a session manager that follows the status of runs
    storage.py  HoldfastStorage: what Strands asks of a storage
    scan.py     reading it all for a search
    keys.py     Strands' keys, and which of them name a snapshot of a session
    kept.py     the session that these snapshots are
    shape.py    the bytes of a snapshot as the state of a session, and back

A snapshot of Strands holds the whole agent. Here it becomes the state of a session, messages and
values, of which a save writes what changed; read back, its bytes are the same to the last one.
"""

from __future__ import annotations

from holdfast.adapters.requirement import require_version

# The first one with a storage of bytes under its snapshot sessions.
require_version("strands-agents", "1.52", "strands")

from holdfast.adapters.strands.manager import HoldfastSessionManager  # noqa: E402
from holdfast.adapters.strands.storage import HoldfastStorage  # noqa: E402

__all__ = ["HoldfastSessionManager", "HoldfastStorage"]
