"""The part of a session that happens in memory, shared by `Session` and `BlockingSession`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from holdfast.blobs.reader import BlobReader
from holdfast.blobs.source import BlobSource
from holdfast.errors import short_repr
from holdfast.log.event_log import EventLog
from holdfast.sessions.agents import SessionAgent, list_agents
from holdfast.sessions.commit import Committer
from holdfast.sessions.event_view import EventView
from holdfast.sessions.once import SideEffects
from holdfast.sessions.recorder import Recorder
from holdfast.sessions.restore import compute_restore_changes
from holdfast.sessions.working_state import WorkingState
from holdfast.snapshots.keys import MULTI_AGENT, SnapshotLocation
from holdfast.snapshots.session_state import PENDING, SESSION, STATE, STATUS, validate_status
from holdfast.snapshots.tool_calls import ToolCallIndex, UnfinishedCall
from holdfast.state.diff import Changes
from holdfast.state.snapshot import Snapshot
from holdfast.stores.base import StateStore


class BaseSession(Recorder):
    """A session in memory. ``committer`` is its low-level writer, for adapters."""

    _namespace = STATE
    _tool_calls: ToolCallIndex
    _effects: SideEffects

    state_store: StateStore
    """The store that holds the session."""
    location: SnapshotLocation
    """The ids of the session, its scope and its agent."""

    @property
    @abstractmethod
    def committer(self) -> Committer:
        """The low-level writer of the session, for adapters. A reload replaces it."""

    @property
    def agent_id(self) -> str:
        """The id of the agent, or of the group of agents."""
        return self.location.scope_id

    @property
    def session_id(self) -> str:
        """The id of the session."""
        return self.location.session_id

    @property
    def scope(self) -> str:
        """``"agent"``, or ``"multi_agent"`` for a session of several agents."""
        return self.location.scope

    @property
    def status(self) -> str:
        """The status: pending, running, waiting, completed, failed or cancelled.

        Assigning any other value raises ``ValueError``.
        """
        return str(self._store.get(SESSION, STATUS, PENDING))

    @status.setter
    def status(self, status: str) -> None:
        wanted = validate_status(status)
        with self._guard:
            if wanted != self.status:
                self._record("status.changed", set_=[(SESSION, STATUS, wanted)])

    @property
    def events(self) -> EventView:
        """All events in order, with the pending ones at the end."""
        return EventView(lambda: self.committer, self._guard)

    @property
    def log(self) -> EventLog:
        """The log of committed events."""
        incarnation = self.committer.incarnation.id
        return EventLog(self.state_store, self.location.prefix, incarnation, self._working.head)

    @property
    def is_dirty(self) -> bool:
        """Whether there is anything to commit."""
        return bool(self._working.pending) or self._effects.is_pending

    @property
    def message_count(self) -> int:
        """The number of messages, without reading them."""
        return self._working.message_count

    def agent(self, agent_id: str) -> SessionAgent:
        """Return one agent of a multi-agent session, with its own messages and values.

        Raises:
            ValueError: The session has the scope ``"agent"``.

        """
        if self.scope != MULTI_AGENT:
            raise ValueError(
                f"session {self.session_id} belongs to a single agent; open it with "
                'scope="multi_agent" to add agents'
            )
        return SessionAgent(self, agent_id)

    @property
    def agents(self) -> list[str]:
        """The ids of the agents that take part."""
        return list_agents(self) if self.scope == MULTI_AGENT else [self.agent_id]

    @property
    def unfinished(self) -> list[UnfinishedCall]:
        """Tool calls that have no result; models reject a conversation with such calls."""
        with self._guard:
            return self._tool_calls.unfinished_with_arguments(self._store.snapshot())

    @property
    def blobs(self) -> BlobReader:
        """The stored blobs of the session, by digest."""
        return self.committer.blobs.reader

    def record_with_blobs(
        self,
        type: str,  # noqa: A002
        data: Any = None,
        *,
        changes: Changes | None = None,
        blobs: Sequence[BlobSource],
    ) -> None:
        """Record an event that refers to blobs by their digests. See `record`.

        The commit writes the blobs, unless they are stored, and then the event.

        Raises:
            UnsupportedValueError: The data or a value cannot be stored.

        """
        with self._guard:
            event = self._working.record(type, data, changes)
            event.refers, event.sources = True, tuple(blobs)

    def snapshot(self) -> Snapshot:
        """Return an in-memory snapshot of the current state, in constant time."""
        return self._store.snapshot()

    def rollback(self, mark: Snapshot) -> None:
        """Restore the state of an in-memory snapshot.

        The log is not truncated: the rollback is recorded as a ``state.restored`` event. Results of
        `once` are kept.
        """
        if not isinstance(mark, Snapshot):
            raise TypeError(
                f"rollback takes a snapshot from session.snapshot(), got {short_repr(mark)}; "
                "to go back to a durable snapshot, call session.restore(snapshot_id)"
            )
        with self._guard:
            changes = compute_restore_changes(mark, self._store)
            self._working.record_owned("state.restored", {"snapshot": mark.id}, changes)

    @property
    def _working(self) -> WorkingState:
        return self.committer.working
