"""The keys under which a session is stored.

    sessions/<session_id>/scopes/<scope>/<scope_id>/
      log/<incarnation>/<first seq, 12 digits>.json              one segment per commit
      keyframes/<incarnation>/<seq, 12 digits>.json.gz           the state, or what changed in it
      snapshots/manifest.json
      snapshots/snapshot_latest.json
      snapshots/immutable_history/snapshot_<uuid7>.json          see `order` for ids of other kinds
      snapshots/ids/<snapshot_id>.json
    sessions/<session_id>/deleted.json                           while a session is being deleted
    agents/<agent_id>/sessions/<newest first>_<session_id>/<scope>   one empty entry per session

Ids are percent-encoded, so that none can escape its prefix or collide with another.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass, field
from urllib.parse import quote, unquote

from holdfast.errors import short_repr

AGENT = "agent"
MULTI_AGENT = "multi_agent"
SCOPES = (AGENT, MULTI_AGENT)
SESSIONS = "sessions/"
MAX_ID_LENGTH = 256
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
END_OF_TIME = 10**18 - 1
"""Index keys count microseconds down from here, so that the newest session is listed first."""
SNAPSHOT_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
HISTORY_NAME = re.compile(r"[A-Za-z0-9_-]{1,256}\.json")
INDEX_NAME = re.compile(r"([0-9]{18})_(.+)")


@dataclass(frozen=True, slots=True)
class SnapshotLocation:
    """A session and a scope in it: one agent, or several agents together.

    Raises:
        TypeError: An id is not a str.
        ValueError: An id is empty or too long, or the scope is unknown.

    """

    session_id: str
    scope: str = AGENT
    scope_id: str = ""
    _prefix: str = field(default="", init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "session_id", validate_id(self.session_id, "session_id"))
        if self.scope not in SCOPES:
            raise ValueError(
                f"invalid scope {short_repr(self.scope)}; use one of {', '.join(SCOPES)}"
            )
        object.__setattr__(self, "scope", str.__str__(self.scope))
        object.__setattr__(self, "scope_id", validate_id(self.scope_id, "scope_id"))

    @property
    def prefix(self) -> str:
        """The prefix of all its keys."""
        if not self._prefix:
            session, agent = session_prefix(self.session_id), quote_id(self.scope_id)
            object.__setattr__(self, "_prefix", f"{session}scopes/{self.scope}/{agent}/")
        return self._prefix

    @property
    def manifest_key(self) -> str:
        """The key of the manifest."""
        return f"{self.prefix}snapshots/manifest.json"

    @property
    def latest_key(self) -> str:
        """The key of the latest snapshot, which is overwritten and not listed."""
        return f"{self.prefix}snapshots/snapshot_latest.json"

    @property
    def history_prefix(self) -> str:
        """The prefix of the keys of all snapshots in the history."""
        return f"{self.prefix}snapshots/immutable_history/snapshot_"

    def snapshot_key(self, snapshot_id: str) -> str:
        """Return the key of a snapshot in the history whose id gives its order."""
        return f"{self.history_prefix}{validate_snapshot_id(snapshot_id)}.json"

    def is_history_key(self, key: str) -> bool:
        """Tell whether a key with the history's prefix is that of a snapshot."""
        return HISTORY_NAME.fullmatch(key, len(self.history_prefix)) is not None


def location_fields(location: SnapshotLocation) -> dict[str, str]:
    """Return the fields that identify a location in JSON output."""
    return {
        "agent_id": location.scope_id,
        "session_id": location.session_id,
        "scope": location.scope,
    }


def session_prefix(session_id: str) -> str:
    """Return the prefix of all keys of a session."""
    return f"{SESSIONS}{quote_id(session_id)}/"


def deletion_mark_key(session_id: str) -> str:
    """Return the key of the mark that exists while a session is being deleted."""
    return f"{session_prefix(session_id)}deleted.json"


