"""What is known of a session's stored form as a whole: when it began, and where its log begins."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import Any

from holdfast.errors import IntegrityError, InvalidDocumentError
from holdfast.log.event_log import Position
from holdfast.log.events import read_time, time_text
from holdfast.snapshots import sealed

SCHEMA_VERSION = 1
KNOWN = {"schema_version", "started_at", "updated_at", "floor"}


@dataclass(frozen=True, slots=True)
class SnapshotManifest:
    """What there is to know of all snapshots of a location together.

    ``floor`` is where the log begins: the events up to it were pruned. ``extra`` is kept as it is,
    for fields of later versions and for the caller's own.
    """

    schema_version: int = SCHEMA_VERSION
    started_at: dt.datetime | None = None
    updated_at: dt.datetime | None = None
    floor: Position = field(default_factory=Position)
    extra: dict[str, Any] = field(default_factory=dict)

    def encoded(self) -> bytes:
        """The bytes that are stored."""
        return sealed.encoded(
            {
                **self.extra,
                "schema_version": self.schema_version,
                "started_at": self.started_at and time_text(self.started_at),
                "updated_at": self.updated_at and time_text(self.updated_at),
                "floor": {"seq": self.floor.seq, "hash": self.floor.hash},
            }
        )


def decoded(key: str, data: bytes) -> SnapshotManifest:
    """A manifest from its bytes. ``IntegrityError`` names the key of one that is damaged."""
    tree = sealed.decoded(key, data, "manifest")
    try:
        if tree["schema_version"] > SCHEMA_VERSION:
            raise InvalidDocumentError(
                f"{key} was written by a newer Holdfast (schema {tree['schema_version']}, known is "
                f"{SCHEMA_VERSION}): upgrade this one"
            )
        return SnapshotManifest(
            schema_version=tree["schema_version"],
            started_at=tree["started_at"] and read_time(tree["started_at"]),
            updated_at=tree["updated_at"] and read_time(tree["updated_at"]),
            floor=Position(tree["floor"]["seq"], tree["floor"]["hash"]),
            extra={name: value for name, value in tree.items() if name not in KNOWN},
        )
    except (KeyError, TypeError) as error:
        raise damaged(key, f"it lacks {error}") from error


def damaged(key: str, problem: str) -> IntegrityError:
    """The error for a manifest that is not as it was written."""
    return sealed.damaged(key, "manifest", problem)
