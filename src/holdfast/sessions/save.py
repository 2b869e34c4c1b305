"""Save durable snapshots: the record of a position in the log, written with the commit."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from contextlib import suppress

from holdfast.errors import IntegrityError
from holdfast.ids import new_id
from holdfast.log.event import format_time
from holdfast.log.event_log import Position
from holdfast.sessions.commit import Committer
from holdfast.sessions.rebase import OnConflict
from holdfast.snapshots.envelope import encode_envelope
from holdfast.snapshots.history import choose_history_key, find_newest_key
from holdfast.snapshots.order import HistoryKey
from holdfast.snapshots.records import StoredRecord, decode_record
from holdfast.snapshots.session_snapshot import SessionSnapshot, build_snapshot
from holdfast.snapshots.session_state import PENDING, SESSION, STATUS
from holdfast.snapshots.tool_calls import ToolCallIndex
from holdfast.state.snapshot import Snapshot
from holdfast.stores.entries import Put

UNKNOWN = "?"
"""The id of a snapshot that has to be looked up."""


class SnapshotSaver:
    """Saves the durable snapshots of one session, each with the previous one as its parent."""

    def __init__(self, committer: Committer, tool_calls: ToolCallIndex) -> None:
        self.committer = committer
        self._tool_calls = tool_calls
        self.parent_id = None if committer.working.head.seq == 0 else UNKNOWN
        """The snapshot that the state was last saved as, or restored from."""
        self._newest = self.parent_id
        self._history_prefix = committer.location.history_prefix

    async def save(
        self,
        on_conflict: OnConflict,
        tags: Mapping[str, str],
        *,
        snapshot_id: str | None = None,
        is_latest: bool = False,
    ) -> SessionSnapshot:
        """Commit the pending events and save a snapshot of the state they lead to.

        ``is_latest`` replaces the latest snapshot, which is not listed. ``snapshot_id`` saves under
        a given id, and replaces the record of a snapshot that has it.

        Raises:
            ConflictError: Another writer committed first; nothing was written.

        """
        committer, location = self.committer, self.committer.location
        if not committer.working.pending:
            await committer.check_incarnation()
        if UNKNOWN in (self._newest, self.parent_id) or snapshot_id is not None:
            found = await find_newest_key(committer.state_store, location)
            self._newest = None if found is None else found.order
            if self.parent_id == UNKNOWN:
                self.parent_id = None if found is None else found.snapshot_id
                if found is not None:
                    await self._start_tool_calls(found)
        # A new id follows the newest one even if that was saved by a clock that is ahead.
        new = snapshot_id or new_id(after=self._newest)
        order, stamp = new, None
        if is_latest:
            key = location.latest_key
        elif snapshot_id is None:
            key = f"{self._history_prefix}{new}.json"
        else:
            place, first = await choose_history_key(
                committer.state_store, location, new, self._newest
            )
            key, order, stamp = place.key, place.order, place.stamp
            if first:
                await committer.state_store.put_many(first)
        saved: SessionSnapshot

        def build_record(head: Position, state: Snapshot) -> Put:
            nonlocal saved
            saved, record = self._build(new, head, state, dict(tags), stamp)
            return Put(key, record)

        await committer.commit(on_conflict, build_record)
        if not is_latest:
            self.parent_id, self._newest = new, order
        return saved

    async def _start_tool_calls(self, newest: HistoryKey) -> None:
        """Use what the newest snapshot says about tool calls, if it is at the last commit."""
        committer = self.committer
        head, state = committer.working.head, committer.working.base
        entry = await committer.state_store.get(newest.key)
        if entry is None or head.hash.encode() not in entry.value:
            return
        with suppress(IntegrityError):  # loading it reports the damage
            info = decode_record(newest.key, entry.value, committer.location)
            if info.position == head and not info.unfinished:
                self._tool_calls.start_finished(state)

    def _build(
        self,
        snapshot_id: str,
        head: Position,
        state: Snapshot,
        tags: dict[str, str],
        stamp: str | None,
    ) -> tuple[SessionSnapshot, bytes]:
        """Return the snapshot of the working state at a position, and its record."""
        committer = self.committer
        created_at = dt.datetime.now(dt.UTC)
        keyframe = committer.timeline.base_keyframe.position.seq
        unfinished = bool(self._tool_calls.unfinished(state))
        record = StoredRecord(
            snapshot_id=snapshot_id,
            parent_id=self.parent_id,
            created_at=format_time(created_at),
            seq=head.seq,
            hash=head.hash,
            keyframe=keyframe,
            incarnation=committer.incarnation.id,
            status=str(state.get(SESSION, STATUS, PENDING)),
            messages=committer.working.message_count,
            bytes=state.size_bytes,
            tags=tags,
            unfinished=unfinished,
            stamp=stamp,
        )
        snapshot = build_snapshot(
            state,
            committer.location,
            snapshot_id,
            self.parent_id,
            created_at,
            tags,
            head,
            keyframe,
            unfinished=unfinished,
        )
        return snapshot, encode_envelope(record)
