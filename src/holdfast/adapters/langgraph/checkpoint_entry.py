"""The entry of the current checkpoint: its id, parent, versions and metadata.

It is validated before the next checkpoint is written on top of it, because the state of a session
can be edited, imported or damaged.
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
    """Return the entry of the current checkpoint of a graph or subgraph, if there is one.

    Raises:
        IntegrityError: The entry is damaged.

    """
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
    """Return the error for an entry that is not a checkpoint."""
    return IntegrityError(
        f"entry {checkpoint_key(ns)!r} in namespace {CHECKPOINTS!r} is not a checkpoint: "
        f"{short_repr(entry)}; restore the session to an earlier snapshot, or from a backup"
    )
