"""What is known of a session's stored form as a whole: when it began, and where its log begins."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import asdict, dataclass, field
from typing import Any

from holdfast.errors import IntegrityError, InvalidDocumentError, shown
from holdfast.log.event import read_time, time_text
from holdfast.log.event_log import Position
from holdfast.snapshots import envelope as sealed

SCHEMA_VERSION = 1
INCARNATION = re.compile("[0-9a-f]{0,32}")
KNOWN = {
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

    ``floor`` is where the log begins: the events up to it were pruned. ``extra`` is kept as it is,
    for fields of later versions and for the caller's own.
    """

    schema_version: int = SCHEMA_VERSION
    incarnation: str = ""
    """The id of the session's current incarnation, below which its log and keyframes are."""
    started_at: dt.datetime | None = None
    updated_at: dt.datetime | None = None
    active_at: dt.datetime | None = None
    """The time under which the session stands in its agent's index."""
    floor: Position = field(default_factory=Position)
    pruning: Position | None = None
    """The floor to be, while snapshots are being pruned."""
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def last_gone(self) -> int:
        """The seq of the last event that is pruned, or is about to be."""
        return max(self.floor.seq, 0 if self.pruning is None else self.pruning.seq)

    def encoded(self) -> bytes:
        """The bytes that are stored."""
        content = {
            **self.extra,
            "schema_version": self.schema_version,
            "incarnation": self.incarnation,
            "started_at": self.started_at and time_text(self.started_at),
            "updated_at": self.updated_at and time_text(self.updated_at),
            "active_at": self.active_at and time_text(self.active_at),
            "floor": asdict(self.floor),
        }
        if self.pruning is not None:
            content["pruning"] = asdict(self.pruning)
        return sealed.encoded(content)


def decoded(key: str, data: bytes) -> SnapshotManifest:
    """A manifest from its bytes. ``IntegrityError`` names the key of one that is damaged."""
    tree = sealed.decoded(key, data, "manifest")
    version = tree.get("schema_version")
    if "schema_version" in tree and type(version) is not int:
        raise damaged(key, f"its schema_version is {shown(version)}")
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise InvalidDocumentError(
            f"{key} was written by a newer Holdfast (schema {version}, known is {SCHEMA_VERSION}): "
            "upgrade this one"
        )
    try:
        return SnapshotManifest(
            schema_version=tree["schema_version"],
            incarnation=read_incarnation(tree["incarnation"]),
            started_at=None if tree["started_at"] is None else read_time(tree["started_at"]),
            updated_at=None if tree["updated_at"] is None else read_time(tree["updated_at"]),
            active_at=None if tree["active_at"] is None else read_time(tree["active_at"]),
            floor=read_position(tree["floor"]),
            pruning=read_position(tree["pruning"]) if "pruning" in tree else None,
            extra={name: value for name, value in tree.items() if name not in KNOWN},
        )
    except KeyError as error:
        raise damaged(key, f"it lacks {error}") from error
    except (TypeError, ValueError) as error:
        raise damaged(key, f"it is not as it should be: {error}") from error


def read_incarnation(text: Any) -> str:
    """Return the id of an incarnation, which is a part of keys, or refuse it."""
    if not isinstance(text, str) or INCARNATION.fullmatch(text) is None:
        raise TypeError(f"invalid incarnation {shown(text)}")
    return text


def read_position(tree: Any) -> Position:
    """A place in the log, or a refusal."""
    seq, hash_ = tree["seq"], tree["hash"]
    if type(seq) is not int or seq < 0 or not isinstance(hash_, str):
        raise TypeError(f"{shown(tree)} is no place in a log")
    return Position(seq, hash_)


def damaged(key: str, problem: str) -> IntegrityError:
    """The error for a manifest that is not as it was written."""
    return sealed.damaged(key, "manifest", problem)
