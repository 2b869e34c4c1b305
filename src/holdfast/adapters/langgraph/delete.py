"""Delete checkpoints and threads."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.adapters.langgraph import history
from holdfast.adapters.langgraph.codec import Codec
from holdfast.adapters.langgraph.deltas import DELTA_COUNTERS, channels_with_value
from holdfast.adapters.langgraph.history import StoredCheckpoint
from holdfast.adapters.langgraph.keys import snapshot_id_for
from holdfast.adapters.langgraph.thread import Thread
from holdfast.errors import ConflictError
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.catalog.catalog import Catalog
from holdfast.snapshots.records import SnapshotInfo
from holdfast.snapshots.retention import RetentionPolicy, age_order
from holdfast.state.snapshot import Snapshot


async def delete_thread(thread: Thread) -> None:
    """Delete a thread.

    Raises:
        ConflictError: The session also belongs to other agents.

    """
    async with thread.lock:
        others = [
            each
            for each in await Catalog(thread.state_store).locations(thread.location.session_id)
            if each != thread.location
        ]
        if others:
            raise ConflictError(
                f"session {thread.location.session_id!r} also belongs to other agents "
                f"({', '.join(each.scope_id for each in others)}); use holdfast state delete to "
                "delete it for all of them"
            )
        await thread.delete_all()


async def delete_runs(thread: Thread, run_ids: set[str], codec: Codec) -> None:
    """Delete the checkpoints of runs from a thread."""
    async with thread.lock:
        found = await history.scan_checkpoints(thread)
        removed = [
            each for each in found if codec.decode(each.entry["metadata"]).get("run_id") in run_ids
        ]
        if not removed:
            return
        if len(removed) == len(found):
            await thread.delete_all()
            return
        ids = {(each.ns, each.id) for each in removed}
        rest = [each for each in found if (each.ns, each.id) not in ids]
        await remove_checkpoints(thread, removed, rest)


async def remove_checkpoints(
    thread: Thread, removed: list[StoredCheckpoint], rest: list[StoredCheckpoint]
) -> None:
    """Delete checkpoints; if the current one is among them, the newest other becomes current."""
    heads: dict[str, Snapshot | None] = {}
    names = {(each.ns, each.id) for each in removed}
    for ns in sorted({each.ns for each in removed}):
        current = await history.find_current(thread, ns)
        if current is not None and (ns, current.id) in names:
            # None if a subgraph has no other: its entries are deleted.
            heads[ns] = next((each.state for each in rest if each.ns == ns), None)
    await thread.delete(sorted(names), heads)


async def keep_latest_checkpoints(thread: Thread, codec: Codec) -> None:
    """Delete all but the current checkpoint of each graph and subgraph, and its dependencies."""
    async with thread.lock:
        while (split := await split_checkpoints(thread, codec)) is None:
            pass  # another writer put a checkpoint; try again
        removed, kept = split
        if not removed:
            return
        await prune_log(thread, removed, min(kept, key=lambda each: each.since))
        await remove_checkpoints(thread, removed, kept)


async def split_checkpoints(
    thread: Thread, codec: Codec
) -> tuple[list[StoredCheckpoint], list[StoredCheckpoint]] | None:
    """Return the checkpoints to delete and to keep, or None if one was put concurrently."""
    found = await history.scan_checkpoints(thread)
    kept: list[StoredCheckpoint] = []
    for ns in sorted({each.ns for each in found}):
        mine = {each.id: each for each in found if each.ns == ns}
        current = await history.find_current(thread, ns)
        if current is not None and current.id not in mine:
            return None
        # The current one need not be the newest, after a restore or rollback.
        latest = next(iter(mine.values())) if current is None else mine[current.id]
        kept += required_checkpoints(codec, latest, mine)
    names = {(each.ns, each.id) for each in kept}
    return [each for each in found if (each.ns, each.id) not in names], kept


async def prune_log(
    thread: Thread, removed: list[StoredCheckpoint], oldest: StoredCheckpoint
) -> None:
    """Prune the log before the oldest checkpoint that is kept."""
    archive = SnapshotArchive(thread.state_store)
    info = await archive.load_info(location=thread.location, snapshot_id=snapshot_id_for(oldest.id))
    if info is None or info.seq != oldest.since:
        return  # forked or imported as part of a larger event, which cannot be split
    unwanted = frozenset(snapshot_id_for(each.id) for each in removed)
    await archive.prune(
        location=thread.location, policy=PruneBefore(last=1, seq=info.seq, unwanted=unwanted)
    )
    thread.reset()


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneBefore(RetentionPolicy):
    """Removes the given snapshots before an event, and no others."""

    seq: int
    unwanted: frozenset[str]

    def select(self, snapshots: Iterable[SnapshotInfo], now: dt.datetime) -> list[SnapshotInfo]:  # noqa: ARG002
        """Return the snapshots to keep, oldest first."""
        found = sorted(snapshots, key=age_order)
        return [
            each for each in found if each.seq >= self.seq or each.snapshot_id not in self.unwanted
        ]


def required_checkpoints(
    codec: Codec, latest: StoredCheckpoint, known: dict[str, StoredCheckpoint]
) -> list[StoredCheckpoint]:
    """Return a checkpoint and the ancestors that its delta channels depend on."""
    open_ = set(
        codec.decode(latest.entry["metadata"]).get(DELTA_COUNTERS) or {}
    ) - channels_with_value(latest.entry)
    kept, parent, rest = [latest], latest.entry["parent"], dict(known)
    while open_ and parent in rest:
        ancestor = rest.pop(parent)
        kept.append(ancestor)
        open_ -= channels_with_value(ancestor.entry)
        parent = ancestor.entry["parent"]
    return kept
