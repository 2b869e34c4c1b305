"""Where a checkpoint is stored in the state of its session.

state                               values of the workflow's state, by key
agent_framework                     checkpoint: id, workflow, time, and what belongs to it
agent_framework/values              values whose keys the framework reserves (``_…``)
agent_framework/executors/<id>      the state of an executor, by key
agent_framework/messages            messages between executors, by source
agent_framework/requests            requests that wait for a response, by id
agent_framework/items/<path>        a long list, one entry per item
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from holdfast.errors import IntegrityError, short_repr
from holdfast.snapshots.keys import is_snapshot_id
from holdfast.state.snapshot import Snapshot

CHECKPOINT_EVENT = "agent_framework.checkpoint"
DELETED_EVENT = "agent_framework.deleted"

ROOT = "agent_framework"
CHECKPOINT = "checkpoint"
VALUES = "agent_framework/values"
EXECUTORS = "agent_framework/executors/"
WORKFLOW_MESSAGES = "agent_framework/messages"
REQUESTS = "agent_framework/requests"

EXECUTOR_STATE = "_executor_state"
"""The key of the executors' states in the state of a workflow."""

ID_TAG = "checkpoint_id"
WORKFLOW_TAG = "workflow"
TIME_TAG = "timestamp"
ITERATION_TAG = "iteration"

HEADER_FIELDS: dict[str, type] = {
    "id": str,
    "workflow": str,
    "timestamp": str,
    "fields": dict,
    "state": list,
    "messages": list,
    "requests": list,
}


def snapshot_id_for(checkpoint_id: str) -> str:
    """Return the id of a checkpoint's snapshot, which is the same unless it has odd characters."""
    if is_snapshot_id(checkpoint_id):
        return checkpoint_id
    digest = hashlib.sha256(checkpoint_id.encode("utf-8", "surrogatepass")).hexdigest()
    return f"sha256-{digest}"


def executor_space(executor_id: str) -> str:
    """Return the namespace of an executor's state."""
    return EXECUTORS + quote_name(executor_id)


def quote_name(name: str) -> str:
    """Return a name as a part of a namespace; a name that cannot be stored is refused later."""
    return quote(name, safe="", errors="surrogatepass")


def is_own_space(space: str) -> bool:
    """Return whether a namespace holds nothing but checkpoints."""
    return space == ROOT or space.startswith(f"{ROOT}/")


def get_header(state: Snapshot) -> Mapping[str, Any] | None:
    """Return the entry that describes the checkpoint in a state, if there is one.

    Raises:
        IntegrityError: The entry is damaged.

    """
    header: object = state.get(ROOT, CHECKPOINT, None)
    if header is None:
        return None
    if isinstance(header, dict) and all(
        isinstance(header.get(name), kind) for name, kind in HEADER_FIELDS.items()
    ):
        return header
    raise IntegrityError(
        f"entry {CHECKPOINT!r} in namespace {ROOT!r} is not a checkpoint: {short_repr(header)}; "
        "restore the session to an earlier snapshot, or from a backup"
    )
