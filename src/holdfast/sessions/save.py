"""Save durable snapshots: the record of a position in the log, written with the commit."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from holdfast.errors import IntegrityError
from holdfast.ids import new_id
from holdfast.log.event_log import Position
from holdfast.sessions.commit import Committer
from holdfast.sessions.rebase import OnConflict
from holdfast.snapshots.history import choose_history_key, find_newest_key
from holdfast.snapshots.order import HistoryKey
from holdfast.snapshots.records import SnapshotInfo, decode_record
from holdfast.snapshots.session_snapshot import SessionSnapshot, snapshot_from_info, utc_now
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
        key, order, stamp = location.snapshot_key(new), new, None
        if is_latest:
            key = location.latest_key
        elif snapshot_id is not None:
            place, first = await choose_history_key(
                committer.state_store, location, new, self._newest
            )
            key, order, stamp = place.key, place.order, place.stamp
            if first:
                await committer.state_store.put_many(first)
        saved: list[SessionSnapshot] = []

        def build_record(head: Position, state: Snapshot) -> Put:
            info = self._build_info(new, head, state, dict(tags), stamp)
            saved[:] = [snapshot_from_info(info, state)]
            return Put(key, info.encode(location))

        await committer.commit(on_conflict, build_record)
        if not is_latest:
            self.parent_id, self._newest = new, order
        return saved[0]

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

    def _build_info(
        self,
        snapshot_id: str,
        head: Position,
        state: Snapshot,
        tags: dict[str, str],
        stamp: str | None,
    ) -> SnapshotInfo:
        committer, location = self.committer, self.committer.location
        return SnapshotInfo(
            snapshot_id=snapshot_id,
            parent_id=self.parent_id,
            agent_id=location.scope_id,
            session_id=location.session_id,
            scope=location.scope,
            created_at=utc_now(),
            tags=tags,
            status=str(state.get(SESSION, STATUS, PENDING)),
            message_count=committer.working.message_count,
            size_bytes=state.size_bytes,
            seq=head.seq,
            hash=head.hash,
            keyframe=committer.timeline.base_keyframe.position.seq,
            incarnation=committer.incarnation.id,
            unfinished=bool(self._tool_calls.unfinished(state)),
            stamp=stamp,
        )
