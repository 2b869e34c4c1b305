"""`HoldfastCheckpointStorage`: a workflow is a session, and each checkpoint a snapshot of it."""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator, Iterable
from typing import Any

from agent_framework import WorkflowCheckpoint, WorkflowCheckpointException

from holdfast.adapters.agent_framework.checkpoint import (
    CheckpointEntries,
    list_entries,
    read_checkpoint,
)
from holdfast.adapters.agent_framework.codec import Codec, Opaque
from holdfast.adapters.agent_framework.layout import (
    CHECKPOINT_EVENT,
    DELETED_EVENT,
    ID_TAG,
    ITERATION_TAG,
    TIME_TAG,
    WORKFLOW_TAG,
    get_header,
    snapshot_id_for,
)
from holdfast.adapters.base import StoreAdapter
from holdfast.adapters.shared_session import SessionPool, session_exists
from holdfast.sessions.save import SnapshotSaver
from holdfast.sessions.session import Session
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.catalog import Catalog
from holdfast.snapshots.keys import AGENT, SnapshotLocation, validate_id
from holdfast.snapshots.records import SnapshotInfo
from holdfast.snapshots.tool_calls import ToolCallIndex
from holdfast.state.snapshot import Snapshot
from holdfast.stores.base import StateStore

PAGE_SIZE = 100


