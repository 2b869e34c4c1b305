"""The namespaces of a session's ``Store``, and a view of them.

    messages    the conversation; keys are numbers of twelve digits, so they sort in its order
    state       the agent's values
    session     what Holdfast stores about the session, such as its status
    once        results of side effects that must not be repeated

In a multi-agent session, each agent has its values in ``state/<agent_id>``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast.errors import short_repr
from holdfast.state.snapshot import Snapshot

MESSAGES = "messages"
STATE = "state"
SESSION = "session"
ONCE = "once"
SESSION_NAMESPACES = (MESSAGES, STATE, SESSION)

STATUS = "status"
STATUSES = ("pending", "running", "waiting", "completed", "failed", "cancelled")
PENDING = STATUSES[0]


def message_key(number: int) -> str:
    """Return the key of a message, counted from 0."""
    return f"{number:012}"


def message_number(key: str) -> int | None:
    """Return the number of a message key; None for another key."""
    return int(key) if len(key) == 12 and key.isascii() and key.isdigit() else None


def agent_namespace(agent_id: str) -> str:
    """Return the namespace of one agent's values in a multi-agent session."""
    return f"{STATE}/{agent_id}"


def validate_status(status: object) -> str:
    """Return a status.

    Raises:
        ValueError: The status is unknown.

    """
    if not isinstance(status, str) or status not in STATUSES:
        raise ValueError(f"invalid status {short_repr(status)}; use one of {', '.join(STATUSES)}")
    return str.__str__(status)  # also of a str enum


@dataclass(frozen=True, slots=True)
class SessionState:
    """A view of a session's frozen state. Values are copies."""

    snapshot: Snapshot

    @property
    def status(self) -> str:
        """What the session is doing: pending, running, waiting, completed, failed or cancelled."""
        return str(self.snapshot.get(SESSION, STATUS, PENDING))

    @property
    def messages(self) -> list[Any]:
        """The conversation, in order."""
        return self.snapshot.values(MESSAGES)

    @property
    def values(self) -> dict[str, Any]:
        """The agent's values, by key."""
        return {key: value for _, key, value in self.snapshot.items(STATE)}

    @property
    def namespaces(self) -> dict[str, dict[str, Any]]:
        """The values of all namespaces other than a session's own three."""
        return {
            space: {key: value for _, key, value in self.snapshot.items(space)}
            for space in self.snapshot.namespaces()
            if space not in SESSION_NAMESPACES
        }
