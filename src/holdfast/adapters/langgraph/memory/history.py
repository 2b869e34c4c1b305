"""The history of memories: versions of an item, items at an earlier time, and restoring them."""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from langgraph.store.base import Item

from holdfast.adapters.langgraph.memory.changes import (
    build_changes,
    list_entries,
    list_expired,
    record_changes,
)
from holdfast.adapters.langgraph.memory.layout import (
    EXPIRY,
    RESTORED_EVENT,
    SPACES,
    VECTORS,
    Expiry,
    Namespace,
    get_item,
    locate_namespace,
    parse_namespace,
    read_clock,
    read_expiry,
)
from holdfast.adapters.langgraph.rollback import parse_time
from holdfast.adapters.shared_session import SessionPool
from holdfast.errors import NotFoundError
from holdfast.log.event import Event
from holdfast.sessions.event_view import load_event
from holdfast.sessions.session import Session
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.event_state import load_state_at_event
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.snapshots.session_state import STATE
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store

At = int | dt.datetime | str
"""The number of an event, or a time as a datetime or its ISO 8601 text."""


@dataclass(frozen=True, slots=True)
class MemoryVersion:
    """The value that an item got at some time."""

    seq: int
    """The number of the event that set it."""
    at: dt.datetime
    type: str
    """The type of the event: ``memory.put``, ``memory.deleted``, ``state.restored`` and others."""
    value: dict[str, Any] | None
    """The value; None if the item was deleted."""


class MemoryHistory:
    """The past of one namespace."""

    def __init__(self, pool: SessionPool, namespace: Namespace, agent_id: str) -> None:
        self.pool = pool
        self.namespace = namespace
        self.location: SnapshotLocation = locate_namespace(namespace, agent_id)
        self.archive = SnapshotArchive(pool.state_store)

    async def list_versions(self, key: str) -> list[MemoryVersion]:
        """Return the versions of an item whose events are in the log, the oldest first."""
        timeline = await self.archive.timeline(location=self.location)
        return [
            MemoryVersion(event.seq, event.at, event.type, value)
            async for event in self._read_events()
            if touches_item(event, key)
            for value in find_values(await load_event(event, timeline.contents), key)
        ]

    async def find_seq(self, at: At) -> int:
        """Return the number of an event, or that of the last event until a time; 0 for none.

        Raises:
            NotFoundError: Events at that time were pruned.
            TypeError: ``at`` is neither a number nor a time.
            ValueError: The time is invalid.

        """
        if isinstance(at, int) and not isinstance(at, bool):
            return at
        time = parse_time(at, "at")
        found = 0
        async for event in self._read_events():
            if event.at <= time:
                found = event.seq
        log_start = await self._log_start()
        if not found and log_start:
            raise NotFoundError(
                f"the events of {self.location.session_id} until {time.isoformat()} were pruned; "
                f"its log starts after event {log_start}"
            )
        return found

    async def load_state(self, at: At) -> tuple[int, Snapshot]:
        """Return the number of the last event until then, and the state after it.

        Items that had expired at a time are not part of its state.

        Raises:
            NotFoundError: There is no such event, or it was pruned.

        """
        seq = await self.find_seq(at)
        if isinstance(at, int):
            return seq, (await load_state_at_event(self.archive, self.location, seq)).snapshot
        rest = Store(max_history=0)
        if seq:
            past = (await load_state_at_event(self.archive, self.location, seq)).snapshot
            rest.restore(past)
            for key in list_expired(past, parse_time(at, "at")):
                for pair in list_entries(past, key):
                    rest.delete(*pair)
        return seq, rest.snapshot()

    async def get(self, key: str, at: At) -> Item | None:
        """Return an item as it was; None if it did not exist."""
        _, state = await self.load_state(at)
        item = get_item(state, self.namespace, key, now=None)
        return None if item is None else item.to_item()

    async def restore_item(self, key: str, at: At) -> Item | None:
        """Set an item to what it was, or delete it if it did not exist; return it."""
        seq, past = await self.load_state(at)

        def record(session: Session) -> Item | None:
            return record_restored_item(session, past, key, seq)

        return await self.pool.update(self.location, record)

    async def restore_all(self, at: At) -> None:
        """Set the whole namespace to what it was."""
        seq, past = await self.load_state(at)
        await self.pool.update(self.location, lambda session: record_restored(session, past, seq))

    async def _log_start(self) -> int:
        return (await self.archive.load_manifest(location=self.location)).log_start.seq

    async def _read_events(self) -> AsyncIterator[Event]:
        first = await self._log_start() + 1
        timeline = await self.archive.timeline(location=self.location)
        async for event in timeline.events(first):
            yield event


def touches_item(event: Event, key: str) -> bool:
    """Return whether an event sets or deletes an item."""
    pairs = [*((space, name) for space, name, _ in event.changes["set"]), *event.changes["delete"]]
    return (STATE, key) in map(tuple, pairs)


def find_values(event: Event, key: str) -> list[dict[str, Any] | None]:
    """Return the value that an event gave to an item, in a list; an empty one for none."""
    for space, name, value in event.changes["set"]:
        if (space, name) == (STATE, key):
            return [value if isinstance(value, dict) else None]
    return [None] if (STATE, key) in map(tuple, event.changes["delete"]) else []


def record_restored_item(session: Session, past: Snapshot, key: str, seq: int) -> Item | None:
    """Record that an item becomes what it was. Its TTL starts again."""
    namespace = parse_namespace(session.session_id) or ()
    state, now = session.snapshot(), read_clock()
    item = get_item(past, namespace, key, now=None)
    data = {"key": key, "seq": seq}
    if item is None:
        pairs = list_entries(state, key)
        if pairs:
            record_changes(session, RESTORED_EVENT, data, {"set": [], "delete": pairs})
        return None
    changes = build_changes(
        state,
        key,
        item.value,
        get_item(state, namespace, key, now) or item,
        now,
        expiry=None if item.expiry is None else Expiry.after(now, item.expiry.ttl),
        vectors=past.get(VECTORS, key),
    )
    record_changes(session, RESTORED_EVENT, data, changes)
    restored = get_item(session.snapshot(), namespace, key, now)
    return None if restored is None else restored.to_item()


def record_restored(session: Session, past: Snapshot, seq: int) -> None:
    """Record that a namespace becomes what it was. TTLs that changed or have ended start again."""
    now = read_clock()
    changes = past.changes(session.snapshot())
    sets = [each for each in changes["set"] if each[0] in SPACES and each[0] != EXPIRY]
    deletes = [pair for pair in changes["delete"] if pair[0] in SPACES]
    for _, key, entry in past.items(EXPIRY):
        expiry = read_expiry(entry, key)
        if expiry is not None:
            sets.append((EXPIRY, key, Expiry.after(now, expiry.ttl).to_value()))
    if sets or deletes:
        record_changes(session, RESTORED_EVENT, {"seq": seq}, {"set": sets, "delete": deletes})
