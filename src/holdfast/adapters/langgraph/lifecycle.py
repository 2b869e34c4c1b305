"""Delete, prune and copy threads and their checkpoints."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from holdfast.adapters.langgraph import history
from holdfast.adapters.langgraph.checkpoint import list_checkpoint_entries
from holdfast.adapters.langgraph.codec import Codec
from holdfast.adapters.langgraph.history import StoredCheckpoint
from holdfast.adapters.langgraph.layout import (
    DELETED,
    DELETED_EVENT,
    get_checkpoint_entry,
    snapshot_id_for,
)
from holdfast.adapters.langgraph.thread import Thread
from holdfast.adapters.langgraph.writes import DELTA_COUNTERS, channels_with_value
from holdfast.blobs.reader import BlobReader, StoredSource
from holdfast.blobs.writer import BlobWriter
from holdfast.errors import ConflictError, NotFoundError
from holdfast.log.timeline import Timeline
from holdfast.sessions.commit import Committer
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.catalog.catalog import Catalog
from holdfast.snapshots.incarnation import Incarnation, ReplacedError
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.snapshots.manifest import SnapshotManifest
from holdfast.snapshots.order import id_entries_prefix
from holdfast.snapshots.records import SnapshotInfo, decode_record
from holdfast.snapshots.retention import RetentionPolicy, age_order
from holdfast.state.diff import Changes
from holdfast.state.snapshot import Snapshot
from holdfast.stores.base import StateStore
from holdfast.stores.batch_read import iterate_entries, require_entry
from holdfast.stores.entries import Put


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
    await record_deletion(thread, sorted(names), heads)


async def record_deletion(
    thread: Thread, ids: Sequence[tuple[str, str]], heads: Mapping[str, Snapshot | None]
) -> None:
    """Delete checkpoints; ``heads`` are the states of those that become current instead."""

    async def record(committer: Committer) -> None:
        changes: Changes = {"set": [], "delete": []}
        changes["set"] += [(DELETED, f"{ns}|{id_}", True) for ns, id_ in ids]
        here = committer.working.store.snapshot()
        for ns, state in heads.items():
            current = get_checkpoint_entry(here, ns)
            if current is not None and (ns, current["id"]) not in ids:
                continue  # another writer has put a new one
            entries = [] if state is None else list_checkpoint_entries(state, ns)
            changes["set"] += entries
            removed = {each[:2] for each in list_checkpoint_entries(here, ns)} - {
                each[:2] for each in entries
            }
            changes["delete"] += sorted(removed)
        data = {"checkpoints": [id_ for _, id_ in ids]}
        committer.working.record_owned(DELETED_EVENT, data, changes)

    await thread.append(record)
    for _, id_ in ids:
        await thread.state_store.delete(thread.location.snapshot_key(snapshot_id_for(id_)))


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


# ---------------------------------------------------------------------------------------- copy


async def copy_thread(source: Thread, target: Thread) -> None:
    """Copy a thread, with its history, to a new one.

    The copy becomes visible when its manifest is written, so a crash leaves no partial copy. If
    another process creates the target at the same time, one of the two gets a ConflictError.

    Raises:
        NotFoundError: The source does not exist.
        ConflictError: The target exists, or was deleted while it was copied.

    """
    store = source.state_store
    async with source.lock:
        known = (await Incarnation.read(store, source.location)).manifest
        if known.started_at is None:
            raise NotFoundError(f"thread {source.location.session_id!r} not found")
        copy = await Incarnation.read(store, target.location)
        if copy.is_created:
            raise thread_exists_error(target)
        # Before the log that they point into: a snapshot without its events must not be copied.
        snapshots = await copy_records(store, source.location, known.incarnation, copy)
        here = Timeline(store, source.location.prefix, known.incarnation)
        there = copy.timeline()
        puts = await copy_entries(store, here.prefix, there.prefix)
        puts += await copy_entries(store, here.log.prefix, there.log.prefix)
        active_at = (known.active_at or known.started_at) - dt.timedelta(microseconds=1)
        try:
            await copy_blobs(source, known, copy, active_at)
            await copy.create(
                puts,
                snapshots,
                started_at=known.started_at,
                active_at=active_at,
                log_start=known.log_start,
            )
        except PrunedError:
            raise
        except ReplacedError as error:
            raise ConflictError(
                f"thread {target.location.session_id!r} was deleted while it was copied; retry"
            ) from error
        except ConflictError as error:
            raise thread_exists_error(target) from error
    target.reset()


async def copy_blobs(
    source: Thread, known: SnapshotManifest, copy: Incarnation, active_at: dt.datetime
) -> None:
    """Copy the large values of a thread, after its log was read.

    Raises:
        ConflictError: The thread was pruned since its manifest was read, which may delete blobs
            that the log refers to, or the target was created.

    """
    reader = BlobReader(source.state_store, source.location.prefix)
    digests = [digest async for digest in reader.list()]
    if not digests or known.started_at is None:
        return
    # A deletion spares the blobs of a session that is being created.
    await copy.claim(started_at=known.started_at, active_at=active_at)
    writer = BlobWriter(source.state_store, copy.location.prefix)
    with suppress(NotFoundError):  # pruned, see below
        await writer.write(StoredSource(reader, digest) for digest in digests)
    now = (await Incarnation.read(source.state_store, source.location)).manifest
    if (now.incarnation, now.blob_sweeps) != (known.incarnation, known.blob_sweeps):
        raise PrunedError(
            f"thread {source.location.session_id!r} was pruned while it was copied; retry"
        )


class PrunedError(ConflictError):
    """The source of a copy was pruned or deleted while it was copied."""


async def copy_entries(store: StateStore, begin: str, end: str) -> list[Put]:
    """Return the entries below one prefix as entries below another."""
    keys = [key async for key in store.list(begin)]
    puts: list[Put] = []
    async for key, entry in iterate_entries(store, keys):
        puts.append(Put(end + key[len(begin) :], require_entry(entry).value, if_absent=True))
    return puts


async def copy_records(
    store: StateStore, source: SnapshotLocation, incarnation: str, copy: Incarnation
) -> list[Put]:
    """Return the snapshot records of a thread and their index, as those of the copy."""
    target = copy.location
    puts = await copy_entries(store, id_entries_prefix(source), id_entries_prefix(target))
    keys = [key async for key in store.list(source.history_prefix)]
    keys.append(source.latest_key)
    async for key, entry in iterate_entries(store, keys):
        info = decode_record(key, require_entry(entry).value, source)
        if info.incarnation == incarnation:
            info = replace(
                info,
                agent_id=target.scope_id,
                session_id=target.session_id,
                incarnation=copy.id,
            )
            puts.append(Put(target.prefix + key[len(source.prefix) :], info.encode(target)))
    return puts


def thread_exists_error(thread: Thread) -> ConflictError:
    """Return the error for a copy onto a thread that exists."""
    return ConflictError(
        f"thread {thread.location.session_id!r} exists; copy to another id, or delete it first"
    )
