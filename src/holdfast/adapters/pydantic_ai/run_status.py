"""Infer the status of a conversation from what was saved last.

A store is handed a conversation after a run, and is not told how the run ended. Deferred tool
requests show that it waits; otherwise the last message shows it.
"""

from __future__ import annotations

from typing import Any

from holdfast.sessions.run_status import COMPLETED, RUNNING, WAITING
from holdfast.snapshots.session_state import PENDING

FINAL_RESULT = "Final result processed."
"""What Pydantic AI returns to a tool call that is the output of the run."""


def infer_status(message: Any, *, has_deferred_requests: bool) -> str:
    """Return the status of a conversation from its last message as JSON data, or None."""
    if has_deferred_requests:
        return WAITING
    if message is None:
        return PENDING
    parts = message.get("parts") if isinstance(message, dict) else None
    parts = [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    kinds = {part.get("part_kind") for part in parts}
    if isinstance(message, dict) and message.get("kind") == "response":
        return RUNNING if "tool-call" in kinds else COMPLETED
    is_output = any(part.get("content") == FINAL_RESULT for part in parts)
    return COMPLETED if is_output and kinds == {"tool-return"} else RUNNING
