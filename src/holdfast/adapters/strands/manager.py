"""A Strands session manager that records when a run starts, fails or is cancelled.

With Strands' own manager a session has the status that its last snapshot shows. Snapshots are saved
at the end of a run, so its start is not visible, and a failed run looks like a running one.
"""

from __future__ import annotations

import sys
from typing import Any

from strands.hooks import (
    AfterInvocationEvent,
    AfterMultiAgentInvocationEvent,
    BeforeInvocationEvent,
    BeforeMultiAgentInvocationEvent,
    HookRegistry,
)
from strands.session import SnapshotSessionManager

from holdfast.adapters.strands.keys import SESSIONS
from holdfast.adapters.strands.storage import HoldfastStorage
from holdfast.errors import short_repr
from holdfast.sessions.run_status import CANCELLED, COMPLETED, FAILED, RUNNING, WAITING
from holdfast.snapshots.keys import MULTI_AGENT

STOPPED = {"interrupt": WAITING, "checkpoint": WAITING, "cancelled": CANCELLED}
"""The statuses after some stop reasons; after any other one a run is completed."""


class HoldfastSessionManager(SnapshotSessionManager):
    """A ``SnapshotSessionManager`` whose sessions have the status of the run.

    It takes the arguments of Strands' manager, with a `HoldfastStorage`. Each run needs one more
    commit, for its start.
    """

    def __init__(
        self, session_id: str = "default-session", *, storage: HoldfastStorage, **options: Any
    ) -> None:
        if not isinstance(storage, HoldfastStorage):
            raise TypeError(f"storage must be a HoldfastStorage, got {short_repr(storage)}")
        if storage.prefix not in ("", SESSIONS):
            raise ValueError(
                f"snapshots in the namespace {short_repr(storage.prefix)} are not sessions; pass a "
                "storage without a namespace"
            )
        super().__init__(session_id, storage=storage, **options)
        self._statuses = storage

    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
        """Register the hooks that save snapshots and statuses."""
        registry.add_callback(BeforeInvocationEvent, self._on_run_started)
        registry.add_callback(BeforeMultiAgentInvocationEvent, self._on_orchestrator_started)
        # Called in reverse order: after the save, which sets the status of the snapshot.
        registry.add_callback(AfterInvocationEvent, self._on_run_ended)
        registry.add_callback(AfterMultiAgentInvocationEvent, self._on_orchestrator_ended)
        super().register_hooks(registry, **kwargs)

    def _capture(self, agent: Any) -> Any:
        """Return what Strands' manager captures, with the agent's own messages instead of copies.

        They are encoded right after, while the run waits, and a copy takes longer than that.
        """
        snapshot = agent.take_snapshot(
            preset="session", include=["system_prompt"], exclude=["messages"]
        )
        snapshot.data = {"messages": agent.messages, **snapshot.data}
        return snapshot

    async def _on_run_started(self, event: BeforeInvocationEvent) -> None:
        await self._statuses.set_status(self.session_id, event.agent.agent_id, RUNNING)

    async def _on_run_ended(self, event: AfterInvocationEvent) -> None:
        status = error_status()
        if status is None:
            reason = COMPLETED if event.result is None else event.result.stop_reason
            status = STOPPED.get(reason, COMPLETED)
        await self._statuses.set_status(self.session_id, event.agent.agent_id, status)

    async def _on_orchestrator_started(self, event: BeforeMultiAgentInvocationEvent) -> None:
        await self._statuses.set_status(
            self.session_id, event.source.id, RUNNING, scope=MULTI_AGENT
        )

    async def _on_orchestrator_ended(self, event: AfterMultiAgentInvocationEvent) -> None:
        status = error_status()
        if status is not None:  # otherwise the snapshot has the orchestrator's status
            await self._statuses.set_status(
                self.session_id, event.source.id, status, scope=MULTI_AGENT
            )


def error_status() -> str | None:
    """Return the status of a run that ends with the current exception, or None without one.

    Strands calls the hooks at the end of a run while the exception is raised, and does not pass it.
    """
    error = sys.exception()
    if error is None:
        return None
    return FAILED if isinstance(error, Exception) else CANCELLED
