"""A document becomes a session: its events become the log, or the state of a session that is there.

Everything is checked before the first write. A new session is written in one step where the store
can do that. Elsewhere the order of writes is what makes a crash between any two of them harmless:
the state before the first event, then all events as one segment, which is the session; then the
rest, which whoever opens it next can write as well.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from holdfast.errors import ConflictError, InvalidDocumentError, StateStoreError
from holdfast.log import keyframes
from holdfast.log.chain import GENESIS, hashed, linked
from holdfast.log.changes import fold
from holdfast.log.event_log import EventLog, Position
from holdfast.log.events import Event, draft
from holdfast.log.timeline import Timeline
from holdfast.sessions.session import Session
from holdfast.snapshots.founding import claim, forget_other_start, founding, settle
from holdfast.snapshots.layout import AGENT, SnapshotLocation, deleted_key
from holdfast.snapshots.manifest import SnapshotManifest
from holdfast.snapshots.session_snapshot import SessionSnapshot, now
from holdfast.snapshots.session_state import MESSAGES
from holdfast.state.diff import Diff
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store
from holdfast.stores.contract import StateStore
from holdfast.stores.entries import Put
from holdfast.stores.wrappers.read_only import ReadOnlyStateStore

logger = logging.getLogger(__name__)

IMPORTED = "session.imported"
EVENTS_A_SEGMENT = 256
ATTEMPTS = 8
Check: TypeAlias = Callable[[Position], None]
LAST_SEQ = 10**12 - 1
"""The last that has a key: those have twelve digits."""


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


async def imported(
    state_store: StateStore,
    document: SessionSnapshot,
    location: SnapshotLocation,
    *,
    dry_run: bool,
    check: Check | None = None,
) -> ImportResult:
    """Import a document that was read and so is known to be whole.

    ``check`` is shown the end of the log that is written over, and raises where it is not to be.
    """
    events = checked_events(document)
    there = await found(ReadOnlyStateStore(state_store) if dry_run else state_store, location)
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
        await New(state_store, location, document, events).write(there.manifest)
        return result
    undo, before = await write_over(state_store, document, location, check)
    return replace(result, undo_id=undo, diff=state.diff(before))


@dataclass(frozen=True, slots=True)
class There:
    """What a store has where a document is to go."""

    manifest: SnapshotManifest
    state: Snapshot
    end: Position

    @property
    def is_new(self) -> bool:
        """Whether there is no session."""
        return self.end.seq == 0


async def found(state_store: StateStore, location: SnapshotLocation) -> There:
    """What is there, after finishing what a crashed writer began; as if, on a read-only store."""
    manifest = await settle(state_store, location)
    going = await state_store.get(deleted_key(location.session_id)) is not None
    if going or manifest.started_at is None:
        return There(manifest, Store(max_history=0).snapshot(), Position())
    loaded = await Timeline(state_store, location.place).load()
    return There(manifest, loaded.store.snapshot(), loaded.end)


# ------------------------------------------------------------------------------ what is checked


def checked_events(document: SessionSnapshot) -> list[Event]:
    """The events that the log of a new session will have: the document's, and that it was imported.

    Where they lead elsewhere than to the document's state, as after an edit that was meant, what
    differs is in the last one.
    """
    events = list(document.events)
    check_place(events, document.base)
    store = Store(max_history=0)
    if events and document.base is not None:
        store.restore(document.base)
    fold(store, (event.changes for event in events))
    changes = document.snapshot.changes(store.snapshot())
    end = Position(events[-1].seq, events[-1].hash) if events else Position()
    return events + linked([draft(IMPORTED, origin(document), changes=changes)], end.seq, end.hash)


def check_place(events: Sequence[Event], base: Snapshot | None) -> None:
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
    if not 1 <= first.seq <= events[-1].seq < LAST_SEQ:
        raise InvalidDocumentError(
            f"the document's events have numbers from 1 to {LAST_SEQ - 1}, not to {events[-1].seq}"
        )


def is_chain(events: Sequence[Event]) -> bool:
    """Whether each has the seq and the hash that follow from the one before it."""
    seq, prev = events[0].seq, events[0].prev
    for event in events:
        if (event.seq, event.prev, event.hash) != (seq, prev, hashed(event, seq, prev)):
            return False
        seq, prev = seq + 1, event.hash
    return True


def origin(document: SessionSnapshot) -> dict[str, Any]:
    """Where a state came from, for the log."""
    return {
        "agent_id": document.agent_id,
        "session_id": document.session_id,
        "snapshot_id": document.snapshot_id,
        **({"signed_by": list(document.signed_by)} if document.signed_by else {}),
    }


# ------------------------------------------------------------------------------- a new session


class New:
    """A session that is not there yet, and how it is written."""

    def __init__(
        self,
        state_store: StateStore,
        location: SnapshotLocation,
        document: SessionSnapshot,
        events: Sequence[Event],
    ) -> None:
        self.state_store = state_store
        self.location = location
        self.document = document
        self.events = events
        self.floor = Position(events[0].seq - 1, events[0].prev)
        self.timeline = Timeline(state_store, location.place)

    async def write(self, manifest: SnapshotManifest) -> None:
        """Write it; ``ConflictError`` where somebody else was first."""
        state = self.document.snapshot
        self.timeline.size = state.size_bytes * 4
        if not self.timeline.is_keyframe_due(state):
            await self.write_log(manifest)
            return
        # With it the first load need not fold it all. It is packed while the log is written.
        keyframe = asyncio.get_running_loop().run_in_executor(None, self.keyframe)
        try:
            await self.write_log(manifest)
            await self.keep(await keyframe)
        finally:
            keyframe.cancel()

    async def write_log(self, manifest: SnapshotManifest) -> None:
        """Write all but the keyframe at the end."""
        started = manifest.started_at or now()
        rest = founding(self.location, started, self.floor, manifest.extra)
        is_atomic = self.state_store.atomic_put_many
        log = self.segments(EVENTS_A_SEGMENT if is_atomic else len(self.events))
        try:
            if not self.floor.seq:
                await self.state_store.put_many([*log, *rest])
            elif is_atomic:
                await self.state_store.put_many(
                    [claim(self.state_store, self.location, self.floor), self.base(), *log, *rest]
                )
            else:
                await self.write_one_by_one(log[0], rest)
        except ConflictError as error:
            raise ConflictError(
                f"a session {self.location.session_id} of {self.location.scope_id} was begun by "
                "somebody else in this moment: import again, and it becomes that session's state",
                key=error.key,
            ) from error
        if not is_atomic:
            # Who opened it before it was all there took its first event for its beginning.
            await forget_other_start(self.state_store, self.location, self.events[0].at, started)

    async def write_one_by_one(self, segment: Put, rest: Sequence[Put]) -> None:
        """Write a log that does not begin at 1, in an order in which a crash does no harm."""
        base, stub = self.base(), claim(self.state_store, self.location, self.floor)
        with suppress(ConflictError):  # who imports the same has written it
            await self.state_store.put_many([base])
        await self.state_store.put_many([segment])
        try:
            await self.state_store.put_many([stub])
        except ConflictError:
            # A log of somebody else's begins elsewhere: this one is not to be.
            await self.state_store.delete(segment.key)
            await self.state_store.delete(base.key)
            raise
        await self.state_store.put_many(rest)
        entry = await self.state_store.get(base.key)
        if entry is None or entry.value != base.value:
            # Who tried to import in the same moment took it for what a crash had left.
            await self.state_store.put(base.key, base.value)

    def segments(self, size: int) -> list[Put]:
        """The log, so many events a segment."""
        log = EventLog(self.state_store, self.location.place)
        return [
            log.seal(self.events[at : at + size]).put for at in range(0, len(self.events), size)
        ]

    def base(self) -> Put:
        """The state before the first event, as a keyframe."""
        base = self.document.base or Store(max_history=0).snapshot()
        changes = base.changes(Store(max_history=0).snapshot())
        data, _ = keyframes.encoded(self.floor.seq, self.floor.hash, (), changes)
        return Put(self.timeline.key(self.floor.seq), data, if_absent=True)

    def keyframe(self) -> Put:
        """The state at the end, as a keyframe."""
        end = self.events[-1]
        changes = self.document.snapshot.changes(Store(max_history=0).snapshot())
        data, _ = keyframes.encoded(end.seq, end.hash, (), changes)
        return Put(self.timeline.key(end.seq), data, if_absent=True)

    async def keep(self, keyframe: Put) -> None:
        """Write the keyframe at the end. What was imported stands, whatever becomes of it."""
        try:
            await self.state_store.put_many([keyframe])
        except ConflictError:
            return  # the same place in the same log, and so the same state
        except StateStoreError as error:
            logger.warning(
                "a keyframe in %s was put off to the next commit: %s", self.location.place, error
            )


# ------------------------------------------------------------------------- a session that is there


async def write_over(
    state_store: StateStore,
    document: SessionSnapshot,
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
            check(session.log.end)
        undo = await session.save(tags=tags)
        changes = document.snapshot.changes(undo.snapshot)
        data = {**origin(document), "undo": undo.snapshot_id}
        session._recording.record_own(IMPORTED, data, changes)
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
