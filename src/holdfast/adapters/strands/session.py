"""The session behind the Strands snapshots of one agent.

Strands overwrites a latest snapshot, from which an agent resumes, and appends others to a history.
Here the latest is the state at the head of the log, and one of the history is a durable snapshot.
So restoring, forking or importing the session with Holdfast moves the latest, and the agent resumes
from there. While the log ends with a checkpoint that was not made the latest as well, the record of
the latest has its position.
"""

from __future__ import annotations

from holdfast.adapters.strands.codec import (
    EntryTexts,
    decode_state,
    delete_changes,
    encode_changes,
    has_snapshot,
    read_texts,
)
from holdfast.log.event_log import Position
from holdfast.sessions.save import SnapshotSaver
from holdfast.sessions.session import Session
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.snapshots.lookup import find_history_info
from holdfast.snapshots.records import SnapshotInfo, decode_record
from holdfast.snapshots.session_state import SESSION, STATUS, validate_status
from holdfast.snapshots.tool_calls import ToolCallIndex
from holdfast.state.snapshot import Snapshot
from holdfast.stores.base import StateStore

SAVED = "strands.saved"
CHECKPOINT = "strands.checkpoint"
DELETED = "strands.deleted"
TAG = "strands"
TAGS = {TAG: "checkpoint"}


