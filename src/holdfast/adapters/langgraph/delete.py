"""Removing checkpoints and threads."""

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
    """Remove a thread for good."""
    async with thread.lock:
        others = [
            each
            for each in await Catalog(thread.state_store).locations(thread.location.session_id)
            if each != thread.location
        ]
        if others:
            raise ConflictError(
                f"the session {thread.location.session_id} has other agents than "
                f"{thread.location.scope_id} in it ({', '.join(each.scope_id for each in others)}):"
                " delete it with holdfast state delete, if all of it may go"
            )
        await thread.delete_all()


async def delete_runs(thread: Thread, run_ids: set[str], codec: Codec) -> None:
    """Remove the checkpoints of runs from a thread."""
    async with thread.lock:
        found = await history.scan_checkpoints(thread)
        gone = [
            each for each in found if codec.decoded(each.meta["metadata"]).get("run_id") in run_ids
        ]
        if not gone:
            return
        if len(gone) == len(found):
            await thread.delete_all()
            return
        ids = {(each.ns, each.id) for each in gone}
        rest = [each for each in found if (each.ns, each.id) not in ids]
        await remove_checkpoints(thread, gone, rest)


async def remove_checkpoints(
    thread: Thread, gone: list[StoredCheckpoint], rest: list[StoredCheckpoint]
) -> None:
    """Remove some checkpoints; where the current one is among them, go back to one that stays."""
    heads: dict[str, Snapshot | None] = {}
    names = {(each.ns, each.id) for each in gone}
    for ns in sorted({each.ns for each in gone}):
        current = await history.find_current(thread, ns)
        if current is not None and (ns, current.id) in names:
            # Where a subgraph has none left, its entries go.
            heads[ns] = next((each.state for each in rest if each.ns == ns), None)
    await thread.delete(sorted(names), heads)


async def keep_latest_checkpoints(thread: Thread, codec: Codec) -> None:
    """Keep of each graph and subgraph the checkpoint it stands at, and what that needs."""
    async with thread.lock:
        while (split := await split_checkpoints(thread, codec)) is None:
            pass  # Another saver has gone on in between.
        gone, kept = split
        if not gone:
            return
        await prune_log(thread, gone, min(kept, key=lambda each: each.since))
        await remove_checkpoints(thread, gone, kept)


async def split_checkpoints(
    thread: Thread, codec: Codec
) -> tuple[list[StoredCheckpoint], list[StoredCheckpoint]] | None:
    """Which checkpoints are to go, and which stay; None where one came while this looked."""
    found = await history.scan_checkpoints(thread)
    kept: list[StoredCheckpoint] = []
    for ns in sorted({each.ns for each in found}):
        mine = {each.id: each for each in found if each.ns == ns}
        current = await history.find_current(thread, ns)
        if current is not None and current.id not in mine:
            return None
        # Where it stands, and not the newest: it may have been taken back to an older one.
        latest = next(iter(mine.values())) if current is None else mine[current.id]
        kept += required_checkpoints(codec, latest, mine)
    names = {(each.ns, each.id) for each in kept}
    return [each for each in found if (each.ns, each.id) not in names], kept


async def prune_log(thread: Thread, gone: list[StoredCheckpoint], oldest: StoredCheckpoint) -> None:
    """Prune the log up to the oldest checkpoint that is kept."""
    archive = SnapshotArchive(thread.state_store)
    info = await archive.load_info(location=thread.location, snapshot_id=snapshot_id_for(oldest.id))
    if info is None or info.seq != oldest.since:
        return  # One that was imported or forked is a part of a larger event, which stays.
    unwanted = frozenset(snapshot_id_for(each.id) for each in gone)
    await archive.prune(
        location=thread.location, policy=PruneBefore(last=1, seq=info.seq, unwanted=unwanted)
    )
    thread.forget()


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneBefore(RetentionPolicy):
    """Removes unwanted snapshots before an event, and nothing that somebody else saved."""

    seq: int
    unwanted: frozenset[str]

    def kept(self, snapshots: Iterable[SnapshotInfo], now: dt.datetime) -> list[SnapshotInfo]:  # noqa: ARG002
        """Those of the snapshots that are kept, oldest first."""
        found = sorted(snapshots, key=age_order)
        return [
            each for each in found if each.seq >= self.seq or each.snapshot_id not in self.unwanted
        ]


def required_checkpoints(
    codec: Codec, latest: StoredCheckpoint, known: dict[str, StoredCheckpoint]
) -> list[StoredCheckpoint]:
    """A checkpoint, and the ancestors that its delta channels are made of."""
    open_ = set(
        codec.decoded(latest.meta["metadata"]).get(DELTA_COUNTERS) or {}
    ) - channels_with_value(latest.meta)
    kept, parent, rest = [latest], latest.meta["parent"], dict(known)
    while open_ and parent in rest:
        ancestor = rest.pop(parent)
        kept.append(ancestor)
        open_ -= channels_with_value(ancestor.meta)
        parent = ancestor.meta["parent"]
    return kept
