"""The agents of a multi-agent session. They share one conversation.

messages          the messages of all agents in order, each with its ``agent``
state/<agent_id>  the values of one agent
state             the values that all agents share
session           ``agent:<agent_id>`` for each agent that takes part
"""

from __future__ import annotations

from typing import Any

from holdfast.sessions.recorder import Recorder
from holdfast.sessions.working_state import WorkingState
from holdfast.snapshots.keys import validate_id
from holdfast.snapshots.session_state import SESSION, agent_namespace

MEMBER = "agent:"
AGENT_FIELD = "agent"


class SessionAgent(Recorder):
    """One agent of a multi-agent session. Get one with `Session.agent`."""

    def __init__(self, session: Recorder, agent_id: str) -> None:
        self._session = session
        self.agent_id = validate_id(agent_id, "agent_id")
        self._namespace = agent_namespace(agent_id)
        self._guard = session._guard
        with self._guard:
            self._join()

    def _join(self) -> None:
        # Needed again after a rollback to a state before it joined, and after a reload.
        member = f"{MEMBER}{self.agent_id}"
        if not self._store.contains(SESSION, member):
            data = {AGENT_FIELD: self.agent_id}
            self._record("agent.joined", data, set_=[(SESSION, member, True)])

    @property
    def _working(self) -> WorkingState:
        return self._session._working

    def _sign(self, fields: dict[str, Any]) -> dict[str, Any]:
        return {**fields, AGENT_FIELD: self.agent_id}

    def _is_own(self, message: Any) -> bool:
        return isinstance(message, dict) and message.get(AGENT_FIELD) == self.agent_id

    def __repr__(self) -> str:
        return f"<SessionAgent {self.agent_id} of {self._session!r}>"


def list_agents(session: Recorder) -> list[str]:
    """Return the ids of the agents that take part in a session."""
    keys = session._store.keys(SESSION)
    return [key.removeprefix(MEMBER) for key in keys if key.startswith(MEMBER)]
