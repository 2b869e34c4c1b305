"""The portable document: a session at one position, with the events that led there.

A `Document` is exported, imported, redacted, signed and replayed; docs/spec/document.md defines its
JSON form. A `SessionSnapshot` is a snapshot that was loaded from a store: it has a state and a
position, but no events and no JSON form. Each converts to the other.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self, cast

from holdfast.documents.blobs import (
    EMBED,
    Attachments,
    BlobsText,
    DocumentBlobs,
    EmbeddedBlob,
    bind_contents,
    collect_blobs,
    encode_blobs,
    externalize_draft,
    externalize_state,
)
from holdfast.documents.decode import decode_fields
from holdfast.documents.encode import (
    BATCHES,
    BLOBS,
    DIGEST,
    SIGNATURES,
    TREES,
    ItemEncoding,
    RunningDigest,
    compute_digest,
    encode_canonical,
    encode_chunks,
    encode_fields,
)
from holdfast.documents.json_file import parse_json
from holdfast.documents.limits import DEFAULT_LIMITS, DocumentLimits
from holdfast.documents.migrations import SCHEMA_VERSION
from holdfast.documents.signatures import Signature, decode_signatures
from holdfast.errors import short_repr
from holdfast.log.event import Event, EventDraft
from holdfast.log.event_log import Position
from holdfast.log.hash_chain import link_events
from holdfast.log.linked_events import EVENTS_PER_BLOCK, EventBlock, LinkedEvents
from holdfast.snapshots.session_snapshot import SessionSnapshot, SnapshotBase
from holdfast.state.snapshot import Snapshot
from holdfast.stores.batch_read import split_batches


@dataclass(frozen=True, slots=True, kw_only=True)
class Document(SnapshotBase):
    """A session at one position as it is exported and imported: metadata, state and events.

    ``digest`` is that of the state. The field ``digest`` of the JSON form covers the whole
    document: `document_digest`. The JSON form has no ``position``.
    """

    exported_at: dt.datetime | None = None
    events: Sequence[Event] = ()
    """A tuple, or `LinkedEvents`, which decodes the events on access."""
    base: Snapshot | None = None
    """The state before the first of ``events``, unless that is the first event of the log."""
    schema_version: int = SCHEMA_VERSION
    extra: dict[str, Any] = field(default_factory=dict)
    """Top-level fields unknown to this version, and the signatures, as JSON data."""
    state_extra: dict[str, Any] = field(default_factory=dict)
    """Unknown fields of ``state``, as JSON data."""
    blobs: DocumentBlobs = field(default=cast("DocumentBlobs", None), compare=False, repr=False)
    """The contents of large values and attachments, by digest.

    Without them, those that the state comes with. The state and `LinkedEvents` read them from here;
    one that was omitted is a NotFoundError where its value is read.
    """
    signed_by: tuple[str, ...] = field(default=(), init=False, compare=False)
    """The ids of the trusted keys whose signatures were verified when it was read.

    A modified copy has none.
    """

    def __post_init__(self) -> None:
        SnapshotBase.__post_init__(self)
        if cast("DocumentBlobs | None", self.blobs) is not None:
            return
        found = [] if self.base is None else collect_blobs(self.base)
        if not self.events:  # those of events have the form that their hashes cover
            state, inline = externalize_state(self.snapshot)
            object.__setattr__(self, "snapshot", state)
            found += inline
        blobs = DocumentBlobs(collect_blobs(self.snapshot)) | found
        object.__setattr__(self, "blobs", blobs)

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
        common = snapshot.common_fields()
        common["event_log_count"] = len(events) or snapshot.event_log_count
        return cls(**common, events=events, base=base)

    def to_snapshot(self) -> SessionSnapshot:
        """Return the snapshot in this document, as `SnapshotStorage.save_snapshot` takes it."""
        return SessionSnapshot(**self.common_fields())

    @property
    def signatures(self) -> list[Signature]:
        """The signatures, without verifying them.

        Raises:
            SignatureError: They are malformed.

        """
        return decode_signatures(self.extra)

    def without_signatures(self) -> Self:
        """Return the document without its signatures, for a copy that they do not cover."""
        extra = {name: value for name, value in self.extra.items() if name != SIGNATURES}
        return replace(self, extra=extra)

    # ------------------------------------------------------------------------------- JSON

    def to_dict(self) -> dict[str, Any]:
        """Return the document as JSON data, which shares the values of its events.

        Blobs are embedded, unless they were omitted.

        Raises:
            DocumentTooLargeError: The blobs are too large to be embedded.

        """
        data = self._encode(TREES)
        data[DIGEST] = compute_digest(data)
        return {**data, BLOBS: encode_blobs(self.blobs)} if self.blobs.entries else data

    def to_json(self) -> str:
        """Return the document as JSON text, with its blobs embedded unless they were omitted.

        Raises:
            DocumentTooLargeError: The blobs are too large to be embedded.

        """
        return b"".join(self.chunks()).decode()

    def chunks(
        self,
        attachments: Attachments = EMBED,
        *,
        folder: str | None = None,
        limits: DocumentLimits = DEFAULT_LIMITS,
    ) -> Iterator[bytes]:
        """Yield the JSON text in chunks, without building all of its JSON data at once.

        Args:
            attachments: Embed the blobs, refer to their files, or omit them.
            folder: The name of the folder beside the document that has the files.
            limits: How much may be embedded.

        Raises:
            DocumentTooLargeError: The blobs are too large to be embedded.

        """
        data = RunningDigest(self._encode(BATCHES)).observed_data()
        if self.blobs.entries:
            data[BLOBS] = BlobsText(self.blobs, attachments, folder, limits)
        return encode_chunks(data)

    def canonical(self) -> Iterator[bytes]:
        """Yield the bytes that a signature covers: canonical JSON without signatures and blobs."""
        return encode_canonical({**self._encode(BATCHES), DIGEST: self.document_digest()})

    def document_digest(self) -> str:
        """Compute the digest, which covers all but itself, signatures and blobs.

        Blobs are covered by the references to them, wherever their contents are.
        """
        return compute_digest(self._encode(BATCHES))

    def _encode(self, items: ItemEncoding) -> dict[str, Any]:
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
            items,
        )

    @classmethod
    def from_dict(
        cls,
        data: object,
        *,
        allow_modified: bool = False,
        folder: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Decode and validate a document from JSON data.

        ``folder`` is where the document was read from, for blobs in files beside it.

        ``allow_modified`` accepts a document that was edited on purpose: its digest is not
        checked, the hash chain of its events is recomputed, and its events may disagree with its
        state. `decode_document` also verifies signatures and migrates values.

        Raises:
            InvalidDocumentError: It is not a valid document, or its schema is too new.
            ModifiedDocumentError: It was changed after it was written.
            UnregisteredTypeError: It has values of a type that is not registered here.

        """
        return cls(**decode_fields(data, allow_modified=allow_modified, folder=folder))

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


