"""The session that an agent's Strands snapshots are.

Strands overwrites a latest snapshot, from which an agent resumes, and appends others to a history.
Here the latest is the state at the end of the log, and one of the history is a durable snapshot.
So whoever restores, forks or imports the session with Holdfast moves the latest, and the agent
resumes from there. Only while the log ends with a checkpoint that was not made the latest as well,
the record of the latest says where that is.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import cast

from holdfast.adapters.strands.codec import (
    decode_state,
    encode_changes,
    has_snapshot,
    replace_entries,
)
from holdfast.errors import ConflictError
from holdfast.ids import new_id
from holdfast.log.event import Event
from holdfast.log.event_log import Position
from holdfast.sessions.session import UNKNOWN, Session
from holdfast.snapshots.history import choose_history_key, find_newest_key
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.snapshots.lookup import find_history_info
from holdfast.snapshots.records import SnapshotInfo, decode_record
from holdfast.snapshots.session_state import SESSION, STATUS, validate_status
from holdfast.state.diff import Changes
from holdfast.state.snapshot import Snapshot
from holdfast.stores.base import StateStore
from holdfast.stores.entries import Put

SAVED = "strands.saved"
CHECKPOINT = "strands.checkpoint"
DELETED = "strands.deleted"
TAG = "strands"
TAGS = {TAG: "checkpoint"}
ATTEMPTS = 16


class StrandsSession(Session):
    """A session whose states are snapshots of a Strands agent.

    Its caller sees that it is fresh before it reads or changes it.
    """

    @classmethod
    async def at(cls, state_store: StateStore, location: SnapshotLocation) -> StrandsSession:
        """The session at a location, or one that is to begin there."""
        return cast("StrandsSession", await cls._opened(state_store, location, must_exist=False))

    async def fresh(self) -> None:
        """Take in what others did since."""
        try:
            async with self._lock:
                await self._committer.check_incarnation()
                await self._committer.catch_up()
        except ConflictError:
            await self.reload()

    # -------------------------------------------------------------------------------- writing

    async def keep(self, data: bytes, snapshot_id: str | None) -> None:
        """Make these bytes the latest, or keep them in the history under an id."""

        async def change() -> None:
            state = self.snapshot()
            changes = encode_changes(state, data)
            is_latest = await self._checkpoint() is None
            if snapshot_id is not None and is_latest and has_snapshot(state):
                await self._note_latest()
            if any(changes.values()) or (snapshot_id is None and not is_latest) or self.is_dirty:
                type_ = SAVED if snapshot_id is None else CHECKPOINT
                self._working.record_owned(type_, {"snapshot_id": snapshot_id}, changes)
            await self._write(snapshot_id)

        await self._until_first(change)

    async def set_status(self, status: str) -> None:
        """Commit a status, where it is another. What the latest is does not change."""

        async def change() -> None:
            wanted = validate_status(status)
            if wanted == self.status:
                return
            checkpoint = await self._checkpoint()
            changes: Changes = {"set": [(SESSION, STATUS, wanted)], "delete": []}
            if checkpoint is None:
                self._working.record_owned("status.changed", None, changes)
            else:
                self._working.record_owned(CHECKPOINT, {"snapshot_id": checkpoint}, changes)
            await self.commit()

        await self._until_first(change)

    async def _until_first(self, change: Callable[[], Awaitable[None]]) -> None:
        """Change the state as it is committed now; after a conflict reload it and try again."""
        attempt = 0
        while True:
            try:
                await change()
                return
            except ConflictError:
                attempt += 1
                if attempt == ATTEMPTS:
                    raise
            await asyncio.sleep(random.uniform(0, 0.01 * attempt))  # noqa: S311 - takes turns
            await self.reload()

    async def _write(self, snapshot_id: str | None) -> None:
        """Commit what waits, and with it the record of a snapshot of it."""
        name = new_id() if snapshot_id is None else snapshot_id
        tags = {} if snapshot_id is None else TAGS

        async with self._lock:
            last = None
            if self._parent == UNKNOWN or snapshot_id is not None:
                last = await find_newest_key(self.state_store, self.location)
            if self._parent == UNKNOWN:
                self._parent = None if last is None else last.snapshot_id
            key, stamp = self.location.latest_key, None
            if snapshot_id is not None:
                after = None if last is None else last.order
                place, first = await choose_history_key(
                    self.state_store, self.location, snapshot_id, after
                )
                key, stamp = place.key, place.stamp
                if first:
                    await self.state_store.put_many(first)

            def record(end: Position, state: Snapshot) -> Put:
                info = replace(self._info(name, end, state, tags), stamp=stamp)
                return Put(key, info.encode(self.location))

            await self._committer.write("raise", record)
            if snapshot_id is not None:
                self._parent = snapshot_id

    async def _note_latest(self) -> None:
        """See that the record of the latest says where it is, before the log goes on without it."""
        info = await self._latest_info()
        if info is None or info.seq != self._working.end.seq:
            await self._write(None)

    async def forget_latest(self) -> None:
        """Let there be no latest any more. The log and the history still have it."""

        async def change() -> None:
            if await self._checkpoint() is None:
                await self._become(None)
            await self.state_store.delete(self.location.latest_key)

        await self._until_first(change)

    async def forget(self, snapshot_id: str) -> None:
        """Take one out of the history. The log still has it."""

        async def change() -> None:
            if await self._checkpoint() == snapshot_id:
                await self._become(await self._saved_latest())
            await self.archive.delete_snapshot(location=self.location, snapshot_id=snapshot_id)

        await self._until_first(change)

    async def _become(self, data: bytes | None) -> None:
        """End the log with these bytes, or with none."""
        state = self.snapshot()
        if data is None and not has_snapshot(state):
            return
        changes = replace_entries(state, []) if data is None else encode_changes(state, data)
        self._working.record_owned(DELETED, None, changes)
        await self.commit()

    # -------------------------------------------------------------------------------- reading

    async def latest(self) -> bytes | None:
        """The bytes that an agent resumes from, or None."""
        if await self._checkpoint() is None:
            return decode_state(self.snapshot())
        return await self._saved_latest()

    async def kept(self, snapshot_id: str) -> bytes | None:
        """The bytes of a snapshot in the history, or None."""
        found = await self.archive.load_snapshot(location=self.location, snapshot_id=snapshot_id)
        return None if found is None else decode_state(found.snapshot)

    async def history(self) -> list[str]:
        """The ids in the history, oldest first."""
        found = (await self.archive.list_snapshots(location=self.location)).snapshots
        is_strands = has_snapshot(self.snapshot())
        return [info.snapshot_id for info in found if is_strands or TAG in info.tags]

    async def _checkpoint(self) -> str | None:
        """The snapshot at the end of the log that is in the history and was not made the latest."""
        event = await self._last_event()
        if event is None or event.type != CHECKPOINT:
            return None
        snapshot_id = str(event.data["snapshot_id"])
        # A document of a checkpoint that became a session elsewhere has no history there.
        there = await find_history_info(self.state_store, self.location, snapshot_id)
        return None if there is None else snapshot_id

    async def _last_event(self) -> Event | None:
        writer, seq = self._committer, self._working.end.seq
        if seq <= writer.tail.log_start.seq:
            return None
        for event in writer.tail.read(seq, seq):
            return event
        return await anext(writer.timeline.events(seq, seq))

    async def _saved_latest(self) -> bytes | None:
        """The bytes that were made the latest before the checkpoint at the end of the log."""
        info = await self._latest_info()
        return None if info is None else await self.kept(info.snapshot_id)

    async def _latest_info(self) -> SnapshotInfo | None:
        key = self.location.latest_key
        entry = await self.state_store.get(key)
        return None if entry is None else decode_record(key, entry.value, self.location)
