"""A document becomes a session: its events become the log, or the state of a session that is there.

Everything is checked before the first write. A new session is written in one step: all segments in
one ``put_many`` where that is all or nothing, and as one segment where it is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from holdfast.errors import ConflictError, InvalidDocumentError
from holdfast.log.chain import linked
from holdfast.log.changes import fold
from holdfast.log.event_log import EventLog, Position
from holdfast.log.events import Event, draft
from holdfast.log.timeline import Anchor, Timeline
from holdfast.sessions.session import Session
from holdfast.snapshots.founding import founding, settle
from holdfast.snapshots.layout import SnapshotLocation
from holdfast.snapshots.session_snapshot import SessionSnapshot, now
from holdfast.snapshots.session_state import MESSAGES
from holdfast.state.diff import Diff
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store
from holdfast.stores.contract import StateStore

IMPORTED = "session.imported"
EVENTS_A_SEGMENT = 256


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


async def imported(
    state_store: StateStore,
    document: SessionSnapshot,
    location: SnapshotLocation,
    *,
    dry_run: bool,
) -> ImportResult:
    """Import a document that was read and so is known to be whole."""
    log = checked_events(document)
    if not dry_run:
        await settle(state_store, location)
    there = await Timeline(state_store, location.place).load()
    is_new = there.end.seq == 0
    state = document.snapshot
    result = ImportResult(
        agent_id=location.scope_id,
        session_id=location.session_id,
        messages_restored=state.count(MESSAGES),
        events_restored=len(document.events) if is_new else 0,
        diff=state.diff(there.store.snapshot()),
        dry_run=dry_run,
        created=is_new,
    )
    if dry_run:
        return result
    if is_new:
        await write_new(state_store, document, location, log)
        return result
    return replace(result, undo_id=await write_over(state_store, document, location))


def checked_events(document: SessionSnapshot) -> list[Event]:
    """The events that the log of a new session will have: the document's, and one more if needed.

    Where they lead elsewhere than to the document's state, as after an edit that was meant, what
    differs is in the last one.
    """
    events = list(document.events)
    if events and events[0].seq != 1 and document.base is None:
        raise InvalidDocumentError(
            f"the document's events begin at {events[0].seq}, and it has no state from before them "
            "(base)"
        )
    store = Store(max_history=0)
    if document.base is not None:
        store.restore(document.base)
    fold(store, (event.changes for event in events))
    changes = document.snapshot.changes(store.snapshot())
    if not events or changes["set"] or changes["delete"]:
        origin = {
            "agent_id": document.agent_id,
            "session_id": document.session_id,
            "snapshot_id": document.snapshot_id,
        }
        end = Position(events[-1].seq, events[-1].hash) if events else Position()
        events += linked([draft(IMPORTED, origin, changes=changes)], end.seq, end.hash)
    return events


async def write_new(
    state_store: StateStore,
    document: SessionSnapshot,
    location: SnapshotLocation,
    events: Sequence[Event],
) -> None:
    """Write a session that is not there yet."""
    floor = Position(events[0].seq - 1, events[0].prev)
    timeline = Timeline(state_store, location.place)
    if floor.seq and document.base is not None:
        await timeline.write_keyframe_at(floor, document.base, Anchor())
    size = EVENTS_A_SEGMENT if state_store.atomic_put_many else len(events)
    log = EventLog(state_store, location.place)
    puts = [log.seal(events[at : at + size]).put for at in range(0, len(events), size)]
    puts += founding(location, now(), floor)
    try:
        await state_store.put_many(puts)
    except ConflictError as error:
        raise ConflictError(
            f"a session {location.session_id} of {location.scope_id} was begun by somebody else in "
            "this moment: import again, and it becomes that session's state",
            key=error.key,
        ) from error
    await keep_keyframe(timeline, Position(events[-1].seq, events[-1].hash), document.snapshot)


async def keep_keyframe(timeline: Timeline, end: Position, state: Snapshot) -> None:
    """Write a keyframe at the end, so that the first load need not fold it all."""
    timeline.log.end = end
    timeline.size = state.size_bytes * 4
    await timeline.keep_keyframes(state)


async def write_over(
    state_store: StateStore, document: SessionSnapshot, location: SnapshotLocation
) -> str:
    """Make a session's state the document's; gives the snapshot of what was there."""
    session = await Session.open(
        state_store,
        agent_id=location.scope_id,
        session_id=location.session_id,
        scope=location.scope,
    )
    undo = await session.save(tags={"reason": "before import", "import": document.snapshot_id})
    origin = {
        "agent_id": document.agent_id,
        "session_id": document.session_id,
        "snapshot_id": document.snapshot_id,
        "undo": undo.snapshot_id,
    }
    changes = document.snapshot.changes(session.snapshot())
    session._recording.record_own(IMPORTED, origin, changes)
    await session.commit()
    return undo.snapshot_id