def link_document(
    state: Snapshot,
    drafts: Sequence[EventDraft],
    after: Position = Position(),  # noqa: B008 - immutable
    *,
    base: Snapshot | None = None,
    blobs: DocumentBlobs | None = None,
    **fields: Any,
) -> Document:
    """Return a document of a state and the events that lead to it, which are linked.

    Large values become blobs, beside those that are given.

    Args:
        state: The state.
        drafts: The events.
        after: The position before the first event.
        base: The state there, unless that is the start of the log.
        blobs: The blobs of references in the state and in the events.
        fields: The other fields of `Document`.

    """
    contents: dict[str, bytes] = {}
    drafts = [externalize_draft(each, contents) for each in drafts]
    state, found = externalize_state(state)
    if base is not None:
        base, more = externalize_state(base)
        found += more
    found += [EmbeddedBlob(content, digest) for digest, content in contents.items()]
    known = (blobs or DocumentBlobs()) | found
    events: Sequence[Event] = tuple(link_events(drafts, after.seq, after.hash))
    if known.entries:
        state = bind_contents(state, known)
        base = None if base is None else bind_contents(base, known)
        blocks = [EventBlock.encode(batch) for batch in split_batches(events, EVENTS_PER_BLOCK)]
        events = LinkedEvents(blocks, contents=known)
    return Document(
        snapshot=state,
        base=base,
        blobs=known,
        events=events,
        event_log_count=len(events),
        **fields,
    )


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
