"""Infer the status of a run from the items that it added last.

The runner adds the user's message when a run starts, and then the items of each turn: tool calls
with their outputs. A call without an output waits for a person's approval.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast.sessions.run_status import COMPLETED, RUNNING, WAITING, infer_status


def infer_items_status(items: Sequence[Any], has_open_calls: Callable[[], bool]) -> str | None:
    """Return the status of a run that just added these items, or None if they do not show it.

    Encrypted items do not show it. A summary completes the run that it summarizes.

    Args:
        items: At least one item.
        has_open_calls: Whether the conversation has calls without an output. Called only if an
            output belongs to an earlier call, as after an approval.

    """
    called: set[str] = set()
    answered: set[str] = set()
    for item in items:
        kind = item.get("type")
        if kind == "mcp_approval_request":
            called.add(str(item.get("id")))
        elif kind == "mcp_approval_response":
            answered.add(str(item.get("approval_request_id")))
        elif isinstance(call_id := item.get("call_id"), str):
            is_output = isinstance(kind, str) and kind.endswith("_output")
            (answered if is_output else called).add(call_id)
    if called - answered:
        return WAITING
    last = items[-1]
    if "role" not in last and "type" not in last:
        return None
    status = COMPLETED if last.get("type") == "compaction" else infer_status(last)
    is_resumed = bool(answered - called)
    return WAITING if status == RUNNING and is_resumed and has_open_calls() else status
