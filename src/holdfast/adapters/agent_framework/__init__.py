"""Workflows and conversations of the Microsoft Agent Framework in Holdfast.

HoldfastCheckpointStorage   checkpoints of workflows: ``WorkflowBuilder(checkpoint_storage=…)``
HoldfastHistoryProvider     conversations of agents: ``Agent(context_providers=[…])``
"""

from __future__ import annotations

from holdfast.adapters.requirement import require_version

# Workflow events with their own types, and the restricted decoder of pickled values.
require_version("agent-framework-core", "1.23", "agent-framework", before="2")

from holdfast.adapters.agent_framework.history import HoldfastHistoryProvider  # noqa: E402
from holdfast.adapters.agent_framework.storage import HoldfastCheckpointStorage  # noqa: E402

__all__ = ["HoldfastCheckpointStorage", "HoldfastHistoryProvider"]