class HoldfastCheckpointStorage(StoreAdapter):
    """Checkpoints of workflows in a ``StateStore``. Implements the ``CheckpointStorage`` protocol.

    A workflow is a session with the workflow's name as its id, or with ``session_id``, for example
    one session per order. ``types`` are dataclasses, enums and pydantic models whose objects are
    stored as data. Other objects are refused. With ``opaque="keep"`` they are stored as bytes that
    the framework pickled: its restricted decoder loads them, if ``allowed_checkpoint_types`` names
    them as ``"module:qualname"``.
    """

    def __init__(
        self,
        state_store: StateStore,
        *,
        agent_id: str = "agent-framework",
        session_id: str | None = None,
        types: Iterable[type[Any]] = (),
        opaque: Opaque = "refuse",
        allowed_checkpoint_types: Iterable[str] = (),
    ) -> None:
        super().__init__(state_store)
        self.agent_id = validate_id(agent_id, "agent_id")
        self.session_id = None if session_id is None else validate_id(session_id, "session_id")
        self._codec = Codec(types, opaque, allowed_checkpoint_types)
        self._pool = SessionPool(state_store)
        self._archive = SnapshotArchive(state_store)

    def location(self, workflow_name: str) -> SnapshotLocation:
        """Return the location of a workflow's session."""
        return SnapshotLocation(self.session_id or workflow_name, AGENT, self.agent_id)

    # ------------------------------------------------------------------- the framework's protocol

    async def save(self, checkpoint: WorkflowCheckpoint) -> str:
        """Store a checkpoint as a snapshot, and return its id; one with this id is replaced.

        Only what changed since the last checkpoint is written.

        Raises:
            UnsupportedValueError: A value is not data; the error has its path. Nothing is written.
            StateStoreError: The store failed.

        """
        new = CheckpointEntries(self._codec, checkpoint)
        location = self.location(checkpoint.workflow_name)
        previous = checkpoint.previous_checkpoint_id
        tags = {
            ID_TAG: checkpoint.checkpoint_id,
            WORKFLOW_TAG: checkpoint.workflow_name,
            TIME_TAG: checkpoint.timestamp,
            ITERATION_TAG: str(checkpoint.iteration_count),
        }
        about = {
            "checkpoint_id": checkpoint.checkpoint_id,
            "workflow": checkpoint.workflow_name,
            "iteration": checkpoint.iteration_count,
        }

        async def record(session: Session) -> None:
            committer = session.committer
            before = get_header(session.snapshot())
            new.header["latest"] = await self._choose_latest(session, before, checkpoint)
            changes = new.find_changes(committer.working.store, before)
            committer.working.record_owned(CHECKPOINT_EVENT, about, changes)
            saver = SnapshotSaver(committer, ToolCallIndex())
            saver.parent_id = None if previous is None else snapshot_id_for(previous)
            snapshot_id = snapshot_id_for(checkpoint.checkpoint_id)
            await saver.save("raise", tags, snapshot_id=snapshot_id)

        await self._pool.update(location, record)
        return checkpoint.checkpoint_id

    async def load(self, checkpoint_id: str) -> WorkflowCheckpoint:
        """Return a checkpoint.

        Raises:
            WorkflowCheckpointException: There is none with this id, or the framework refuses to
                load an object in it that was pickled.
            UnsupportedValueError: It has an object of a class that is not known.
            IntegrityError: Stored data is damaged.

        """
        found = await self._find(checkpoint_id)
        if found is None:
            raise WorkflowCheckpointException(f"No checkpoint found with ID {checkpoint_id}")
        return read_checkpoint(self._codec, found[1])

    async def list_checkpoints(self, *, workflow_name: str) -> list[WorkflowCheckpoint]:
        """Return all checkpoints of a workflow, in the order of saving."""
        location = self.location(workflow_name)
        found = []
        for checkpoint_id in await self.list_checkpoint_ids(workflow_name=workflow_name):
            state = await self._find_at(location, checkpoint_id)
            if state is not None:  # it was not deleted in the meantime
                found.append(read_checkpoint(self._codec, state))
        return found

    async def delete(self, checkpoint_id: str) -> bool:
        """Delete a checkpoint; return whether there was one.

        The log keeps its events: delete the session, or prune it, to erase them.

        Raises:
            StateStoreError: The store failed.

        """
        found = await self._find(checkpoint_id)
        if found is None:
            return False
        location = found[0]

        def clear(session: Session) -> bool:
            header = get_header(session.snapshot())
            if header is None or header["id"] != checkpoint_id:
                return False
            working = session.committer.working
            gone = sorted(list_entries(working.store, header))
            about = {"checkpoint_id": checkpoint_id, "workflow": header["workflow"]}
            working.record_owned(DELETED_EVENT, about, {"set": [], "delete": gone})
            return True

        was_current = await self._pool.update(location, clear)
        snapshot_id = snapshot_id_for(checkpoint_id)
        deleted = await self._archive.delete_snapshot(location=location, snapshot_id=snapshot_id)
        return was_current or deleted

    async def get_latest(self, *, workflow_name: str) -> WorkflowCheckpoint | None:
        """Return the checkpoint with the last timestamp, or None.

        After a restore of the session, it is the one that was the latest then.
        """
        location = self.location(workflow_name)
        state = await self._pool.read(location, Session.snapshot)
        header = get_header(state)
        if header is not None and header["workflow"] == workflow_name and header.get("latest"):
            found = await self._find_at(location, header["latest"])
            if found is not None:  # it was not deleted
                return read_checkpoint(self._codec, found)
        last = choose_last(await self._list_times(location, workflow_name, header))
        if last is None:
            return None
        found = await self._find_at(location, last)
        return None if found is None else read_checkpoint(self._codec, found)

    async def list_checkpoint_ids(self, *, workflow_name: str) -> list[str]:
        """Return the ids of a workflow's checkpoints in the order of saving; none is loaded."""
        location = self.location(workflow_name)
        header = get_header(await self._pool.read(location, Session.snapshot))
        return [each for each, _ in await self._list_times(location, workflow_name, header)]

    # ---------------------------------------------------------------------------------- internals

    async def _find(self, checkpoint_id: str) -> tuple[SnapshotLocation, Snapshot] | None:
        """Return the session of a checkpoint, and the state with it."""
        if self.session_id is not None:
            location = self.location("")
            state = await self._find_at(location, checkpoint_id)
            return None if state is None else (location, state)
        locations = [each async for each in self._list_locations()]
        for location in locations:
            info = await self._archive.load_info(
                location=location, snapshot_id=snapshot_id_for(checkpoint_id)
            )
            if info is not None and info.tags.get(ID_TAG) == checkpoint_id:
                state = await self._find_at(location, checkpoint_id)
                if state is not None:
                    return location, state
        for location in locations:
            state = await self._find_current(location, checkpoint_id)
            if state is not None:
                return location, state
        return None

    async def _list_locations(self) -> AsyncIterator[SnapshotLocation]:
        """Yield the sessions of the agent, the last active first."""
        catalog, token = Catalog(self.state_store), None
        while True:
            page = await catalog.sessions(self.agent_id, limit=PAGE_SIZE, next_token=token)
            for each in page.sessions:
                if each.scope == AGENT:
                    yield each.location
            token = page.next_token
            if token is None:
                return

    async def _find_at(self, location: SnapshotLocation, checkpoint_id: str) -> Snapshot | None:
        """Return the state with a checkpoint of a session, or None."""
        current = await self._find_current(location, checkpoint_id)
        if current is not None:
            return current
        return await self._load_snapshot(location, checkpoint_id)

    async def _find_current(
        self, location: SnapshotLocation, checkpoint_id: str
    ) -> Snapshot | None:
        """Return the current state of a session, if it is that of a checkpoint.

        A session that was forked or imported has only this one.
        """
        state = await self._pool.read(location, Session.snapshot)
        header = get_header(state)
        return state if header is not None and header["id"] == checkpoint_id else None

    async def _load_snapshot(
        self, location: SnapshotLocation, checkpoint_id: str
    ) -> Snapshot | None:
        snapshot_id = snapshot_id_for(checkpoint_id)
        found = await self._archive.load_snapshot(location=location, snapshot_id=snapshot_id)
        if found is None or found.tags.get(ID_TAG) != checkpoint_id:
            return None
        return found.snapshot

    async def _list_times(
        self, location: SnapshotLocation, workflow_name: str, header: Any
    ) -> list[tuple[str, str]]:
        """Return the ids and timestamps of a workflow's checkpoints, in the order of saving."""
        page = await self._archive.list_snapshots(
            location=location, tags={WORKFLOW_TAG: workflow_name}
        )
        times = {
            info.tags[ID_TAG]: info.tags.get(TIME_TAG, "")
            for info in page.snapshots
            if is_checkpoint(info)
        }
        if header is not None and header["workflow"] == workflow_name:
            times.setdefault(header["id"], header["timestamp"])
        return list(times.items())

    async def _choose_latest(
        self, session: Session, before: Any, new: WorkflowCheckpoint
    ) -> str | None:
        """Return the id of the checkpoint with the last timestamp after one is saved."""
        times = {new.checkpoint_id: new.timestamp}
        if before is not None or session_exists(session):
            if (
                before is not None
                and before["workflow"] == new.workflow_name
                and before.get("latest") == before["id"] != new.checkpoint_id
                and before["timestamp"] != new.timestamp  # else the first of them counts
            ):
                times = {before["id"]: before["timestamp"], **times}
            else:
                listed = await self._list_times(session.location, new.workflow_name, before)
                times = {**dict(listed), **times}
        try:
            return choose_last(list(times.items()))
        except ValueError:  # get_latest raises it, as with the framework's own storages
            return None


def is_checkpoint(info: SnapshotInfo) -> bool:
    """Return whether a snapshot is that of a checkpoint, and not one that the user saved."""
    found = info.tags.get(ID_TAG)
    return found is not None and snapshot_id_for(found) == info.snapshot_id


def choose_last(times: list[tuple[str, str]]) -> str | None:
    """Return the id with the last timestamp, the first of several; None if there is none.

    Raises:
        ValueError: A timestamp is not in ISO format, or only some have a time zone.

    """
    if not times:
        return None
    try:
        return max(times, key=lambda each: dt.datetime.fromisoformat(each[1]))[0]
    except TypeError as error:
        raise ValueError(
            f"timestamps of checkpoints must all have a time zone, or none: {error}"
        ) from None
