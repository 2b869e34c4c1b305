"""Durable snapshots of an imported history, where its own program came to rest.

A document has one moment and the events that led to it. What was a snapshot elsewhere, or where a
graph had nothing more to do or waited for somebody, is worth a name here as well: it can be listed,
compared, restored and forked from.
"""

from __future__ import annotations

from holdfast.documents.document import Document
from holdfast.ids import new_id
from holdfast.importers.history import CHECKPOINT_IMPORTED, SNAPSHOT_IMPORTED
from holdfast.log.event import Event
from holdfast.log.event_log import Position
from holdfast.sessions.replay import replay
from holdfast.snapshots.incarnation import Incarnation
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.snapshots.records import SnapshotInfo
from holdfast.snapshots.session_snapshot import utc_now
from holdfast.snapshots.session_state import MESSAGES, PENDING, SESSION, STATUS
from holdfast.snapshots.tool_calls import ToolCallIndex
from holdfast.state.snapshot import Snapshot
from holdfast.stores.entries import Put
from holdfast.transfer.import_document import ImportResult
from holdfast.transfer.manager import SnapshotManager

BATCH_SIZE = 100


async def save_snapshots(manager: SnapshotManager, document: Document, result: ImportResult) -> int:
    """Keep the snapshots of a document of others that was imported; how many there were.

    Only where its events became the log: a session that was there before has a log of its own.

    Raises:
        ConflictError: The session was deleted or replaced since it was imported.

    """
    if not result.created or result.dry_run:
        return 0
    location = SnapshotLocation(result.session_id, document.scope, result.agent_id)
    incarnation = await Incarnation.read(manager.state_store, location)
    end = Position()
    ledger = ToolCallIndex()
    parent: str | None = None
    puts: list[Put] = []
    for step in replay(document):
        end = Position(step.event.seq, step.event.hash)
        tags = snapshot_tags(step.event, step.after)
        if tags is None:
            continue
        info = SnapshotInfo(
            snapshot_id=new_id(),
            parent_id=parent,
            agent_id=location.scope_id,
            session_id=location.session_id,
            scope=location.scope,
            created_at=step.event.at,
            tags=tags,
            status=session_status(step.after),
            message_count=step.after.count(MESSAGES),
            size_bytes=step.after.size_bytes,
            unfinished=bool(ledger.unfinished(step.after)),
            saved_at=utc_now(),
            seq=step.event.seq,
            hash=step.event.hash,
            incarnation=incarnation.id,
        )
        parent = info.snapshot_id
        puts.append(Put(location.snapshot_key(parent), info.encode(location), if_absent=True))
    for first in range(0, len(puts), BATCH_SIZE):
        await incarnation.write([], puts[first : first + BATCH_SIZE], end=end, seen=())
    return len(puts)


def snapshot_tags(event: Event, state: Snapshot) -> dict[str, str] | None:
    """The tags of the snapshot after an event; None where there is to be none."""
    data = event.data
    if event.type == SNAPSHOT_IMPORTED:
        return {"file": data["file"]}
    if (
        event.type != CHECKPOINT_IMPORTED
        or data["checkpoint_ns"]
        or session_status(state) == "running"
    ):
        return None
    step = data["metadata"].get("step")
    return {"checkpoint_id": data["checkpoint_id"], "step": str(step)}


def session_status(state: Snapshot) -> str:
    """What the session was doing."""
    return str(state.get(SESSION, STATUS, PENDING))
