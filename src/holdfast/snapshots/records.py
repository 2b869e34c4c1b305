"""The record of a durable snapshot: a position in the log, with tags and counts.

It takes a few hundred bytes, for ten messages or a million. The chain hash at ``seq`` binds it to
the log. ``keyframe`` is the last keyframe at the time of saving, so that a load need not look for
it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from holdfast.errors import short_repr
from holdfast.log.event import format_time, parse_time
from holdfast.log.event_log import Position
from holdfast.snapshots.envelope import damaged_record_error, decode_envelope, encode_envelope
from holdfast.snapshots.keys import SnapshotLocation, validate_snapshot_id
from holdfast.snapshots.order import HistoryKey, is_uuid7, order_of_time

WHAT = "snapshot record"
FIELD_TYPES: dict[str, tuple[type, ...]] = {
    "parent_id": (str, type(None)),
    "agent_id": (str,),
    "session_id": (str,),
    "status": (str,),
    "messages": (int,),
    "bytes": (int,),
    "seq": (int,),
    "hash": (str,),
    "keyframe": (int,),
    "incarnation": (str,),
    "unfinished": (bool,),
    "source_environment": (str, type(None)),
    "extra": (dict,),
    "stamp": (str,),
}
"""The types of the fields. A digest shows that a record is not damaged, not that it is valid."""


class StoredRecord(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The JSON object of a record."""

    snapshot_id: str
    parent_id: str | None
    created_at: str
    seq: int
    hash: str
    keyframe: int
    incarnation: str
    status: str
    messages: int
    bytes: int
    tags: dict[str, str] = {}
    unfinished: bool = False
    source_environment: str | None = None
    extra: dict[str, Any] = {}
    saved_at: str | None = None
    stamp: str | None = None
    agent_id: str | None = None
    session_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotInfo:
    """The metadata of a durable snapshot, without its state."""

    snapshot_id: str
    parent_id: str | None
    agent_id: str
    session_id: str
    scope: str
    created_at: dt.datetime
    tags: dict[str, str] = field(default_factory=dict)
    status: str = "pending"
    message_count: int = 0
    size_bytes: int = 0
    """The size of all encoded values of its state."""
    seq: int = 0
    """The seq of the last event before it; also the number of events in the log then."""
    hash: str = ""
    """The chain hash of that event."""
    keyframe: int = 0
    """The seq of the last keyframe when it was saved, 0 for none."""
    incarnation: str = ""
    """The incarnation of the session it belongs to."""
    unfinished: bool = False
    """Whether a tool call had no result yet. Models reject such a conversation."""
    source_environment: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    saved_at: dt.datetime | None = None
    """When it was saved, if that differs from ``created_at``."""
    stamp: str | None = None
    """A UUIDv7 made when it was saved, if its id does not give its order (see `order`)."""

    @property
    def order(self) -> str:
        """What snapshots are sorted by, in the order of saving."""
        if self.stamp is not None:
            return self.stamp
        if is_uuid7(self.snapshot_id):
            return self.snapshot_id
        return order_of_time(self.saved_at or self.created_at)

    def history_key(self, location: SnapshotLocation) -> HistoryKey:
        """Return its key in the history of a location."""
        return HistoryKey(location, self.snapshot_id, self.stamp)

    @property
    def position(self) -> Position:
        """Its position in the log."""
        return Position(self.seq, self.hash)

    @property
    def event_log_count(self) -> int:
        """How many events the log had."""
        return self.seq

    def to_json(self) -> dict[str, Any]:
        """Return the fields that the command line and the REST API have in common."""
        return {
            "agent_id": self.agent_id,
            "session_id": self.session_id,
            "scope": self.scope,
            "snapshot_id": self.snapshot_id,
            "created_at": format_time(self.created_at),
            "status": self.status,
            "size_bytes": self.size_bytes,
            "unfinished": self.unfinished,
            "tags": self.tags,
        }

    def encode(self, location: SnapshotLocation) -> bytes:
        """Return the bytes to store; ids equal to those of the location are left out."""
        record = StoredRecord(
            snapshot_id=self.snapshot_id,
            parent_id=self.parent_id,
            created_at=format_time(self.created_at),
            seq=self.seq,
            hash=self.hash,
            keyframe=self.keyframe,
            incarnation=self.incarnation,
            status=self.status,
            messages=self.message_count,
            bytes=self.size_bytes,
            tags=self.tags,
            unfinished=self.unfinished,
            source_environment=self.source_environment,
            extra=self.extra,
            saved_at=None if self.saved_at is None else format_time(self.saved_at),
            stamp=self.stamp,
            agent_id=None if self.agent_id == location.scope_id else self.agent_id,
            session_id=None if self.session_id == location.session_id else self.session_id,
        )
        return encode_envelope(record)


def decode_record(key: str, data: bytes, location: SnapshotLocation) -> SnapshotInfo:
    """Decode the stored record of a snapshot.

    Raises:
        IntegrityError: The record is damaged, or is that of another key.
        InvalidDocumentError: A newer version of Holdfast wrote it.

    """
    tree = decode_envelope(key, data, WHAT)
    try:
        for name, types in FIELD_TYPES.items():
            if name in tree and type(tree[name]) not in types:
                raise TypeError(f"invalid {name} {short_repr(tree[name])}")
        info = SnapshotInfo(
            snapshot_id=tree["snapshot_id"],
            parent_id=tree["parent_id"],
            agent_id=tree.get("agent_id", location.scope_id),
            session_id=tree.get("session_id", location.session_id),
            scope=location.scope,
            created_at=parse_time(tree["created_at"]),
            tags=validate_tags(tree.get("tags")),
            status=tree["status"],
            message_count=tree["messages"],
            size_bytes=tree["bytes"],
            seq=tree["seq"],
            hash=tree["hash"],
            keyframe=tree["keyframe"],
            incarnation=tree["incarnation"],
            unfinished=tree.get("unfinished", False),
            source_environment=tree.get("source_environment"),
            extra=tree.get("extra", {}),
            saved_at=parse_time(tree["saved_at"]) if "saved_at" in tree else None,
            stamp=tree.get("stamp"),
        )
        if info.stamp is not None and not is_uuid7(info.stamp):
            raise ValueError(f"invalid stamp {short_repr(info.stamp)}")
        validate_snapshot_id(info.snapshot_id)
    except (KeyError, TypeError, ValueError) as error:
        raise damaged_record_error(key, WHAT, f"invalid field: {error}") from error
    if key not in (location.latest_key, info.history_key(location).key):
        raise damaged_record_error(key, WHAT, f"it belongs to snapshot {info.snapshot_id}")
    return info


def validate_tags(tags: object) -> dict[str, str]:
    """Return a copy of tags; no tags for None.

    Raises:
        TypeError: The tags are not a mapping of str to str.
        ValueError: A tag cannot be encoded as UTF-8.

    """
    if tags is None:
        return {}
    if not isinstance(tags, Mapping):
        raise TypeError(
            f'tags must be a mapping such as {{"env": "production"}}, got {short_repr(tags)}'
        )
    for name, value in tags.items():
        for text in (name, value):
            if not isinstance(text, str):
                raise TypeError(
                    f"tag names and values must be str, got {short_repr(name)}: {short_repr(value)}"
                )
            try:
                text.encode()
            except UnicodeEncodeError:
                raise ValueError(f"tag {short_repr(name)} has a lone surrogate") from None
    return {str.__str__(name): str.__str__(value) for name, value in tags.items()}
