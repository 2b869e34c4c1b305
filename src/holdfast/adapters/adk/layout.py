"""Where ADK's sessions and state are stored.

    agent          session
    <app>          <app>:<user>:<session>   a session of a user
    <app>:state    <app>:<user>             state that the sessions of a user share, ``user:``
    <app>:state    <app>                    state that all sessions of an app share, ``app:``

Shared state has an agent id of its own, so that the latest session of an app is a conversation.

The name of the app is part of the id, because ADK's ids are unique per app and user only, and a
Holdfast session is deleted by its id alone. ``:`` and ``%`` in the names of apps and users are
percent-encoded, so no two sessions have the same id.

Namespaces of a session:

    messages       the events, one entry each, in ADK's JSON
    state          the values without a prefix, by key
    adk            session: when and by which call it was created

Namespaces of shared state:

    state          the values, by key without its prefix
    adk/pending    changes by events that are being committed, see `shared_state`
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.errors import IntegrityError, short_repr
from holdfast.snapshots.keys import AGENT, SnapshotLocation
from holdfast.state.snapshot import Snapshot

CREATED_EVENT = "adk.created"
ADK = "adk"
CREATION = "session"

SEPARATOR = ":"
STATE_SUFFIX = ":state"
APP_PREFIX, USER_PREFIX, TEMP_PREFIX = "app:", "user:", "temp:"


# -------------------------------------------------------------------------------------------- ids


def quote_name(name: str) -> str:
    """Return the name of an app or a user for use in the id of a session."""
    return name.replace("%", "%25").replace(SEPARATOR, "%3A")


def session_location(app_name: str, user_id: str, session_id: str) -> SnapshotLocation:
    """Return the location of a session.

    Raises:
        TypeError: An id is not a str.
        ValueError: The ids have more than 256 characters in all, or the app has no name.

    """
    prefix = session_id_prefix(app_name, user_id)
    return SnapshotLocation(f"{prefix}{require_text(session_id, 'session_id')}", AGENT, app_name)


def user_location(app_name: str, user_id: str) -> SnapshotLocation:
    """Return the location of the state that the sessions of a user share."""
    id_ = session_id_prefix(app_name, user_id).removesuffix(SEPARATOR)
    return SnapshotLocation(id_, AGENT, f"{app_name}{STATE_SUFFIX}")


def app_location(app_name: str) -> SnapshotLocation:
    """Return the location of the state that all sessions of an app share."""
    id_ = quote_name(require_text(app_name, "app_name"))
    return SnapshotLocation(id_, AGENT, f"{app_name}{STATE_SUFFIX}")


def origin_location(shared: SnapshotLocation, session_id: str) -> SnapshotLocation:
    """Return the location of a Holdfast session that changes shared state."""
    return SnapshotLocation(session_id, AGENT, shared.scope_id.removesuffix(STATE_SUFFIX))


def session_id_prefix(app_name: str, user_id: str) -> str:
    """Return what the ids of a user's sessions begin with."""
    names = require_text(app_name, "app_name"), require_text(user_id, "user_id")
    return "".join(f"{quote_name(each)}{SEPARATOR}" for each in names)


def parse_session_id(location: SnapshotLocation) -> tuple[str, str] | None:
    """Return the ids of the user and the session at a location, or None if it is not a session."""
    parts = location.session_id.split(SEPARATOR, 2)
    if len(parts) < 3 or not parts[2] or parts[0] != quote_name(location.scope_id):
        return None
    user_id = parts[1].replace("%3A", SEPARATOR).replace("%25", "%")
    return (user_id, parts[2]) if quote_name(user_id) == parts[1] else None


def require_text(value: object, what: str) -> str:
    """Return an id of ADK.

    Raises:
        TypeError: It is not a str.

    """
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a str, got {short_repr(value)}")
    return value


# ------------------------------------------------------------------------------------------ state


@dataclass(frozen=True, slots=True)
class StateDelta:
    """Changes to state, by what shares it, without the prefixes of the keys."""

    app: dict[str, Any] = field(default_factory=dict)
    user: dict[str, Any] = field(default_factory=dict)
    session: dict[str, Any] = field(default_factory=dict)


def split_state(state: Mapping[str, Any]) -> StateDelta:
    """Return state by what shares it. Temporary state is left out."""
    delta = StateDelta()
    for key, value in state.items():
        if key.startswith(APP_PREFIX):
            delta.app[key.removeprefix(APP_PREFIX)] = value
        elif key.startswith(USER_PREFIX):
            delta.user[key.removeprefix(USER_PREFIX)] = value
        elif not key.startswith(TEMP_PREFIX):
            delta.session[key] = value
    return delta


def join_state(delta: StateDelta) -> dict[str, Any]:
    """Return state as ADK's sessions have it, with prefixes."""
    return {
        **delta.session,
        **{f"{APP_PREFIX}{key}": value for key, value in delta.app.items()},
        **{f"{USER_PREFIX}{key}": value for key, value in delta.user.items()},
    }


# --------------------------------------------------------------------------------------- creation


@dataclass(frozen=True, slots=True)
class Creation:
    """When a session was created, and by which call."""

    time: float = 0.0
    mark: str = ""

    def to_value(self) -> dict[str, Any]:
        """Return the entry of the session."""
        return {"create_time": self.time, "create_id": self.mark}


def read_creation(state: Snapshot) -> Creation:
    """Return the entry of a session; an empty one if ADK did not create it.

    Raises:
        IntegrityError: The entry is damaged.

    """
    entry: object = state.get(ADK, CREATION, None)
    if entry is None:
        return Creation()
    if isinstance(entry, dict):
        time, mark = entry.get("create_time"), entry.get("create_id")
        if isinstance(time, int | float) and isinstance(mark, str):
            return Creation(float(time), mark)
    raise IntegrityError(
        f"entry {CREATION!r} in namespace {ADK!r} is not that of an ADK session: "
        f"{short_repr(entry)}; restore the session to an earlier snapshot, or from a backup"
    )
