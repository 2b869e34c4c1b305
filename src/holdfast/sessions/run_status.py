"""Infer the status of a run from what it stored.

Frameworks hand over messages and snapshots, and rarely report the end of a run. The conversation
shows it: it ends with an answer, with a question, or with a tool call that has no result yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.snapshots.message_formats import find_tool_calls, message_role
from holdfast.snapshots.session_state import PENDING, STATUSES

RUNNING, WAITING, COMPLETED, FAILED, CANCELLED = STATUSES[1:]
ANSWERING_ROLES = ("assistant", "model", "ai")
STRANDS_NAMES = {"executing": RUNNING, "dispatched": RUNNING, "interrupted": WAITING}

# Channels by which LangGraph schedules nodes: they hold a value as long as a node has to run.
# The input and the edges to nodes;
LANGGRAPH_STARTS = ("__start__", "start:", "branch:")
# an edge from several nodes, with those that have run: join:<a>+<b>:<node>;
LANGGRAPH_JOIN = "join:"
# and the targets of Send.
LANGGRAPH_SENT = "__pregel_tasks"


def infer_status(message: Any) -> str:
    """Return the status of a run from the last message of its conversation, or None."""
    if message is None:
        return PENDING
    is_answer = message_role(message) in ANSWERING_ROLES
    return COMPLETED if is_answer and next(find_tool_calls(message), None) is None else RUNNING


def infer_strands_status(data: dict[str, Any]) -> str:
    """Return the status of the agent or orchestrator in a Strands snapshot."""
    if "orchestrator_id" in data:
        state = data.get("state")
        found = state.get("status") if isinstance(state, dict) else None
        status = STRANDS_NAMES.get(found, found) if isinstance(found, str) else PENDING
        return status if status in STATUSES else PENDING
    interrupts = data.get("interrupt_state")
    if isinstance(interrupts, dict) and interrupts.get("activated") is True:
        return WAITING
    messages = data.get("messages")
    return infer_status(messages[-1] if isinstance(messages, list) and messages else None)


def langgraph_has_next_node(values: Mapping[str, Any]) -> bool:
    """Return whether a LangGraph checkpoint with these channels has a next node to run."""
    return any(
        name.startswith(LANGGRAPH_STARTS)
        or (name == LANGGRAPH_SENT and bool(value))
        or (name.startswith(LANGGRAPH_JOIN) and is_complete_join(name, value))
        for name, value in values.items()
    )


def is_complete_join(name: str, value: Any) -> bool:
    """Return whether all nodes have run that a LangGraph join channel waits for."""
    if isinstance(value, tuple | list) and len(value) == 2 and isinstance(value[1], bool):
        value = value[0]  # a deferred node also has a flag
    if not isinstance(value, set | frozenset | tuple | list):
        return False
    # Node names have no colon. The set has no order, so only the length is compared.
    return bool(value) and len("+".join(map(str, value))) == len(name.split(":")[1])
