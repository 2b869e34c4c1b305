"""Parse and format Strands' keys: those of session snapshots, and all others.

    session/<session_id>/scopes/agent/<agent_id>/snapshots/snapshot_latest.json
    session/<session_id>/scopes/agent/<agent_id>/snapshots/immutable_history/snapshot_<uuid7>.json

Orchestrators have the scope ``multiAgent``. Slashes are normalized as in Strands' own storages.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from holdfast.snapshots.keys import AGENT, MAX_ID_LENGTH, MULTI_AGENT, SnapshotLocation

SESSIONS = "session/"
SCOPES = {"agent": AGENT, "multiAgent": MULTI_AGENT}
NAMES = {scope: name for name, scope in SCOPES.items()}
SNAPSHOT = re.compile(
    r"session/([^/]+)/scopes/(agent|multiAgent)/([^/]+)/snapshots/"
    r"(?:snapshot_latest|immutable_history/snapshot_([A-Za-z0-9_-]{1,128}))\.json"
)


@dataclass(frozen=True, slots=True)
class SnapshotKey:
    """The key of a session's latest snapshot, or of one in its history."""

    location: SnapshotLocation
    snapshot_id: str | None


def normalize_key(key: str) -> str:
    """Return a key without empty segments.

    Raises:
        ValueError: The key is invalid.

    """
    found = normalize_prefix(key).rstrip("/")
    if not found:
        raise ValueError("key must not be empty")
    return found


def normalize_prefix(prefix: str) -> str:
    """Return a prefix of keys without empty segments; a trailing slash stays.

    Raises:
        ValueError: The prefix is invalid.

    """
    found = re.sub(r"/+", "/", prefix).lstrip("/")
    if "\\" in found or ".." in found.split("/"):
        raise ValueError("key must not contain a backslash or a .. segment")
    return found


def parse_snapshot_key(key: str) -> SnapshotKey | None:
    """Return the snapshot that a key names, or None for any other key."""
    found = SNAPSHOT.fullmatch(key)
    if found is None or max(len(found[1]), len(found[3])) > MAX_ID_LENGTH:
        return None
    return SnapshotKey(SnapshotLocation(found[1], SCOPES[found[2]], found[3]), found[4])


def parse_session_id(prefix: str) -> str | None:
    """Return the session that all keys with a prefix belong to, or None."""
    parts = prefix.split("/")
    return parts[1] if len(parts) > 2 and parts[0] == "session" else None


def is_nameable(location: SnapshotLocation) -> bool:
    """Return whether Strands has keys for a session with these ids."""
    return not any("/" in text or "\\" in text for text in (location.session_id, location.scope_id))


def snapshots_prefix(location: SnapshotLocation) -> str:
    """Return the prefix of the keys of a session's snapshots."""
    name = NAMES[location.scope]
    return f"{SESSIONS}{location.session_id}/scopes/{name}/{location.scope_id}/snapshots/"


def latest_key(location: SnapshotLocation) -> str:
    """Return the key of the latest snapshot."""
    return f"{snapshots_prefix(location)}snapshot_latest.json"


def history_key(location: SnapshotLocation, snapshot_id: str) -> str:
    """Return the key of a snapshot in the history."""
    return f"{snapshots_prefix(location)}immutable_history/snapshot_{snapshot_id}.json"
