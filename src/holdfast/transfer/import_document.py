"""Import a document as a session: as a new log, or as a change of a session that exists.

Everything is validated before the first write. A new session is created by its manifest, which is
written last (`Incarnation.create`): until then nothing of it is visible, and a crash leaves only
entries that no manifest refers to. Blobs are written before what refers to them, after the session
was claimed.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias, cast

from holdfast.blobs.source import BlobSource
from holdfast.blobs.writer import BlobWriter
from holdfast.documents.document import Document
from holdfast.documents.errors import ModifiedDocumentError
from holdfast.documents.validate import fold_events, is_fold
from holdfast.errors import ConflictError, InvalidDocumentError, StateStoreError
from holdfast.log.encoded_event import encode_changes
from holdfast.log.event import Event, draft_event, parse_time
from holdfast.log.event_log import MAX_SEQ, Position
from holdfast.log.hash_chain import GENESIS, hash_event, link_events
from holdfast.log.keyframe import encode_keyframe
from holdfast.log.linked_events import EVENTS_PER_BLOCK, EventBlock, LinkedEvents
from holdfast.log.timeline import LoadedState, Timeline
from holdfast.sessions.session import Session
from holdfast.snapshots.delete import is_being_deleted
from holdfast.snapshots.incarnation import PASSIVE_EVENT_TYPES, Incarnation
from holdfast.snapshots.keys import AGENT, SnapshotLocation
from holdfast.snapshots.session_snapshot import utc_now
from holdfast.snapshots.session_state import MESSAGES
from holdfast.state.diff import Changes, Diff
from holdfast.state.snapshot import Snapshot, changes_with_references, stored_changes
from holdfast.state.store import Store
from holdfast.stores.base import StateStore
from holdfast.stores.batch_read import split_batches
from holdfast.stores.entries import Put
from holdfast.stores.local import gather, run_in_thread
from holdfast.stores.wrappers.read_only import ReadOnlyStateStore
from holdfast.transfer.import_blobs import find_state_digests, verify_blobs
from holdfast.values.binary_encoding import decode
from holdfast.values.references import find_tokens, keep_references

logger = logging.getLogger(__name__)

IMPORTED = "session.imported"
ATTEMPTS = 8
HeadCheck: TypeAlias = Callable[[Position], None]


@dataclass(frozen=True, slots=True)
class ImportResult:
    """What an import changed, or would change."""

    agent_id: str
    session_id: str
    messages_restored: int
    events_restored: int
    """The number of the document's events that became the session's log."""
    diff: Diff
    """The entries of the session's state that changed."""
    dry_run: bool
    created: bool
    """Whether the session did not exist before."""
    undo_id: str | None = None
    """The snapshot of the previous state: restore it to undo the import."""
    signed_by: tuple[str, ...] = ()
    """The ids of the trusted keys whose signatures of the document were verified."""
    scope: str = AGENT


async def import_document(
    state_store: StateStore,
    document: Document,
    location: SnapshotLocation,
    *,
    dry_run: bool,
    check: HeadCheck | None = None,
) -> ImportResult:
    """Import a document that was validated when it was read.

    ``check`` is called with the head of the existing log before it is changed, and may raise.

    Raises:
        InvalidDocumentError: The document's events are not a valid log, or a blob of it is not what
            it says.
        NotFoundError: The file of a blob is missing.
        ConflictError: Another writer changed the session; nothing was imported.

    """
    events = prepare_events(document)
    blobs = await run_in_thread(verify_blobs, document) if document.blobs.entries else {}
    incarnation, current = await read_session(
        ReadOnlyStateStore(state_store) if dry_run else state_store, location
    )
    if check is not None:
        check(current.end)
    is_new = current.end.seq == 0
    state = document.snapshot
    result = ImportResult(
        agent_id=location.scope_id,
        session_id=location.session_id,
        messages_restored=state.count(MESSAGES),
        events_restored=len(document.events) if is_new else 0,
        diff=state.diff(current.store.snapshot()),
        dry_run=dry_run,
        created=is_new,
        signed_by=document.signed_by,
        scope=location.scope,
    )
    if dry_run:
        return result
    if is_new:
        await create_session(incarnation, document, events, blobs)
        return result
    undo_id, previous = await overwrite_session(state_store, document, location, check, blobs)
    return replace(result, undo_id=undo_id, diff=state.diff(previous))


