"""One agent's part in a session of several: one conversation, in which each message has its agent.

messages          all agents' messages, in the order in which they came, each with ``agent``
state/<agent_id>  what one agent keeps for itself
state             what all of them share
session           ``agent:<agent_id>`` for each that takes part
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
    """What one of several agents does in a session. Made by `Session.agent`."""

    def __init__(self, session: Recorder, agent_id: str) -> None:
        self._session = session
        self.agent_id = validate_id(agent_id, "agent_id")
        self._space = agent_namespace(agent_id)
        self._turn = session._turn
        with self._turn:
            self._enter()

    def _enter(self) -> None:
        # Going back to a moment before it joined, or reloading, takes it out again.
        member = f"{MEMBER}{self.agent_id}"
        if not self._store.contains(SESSION, member):
            joined = {AGENT_FIELD: self.agent_id}
            self._record("agent.joined", joined, set_=[(SESSION, member, True)])

    @property
    def _working(self) -> WorkingState:
        return self._session._working

    def _signed(self, fields: dict[str, Any]) -> dict[str, Any]:
        return {**fields, AGENT_FIELD: self.agent_id}

    def _is_own(self, message: Any) -> bool:
        return isinstance(message, dict) and message.get(AGENT_FIELD) == self.agent_id

    def __repr__(self) -> str:
        return f"<SessionAgent {self.agent_id} of {self._session!r}>"


def list_agents(session: Recorder) -> list[str]:
    """The agents that take part in a session of several."""
    keys = session._store.keys(SESSION)
    return [key.removeprefix(MEMBER) for key in keys if key.startswith(MEMBER)]
