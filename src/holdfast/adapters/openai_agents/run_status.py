"""The status of a run of the SDK, by the items that it added last.

The runner adds what the user said when a run begins, and then the items of each turn: tool calls
together with their outputs. A call without its output is one that a person has to approve.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast.sessions.run_status import COMPLETED, RUNNING, WAITING, infer_status


def infer_items_status(items: Sequence[Any], has_open_calls: Callable[[], bool]) -> str | None:
    """Return the status of a run that just added these items, or None where they do not show it.

    Encrypted items do not, and a summary of what was there is the end of what it summarizes.

    Args:
        items: At least one item, as the runner adds them.
        has_open_calls: Whether the whole conversation has calls without an output. Asked only
            where an output is for a call that was added earlier, as after an approval.

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
