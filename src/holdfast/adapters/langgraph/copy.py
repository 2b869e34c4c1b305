"""Copy a thread: its log, keyframes and snapshots, under another id.

The copy becomes visible when its manifest is written, so a crash leaves no partial copy. If another
process creates the target thread at the same time, one of the two gets a ConflictError.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

from holdfast.adapters.langgraph.thread import Thread
from holdfast.errors import ConflictError, NotFoundError
from holdfast.log.timeline import Timeline
from holdfast.snapshots.incarnation import Incarnation, ReplacedError
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.snapshots.order import id_entries_prefix
from holdfast.snapshots.records import decode_record
from holdfast.stores.base import StateStore
from holdfast.stores.batch_read import iterate_entries, require_entry
from holdfast.stores.entries import Put


async def copy_thread(source: Thread, target: Thread) -> None:
    """Copy a thread, with its history, to a new one.

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
            await copy.create(
                puts,
                snapshots,
                started_at=known.started_at,
                active_at=active_at,
                log_start=known.log_start,
            )
        except ReplacedError as error:
            raise ConflictError(
                f"thread {target.location.session_id!r} was deleted while it was copied; retry"
            ) from error
        except ConflictError as error:
            raise thread_exists_error(target) from error
    target.reset()


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