def parse_location(key: str) -> SnapshotLocation | None:
    """Return the location that a key belongs to, or None."""
    parts = key.split("/")
    if len(parts) < 6 or parts[0] != "sessions" or parts[2] != "scopes" or parts[3] not in SCOPES:
        return None
    try:
        return SnapshotLocation(unquote(parts[1]), parts[3], unquote(parts[4]))
    except ValueError:
        return None


# --------------------------------------------------------------------------- index of an agent


def agent_index_prefix(agent_id: str) -> str:
    """Return the prefix of an agent's sessions in the index."""
    return f"agents/{quote_id(agent_id)}/sessions/"


def index_key(location: SnapshotLocation, active_at: dt.datetime) -> str:
    """Return the key of a session in the index, by its last activity."""
    prefix = agent_index_prefix(location.scope_id)
    return f"{prefix}{to_countdown(active_at):018}_{quote_id(location.session_id)}/{location.scope}"


def parse_index_key(key: str) -> tuple[SnapshotLocation, dt.datetime] | None:
    """Return the session of an index entry and its last activity, or None."""
    parts = key.split("/")
    if len(parts) != 5 or parts[4] not in SCOPES:
        return None
    found = INDEX_NAME.fullmatch(parts[3])
    if found is None:
        return None
    try:
        location = SnapshotLocation(unquote(found[2]), parts[4], unquote(parts[1]))
        return location, from_countdown(int(found[1]))
    except (ValueError, OverflowError):
        return None


def to_countdown(time: dt.datetime) -> int:
    """Return a number that is smaller for a later time."""
    return END_OF_TIME - (time - EPOCH) // dt.timedelta(microseconds=1)


def from_countdown(countdown: int) -> dt.datetime:
    """Return the time of a countdown.

    Raises:
        OverflowError: A datetime cannot hold it.

    """
    return EPOCH + dt.timedelta(microseconds=END_OF_TIME - countdown)


# ------------------------------------------------------------------------------------------ ids


def quote_id(text: str) -> str:
    """Encode an id as one part of a key."""
    # Some tools treat the names . and .. as folders.
    return quote(text, safe="") if text.strip(".") else text.replace(".", "%2E")


def unquote_id(part: str) -> str:
    """Decode an id from a part of a key."""
    return unquote(part)


def validate_id(text: object, what: str) -> str:
    """Return the id of a session or an agent.

    Raises:
        TypeError: It is not a str.
        ValueError: It is empty, too long, or cannot be encoded as UTF-8.

    """
    if not isinstance(text, str):
        raise TypeError(f"{what} must be a str, got {short_repr(text)}")
    if not 1 <= len(text) <= MAX_ID_LENGTH:
        raise ValueError(
            f"{what} must have 1 to {MAX_ID_LENGTH} characters, got {len(text)}: {short_repr(text)}"
        )
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what} has a lone surrogate: {short_repr(text)}") from None
    return str.__str__(text)  # also of a str enum


def is_snapshot_id(text: str) -> bool:
    """Tell whether a text can be the id of a snapshot."""
    return SNAPSHOT_ID.fullmatch(text) is not None


def validate_snapshot_id(text: object) -> str:
    """Return the id of a snapshot, which is part of a key unencoded.

    Raises:
        TypeError: It is not a str.
        ValueError: It has other characters than letters, digits, - and _, or too many.

    """
    if not isinstance(text, str):
        raise TypeError(f"snapshot_id must be a str, got {short_repr(text)}")
    if not is_snapshot_id(text):
        raise ValueError(
            f"invalid snapshot_id {short_repr(text)}; use 1 to 128 letters, digits, - and _"
        )
    return str.__str__(text)


def validate_limit(limit: object) -> int:
    """Return the most results that a listing returns.

    Raises:
        ValueError: It is not a positive int.

    """
    if isinstance(limit, int) and not isinstance(limit, bool) and limit >= 1:
        return limit
    raise ValueError(f"limit must be a positive int, or None for all, got {short_repr(limit)}")
