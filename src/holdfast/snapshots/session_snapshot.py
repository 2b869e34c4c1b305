"""A durable snapshot: metadata, state and position in the log. Its JSON form is the document."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from holdfast.documents.decode import decode_fields
from holdfast.documents.encode import (
    DIGEST,
    Listing,
    compute_digest,
    encode_canonical,
    encode_chunks,
    encode_fields,
)
from holdfast.documents.migrations import SCHEMA_VERSION
from holdfast.errors import short_repr
from holdfast.ids import new_id
from holdfast.log.event import Event
from holdfast.log.event_log import Position
from holdfast.snapshots.keys import AGENT, SnapshotLocation, validate_snapshot_id
from holdfast.snapshots.records import SnapshotInfo, validate_tags
from holdfast.snapshots.session_state import MESSAGES, SessionState
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store


def utc_now() -> dt.datetime:
    """The present moment, in UTC."""
    return dt.datetime.now(dt.UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSnapshot:
    """A session at one moment.

    ``snapshot`` is its frozen state and ``state`` a view of that in a session's own words.
    ``events`` are there where it was exported or read from a document; ``event_log_count`` says how
    many led to it in any case.
    """

    snapshot: Snapshot
    agent_id: str
    session_id: str
    scope: str = AGENT
    snapshot_id: str = field(default_factory=new_id)
    parent_id: str | None = None
    created_at: dt.datetime = field(default_factory=utc_now)
    tags: dict[str, str] = field(default_factory=dict)
    event_log_count: int = 0
    position: Position | None = None
    """Its place in the log of the session that it was saved in."""
    keyframe: int = 0
    unfinished: bool = False
    """Whether a tool call had no result yet."""
    exported_at: dt.datetime | None = None
    source_environment: str | None = None
    events: tuple[Event, ...] = ()
    base: Snapshot | None = None
    """The state before the first of ``events``, where that is not the first of the log."""
    schema_version: int = SCHEMA_VERSION
    extra: dict[str, Any] = field(default_factory=dict)
    """Fields of the document that this version does not know."""
    state_extra: dict[str, Any] = field(default_factory=dict)
    """The same of its ``state``."""
    signed_by: tuple[str, ...] = field(default=(), init=False, compare=False)
    """The ids of trusted keys whose signatures were found right when this was read.

    A changed copy has none.
    """

    def __post_init__(self) -> None:
        SnapshotLocation(self.session_id, self.scope, self.agent_id)
        validate_snapshot_id(self.snapshot_id)
        object.__setattr__(self, "tags", validate_tags(self.tags))

    @classmethod
    def from_snapshot(
        cls,
        snapshot: Snapshot,
        *,
        agent_id: str,
        session_id: str,
        scope: str = AGENT,
        parent_id: str | None = None,
        tags: Mapping[str, str] | None = None,
        source_environment: str | None = None,
    ) -> Self:
        """One of any ``Store``'s snapshot, with an id of its own."""
        if not isinstance(snapshot, Snapshot):
            raise TypeError(
                f"expected a Snapshot, as Store.snapshot() returns it, not {short_repr(snapshot)}"
            )
        return cls(
            snapshot=snapshot,
            agent_id=agent_id,
            session_id=session_id,
            scope=scope,
            parent_id=parent_id,
            tags=validate_tags(tags),
            source_environment=source_environment,
        )

    @property
    def state(self) -> SessionState:
        """The state in a session's own words: status, messages, values, namespaces."""
        return SessionState(self.snapshot)

    @property
    def digest(self) -> str:
        """``sha256:…`` of the state, equal exactly where that is equal. Computed when asked for.

        The ``digest`` of the document covers the rest of it as well.
        """
        return self.snapshot.digest

    @property
    def location(self) -> SnapshotLocation:
        """Where it belongs."""
        return SnapshotLocation(self.session_id, self.scope, self.agent_id)

    def to_store(self) -> Store:
        """A live store with its state, which nothing that is done to it changes here."""
        store = Store()
        store.restore(self.snapshot)
        return store

    def to_dict(self) -> dict[str, Any]:
        """The document, as JSON data."""
        tree = self._written(list)
        return {**tree, DIGEST: compute_digest(tree)}

    def chunks(self) -> Iterator[bytes]:
        """The text of the document in pieces, without all of its JSON data in memory at once."""
        return encode_chunks({**self._written(iter), DIGEST: self.document_digest()})

    def canonical(self) -> Iterator[bytes]:
        """What a signature is made of, in pieces: all of the document but its signatures."""
        return encode_canonical({**self._written(iter), DIGEST: self.document_digest()})

    def document_digest(self) -> str:
        """Return the digest that the document has: of all of it but that and its signatures."""
        return compute_digest(self._written(iter))

    def _written(self, listed: Listing) -> dict[str, Any]:
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
                # Here is its place; what it is, is known once all else is.
                DIGEST: None,
            },
            self.base,
            self.extra,
            self.state_extra,
            listed,
        )

    @classmethod
    def from_dict(cls, tree: object, *, allow_modified: bool = False) -> Self:
        """Read a document and check all of it: its digest, the chain of its events, its state.

        ``allow_modified`` is for one that was changed on purpose: its digest is not compared, its
        chain is computed again, and its events need not lead to its state.

        Raises:
            InvalidDocumentError: It is malformed, was changed, or has events and no digest.

        """
        fields, base, extra = decode_fields(tree, allow_modified=allow_modified)
        fields["snapshot"] = fields.pop("state")
        return cls(base=base, extra=extra, **fields)

    def info(self) -> SnapshotInfo:
        """What is known of it without its state."""
        position = self.position or Position()
        return SnapshotInfo(
            snapshot_id=self.snapshot_id,
            parent_id=self.parent_id,
            agent_id=self.agent_id,
            session_id=self.session_id,
            scope=self.scope,
            created_at=self.created_at,
            tags=self.tags,
            status=self.state.status,
            message_count=self.snapshot.count(MESSAGES),
            size_bytes=self.snapshot.size_bytes,
            seq=position.seq,
            hash=position.hash,
            keyframe=self.keyframe,
            unfinished=self.unfinished,
            source_environment=self.source_environment,
            extra=self.extra,
        )


def snapshot_from_info(info: SnapshotInfo, state: Snapshot) -> SessionSnapshot:
    """A snapshot of what its record says and the state that the log leads to."""
    return SessionSnapshot(
        snapshot=state,
        agent_id=info.agent_id,
        session_id=info.session_id,
        scope=info.scope,
        snapshot_id=info.snapshot_id,
        parent_id=info.parent_id,
        created_at=info.created_at,
        tags=info.tags,
        event_log_count=info.event_log_count,
        position=info.position,
        keyframe=info.keyframe,
        unfinished=info.unfinished,
        source_environment=info.source_environment,
        extra=info.extra,
    )
