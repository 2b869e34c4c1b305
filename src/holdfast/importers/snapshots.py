"""Save durable snapshots of an imported history.

A document holds one state and the events that led to it. Where the other tool had a snapshot or a
checkpoint, the imported session gets a snapshot too: it can be listed, compared, restored and
forked from. Those of LangGraph's checkpoints have the ids under which `HoldfastSaver` looks for
them. A transcript gets a snapshot at the end of each turn.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from holdfast.documents.document import Document
from holdfast.ids import new_id
from holdfast.importers.history import SNAPSHOT_IMPORTED
from holdfast.log.event import Event
from holdfast.log.event_log import Position
from holdfast.sessions.replay import replay
from holdfast.snapshots.incarnation import Incarnation
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.snapshots.session_snapshot import SessionSnapshot, utc_now
from holdfast.snapshots.tool_calls import ToolCallIndex
from holdfast.state.snapshot import Snapshot
from holdfast.stores.batch_read import split_batches
from holdfast.stores.entries import Put
from holdfast.transfer.import_document import ImportResult
from holdfast.transfer.manager import SnapshotManager

BATCH_SIZE = 100
LANGGRAPH_CHECKPOINT = "langgraph.checkpoint"
TURN_COMPLETE = ("codex.task_complete", "codex.turn_complete")
TURN_ID = re.compile(r"[\w.-]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class SnapshotNames:
    """The ids and tags of a snapshot to save."""

    id: str
    parent: str | None
    tags: dict[str, str]


async def save_snapshots(manager: SnapshotManager, document: Document, result: ImportResult) -> int:
    """Save the snapshots of an imported document and return their number.

    Only if the import created the session: an existing one keeps its own log.

    Raises:
        ConflictError: The session was deleted or replaced since it was imported.

    """
    if not result.created or result.dry_run:
        return 0
    location = SnapshotLocation(result.session_id, document.scope, result.agent_id)
    incarnation = await Incarnation.read(manager.state_store, location)
    end = Position()
    tool_calls = ToolCallIndex()
    parent: str | None = None
    puts: list[Put] = []
    for step in replay(document):
        end = Position(step.event.seq, step.event.hash)
        names = name_snapshot(step.event, step.after, parent)
        if names is None:
            continue
        parent = names.id
        snapshot = SessionSnapshot(
            snapshot=step.after,
            agent_id=location.scope_id,
            session_id=location.session_id,
            scope=location.scope,
            snapshot_id=names.id,
            parent_id=names.parent,
            created_at=step.event.at,
            tags=names.tags,
            position=end,
            unfinished=bool(tool_calls.unfinished(step.after)),
        )
        info = replace(snapshot.info(), saved_at=utc_now(), incarnation=incarnation.id)
        puts.append(Put(location.snapshot_key(names.id), info.encode(location), if_absent=True))
    for batch in split_batches(puts, BATCH_SIZE):
        await incarnation.write([], batch, end=end, seen=())
    return len(puts)


def name_snapshot(event: Event, state: Snapshot, previous: str | None) -> SnapshotNames | None:
    """Return the names of the snapshot after an event, or None if it gets none."""
    if event.type == SNAPSHOT_IMPORTED:
        return SnapshotNames(new_id(), previous, {"file": event.data["file"]})
    if event.type in TURN_COMPLETE:
        turn = event.data.get("turn_id") if isinstance(event.data, dict) else None
        is_name = isinstance(turn, str) and TURN_ID.fullmatch(turn)
        return SnapshotNames(new_id(), previous, {"turn": str(turn)} if is_name else {})
    if event.type == LANGGRAPH_CHECKPOINT:
        # Needs the extra, which is installed where a thread was read.
        from holdfast.adapters.langgraph import layout  # noqa: PLC0415

        ns, parent = event.data["ns"], event.data["parent"]
        entry = state.get(layout.CHECKPOINTS, layout.checkpoint_key(ns))
        return SnapshotNames(
            layout.snapshot_id_for(event.data["checkpoint_id"]),
            None if parent is None else layout.snapshot_id_for(parent),
            layout.checkpoint_tags(entry["metadata"], ns),
        )
    return None