async def read_session(
    state_store: StateStore, location: SnapshotLocation
) -> tuple[Incarnation, LoadedState]:
    """Read the session to import to; it is empty if it does not exist.

    An interrupted deletion is finished first. In a read-only store it counts as finished.
    """
    incarnation, _, loaded = await Incarnation.open(state_store, location)
    if await is_being_deleted(state_store, location):
        incarnation = Incarnation(state_store, location)
        loaded = LoadedState.empty()
    return incarnation, loaded


# ------------------------------------------------------------------------------------ validation


def prepare_events(document: Document) -> LinkedEvents:
    """Return the log of a new session: the document's events, and one for the import.

    If the events do not lead to the document's state, as after an edit on purpose, the last one
    has the difference.

    Raises:
        InvalidDocumentError: The document's events are not a valid log.

    """
    events = document.events
    with keep_references():
        validate_event_chain(events, document.base)
        head = Position(events[-1].seq, events[-1].hash) if events else Position()
    base = document.base if events else None
    changes: Changes = {"set": [], "delete": []}
    if not is_fold(events, base, document.snapshot):
        changes = find_changes(document.snapshot, fold_events(events, base))
    imported = link_events(
        [draft_event(IMPORTED, describe_origin(document), changes=changes)], head.seq, head.hash
    )
    if isinstance(events, LinkedEvents):
        blocks = [*events.blocks]
    else:
        blocks = [EventBlock.encode(batch) for batch in split_batches(events, EVENTS_PER_BLOCK)]
    return LinkedEvents([*blocks, EventBlock.encode(imported)])


def find_changes(later: Snapshot, base: Snapshot) -> Changes:
    """Return the changes between two states; blobs are references, and are not read."""
    changes: Changes = {"set": [], "delete": []}
    for namespace, key, data in stored_changes(later, base):
        if data is None:
            changes["delete"].append((namespace, key))
        else:
            changes["set"].append((namespace, key, decode(bytes(data))))
    return changes


def validate_event_chain(events: Sequence[Event], base: Snapshot | None) -> None:
    """Raise InvalidDocumentError unless the events are a hash chain that can start a log."""
    if not events:
        return
    first = events[0]
    if not is_chain(events):
        raise ModifiedDocumentError(
            "the document's events are not a hash chain; export it again, or pass allow_modified "
            "when reading it, which recomputes the chain"
        )
    if first.seq != 1 and base is None:
        raise InvalidDocumentError(
            f"the document's events start at {first.seq}, but it has no base, the state before them"
        )
    if first.seq == 1 and (first.prev != GENESIS or (base is not None and len(base))):
        raise InvalidDocumentError(
            "the document's events start at 1, but it has a state before them (prev, base)"
        )
    if not 1 <= first.seq <= events[-1].seq < MAX_SEQ:
        raise InvalidDocumentError(
            f"the document's events are numbered from {first.seq} to {events[-1].seq}; a log has "
            f"at most {MAX_SEQ} events, and the import adds one"
        )


def is_chain(events: Sequence[Event]) -> bool:
    """Return whether each event has the seq and the hash that follow from the previous one."""
    if isinstance(events, LinkedEvents):
        return True
    seq, prev = events[0].seq, events[0].prev
    for event in events:
        if (event.seq, event.prev, event.hash) != (seq, prev, hash_event(event, seq, prev)):
            return False
        seq, prev = seq + 1, event.hash
    return True


def describe_origin(document: Document) -> dict[str, Any]:
    """Return the data of the ``session.imported`` event."""
    return {
        "agent_id": document.agent_id,
        "session_id": document.session_id,
        "snapshot_id": document.snapshot_id,
        **({"signed_by": list(document.signed_by)} if document.signed_by else {}),
    }


# ------------------------------------------------------------------------------- a new session


async def create_session(
    incarnation: Incarnation,
    document: Document,
    events: LinkedEvents,
    blobs: Mapping[str, BlobSource],
) -> None:
    """Create a session with these events as its log, and these blobs.

    Raises:
        ConflictError: Another writer created it first; nothing was written.

    """
    timeline = incarnation.timeline()
    log_start = Position(events.blocks[0].first - 1, events.blocks[0].prev)
    puts = []
    for block in events.regroup(EVENTS_PER_BLOCK):
        puts.append(timeline.log.encode_linked(block))
        timeline.advance(Position(block.last, block.hashes[-1]), len(puts[-1].value))
    if log_start.seq:
        base = document.base or Store(max_history=0).snapshot()
        puts.insert(0, encode_keyframe_put(timeline, log_start, base))
    if not timeline.is_keyframe_due(document.snapshot):
        await write_log(incarnation, document, puts, log_start, blobs)
        return
    # A keyframe at the head bounds what a load reads. It is encoded while the log is written.
    encode = partial(encode_keyframe_put, timeline, timeline.log.head, document.snapshot)
    writing = write_log(incarnation, document, puts, log_start, blobs)
    _, keyframe = await gather([writing, run_in_thread(encode)])
    await write_keyframe(incarnation, cast("Put", keyframe))


