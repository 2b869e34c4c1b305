"""What is known of a session's stored form as a whole: when it began, and where its log begins."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import asdict, dataclass, field
from typing import Any

from holdfast.errors import IntegrityError, InvalidDocumentError, short_repr
from holdfast.log.event import format_time, parse_time
from holdfast.log.event_log import Position
from holdfast.snapshots.envelope import damaged_record_error, decode_envelope, encode_envelope

SCHEMA_VERSION = 1
INCARNATION = re.compile("[0-9a-f]{0,32}")
KNOWN_FIELDS = {
    "schema_version",
    "incarnation",
    "started_at",
    "updated_at",
    "active_at",
    "floor",
    "pruning",
}


@dataclass(frozen=True, slots=True)
class SnapshotManifest:
    """What there is to know of all snapshots of a location together.

    ``log_start`` is where the log begins: the events up to it were pruned. ``extra`` is kept as it is,
    for fields of later versions and for the caller's own.
    """

    schema_version: int = SCHEMA_VERSION
    incarnation: str = ""
    """The id of the session's current incarnation, below which its log and keyframes are."""
    started_at: dt.datetime | None = None
    updated_at: dt.datetime | None = None
    active_at: dt.datetime | None = None
    """The time under which the session stands in its agent's index."""
    log_start: Position = field(default_factory=Position)
    pending_log_start: Position | None = None
    """The log_start to be, while snapshots are being pruned."""
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def pruned_through(self) -> int:
        """The seq of the last event that is pruned, or is about to be."""
        return max(
            self.log_start.seq, 0 if self.pending_log_start is None else self.pending_log_start.seq
        )

    def encode(self) -> bytes:
        """The bytes that are stored."""
        content = {
            **self.extra,
            "schema_version": self.schema_version,
            "incarnation": self.incarnation,
            "started_at": self.started_at and format_time(self.started_at),
            "updated_at": self.updated_at and format_time(self.updated_at),
            "active_at": self.active_at and format_time(self.active_at),
            "floor": asdict(self.log_start),
        }
        if self.pending_log_start is not None:
            content["pruning"] = asdict(self.pending_log_start)
        return encode_envelope(content)


def decode_manifest(key: str, data: bytes) -> SnapshotManifest:
    """A manifest from its bytes. ``IntegrityError`` names the key of one that is damaged."""
    tree = decode_envelope(key, data, "manifest")
    version = tree.get("schema_version")
    if "schema_version" in tree and type(version) is not int:
        raise damaged_manifest_error(key, f"its schema_version is {short_repr(version)}")
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise InvalidDocumentError(
            f"{key} was written by a newer Holdfast (schema {version}, known is {SCHEMA_VERSION}): "
            "upgrade this one"
        )
    try:
        return SnapshotManifest(
            schema_version=tree["schema_version"],
            incarnation=validate_incarnation(tree["incarnation"]),
            started_at=None if tree["started_at"] is None else parse_time(tree["started_at"]),
            updated_at=None if tree["updated_at"] is None else parse_time(tree["updated_at"]),
            active_at=None if tree["active_at"] is None else parse_time(tree["active_at"]),
            log_start=decode_position(tree["floor"]),
            pending_log_start=decode_position(tree["pruning"]) if "pruning" in tree else None,
            extra={name: value for name, value in tree.items() if name not in KNOWN_FIELDS},
        )
    except KeyError as error:
        raise damaged_manifest_error(key, f"it lacks {error}") from error
    except (TypeError, ValueError) as error:
        raise damaged_manifest_error(key, f"it is not as it should be: {error}") from error


def validate_incarnation(text: Any) -> str:
    """Return the id of an incarnation, which is a part of keys, or refuse it."""
    if not isinstance(text, str) or INCARNATION.fullmatch(text) is None:
        raise TypeError(f"invalid incarnation {short_repr(text)}")
    return text


def decode_position(tree: Any) -> Position:
    """A place in the log, or a refusal."""
    seq, hash_ = tree["seq"], tree["hash"]
    if type(seq) is not int or seq < 0 or not isinstance(hash_, str):
        raise TypeError(f"{short_repr(tree)} is no place in a log")
    return Position(seq, hash_)


def damaged_manifest_error(key: str, problem: str) -> IntegrityError:
    """The error for a manifest that is not as it was written."""
    return damaged_record_error(key, "manifest", problem)
