"""Strands' keys: those of a session's snapshots, and all others.

    session/<session_id>/scopes/agent/<agent_id>/snapshots/snapshot_latest.json
    session/<session_id>/scopes/agent/<agent_id>/snapshots/immutable_history/snapshot_<uuid7>.json

Orchestrators have the scope ``multiAgent``. Slashes are treated as Strands' own storages do.
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
    """A snapshot of a session: the latest, or one that is kept under an id."""

    location: SnapshotLocation
    snapshot_id: str | None


def normalize_key(key: str) -> str:
    """A key without empty parts. ``ValueError`` where it is none."""
    found = normalize_prefix(key).rstrip("/")
    if not found:
        raise ValueError("a key of a storage is not empty")
    return found


def normalize_prefix(prefix: str) -> str:
    """The beginning of keys without empty parts; a slash at its end stays."""
    found = re.sub(r"/+", "/", prefix).lstrip("/")
    if "\\" in found or ".." in found.split("/"):
        raise ValueError("a key of a storage has neither a backslash nor a part that is ..")
    return found


def parse_snapshot_key(key: str) -> SnapshotKey | None:
    """The snapshot that a key names; None for any other key."""
    found = SNAPSHOT.fullmatch(key)
    if found is None or max(len(found[1]), len(found[3])) > MAX_ID_LENGTH:
        return None
    return SnapshotKey(SnapshotLocation(found[1], SCOPES[found[2]], found[3]), found[4])


def parse_session_id(prefix: str) -> str | None:
    """The session that all keys with this beginning belong to, where it is one."""
    parts = prefix.split("/")
    return parts[1] if len(parts) > 2 and parts[0] == "session" else None


def is_nameable(location: SnapshotLocation) -> bool:
    """Whether Strands has keys for a session of these ids."""
    return not any("/" in text or "\\" in text for text in (location.session_id, location.scope_id))


def snapshots_prefix(location: SnapshotLocation) -> str:
    """What the keys of all snapshots of a session begin with."""
    name = NAMES[location.scope]
    return f"{SESSIONS}{location.session_id}/scopes/{name}/{location.scope_id}/snapshots/"


def latest_key(location: SnapshotLocation) -> str:
    """The key of the latest snapshot."""
    return f"{snapshots_prefix(location)}snapshot_latest.json"


def history_key(location: SnapshotLocation, snapshot_id: str) -> str:
    """The key of one that is kept."""
    return f"{snapshots_prefix(location)}immutable_history/snapshot_{snapshot_id}.json"
