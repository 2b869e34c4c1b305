"""Infer the status of a thread from a checkpoint: LangGraph does not report the end of a run."""

from __future__ import annotations

from langgraph.checkpoint.base import Checkpoint

from holdfast.sessions.run_status import (
    COMPLETED,
    LANGGRAPH_JOIN,
    LANGGRAPH_STARTS,
    RUNNING,
    langgraph_has_next_node,
)


def status_after(checkpoint: Checkpoint) -> str:
    """Return the status of a thread after a checkpoint, before writes of its tasks.

    The channels of a ``Pregel`` that was built by hand do not show whether it has ended: its status
    is running.
    """
    known = (*LANGGRAPH_STARTS, LANGGRAPH_JOIN)
    if not any(name.startswith(known) for name in checkpoint["channel_versions"]):
        return RUNNING
    return RUNNING if langgraph_has_next_node(checkpoint["channel_values"]) else COMPLETED