class StrandsSession:
    """A session whose states are snapshots of a Strands agent.

    Callers refresh it before they read it. Writing needs no refresh.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._texts = EntryTexts()
        """The texts of the snapshot in the state at ``_texts_at``; a cache."""
        self._texts_at: Position | None = None
        self._latest_at: Position | None = None
        """A head of the log at which the latest snapshot is the state there; a cache."""
        self._tool_calls = ToolCallIndex()
        self._saver = SnapshotSaver(session.committer, self._tool_calls)

    @classmethod
    async def open(cls, state_store: StateStore, location: SnapshotLocation) -> StrandsSession:
        """Open the session at a location, or start a new one."""
        session = await Session.open(
            state_store,
            agent_id=location.scope_id,
            session_id=location.session_id,
            scope=location.scope,
        )
        return cls(session)

    async def refresh(self) -> None:
        """Apply what other writers committed."""
        await self._session.refresh()

    def snapshot(self) -> Snapshot:
        """Return an in-memory snapshot of the state."""
        return self._session.snapshot()

    # -------------------------------------------------------------------------------- writing

    async def write_snapshot(self, data: bytes, snapshot_id: str | None) -> None:
        """Make these bytes the latest snapshot, or save them in the history under an id."""

        async def change(session: Session) -> None:
            state = session.snapshot()
            changes, texts = encode_changes(state, self._read_texts(state), data)
            if not any(changes.values()):
                # Nothing would be committed, so no conflict would show that this is out of date.
                await session.refresh()
                state = session.snapshot()
                changes, texts = encode_changes(state, self._read_texts(state), data)
            is_latest = await self._checkpoint() is None
            if snapshot_id is not None and is_latest and has_snapshot(state):
                await self._save_latest()
            is_moved = snapshot_id is None and not is_latest
            if any(changes.values()) or is_moved or session.is_dirty:
                type_ = SAVED if snapshot_id is None else CHECKPOINT
                session.record(type_, {"snapshot_id": snapshot_id}, changes=changes)
            await self._save(snapshot_id)
            self._texts, self._texts_at = texts, self._head
            if snapshot_id is None:
                self._latest_at = self._head

        await self._session.update(change)

    async def set_status(self, status: str) -> None:
        """Commit a status, if it changed. The latest snapshot stays the same."""
        wanted = validate_status(status)

        is_current = False

        async def change(session: Session) -> None:
            nonlocal is_current
            if wanted == session.status:
                await session.refresh()
            is_current = self._texts_at == self._head
            if wanted == session.status:
                return
            checkpoint = await self._checkpoint()
            if checkpoint is None:
                session.status = wanted
            else:
                session.record(
                    CHECKPOINT,
                    {"snapshot_id": checkpoint},
                    changes={"set": [(SESSION, STATUS, wanted)], "delete": []},
                )

        await self._session.update(change)
        if is_current:
            self._texts_at = self._head

    async def delete_latest(self) -> None:
        """Delete the latest snapshot. The log and the history still have it."""

        async def change(session: Session) -> None:
            if await self._checkpoint() is None:
                await self._replace_state(None)
            await session.state_store.delete(session.location.latest_key)

        await self._session.update(change)

    async def delete_snapshot(self, snapshot_id: str) -> None:
        """Delete a snapshot from the history. The log still has it."""

        async def change(session: Session) -> None:
            if await self._checkpoint() == snapshot_id:
                await self._replace_state(await self._read_saved_latest())
            await session.archive.delete_snapshot(
                location=session.location, snapshot_id=snapshot_id
            )

        await self._session.update(change)

    async def _save(self, snapshot_id: str | None) -> None:
        """Commit the pending events, and with them the record of a snapshot."""
        committer = self._session.committer
        if self._saver.committer is not committer:
            self._saver = SnapshotSaver(committer, self._tool_calls)
        if snapshot_id is None:
            await self._saver.save("raise", {}, is_latest=True)
        else:
            await self._saver.save("raise", TAGS, snapshot_id=snapshot_id)

    async def _save_latest(self) -> None:
        """Make sure that the record of the latest has its position, before the log moves on."""
        info = await self._read_latest_info()
        if info is None or info.seq != self._session.log.head.seq:
            await self._save(None)

    async def _replace_state(self, data: bytes | None) -> None:
        """Commit a state that holds these bytes, or no snapshot."""
        session = self._session
        state = session.snapshot()
        if data is None and not has_snapshot(state):
            return
        texts = self._read_texts(state)
        changes = (
            delete_changes(state, texts) if data is None else encode_changes(state, texts, data)[0]
        )
        session.record(DELETED, changes=changes)
        await session.commit()

    # -------------------------------------------------------------------------------- reading

    async def read_latest(self) -> bytes | None:
        """Return the bytes of the latest snapshot, or None."""
        if await self._checkpoint() is None:
            return decode_state(self.snapshot())
        return await self._read_saved_latest()

    async def read_snapshot(self, snapshot_id: str) -> bytes | None:
        """Return the bytes of a snapshot in the history, or None."""
        found = await self._session.archive.load_snapshot(
            location=self._session.location, snapshot_id=snapshot_id
        )
        return None if found is None else decode_state(found.snapshot)

    async def list_snapshot_ids(self) -> list[str]:
        """Return the ids of the snapshots in the history, oldest first."""
        page = await self._session.archive.list_snapshots(location=self._session.location)
        is_strands = has_snapshot(self.snapshot())
        return [info.snapshot_id for info in page.snapshots if is_strands or TAG in info.tags]

    async def _checkpoint(self) -> str | None:
        """Return the id of the checkpoint at the head of the log that is not the latest, or None.

        The id is None as well if the history does not have it, as in a session that was imported
        from a document.
        """
        head = self._head
        if head == self._latest_at:
            return None
        async for event in self._session.events.read(head.seq, head.seq):
            if event.type == CHECKPOINT:
                snapshot_id = str(event.data["snapshot_id"])
                found = await find_history_info(
                    self._session.state_store, self._session.location, snapshot_id
                )
                return None if found is None else snapshot_id
        self._latest_at = head
        return None

    @property
    def _head(self) -> Position:
        return self._session.committer.working.head

    def _read_texts(self, state: Snapshot) -> EntryTexts:
        """Return the texts of the snapshot in the state at the head of the log."""
        if self._texts_at != self._head:
            self._texts, self._texts_at = read_texts(state, is_strict=False), self._head
        return self._texts

    async def _read_saved_latest(self) -> bytes | None:
        """Return the bytes that were the latest before the checkpoint at the head of the log."""
        info = await self._read_latest_info()
        return None if info is None else await self.read_snapshot(info.snapshot_id)

    async def _read_latest_info(self) -> SnapshotInfo | None:
        location = self._session.location
        entry = await self._session.state_store.get(location.latest_key)
        if entry is None:
            return None
        return decode_record(location.latest_key, entry.value, location)
