"""A document becomes a session: its events become the log, or the state of a session that is there.

Everything is checked before the first write. A new session is created by its manifest, which is
written last (`Incarnation.create`): until then nothing of it is visible, and a crash leaves nothing
but entries that no manifest names.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from holdfast.documents.document import Document
from holdfast.errors import ConflictError, InvalidDocumentError, StateStoreError
from holdfast.log.changes import fold_changes
from holdfast.log.event import Event, draft_event
from holdfast.log.event_log import MAX_SEQ, Position
from holdfast.log.hash_chain import GENESIS, hash_event, link_events
from holdfast.log.keyframe import encode_keyframe
from holdfast.log.timeline import LoadedState
from holdfast.sessions.session import Session
from holdfast.snapshots.incarnation import PASSIVE_EVENT_TYPES, Incarnation
from holdfast.snapshots.keys import AGENT, SnapshotLocation, deletion_mark_key
from holdfast.snapshots.manifest import SnapshotManifest
from holdfast.snapshots.session_snapshot import utc_now
from holdfast.snapshots.session_state import MESSAGES
from holdfast.state.diff import Diff
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store
from holdfast.stores.base import StateStore
from holdfast.stores.entries import Put
from holdfast.stores.wrappers.read_only import ReadOnlyStateStore

logger = logging.getLogger(__name__)

IMPORTED = "session.imported"
EVENTS_PER_SEGMENT = 256
ATTEMPTS = 8
Check: TypeAlias = Callable[[Position], None]


@dataclass(frozen=True, slots=True)
class ImportResult:
    """What an import did, or would do."""

    agent_id: str
    session_id: str
    messages_restored: int
    events_restored: int
    """How many of the document's events became the session's log."""
    diff: Diff
    """What it changed in the session's state."""
    dry_run: bool
    created: bool
    """Whether there was no such session before."""
    undo_id: str | None = None
    """The snapshot of what was there before: restore it to undo the import."""
    signed_by: tuple[str, ...] = ()
    """The ids of the trusted keys that were found to have signed the document."""
    scope: str = AGENT


async def import_document(
    state_store: StateStore,
    document: Document,
    location: SnapshotLocation,
    *,
    dry_run: bool,
    check: Check | None = None,
) -> ImportResult:
    """Import a document that was read and so is known to be whole.

    ``check`` is shown the end of the log that is written over, and raises where it is not to be.
    """
    events = prepare_events(document)
    there = await read_target(ReadOnlyStateStore(state_store) if dry_run else state_store, location)
    if check is not None:
        check(there.end)
    state = document.snapshot
    result = ImportResult(
        agent_id=location.scope_id,
        session_id=location.session_id,
        messages_restored=state.count(MESSAGES),
        events_restored=len(document.events) if there.is_new else 0,
        diff=state.diff(there.state),
        dry_run=dry_run,
        created=there.is_new,
        signed_by=document.signed_by,
        scope=location.scope,
    )
    if dry_run:
        return result
    if there.is_new:
        await NewSessionWriter(there.incarnation, document, events).write()
        return result
    undo, before = await overwrite_session(state_store, document, location, check)
    return replace(result, undo_id=undo, diff=state.diff(before))


@dataclass(frozen=True, slots=True)
class ImportTarget:
    """What a store has where a document is to go."""

    incarnation: Incarnation
    state: Snapshot
    end: Position

    @property
    def is_new(self) -> bool:
        """Whether there is no session."""
        return self.end.seq == 0


async def read_target(state_store: StateStore, location: SnapshotLocation) -> ImportTarget:
    """Read what is there, after finishing an interrupted deletion; as if, on a read-only store."""
    incarnation, _, loaded = await Incarnation.open(state_store, location)
    if await state_store.get(deletion_mark_key(location.session_id)) is not None:
        incarnation = Incarnation(state_store, location, SnapshotManifest(), None)
        loaded = LoadedState.empty()
    return ImportTarget(incarnation, loaded.store.snapshot(), loaded.end)


# ------------------------------------------------------------------------------ what is checked


def prepare_events(document: Document) -> list[Event]:
    """The events that the log of a new session will have: the document's, and that it was imported.

    Where they lead elsewhere than to the document's state, as after an edit that was meant, what
    differs is in the last one.
    """
    events = list(document.events)
    validate_event_chain(events, document.base)
    store = Store(max_history=0)
    if events and document.base is not None:
        store.restore(document.base)
    fold_changes(store, (event.changes for event in events))
    changes = document.snapshot.changes(store.snapshot())
    end = Position(events[-1].seq, events[-1].hash) if events else Position()
    return events + link_events(
        [draft_event(IMPORTED, describe_origin(document), changes=changes)], end.seq, end.hash
    )


def validate_event_chain(events: Sequence[Event], base: Snapshot | None) -> None:
    """Refuse events that are no chain, or that nothing leads to."""
    if not events:
        return
    first = events[0]
    if not is_chain(events):
        raise InvalidDocumentError(
            "the document's events are no chain: each follows the one before it by seq and hash. "
            "Export it anew, or read it with allow_modified, which makes the chain anew"
        )
    if first.seq != 1 and base is None:
        raise InvalidDocumentError(
            f"the document's events begin at {first.seq}, and it has no state from before them "
            "(base)"
        )
    if first.seq == 1 and (first.prev != GENESIS or (base is not None and len(base))):
        raise InvalidDocumentError(
            "the document's events begin at 1, and yet it says that something was before them "
            "(prev, base)"
        )
    if not 1 <= first.seq <= events[-1].seq < MAX_SEQ:
        raise InvalidDocumentError(
            f"the document's events are numbered from {first.seq} to {events[-1].seq}; a log has "
            f"room for 1 to {MAX_SEQ}, and the import takes one more"
        )


