"""Removing checkpoints and threads, and copying threads whole."""

from __future__ import annotations

from holdfast.adapters.langgraph import history
from holdfast.adapters.langgraph.codec import Codec
from holdfast.adapters.langgraph.history import Found
from holdfast.adapters.langgraph.thread import Thread
from holdfast.errors import ConflictError, NotFoundError
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.catalog import Catalog
from holdfast.snapshots.founding import founding
from holdfast.snapshots.layout import deleted_key
from holdfast.snapshots.retention import RetentionPolicy
from holdfast.state.snapshot import Snapshot
from holdfast.stores.entries import Put

DELTA = "counters_since_delta_snapshot"
AT_ONCE = 100


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
        found = await history.walked(thread)
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
        await remove(thread, gone, rest)


async def remove(thread: Thread, gone: list[Found], rest: list[Found]) -> None:
    """Remove some checkpoints; where the current one is among them, go back to one that stays."""
    heads: dict[str, Snapshot | None] = {}
    names = {(each.ns, each.id) for each in gone}
    for ns in sorted({each.ns for each in gone}):
        current = await history.current(thread, ns)
        if current is not None and (ns, current.id) in names:
            # Where a subgraph has none left, its entries go.
            heads[ns] = next((each.state for each in rest if each.ns == ns), None)
    await thread.delete(sorted(names), heads)


async def keep_latest(thread: Thread, codec: Codec) -> None:
    """Keep of each graph and subgraph its latest checkpoint, and what that needs."""
    async with thread.lock:
        found = await history.walked(thread)
        if not found:
            return
        kept: list[Found] = []
        for ns in sorted({each.ns for each in found}):
            mine = [each for each in found if each.ns == ns]
            kept += needed(codec, mine)
        names = {(each.ns, each.id) for each in kept}
        gone = [each for each in found if (each.ns, each.id) not in names]
        if gone:
            await remove(thread, gone, kept)
        archive = SnapshotArchive(thread.state_store)
        await archive.prune(
            location=thread.location, policy=RetentionPolicy(last=max(1, len(kept)))
        )
        thread.forget()


def needed(codec: Codec, newest_first: list[Found]) -> list[Found]:
    """The latest checkpoint, and the ancestors that its delta channels are made of."""
    latest = newest_first[0]
    known = {each.id: each for each in newest_first}
    open_ = set(codec.decoded(latest.meta["metadata"]).get(DELTA) or {}) - has(latest)
    kept, parent = [latest], latest.meta["parent"]
    while open_ and parent in known:
        ancestor = known.pop(parent)
        kept.append(ancestor)
        open_ -= has(ancestor)
        parent = ancestor.meta["parent"]
    return kept


def has(found: Found) -> set[str]:
    """The channels that a checkpoint has values of."""
    return {*found.meta["values"], *found.meta["lists"]}


async def copy_thread(source: Thread, target: Thread) -> None:
    """Make a new thread with all that another has: its log, keyframes and snapshots as they are."""
    store = source.state_store
    archive = SnapshotArchive(store)
    async with source.lock:
        known = await archive.settle(source.location)
        if known.started_at is None:
            raise NotFoundError(f"there is no thread {source.location.session_id} to copy")
        if await Catalog(store).locations(target.location.session_id):
            raise ConflictError(
                f"there is a thread {target.location.session_id} already: copy to another id, or "
                "delete that one first"
            )
        # Marked as one to be deleted until it is whole: what a crash leaves is cleared away.
        mark = deleted_key(target.location.session_id)
        await store.put(mark, b"{}")
        begin, end = source.location.place, target.location.place
        keys = [key async for key in store.list(begin) if key != source.location.manifest]
        for at in range(0, len(keys), AT_ONCE):
            entries = await store.get_many(keys[at : at + AT_ONCE])
            puts = [Put(end + key[len(begin) :], entry.value) for key, entry in entries.items()]
            await store.put_many(puts)
        puts = founding(target.location, known.started_at, known.floor, known.extra)
        await store.put_many(puts)
        await store.delete(mark)
    target.forget()
