"""The status of a run, as what it stored shows it.

Frameworks hand over messages and snapshots, and rarely say that a run ended. But a conversation
does: it ends with an answer, with a question, or with a tool call that has no result yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.snapshots.session_state import PENDING, STATUSES
from holdfast.snapshots.tool_calls import find_tool_calls

RUNNING, WAITING, COMPLETED, FAILED, CANCELLED = STATUSES[1:]
ANSWERING_ROLES = ("assistant", "model", "ai")
STRANDS_NAMES = {"executing": RUNNING, "dispatched": RUNNING, "interrupted": WAITING}

# Channels that LangGraph makes for graphs and entrypoints to have nodes run: they hold a value
# exactly while a node has still to run. The input and the edges to nodes;
LANGGRAPH_STARTS = ("__start__", "start:", "branch:")
# an edge from several nodes, with those that ran by now: join:<a>+<b>:<node>;
LANGGRAPH_JOIN = "join:"
# and what was sent with Send.
LANGGRAPH_SENT = "__pregel_tasks"


def infer_status(message: Any) -> str:
    """Return the status of a run whose conversation ends with a message, or has none."""
    if message is None:
        return PENDING
    is_answer = isinstance(message, dict) and message.get("role") in ANSWERING_ROLES
    return COMPLETED if is_answer and next(find_tool_calls(message), None) is None else RUNNING


def infer_strands_status(data: dict[str, Any]) -> str:
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
    return infer_status(messages[-1] if isinstance(messages, list) and messages else None)


def langgraph_has_next_node(values: Mapping[str, Any]) -> bool:
    """Return whether the channels of a checkpoint of LangGraph have a node run next."""
    return any(
        name.startswith(LANGGRAPH_STARTS)
        or (name == LANGGRAPH_SENT and bool(value))
        or (name.startswith(LANGGRAPH_JOIN) and is_complete_join(name, value))
        for name, value in values.items()
    )


def is_complete_join(name: str, value: Any) -> bool:
    """Return whether all nodes ran that a channel of LangGraph waits for."""
    if isinstance(value, tuple | list) and len(value) == 2 and isinstance(value[1], bool):
        value = value[0]  # that of a deferred node has a flag too
    if not isinstance(value, set | frozenset | tuple | list):
        return False
    # Names of nodes have no colon. Those that ran are a set, so only the length is compared.
    return bool(value) and len("+".join(map(str, value))) == len(name.split(":")[1])
