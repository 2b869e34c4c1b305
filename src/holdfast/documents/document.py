"""The portable document: a session at one position, with the events that led there.

A `Document` is exported, imported, redacted, signed and replayed; docs/spec/document.md defines its
JSON form. A `SessionSnapshot` is a snapshot that was loaded from a store: it has a state and a
position, but no events and no JSON form. Each converts to the other.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from holdfast.documents.decode import decode_fields
from holdfast.documents.encode import (
    DIGEST,
    SIGNATURES,
    Listing,
    compute_digest,
    encode_canonical,
    encode_chunks,
    encode_fields,
)
from holdfast.documents.json_file import parse_json
from holdfast.documents.migrations import SCHEMA_VERSION
from holdfast.documents.signatures import Signature, decode_signatures
from holdfast.errors import short_repr
from holdfast.ids import new_id
from holdfast.log.event import Event
from holdfast.log.event_log import Position
from holdfast.snapshots.keys import AGENT, SnapshotLocation, validate_snapshot_id
from holdfast.snapshots.records import validate_tags
from holdfast.snapshots.session_snapshot import SessionSnapshot, utc_now
from holdfast.snapshots.session_state import SessionState
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A session at one position as it is exported and imported: metadata, state and events."""

    snapshot: Snapshot
    """The frozen state; ``state`` is a view of it by messages, values and status."""
    agent_id: str
    session_id: str
    scope: str = AGENT
    snapshot_id: str = field(default_factory=new_id)
    parent_id: str | None = None
    created_at: dt.datetime = field(default_factory=utc_now)
    exported_at: dt.datetime | None = None
    source_environment: str | None = None
    tags: dict[str, str] = field(default_factory=dict)
    event_log_count: int = 0
    events: tuple[Event, ...] = ()
    base: Snapshot | None = None
    """The state before the first of ``events``, unless that is the first event of the log."""
    schema_version: int = SCHEMA_VERSION
    extra: dict[str, Any] = field(default_factory=dict)
    """Top-level fields unknown to this version, and the signatures, as JSON data."""
    state_extra: dict[str, Any] = field(default_factory=dict)
    """Unknown fields of ``state``, as JSON data."""
    position: Position | None = None
    """The position in the log that it was exported from. It is not part of the JSON form."""
    signed_by: tuple[str, ...] = field(default=(), init=False, compare=False)
    """The ids of the trusted keys whose signatures were verified when it was read.

    A modified copy has none.
    """

    def __post_init__(self) -> None:
        SnapshotLocation(self.session_id, self.scope, self.agent_id)
        validate_snapshot_id(self.snapshot_id)
        object.__setattr__(self, "tags", validate_tags(self.tags))

    @classmethod
    def from_snapshot(
        cls,
        snapshot: SessionSnapshot,
        *,
        events: Sequence[Event] = (),
        base: Snapshot | None = None,
    ) -> Self:
        """Make a document of a loaded snapshot, without events unless they are given."""
        if not isinstance(snapshot, SessionSnapshot):
            raise TypeError(f"expected a SessionSnapshot, got {short_repr(snapshot)}")
        return cls(
            snapshot=snapshot.snapshot,
            agent_id=snapshot.agent_id,
            session_id=snapshot.session_id,
            scope=snapshot.scope,
            snapshot_id=snapshot.snapshot_id,
            parent_id=snapshot.parent_id,
            created_at=snapshot.created_at,
            source_environment=snapshot.source_environment,
            tags=snapshot.tags,
            event_log_count=len(events) or snapshot.event_log_count,
            events=tuple(events),
            base=base,
            position=snapshot.position,
        )

    def to_snapshot(self) -> SessionSnapshot:
        """Return the snapshot in this document, as `SnapshotStorage.save_snapshot` takes it."""
        return SessionSnapshot(
            snapshot=self.snapshot,
            agent_id=self.agent_id,
            session_id=self.session_id,
            scope=self.scope,
            snapshot_id=self.snapshot_id,
            parent_id=self.parent_id,
            created_at=self.created_at,
            source_environment=self.source_environment,
            tags=self.tags,
            event_log_count=self.event_log_count,
            position=self.position,
        )

    @property
    def state(self) -> SessionState:
        """The state by messages, values, status and namespaces."""
        return SessionState(self.snapshot)

    @property
    def digest(self) -> str:
        """The digest of the state, computed on each access: equal exactly if the state is equal.

        The ``digest`` field of the JSON form covers the whole document: `document_digest`.
        """
        return self.snapshot.digest

    @property
    def signatures(self) -> list[Signature]:
        """The signatures, without verifying them.

        Raises:
            SignatureError: They are malformed.

        """
        return decode_signatures(self.extra)

    @property
    def location(self) -> SnapshotLocation:
        """The session that the document belongs to."""
        return SnapshotLocation(self.session_id, self.scope, self.agent_id)

    def to_store(self) -> Store:
        """Return a live store with a copy of the state."""
        store = Store()
        store.restore(self.snapshot)
        return store

    def without_signatures(self) -> Self:
        """Return the document without its signatures, for a copy that they do not cover."""
        extra = {name: value for name, value in self.extra.items() if name != SIGNATURES}
        return replace(self, extra=extra)

    # ------------------------------------------------------------------------------- JSON

    def to_dict(self) -> dict[str, Any]:
        """Return the document as JSON data, which shares the values of its events."""
        data = self._encode(list)
        return {**data, DIGEST: compute_digest(data)}

    def to_json(self) -> str:
        """Return the document as JSON text."""
        return b"".join(self.chunks()).decode()

    def chunks(self) -> Iterator[bytes]:
        """Yield the JSON text in chunks, without building all of its JSON data at once."""
        return encode_chunks({**self._encode(iter), DIGEST: self.document_digest()})

    def canonical(self) -> Iterator[bytes]:
        """Yield the bytes that a signature covers: canonical JSON of all but the signatures."""
        return encode_canonical({**self._encode(iter), DIGEST: self.document_digest()})

    def document_digest(self) -> str:
        """Compute the digest of the document, which covers all but itself and the signatures."""
        return compute_digest(self._encode(iter))

    def _encode(self, listing: Listing) -> dict[str, Any]:
        return encode_fields(
            {
                "schema_version": self.schema_version,
                "snapshot_id": self.snapshot_id,
                "parent_id": self.parent_id,
                "agent_id": self.agent_id,
                "session_id": self.session_id,
                "scope": self.scope,
                "created_at": self.created_at,
                "exported_at": self.exported_at,
                "source_environment": self.source_environment,
                "tags": self.tags,
                "state": self.snapshot,
                "event_log_count": self.event_log_count,
                "events": self.events,
                DIGEST: None,  # reserves its position; the value depends on all other fields
            },
            self.base,
            self.extra,
            self.state_extra,
            listing,
        )

    @classmethod
    def from_dict(cls, data: object, *, allow_modified: bool = False) -> Self:
        """Decode and validate a document from JSON data.

        ``allow_modified`` accepts a document that was edited on purpose: its digest is not
        checked, the hash chain of its events is recomputed, and its events may disagree with its
        state. `decode_document` also verifies signatures and migrates values.

        Raises:
            InvalidDocumentError: It is not a valid document, or its schema is too new.
            ModifiedDocumentError: It was changed after it was written.
            UnregisteredTypeError: It has values of a type that is not registered here.

        """
        return cls(**decode_fields(data, allow_modified=allow_modified))

    @classmethod
    def from_json(cls, text: str | bytes, *, allow_modified: bool = False) -> Self:
        """Decode and validate a document from JSON text.

        `read_document` also takes files and streams, compressed or not, and limits their size.

        Raises:
            UnreadableDocumentError: It is not JSON.
            InvalidDocumentError: As `from_dict`.

        """
        data = parse_json(text.encode() if isinstance(text, str) else text, "the JSON text")
        return cls.from_dict(data, allow_modified=allow_modified)


def require_document(value: object, caller: str, expected: str = "a Document") -> Document:
    """Return the value if it is a `Document`, or raise a TypeError that names the caller."""
    if isinstance(value, Document):
        return value
    hint = ""
    if isinstance(value, SessionSnapshot):
        hint = "; export the session, or convert it with Document.from_snapshot(snapshot)"
    elif isinstance(value, dict):
        hint = "; read it with Document.from_dict(data)"
    raise TypeError(f"{caller} takes {expected}, got {short_repr(value)}{hint}")
