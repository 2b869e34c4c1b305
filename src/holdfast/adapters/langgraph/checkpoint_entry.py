"""What is kept of the current checkpoint beside its values, checked before anything is built on it.

The state of a session can be changed by hand, imported, or damaged: what follows a checkpoint must
not be written over something that is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.adapters.langgraph.keys import CHECKPOINTS, checkpoint_key
from holdfast.errors import IntegrityError, short_repr
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store

REQUIRED_FIELDS: dict[str, type] = {"id": str, "values": list, "lists": list, "versions": dict}


def get_checkpoint_entry(state: Store | Snapshot, ns: str) -> Mapping[str, Any] | None:
    """The entry of the current checkpoint of a graph or subgraph; None where there is none."""
    entry: object = state.get(CHECKPOINTS, checkpoint_key(ns), None)
    if entry is None:
        return None
    if not isinstance(entry, dict):
        raise damaged_entry_error(ns, entry)
    for name, kind in REQUIRED_FIELDS.items():
        if not isinstance(entry.get(name), kind):
            raise damaged_entry_error(ns, entry)
    return entry


def damaged_entry_error(ns: str, entry: object) -> IntegrityError:
    """What whoever writes to such a thread gets to see."""
    return IntegrityError(
        f"the entry {checkpoint_key(ns)} in the namespace {CHECKPOINTS} is not as it should be: it is no "
        f"checkpoint, but {short_repr(entry)}. Restore the session to an earlier snapshot, or from a "
        "backup"
    )