def is_chain(events: Sequence[Event]) -> bool:
    """Whether each has the seq and the hash that follow from the one before it."""
    seq, prev = events[0].seq, events[0].prev
    for event in events:
        if (event.seq, event.prev, event.hash) != (seq, prev, hash_event(event, seq, prev)):
            return False
        seq, prev = seq + 1, event.hash
    return True


def describe_origin(document: Document) -> dict[str, Any]:
    """Where a state came from, for the log."""
    return {
        "agent_id": document.agent_id,
        "session_id": document.session_id,
        "snapshot_id": document.snapshot_id,
        **({"signed_by": list(document.signed_by)} if document.signed_by else {}),
    }


# ------------------------------------------------------------------------------- a new session


class NewSessionWriter:
    """A session that is not there yet, and how it is written."""

    def __init__(
        self, incarnation: Incarnation, document: Document, events: Sequence[Event]
    ) -> None:
        self.incarnation = incarnation
        self.state_store = incarnation.state_store
        self.location = incarnation.location
        self.document = document
        self.events = events
        self.log_start = Position(events[0].seq - 1, events[0].prev)
        self.timeline = incarnation.timeline()

    async def write(self) -> None:
        """Create the session.

        Raises:
            ConflictError: Another writer created it first; nothing of this one is left.

        """
        state = self.document.snapshot
        self.timeline.size = state.size_bytes * 4
        if not self.timeline.is_keyframe_due(state):
            await self.write_log()
            return
        # With it the first load need not fold it all. It is packed while the log is written.
        keyframe = asyncio.get_running_loop().run_in_executor(None, self.keyframe)
        try:
            await self.write_log()
            await self.keep(await keyframe)
        finally:
            keyframe.cancel()

    async def write_log(self) -> None:
        """Write all but the keyframe at the head."""
        puts = self.segments(EVENTS_PER_SEGMENT)
        if self.log_start.seq:
            puts.insert(0, self.base())
        try:
            await self.incarnation.create(
                puts, started_at=utc_now(), active_at=self.active_at(), log_start=self.log_start
            )
        except ConflictError as error:
            raise ConflictError(
                f"session {self.location.session_id} of {self.location.scope_id} was created "
                "concurrently; retry the import",
                key=error.key,
            ) from error

    def active_at(self) -> dt.datetime:
        """Return the activity that the session counts as: just before that of its origin."""
        times = [
            event.at for event in self.document.events if event.type not in PASSIVE_EVENT_TYPES
        ]
        last = max(times, default=self.document.created_at)
        return min(last, utc_now()) - dt.timedelta(microseconds=1)

    def segments(self, size: int) -> list[Put]:
        """Return the writes of the log, with up to ``size`` events per segment."""
        log = self.timeline.log
        return [
            log.prepare_linked(self.events[at : at + size]).put
            for at in range(0, len(self.events), size)
        ]

    def base(self) -> Put:
        """The state before the first event, as a keyframe."""
        base = self.document.base or Store(max_history=0).snapshot()
        changes = base.changes(Store(max_history=0).snapshot())
        data, _ = encode_keyframe(self.log_start.seq, self.log_start.hash, (), changes)
        return Put(self.timeline.key(self.log_start.seq), data, if_absent=True)

    def keyframe(self) -> Put:
        """The state at the end, as a keyframe."""
        end = self.events[-1]
        changes = self.document.snapshot.changes(Store(max_history=0).snapshot())
        data, _ = encode_keyframe(end.seq, end.hash, (), changes)
        return Put(self.timeline.key(end.seq), data, if_absent=True)

    async def keep(self, keyframe: Put) -> None:
        """Write the keyframe at the end. What was imported stands, whatever becomes of it."""
        try:
            await self.state_store.put_many([keyframe])
        except ConflictError:
            return  # the same place in the same log, and so the same state
        except StateStoreError as error:
            logger.warning(
                "a keyframe in %s was put off to the next commit: %s", self.location.prefix, error
            )


# ------------------------------------------------------------------------- a session that is there


async def overwrite_session(
    state_store: StateStore,
    document: Document,
    location: SnapshotLocation,
    check: Check | None,
) -> tuple[str, Snapshot]:
    """Make a session's state the document's; gives the id and the state of what was there."""
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
        changes = document.snapshot.changes(undo.snapshot)
        data = {**describe_origin(document), "undo": undo.snapshot_id}
        session.committer.working.record_owned(IMPORTED, data, changes)
        try:
            await session.commit()
        except ConflictError:
            # Somebody wrote meanwhile: what was there is something else now.
            await session.archive.delete_snapshot(location=location, snapshot_id=undo.snapshot_id)
            continue
        return undo.snapshot_id, undo.snapshot
    raise ConflictError(
        f"the session {location.session_id} of {location.scope_id} is being written to, and "
        f"somebody else was first {ATTEMPTS} times: import when its agent rests. Nothing was "
        "changed"
    )
