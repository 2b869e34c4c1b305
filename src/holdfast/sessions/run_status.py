"""The status of a run, as what it stored shows it.

Frameworks hand over messages and snapshots, and rarely say that a run ended. But a conversation
does: it ends with an answer, with a question, or with a tool call that has no result yet.
"""

from __future__ import annotations

from typing import Any

from holdfast.snapshots.session_state import PENDING, STATUSES
from holdfast.snapshots.tool_calls import calls_of

RUNNING, WAITING, COMPLETED, FAILED, CANCELLED = STATUSES[1:]
ANSWERING_ROLES = ("assistant", "model", "ai")
STRANDS_NAMES = {"executing": RUNNING, "dispatched": RUNNING, "interrupted": WAITING}


def status_after(message: Any) -> str:
    """Return the status of a run whose conversation ends with a message, or has none."""
    if message is None:
        return PENDING
    is_answer = isinstance(message, dict) and message.get("role") in ANSWERING_ROLES
    return COMPLETED if is_answer and next(calls_of(message), None) is None else RUNNING


def strands_status(data: dict[str, Any]) -> str:
    """Return the status of the agent or orchestrator that a snapshot of Strands holds."""
    if "orchestrator_id" in data:
        state = data.get("state")
        found = state.get("status") if isinstance(state, dict) else None
        status = STRANDS_NAMES.get(found, found) if isinstance(found, str) else PENDING
        return status if status in STATUSES else PENDING
    interrupts = data.get("interrupt_state")
    if isinstance(interrupts, dict) and interrupts.get("activated") is True:
        return WAITING
    messages = data.get("messages")
    return status_after(messages[-1] if isinstance(messages, list) and messages else None)
