"""The manifest of a session: its current incarnation, and where its log starts.

Every reader of a manifest goes through here. A session exists if its manifest has a start time.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from holdfast.errors import IntegrityError, InvalidDocumentError, short_repr
from holdfast.log.event import format_time, parse_time
from holdfast.log.event_log import Position
from holdfast.snapshots.envelope import damaged_record_error, decode_envelope, encode_envelope
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.stores.base import StateStore
from holdfast.stores.batch_read import iterate_entries, require_entry
from holdfast.stores.entries import Entry

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
    "creating",
    "blob_sweeps",
}


@dataclass(frozen=True, slots=True)
class SnapshotManifest:
    """What is stored about a session as a whole."""

    schema_version: int = SCHEMA_VERSION
    incarnation: str = ""
    """The id of the current incarnation; its log and keyframes are stored below it."""
    started_at: dt.datetime | None = None
    updated_at: dt.datetime | None = None
    active_at: dt.datetime | None = None
    """The time under which the session is listed in its agent's index."""
    log_start: Position = field(default_factory=Position)
    """The position at which the log starts; earlier events were pruned."""
    pending_log_start: Position | None = None
    """The log start that a running or interrupted prune is about to record."""
    creating: str = ""
    """The id of the incarnation that a running or interrupted creation is about to name."""
    blob_sweeps: int = 0
    """How often a prune has looked for blobs to delete. A commit that refers to blobs must know."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Fields of later versions and of the caller, stored unchanged."""

    @property
    def is_created(self) -> bool:
        """Whether the session exists."""
        return self.started_at is not None

    @property
    def is_claim(self) -> bool:
        """Whether the session does not exist, but a creation has started."""
        return bool(self.creating) and not self.is_created

    @property
    def live_incarnation(self) -> str:
        """The incarnation whose entries a deletion of others keeps: current, or being created."""
        return self.incarnation or self.creating

    @property
    def pruned_through(self) -> int:
        """The seq of the last event that is pruned or about to be."""
        pending = 0 if self.pending_log_start is None else self.pending_log_start.seq
        return max(self.log_start.seq, pending)

    def encode(self) -> bytes:
        """Return the bytes to store."""
        content = {
            **self.extra,
            "schema_version": self.schema_version,
            "incarnation": self.incarnation,
            "started_at": self.started_at and format_time(self.started_at),
            "updated_at": self.updated_at and format_time(self.updated_at),
            "active_at": self.active_at and format_time(self.active_at),
            "floor": msgspec.structs.asdict(self.log_start),
        }
        if self.pending_log_start is not None:
            content["pruning"] = msgspec.structs.asdict(self.pending_log_start)
        if self.creating:
            content["creating"] = self.creating
        if self.blob_sweeps:
            content["blob_sweeps"] = self.blob_sweeps
        return encode_envelope(content)


@dataclass(frozen=True, slots=True)
class StoredManifest:
    """A manifest as it was read, and its etag; an empty one without an etag if there is none."""

    manifest: SnapshotManifest = field(default_factory=SnapshotManifest)
    etag: str | None = None


# ----------------------------------------------------------------------------------- reading


async def read_manifest(state_store: StateStore, location: SnapshotLocation) -> StoredManifest:
    """Read the manifest of a session.

    Raises:
        IntegrityError: The manifest is damaged.
        InvalidDocumentError: A newer version of Holdfast wrote it.

    """
    entry = await state_store.get(location.manifest_key)
    return select_manifest(location, {} if entry is None else {location.manifest_key: entry})


def select_manifest(location: SnapshotLocation, entries: Mapping[str, Entry]) -> StoredManifest:
    """Return the manifest of a session from entries that were read together.

    Raises:
        IntegrityError: The manifest is damaged.
        InvalidDocumentError: A newer version of Holdfast wrote it.

    """
    entry = entries.get(location.manifest_key)
    if entry is None:
        return StoredManifest()
    return StoredManifest(decode_manifest(location.manifest_key, entry.value), entry.etag)


async def read_manifests(
    state_store: StateStore, locations: Iterable[SnapshotLocation], *, creating: bool = False
) -> dict[SnapshotLocation, SnapshotManifest]:
    """Read the manifests of the sessions that exist; damaged ones are left out.

    With ``creating``, read those of sessions that are being created, too.
    """
    wanted = {location.manifest_key: location for location in locations}
    found: dict[SnapshotLocation, SnapshotManifest] = {}
    async for key, entry in iterate_entries(state_store, wanted):
        try:
            manifest = decode_manifest(key, require_entry(entry).value)
        except IntegrityError:
            continue
        if manifest.is_created or (creating and manifest.is_claim):
            found[wanted[key]] = manifest
    return found


# ---------------------------------------------------------------------------------- decoding


def decode_manifest(key: str, data: bytes) -> SnapshotManifest:
    """Decode a stored manifest.

    Raises:
        IntegrityError: The manifest is damaged.
        InvalidDocumentError: A newer version of Holdfast wrote it.

    """
    tree = decode_envelope(key, data, "manifest")
    version = tree.get("schema_version")
    if "schema_version" in tree and type(version) is not int:
        raise damaged_manifest_error(key, f"invalid schema_version {short_repr(version)}")
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise InvalidDocumentError(
            f"{key} was written by a newer Holdfast (schema {version}, this one reads "
            f"{SCHEMA_VERSION}); upgrade"
        )
    try:
        return SnapshotManifest(
            schema_version=tree["schema_version"],
            incarnation=validate_incarnation(tree["incarnation"]),
            started_at=decode_time(tree["started_at"]),
            updated_at=decode_time(tree["updated_at"]),
            active_at=decode_time(tree["active_at"]),
            log_start=decode_position(tree["floor"]),
            pending_log_start=decode_position(tree["pruning"]) if "pruning" in tree else None,
            creating=validate_incarnation(tree.get("creating", "")),
            blob_sweeps=validate_count(tree.get("blob_sweeps", 0)),
            extra={name: value for name, value in tree.items() if name not in KNOWN_FIELDS},
        )
    except KeyError as error:
        raise damaged_manifest_error(key, f"field {error} is missing") from error
    except (TypeError, ValueError) as error:
        raise damaged_manifest_error(key, str(error)) from error


def decode_time(text: str | None) -> dt.datetime | None:
    """Return a stored time."""
    return None if text is None else parse_time(text)


def validate_incarnation(text: Any) -> str:
    """Return the id of an incarnation, which is part of keys."""
    if not isinstance(text, str) or INCARNATION.fullmatch(text) is None:
        raise TypeError(f"invalid incarnation {short_repr(text)}")
    return text


def validate_count(number: Any) -> int:
    """Return a stored count."""
    if type(number) is not int or number < 0:
        raise TypeError(f"invalid count {short_repr(number)}")
    return number


def decode_position(tree: Any) -> Position:
    """Return a stored position."""
    seq, hash_ = tree["seq"], tree["hash"]
    if type(seq) is not int or seq < 0 or not isinstance(hash_, str):
        raise TypeError(f"invalid position {short_repr(tree)}")
    return Position(seq, hash_)


def damaged_manifest_error(key: str, problem: str) -> IntegrityError:
    """Return the error for a damaged manifest."""
    return damaged_record_error(key, "manifest", problem)