async def write_log(
    incarnation: Incarnation,
    document: Document,
    puts: Sequence[Put],
    log_start: Position,
    blobs: Mapping[str, BlobSource],
) -> None:
    """Write the blobs, the log, then the manifest."""
    location = incarnation.location
    started_at, active_at = utc_now(), last_activity(document)
    try:
        if blobs:
            # A deletion of an earlier session spares the blobs of one that is being created.
            await incarnation.claim(started_at=started_at, active_at=active_at)
            await BlobWriter(incarnation.state_store, location.prefix).write(blobs.values())
        await incarnation.create(
            puts, started_at=started_at, active_at=active_at, log_start=log_start
        )
    except ConflictError as error:
        raise ConflictError(
            f"session {location.session_id} of {location.scope_id} was created concurrently; "
            "retry the import",
            key=error.key,
        ) from error


def last_activity(document: Document) -> dt.datetime:
    """Return the time of the last activity, just before that of the original session."""
    events = document.events
    if isinstance(events, LinkedEvents):
        headers = events.headers()
        times = [parse_time(each.at) for each in headers if each.type not in PASSIVE_EVENT_TYPES]
    else:
        times = [event.at for event in events if event.type not in PASSIVE_EVENT_TYPES]
    last = max(times, default=document.created_at)
    return min(last, utc_now()) - dt.timedelta(microseconds=1)


def encode_keyframe_put(timeline: Timeline, position: Position, state: Snapshot) -> Put:
    """Return the write of a keyframe with the state at a position."""
    changes = changes_with_references(state, Store(max_history=0).snapshot())
    data, _ = encode_keyframe(position.seq, position.hash, (), changes)
    return Put(timeline.key(position.seq), data, if_absent=True)


async def write_keyframe(incarnation: Incarnation, keyframe: Put) -> None:
    """Write the keyframe at the head. The import succeeds without it."""
    try:
        await incarnation.state_store.put_many([keyframe])
    except ConflictError:
        return  # a keyframe at this position has the same state
    except StateStoreError as error:
        logger.warning(
            "keyframe in %s was not written; the next commit writes it: %s",
            incarnation.location.prefix,
            error,
        )


# --------------------------------------------------------------------------- an existing session


async def overwrite_session(
    state_store: StateStore,
    document: Document,
    location: SnapshotLocation,
    check: HeadCheck | None,
    blobs: Mapping[str, BlobSource],
) -> tuple[str, Snapshot]:
    """Make a session's state the document's; returns the id and state of the previous snapshot.

    The commit writes the blobs. One that was omitted may be stored in the session, or missing.

    Raises:
        ConflictError: Other writers committed first in every attempt; nothing was changed.

    """
    tags = {"reason": "before import", "import": document.snapshot_id}
    for _ in range(ATTEMPTS):
        session = await Session.open(
            state_store,
            agent_id=location.scope_id,
            session_id=location.session_id,
            scope=location.scope,
        )
        if check is not None:
            check(session.log.head)
        undo = await session.save(tags=tags)
        changes = encode_changes(document.snapshot, undo.snapshot)
        data = {**describe_origin(document), "undo": undo.snapshot_id}
        event = session.committer.working.record_owned(IMPORTED, data, changes)
        event.mark_digests()
        tokens = find_tokens(event.json)
        # The session may lack blobs of values that do not change, if they were omitted before.
        unchanged = find_state_digests(document.snapshot) & blobs.keys() - tokens
        wanted = tokens | await session.blobs.find_missing(unchanged)
        event.sources = [source for digest, source in blobs.items() if digest in wanted]
        event.refers = event.refers or bool(event.sources)
        session.committer.blobs.omitted = tokens - blobs.keys()
        try:
            await session.commit()
        except ConflictError:
            # The snapshot no longer has the previous state.
            await session.archive.delete_snapshot(location=location, snapshot_id=undo.snapshot_id)
            continue
        return undo.snapshot_id, undo.snapshot
    raise ConflictError(
        f"other writers of session {location.session_id} of {location.scope_id} committed first "
        f"{ATTEMPTS} times; nothing was changed: retry the import when its agent is idle"
    )
