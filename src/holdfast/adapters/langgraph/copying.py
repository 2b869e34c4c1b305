"""Copying a thread whole: its log, keyframes and snapshots as they are, under another id.

Until the copy is complete, its session is marked as one to be deleted, so that what a crash leaves
is cleared away by the next process that opens it. A process that opens the target in between clears
it as well. The copy notices, because the mark is not the one that it wrote, and starts again.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

from holdfast.adapters.langgraph.thread import Thread
from holdfast.errors import ConflictError, NotFoundError
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.catalog import Catalog
from holdfast.snapshots.founding import founding
from holdfast.snapshots.layout import SnapshotLocation, deleted_key
from holdfast.snapshots.manifest import SnapshotManifest
from holdfast.stores.contract import StateStore
from holdfast.stores.entries import Put

AT_ONCE = 100
ATTEMPTS = 8


async def copy_thread(source: Thread, target: Thread) -> None:
    """Make a new thread with all that another has.

    Raises:
        NotFoundError: There is no such thread to copy.
        ConflictError: The target exists, or was opened by others in every attempt.

    """
    store, location = source.state_store, target.location
    archive = SnapshotArchive(store)
    async with source.lock:
        known = await archive.settle(source.location)
        if known.started_at is None:
            raise NotFoundError(f"there is no thread {source.location.session_id!r} to copy")
        for _ in range(ATTEMPTS):
            # Clears what an interrupted copy or deletion has left there.
            await archive.settle(location)
            if await Catalog(store).locations(location.session_id):
                raise ConflictError(
                    f"thread {location.session_id!r} exists already; copy to another id, or delete "
                    "it first"
                )
            if await is_copied(store, source.location, location, known):
                target.forget()
                return
    raise ConflictError(
        f"thread {location.session_id!r} was opened by another process in each of {ATTEMPTS} "
        "attempts to copy to it; nothing was copied, retry when it is not in use"
    )


async def is_copied(
    store: StateStore,
    source: SnapshotLocation,
    target: SnapshotLocation,
    known: SnapshotManifest,
) -> bool:
    """Copy all entries of a thread; False where the target was opened before it was complete."""
    mark, written = deleted_key(target.session_id), list[Put]()
    try:
        held = await store.put(mark, b"{}", if_absent=True)
    except ConflictError:
        return False  # Another process copies to it, or deletes it.
    try:
        async for puts in entries_of(store, source, target, known):
            written += puts
            # With the mark, so that nothing is written once another process has cleared it.
            held, *_ = await store.put_many([Put(mark, b"{}", if_match=held), *puts])
        if await store.delete(mark, if_match=held):
            return True
    except ConflictError:
        # Another session began there. The mark would delete that one, so it goes first.
        with suppress(ConflictError):
            await store.delete(mark, if_match=held)
    await remove(store, written)
    return False


async def entries_of(
    store: StateStore, source: SnapshotLocation, target: SnapshotLocation, known: SnapshotManifest
) -> AsyncIterator[list[Put]]:
    """Yield what the target is to have, a batch at a time, its manifest last."""
    begin, end = source.place, target.place
    snapshots = f"{begin}snapshots/"
    # Listed before the log that they point into: those that come later are not copied.
    records = [key async for key in store.list(snapshots) if key != source.manifest]
    rest = [key async for key in store.list(begin) if not key.startswith(snapshots)]
    keys = rest + records
    for at in range(0, len(keys), AT_ONCE):
        entries = await store.get_many(keys[at : at + AT_ONCE])
        yield [
            Put(end + key[len(begin) :], entry.value, if_absent=True)
            for key, entry in entries.items()
        ]
    started = known.started_at or dt.datetime.now(dt.UTC)
    yield [
        Put(each.key, each.value, if_absent=True)
        for each in founding(target, started, known.floor, known.extra)
    ]


async def remove(store: StateStore, written: Sequence[Put]) -> None:
    """Delete what an attempt has written, and nothing that others wrote under the same keys."""
    for at in range(0, len(written), AT_ONCE):
        puts = written[at : at + AT_ONCE]
        found = await store.get_many([each.key for each in puts])
        for each in puts:
            entry = found.get(each.key)
            if entry is not None and entry.value == each.value:
                with suppress(ConflictError):
                    await store.delete(each.key, if_match=entry.etag)
