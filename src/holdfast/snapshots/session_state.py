"""What the state of a session looks like: the namespaces of its ``Store``, and a view of them.

    messages    the conversation; keys are numbers of twelve digits, so that their order is its own
    state       the values that the agent keeps
    session     what Holdfast itself keeps of a session, its status first of all
    once        results of side effects that were done once and must not be done again

Agents of a session of several keep their values in ``state/<agent_id>``.
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
    """The key of a message, counted from 0."""
    return f"{number:012}"


def message_number(key: str) -> int | None:
    """Which number the key of a message stands for; None for a key of another kind."""
    return int(key) if len(key) == 12 and key.isascii() and key.isdigit() else None


def agent_namespace(agent_id: str) -> str:
    """The namespace of the values that one of several agents keeps."""
    return f"{STATE}/{agent_id}"


def validate_status(status: object) -> str:
    """A status, or a refusal that lists what there is."""
    if not isinstance(status, str) or status not in STATUSES:
        raise ValueError(f"a status is one of {', '.join(STATUSES)}, not {short_repr(status)}")
    return str.__str__(status)  # also of a str enum


@dataclass(frozen=True, slots=True)
class SessionState:
    """The state of a session at one moment. What it returns are fresh copies."""

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
        """What the agent keeps, by key."""
        return {key: value for _, key, value in self.snapshot.items(STATE)}

    @property
    def namespaces(self) -> dict[str, dict[str, Any]]:
        """What is kept beyond a session's own three namespaces."""
        return {
            space: {key: value for _, key, value in self.snapshot.items(space)}
            for space in self.snapshot.namespaces()
            if space not in SESSION_NAMESPACES
        }
