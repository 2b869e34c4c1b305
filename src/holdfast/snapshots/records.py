"""The record of a durable snapshot: a position in the log, with tags and counts.

It costs the same few hundred bytes for ten messages or a million. ``hash`` binds it to the log: it
is the chain's at ``seq``. ``keyframe`` is the one that was the last when it was written, so that a
load need not look for it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

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
"""What each field of a record is: a digest says that it was not damaged, not who wrote it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotInfo:
    """What is known of a durable snapshot without loading its state."""

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
    """Bytes of all encoded values of its state."""
    seq: int = 0
    """The last event that led to it: so many events the log had."""
    hash: str = ""
    """The hash of that event, which binds it to the log."""
    keyframe: int = 0
    """The seq of the keyframe before it when it was saved, 0 for none."""
    incarnation: str = ""
    """The incarnation of the session that it belongs to."""
    unfinished: bool = False
    """Whether a tool call had no result yet: no model accepts such a conversation."""
    source_environment: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    saved_at: dt.datetime | None = None
    """When it was written, where that is not when it was made."""
    stamp: str | None = None
    """A UUIDv7 of when it was saved, where its id is not one: snapshots are ordered by it."""

    @property
    def order(self) -> str:
        """Return what snapshots are ordered by, the first saved first."""
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
        """Its place in the log."""
        return Position(self.seq, self.hash)

    @property
    def event_log_count(self) -> int:
        """How many events led to it."""
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
        """The bytes that are stored at a location; what the location says is left out."""
        content: dict[str, Any] = {
            "snapshot_id": self.snapshot_id,
            "parent_id": self.parent_id,
            "created_at": format_time(self.created_at),
            "seq": self.seq,
            "hash": self.hash,
            "keyframe": self.keyframe,
            "incarnation": self.incarnation,
            "status": self.status,
            "messages": self.message_count,
            "bytes": self.size_bytes,
        }
        if self.tags:
            content["tags"] = self.tags
        if self.unfinished:
            content["unfinished"] = True
        if self.source_environment is not None:
            content["source_environment"] = self.source_environment
        if self.extra:
            content["extra"] = self.extra
        if self.saved_at is not None:
            content["saved_at"] = format_time(self.saved_at)
        if self.stamp is not None:
            content["stamp"] = self.stamp
        if self.agent_id != location.scope_id:
            content["agent_id"] = self.agent_id
        if self.session_id != location.session_id:
            content["session_id"] = self.session_id
        return encode_envelope(content)


def decode_record(key: str, data: bytes, location: SnapshotLocation) -> SnapshotInfo:
    """A record from its bytes. ``IntegrityError`` names the key of one that is damaged."""
    tree = decode_envelope(key, data, WHAT)
    try:
        for name, types in FIELD_TYPES.items():
            if name in tree and type(tree[name]) not in types:
                raise TypeError(f"its {name} is {short_repr(tree[name])}")
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
            raise ValueError(f"its stamp is {short_repr(info.stamp)}")
        validate_snapshot_id(info.snapshot_id)
    except (KeyError, TypeError, ValueError) as error:
        raise damaged_record_error(key, WHAT, f"it is not as it should be: {error}") from error
    if key not in (location.latest_key, info.history_key(location).key):
        raise damaged_record_error(key, WHAT, f"it is that of the snapshot {info.snapshot_id}")
    return info


def validate_tags(tags: object) -> dict[str, str]:
    """Tags, or a refusal: names and values are text."""
    if tags is None:
        return {}
    if not isinstance(tags, Mapping):
        raise TypeError(f'tags are a mapping as in {{"env": "production"}}, not {short_repr(tags)}')
    for name, value in tags.items():
        for text in (name, value):
            if not isinstance(text, str):
                raise TypeError(
                    f"a tag is a text with a text, not {short_repr(name)}: {short_repr(value)}"
                )
            try:
                text.encode()
            except UnicodeEncodeError:
                raise ValueError(
                    f"the tag {short_repr(name)} has a lone surrogate, which no encoding can write down"
                ) from None
    return {str.__str__(name): str.__str__(value) for name, value in tags.items()}
