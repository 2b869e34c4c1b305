"""Export a session as a document: its state at one position, and the events that led there."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from holdfast.blobs.keys import CHUNK_SIZE, blobs_prefix, chunk_key, parse_chunk_key
from holdfast.blobs.reader import BlobReader
from holdfast.documents.blobs import (
    EMBED,
    OMIT,
    Attachments,
    DocumentBlob,
    DocumentBlobs,
    EmbeddedBlob,
    OmittedBlob,
    StoredBlob,
    bind_contents,
    check_embedded_size,
    find_text_sizes,
    validate_attachments,
)
from holdfast.documents.document import Document
from holdfast.documents.limits import DEFAULT_LIMITS, DocumentLimits
from holdfast.errors import IntegrityError, NotFoundError
from holdfast.log.changes import fold_changes
from holdfast.log.event import Event
from holdfast.log.event_log import Position
from holdfast.log.linked_events import EVENTS_PER_BLOCK, EventBlock, LinkedEvents
from holdfast.log.segment import Segment, link_segments
from holdfast.log.timeline import Timeline
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.event_state import load_state_at_event
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.snapshots.session_snapshot import SessionSnapshot, utc_now
from holdfast.state.snapshot import Snapshot, find_containing
from holdfast.state.store import Store
from holdfast.values.references import REFERENCE_MARK, find_sizes

logger = logging.getLogger(__name__)

ENVIRONMENT_VARIABLE = "HOLDFAST_ENVIRONMENT"
ATTEMPTS = 8
# A text that may be a digest, in JSON and in the binary encoding.
QUOTED_DIGEST = re.compile(rb'"([0-9a-f]{64})"')
PACKED_DIGEST = re.compile(REFERENCE_MARK + rb"([0-9a-f]{64})")


async def export_document(
    archive: SnapshotArchive,
    location: SnapshotLocation,
    *,
    snapshot_id: str | None = None,
    seq: int | None = None,
    tags: dict[str, str] | None = None,
    attachments: Attachments = EMBED,
    limits: DocumentLimits = DEFAULT_LIMITS,
) -> Document:
    """Export the committed state of a session, a saved snapshot, or the state after an event.

    Args:
        archive: The snapshots of the store.
        location: The session.
        snapshot_id: The snapshot to export.
        seq: The number of the event to export the state after.
        tags: Tags to add to those of the snapshot.
        attachments: ``"embed"`` reads large values and attachments into the document,
            ``"folder"`` leaves them in the store and reads them on demand, as for
            `write_document`, and ``"omit"`` leaves them out.
        limits: How much may be embedded.

    Raises:
        NotFoundError: There is no such session, snapshot or event.
        IntegrityError: Stored data is damaged.
        DocumentTooLargeError: The attachments are too large to be embedded.

    """
    validate_attachments(attachments)
    for _ in range(ATTEMPTS):
        before = await archive.load_manifest(location=location)
        document = await read_document(archive, location, snapshot_id, seq)
        blobs = await export_blobs(archive, document, attachments, limits)
        lost = [each.digest for each in blobs.entries if each.is_omitted]
        if attachments == OMIT or not lost:
            break
        after = await archive.load_manifest(location=location)
        if (before.incarnation, before.blob_sweeps) == (after.incarnation, after.blob_sweeps):
            # Omitted from an import, or deleted by hand: the rest can still be exported.
            logger.warning(
                "%d blobs of %s are not stored and were omitted: %s",
                len(lost),
                location.prefix,
                ", ".join(lost),
            )
            break
    return replace(
        bind_document(document, blobs),
        event_log_count=len(document.events),
        exported_at=utc_now(),
        source_environment=os.environ.get(ENVIRONMENT_VARIABLE),
        tags={**document.tags, **(tags or {})},
    )


async def read_document(
    archive: SnapshotArchive, location: SnapshotLocation, snapshot_id: str | None, seq: int | None
) -> Document:
    """Read the state and the events of a document, but no blobs."""
    if seq is None and snapshot_id is None:
        return await export_head(archive, location)
    if seq is not None:
        snapshot = await load_state_at_event(archive, location, seq)
    else:
        snapshot = await load_saved(archive, location, snapshot_id)
    found = await read_events_up_to(archive, location, snapshot.position or Position())
    return Document.from_snapshot(snapshot, events=found.events, base=found.base)


async def load_saved(
    archive: SnapshotArchive, location: SnapshotLocation, snapshot_id: str | None
) -> SessionSnapshot:
    """Load a snapshot that must exist."""
    snapshot = await archive.load_snapshot(location=location, snapshot_id=snapshot_id)
    if snapshot is None:
        raise NotFoundError(f"no snapshot {snapshot_id} in {location.prefix}")
    return snapshot


async def export_head(archive: SnapshotArchive, location: SnapshotLocation) -> Document:
    """Export the committed state of a session under a new snapshot id."""
    latest = await archive.load_info(location=location)
    found = await read_events_up_to(archive, location)
    state, head = found.state, found.end
    if state is None:
        loaded = await (await archive.timeline(location=location)).load()
        state, head = loaded.store.snapshot(), loaded.end
    if head.seq == 0:
        raise NotFoundError(
            f"agent {location.scope_id} has no session {location.session_id} in this store; list "
            "its sessions with holdfast.Catalog(state_store).sessions(agent_id)"
        )
    return Document(
        snapshot=state,
        agent_id=location.scope_id,
        session_id=location.session_id,
        scope=location.scope,
        parent_id=None if latest is None else latest.snapshot_id,
        events=found.events,
        base=found.base,
        position=head,
    )


@dataclass(frozen=True, slots=True)
class EventRange:
    """The events of a log that were not pruned, up to a position."""

    events: Sequence[Event]
    base: Snapshot | None
    """The state before the first event, or None if that is the first event of all."""
    state: Snapshot | None
    """The state after the last event, if that is the head of the log."""
    end: Position


async def read_events_up_to(
    archive: SnapshotArchive, location: SnapshotLocation, position: Position | None = None
) -> EventRange:
    """Read the events that were not pruned, up to a position or the head of the log."""
    manifest = await archive.load_manifest(location=location)
    while position is None or position.seq > manifest.log_start.seq:
        log_start = manifest.log_start
        timeline = Timeline(archive.state_store, location.prefix, manifest.incarnation)
        try:
            found = await read_log_range(timeline, log_start, position)
            if not found.events:
                break
            return found
        except (NotFoundError, IntegrityError):
            # A concurrent prune may have moved the log start.
            manifest = await archive.load_manifest(location=location)
            if (manifest.incarnation, manifest.log_start) == (timeline.incarnation, log_start):
                raise
    return EventRange((), None, None, Position())


async def read_log_range(
    timeline: Timeline, log_start: Position, position: Position | None
) -> EventRange:
    """Read the events from the log start up to a position, which must exist, or to the head."""
    log = timeline.log
    last = None if position is None else position.seq
    store = Store(max_history=0)
    base = None
    if log_start.seq:
        base = (await timeline.load(log_start.seq)).store.snapshot()
        store.restore(base)
    blocks: list[EventBlock] = []
    pending: list[Segment] = []

    def link_pending() -> None:
        block, changes = link_segments(pending)
        pending.clear()
        if last is not None and block.last > last:
            block = block.take(last - block.first + 1)
        blocks.append(block)
        if position is None:
            fold_changes(store, changes, timeline.contents)

    async for segment in log.segments(log_start, last):
        pending.append(segment)
        if segment.last - pending[0].first >= EVENTS_PER_BLOCK:
            link_pending()
    if pending:
        link_pending()
    end = Position(blocks[-1].last, blocks[-1].hashes[-1]) if blocks else log_start
    if position is not None and end != position:
        raise log.missing_segment_error(end.seq + 1)
    state = store.snapshot() if position is None else None
    return EventRange(LinkedEvents(blocks, base=base, state=state), base, state, end)


# --------------------------------------------------------------------------------------- blobs


async def export_blobs(
    archive: SnapshotArchive, document: Document, attachments: str, limits: DocumentLimits
) -> DocumentBlobs:
    """Return the blobs that a document refers to; those that are not stored are omitted.

    Any stored blob whose digest is in the document belongs to it, also if no reference names it.

    Raises:
        IntegrityError: A blob is damaged.
        DocumentTooLargeError: They are too large to be embedded.

    """
    reader = BlobReader(archive.state_store, document.location.prefix)
    sizes, tokens = find_referred(document)
    if not tokens:
        return DocumentBlobs()
    stored = await count_chunks_by_digest(reader)
    for digest in sorted(tokens & stored.keys() - sizes.keys()):
        sizes[digest] = await measure_blob(reader, digest, stored[digest])
    blobs: list[DocumentBlob] = [
        StoredBlob(reader, digest, size)
        if digest in stored and attachments != OMIT
        else OmittedBlob(digest, size)
        for digest, size in sizes.items()
    ]
    if attachments == EMBED:
        check_embedded_size(blobs, limits)
        blobs = [each if each.is_omitted else await read_blob(reader, each) for each in blobs]
    return DocumentBlobs(blobs)


async def count_chunks_by_digest(reader: BlobReader) -> dict[str, int]:
    """Return the numbers of chunks of the stored blobs of a session."""
    counts: dict[str, int] = {}
    async for key in reader.state_store.list(blobs_prefix(reader.location_prefix)):
        parsed = parse_chunk_key(reader.location_prefix, key)
        if parsed is not None:
            counts[parsed[0]] = counts.get(parsed[0], 0) + 1
    return counts


async def measure_blob(reader: BlobReader, digest: str, chunks: int) -> int:
    """Return the size of a stored blob, reading only its last chunk."""
    key = chunk_key(reader.location_prefix, digest, chunks - 1)
    entry = await reader.state_store.get(key)
    return (chunks - 1) * CHUNK_SIZE + (0 if entry is None else len(entry.value))


async def read_blob(reader: BlobReader, blob: DocumentBlob) -> DocumentBlob:
    """Read a blob to embed it; one that is gone is omitted."""
    try:
        return EmbeddedBlob(await reader.read(blob.digest, blob.size), blob.digest)
    except NotFoundError:
        return OmittedBlob(blob.digest, blob.size)


def find_referred(document: Document) -> tuple[dict[str, int], set[str]]:
    """Return the sizes of the blobs that a document refers to, and all texts like a digest."""
    sizes: dict[str, int] = {}
    tokens: set[bytes] = set()
    for state in (document.snapshot, document.base):
        for _, _, data in [] if state is None else find_containing(state, REFERENCE_MARK):
            sizes.update(find_sizes(data))
            tokens.update(PACKED_DIGEST.findall(data))
    for text in list_texts(document.events):
        sizes.update(find_text_sizes(text))
        tokens.update(QUOTED_DIGEST.findall(text))
    return sizes, {each.decode() for each in tokens}


def list_texts(events: Sequence[Event]) -> list[bytes]:
    """Return the JSON texts of events."""
    if isinstance(events, LinkedEvents):
        return [bytes(block.text) for block in events.blocks]
    return [EventBlock.encode(events).text] if events else []


def bind_document(document: Document, blobs: DocumentBlobs) -> Document:
    """Return a document whose values get their contents from its own blobs."""
    state = bind_contents(document.snapshot, blobs)
    base = None if document.base is None else bind_contents(document.base, blobs)
    events = document.events
    if isinstance(events, LinkedEvents):
        if events.is_known_to_lead(document.base, document.snapshot):
            events = events.with_contents(blobs, base=base, state=state)
        else:
            events = events.with_contents(blobs)
    return replace(document, snapshot=state, base=base, events=events, blobs=blobs)
