"""What is kept of the current checkpoint beside its values, checked before anything is built on it.

The state of a session can be changed by hand, imported, or damaged: what follows a checkpoint must
not be written over something that is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.adapters.langgraph.keys import META, checkpoint_key
from holdfast.errors import IntegrityError, shown
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store

SHAPE: dict[str, type] = {"id": str, "values": list, "lists": list, "versions": dict}


def entry_of(state: Store | Snapshot, ns: str) -> Mapping[str, Any] | None:
    """The entry of the current checkpoint of a graph or subgraph; None where there is none."""
    entry: object = state.get(META, checkpoint_key(ns), None)
    if entry is None:
        return None
    if not isinstance(entry, dict):
        raise not_one(ns, entry)
    for name, kind in SHAPE.items():
        if not isinstance(entry.get(name), kind):
            raise not_one(ns, entry)
    return entry


def not_one(ns: str, entry: object) -> IntegrityError:
    """What whoever writes to such a thread gets to see."""
    return IntegrityError(
        f"the entry {checkpoint_key(ns)} in the namespace {META} is not as it should be: it is no "
        f"checkpoint, but {shown(entry)}. Restore the session to an earlier snapshot, or from a "
        "backup"
    )
