"""Where everything of a session is kept: the keys, and nothing else.

    sessions/<session_id>/scopes/<scope>/<scope_id>/
      log/<incarnation>/<first seq, 12 digits>.json              one segment per commit
      keyframes/<incarnation>/<seq, 12 digits>.json.gz           the state, or what changed in it
      snapshots/manifest.json
      snapshots/snapshot_latest.json
      snapshots/immutable_history/snapshot_<uuid7>.json          see `order` for ids of other kinds
      snapshots/ids/<snapshot_id>.json
    sessions/<session_id>/deleted.json                           while a session is being deleted
    agents/<agent_id>/sessions/<newest first>_<session_id>/<scope>   an empty entry for each

Ids are percent-encoded, so that none can climb out of its place or pose as another.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

from holdfast.errors import short_repr

AGENT = "agent"
MULTI_AGENT = "multi_agent"
SCOPES = (AGENT, MULTI_AGENT)
MAX_ID_LENGTH = 256
# Microseconds since the epoch are counted down from here, so that the newest comes first.
END_OF_TIME = 10**18 - 1
HISTORY_NAME = re.compile(r"[A-Za-z0-9_-]{1,256}\.json")
INDEX_NAME = re.compile(r"([0-9]{18})_(.+)")


@dataclass(frozen=True, slots=True)
class SnapshotLocation:
    """Which session, and what of it: one agent's part, or that of several agents together."""

    session_id: str
    scope: str = AGENT
    scope_id: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "session_id", validate_id(self.session_id, "session_id"))
        if self.scope not in SCOPES:
            raise ValueError(f"a scope is one of {', '.join(SCOPES)}, not {short_repr(self.scope)}")
        object.__setattr__(self, "scope", str.__str__(self.scope))
        object.__setattr__(self, "scope_id", validate_id(self.scope_id, "scope_id"))

    @property
    def prefix(self) -> str:
        """What all keys of it begin with."""
        return f"{session_prefix(self.session_id)}scopes/{self.scope}/{quote_id(self.scope_id)}/"

    @property
    def manifest_key(self) -> str:
        """The key of the manifest."""
        return f"{self.prefix}snapshots/manifest.json"

    @property
    def latest_key(self) -> str:
        """The key of the snapshot that is replaced again and again."""
        return f"{self.prefix}snapshots/snapshot_latest.json"

    @property
    def history_prefix(self) -> str:
        """What the keys of all kept snapshots begin with; the id and ``.json`` follow."""
        return f"{self.prefix}snapshots/immutable_history/snapshot_"

    def snapshot_key(self, snapshot_id: str) -> str:
        """The key of one kept snapshot."""
        return f"{self.history_prefix}{validate_snapshot_id(snapshot_id)}.json"

    def is_history_key(self, key: str) -> bool:
        """Whether a key that begins like a kept snapshot's is one. Others are ignored."""
        return HISTORY_NAME.fullmatch(key, len(self.history_prefix)) is not None


def location_fields(location: SnapshotLocation) -> dict[str, str]:
    """Return the fields that name a session's part in JSON, separate so that none is ambiguous."""
    return {
        "agent_id": location.scope_id,
        "session_id": location.session_id,
        "scope": location.scope,
    }


def session_prefix(session_id: str) -> str:
    """What all keys of a session begin with."""
    return f"sessions/{quote_id(session_id)}/"


def agent_index_prefix(agent_id: str) -> str:
    """What the keys of all sessions of an agent begin with, in the index."""
    return f"agents/{quote_id(agent_id)}/sessions/"


def deletion_mark_key(session_id: str) -> str:
    """The key of the mark that a session is being deleted."""
    return f"{session_prefix(session_id)}deleted.json"


def index_key(location: SnapshotLocation, active: int) -> str:
    """The entry of a session in the index, by its activity, in microseconds since the epoch."""
    place = agent_index_prefix(location.scope_id)
    return f"{place}{END_OF_TIME - active:018}_{quote_id(location.session_id)}/{location.scope}"


def parse_index_key(key: str) -> tuple[SnapshotLocation, int] | None:
    """The session that an entry in the index stands for, and when it was active."""
    parts = key.split("/")
    if len(parts) != 5 or parts[4] not in SCOPES:
        return None
    found = INDEX_NAME.fullmatch(parts[3])
    if found is None:
        return None
    try:
        location = SnapshotLocation(unquote(found[2]), parts[4], unquote(parts[1]))
    except ValueError:
        return None
    return location, END_OF_TIME - int(found[1])


def parse_location(key: str) -> SnapshotLocation | None:
    """The session and the part of it that a key belongs to."""
    parts = key.split("/")
    if len(parts) < 6 or parts[0] != "sessions" or parts[2] != "scopes" or parts[3] not in SCOPES:
        return None
    try:
        return SnapshotLocation(unquote(parts[1]), parts[3], unquote(parts[4]))
    except ValueError:
        return None


def quote_id(text: str) -> str:
    """An id as a part of a key."""
    # A dot is harmless but for . and .., which some tools take for folders.
    return quote(text, safe="") if text.strip(".") else text.replace(".", "%2E")


def unquote_id(part: str) -> str:
    """The id that a part of a key stands for."""
    return unquote(part)


def validate_id(text: object, what: str) -> str:
    """An id of a session or an agent, or a refusal."""
    if not isinstance(text, str):
        raise TypeError(f"{what} is a str, not {short_repr(text)}")
    if not 1 <= len(text) <= MAX_ID_LENGTH:
        raise ValueError(
            f"{what} has 1 to {MAX_ID_LENGTH} characters; this one has {len(text)}: {short_repr(text)}"
        )
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"{what} has a lone surrogate, which no encoding can write down: {short_repr(text)}"
        ) from None
    return str.__str__(text)  # also of a str enum


def is_snapshot_id(text: str) -> bool:
    """Whether a text can be the id of a snapshot."""
    return re.fullmatch(r"[A-Za-z0-9_-]{1,128}", text) is not None


def validate_snapshot_id(text: object) -> str:
    """An id of a snapshot, or a refusal: it is a part of a key as it is."""
    if not isinstance(text, str):
        raise TypeError(f"snapshot_id is a str, not {short_repr(text)}")
    if not is_snapshot_id(text):
        raise ValueError(
            "snapshot_id is made of letters, digits, - and _, as in "
            f"019a8b5e-6f00-7000-8000-000000000000, not {short_repr(text)}"
        )
    return str.__str__(text)


def validate_limit(limit: object) -> int:
    """How many to give at most, or a refusal."""
    if isinstance(limit, int) and not isinstance(limit, bool) and limit >= 1:
        return limit
    raise ValueError(f"limit is a number from 1, or None for all, not {short_repr(limit)}")
