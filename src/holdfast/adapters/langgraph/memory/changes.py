"""Record puts, deletions, refreshed TTLs and expired items as events of a namespace's session."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from langgraph.store.base import PutOp

from holdfast.adapters.langgraph.memory.layout import (
    DELETED_EVENT,
    EXPIRED_EVENT,
    EXPIRY,
    HAS_EXPIRY,
    IS_EMPTY,
    ITEMS,
    PUT_EVENT,
    REFRESHED_EVENT,
    SPACES,
    VECTORS,
    Expiry,
    StoredItem,
    get_item,
    read_clock,
    read_expiry,
)
from holdfast.ids import new_id
from holdfast.sessions.session import Session
from holdfast.snapshots.session_state import STATE
from holdfast.state.diff import Changes
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store


@dataclass(slots=True)
class Put:
    """A put or a deletion, and the stored form of its vectors."""

    op: PutOp
    vectors: list[Any] | None = None


@dataclass(slots=True)
class NamespaceChanges:
    """What a batch changes in one namespace, in one commit."""

    puts: dict[str, Put] = field(default_factory=dict)
    """By key."""
    refreshed: set[str] = field(default_factory=set)
    """Keys of items that were read."""

    @property
    def must_refresh(self) -> bool:
        """Whether the changes depend on the newest state: what is absent may be there by now."""
        return bool(self.refreshed) or any(put.op.value is None for put in self.puts.values())

    def record(self, session: Session) -> None:
        """Record the changes."""
        now = read_clock()
        refresh_items(session, self.refreshed - self.puts.keys(), now)
        for put in self.puts.values():
            if put.op.value is None:
                delete_item(session, put.op.key)
            else:
                put_item(session, put, put.op.value, now)


def put_item(session: Session, put: Put, value: Mapping[str, Any], now: dt.datetime) -> None:
    """Record the put of an item. One that exists keeps its place and ``created_at``."""
    key, state = put.op.key, session.snapshot()
    previous = get_item(state, put.op.namespace, key, now)
    expiry = None if put.op.ttl is None else Expiry.after(now, put.op.ttl)
    changes = build_changes(
        state, key, dict(value), previous, now, expiry=expiry, vectors=put.vectors
    )
    record_changes(session, PUT_EVENT, {"key": key}, changes)


def build_changes(
    state: Snapshot,
    key: str,
    value: dict[str, Any],
    previous: StoredItem | None,
    now: dt.datetime,
    *,
    expiry: Expiry | None,
    vectors: list[Any] | None,
) -> Changes:
    """Return the changes that set an item; what it had before and has not now is deleted."""
    entry = {
        "created_at": (now if previous is None else previous.created_at).isoformat(),
        "updated_at": now.isoformat(),
        "id": previous.order if previous and previous.order else new_id(),
    }
    optional = {EXPIRY: None if expiry is None else expiry.to_value(), VECTORS: vectors}
    sets: list[tuple[str, str, Any]] = [(STATE, key, value), (ITEMS, key, entry)]
    sets += [(space, key, each) for space, each in optional.items() if each is not None]
    deletes = [
        (space, key)
        for space, each in optional.items()
        if each is None and state.contains(space, key)
    ]
    return {"set": sets, "delete": deletes}


def delete_item(session: Session, key: str) -> None:
    """Record the deletion of an item, if it exists."""
    pairs = list_entries(session.snapshot(), key)
    if pairs:
        record_changes(session, DELETED_EVENT, {"key": key}, {"set": [], "delete": pairs})


def list_entries(state: Snapshot, key: str) -> list[tuple[str, str]]:
    """Return the entries of an item."""
    return [(space, key) for space in SPACES if state.contains(space, key)]


def refresh_items(session: Session, keys: Collection[str], now: dt.datetime) -> None:
    """Record that items with a TTL were read, unless they are kept long enough already."""
    state = session.snapshot()
    sets: list[tuple[str, str, Any]] = []
    for key in sorted(keys):
        expiry = read_expiry(state.get(EXPIRY, key), key)
        if expiry is not None and expiry.is_refresh_due(now):
            sets.append((EXPIRY, key, expiry.refresh(now).to_value()))
    if sets:
        record_changes(session, REFRESHED_EVENT, {}, {"set": sets, "delete": []})


def delete_expired_items(session: Session) -> int:
    """Record the removal of all items that have expired; return their number."""
    state = session.snapshot()
    keys = list_expired(state, read_clock())
    if keys:
        pairs = [pair for key in keys for pair in list_entries(state, key)]
        record_changes(session, EXPIRED_EVENT, {"keys": keys}, {"set": [], "delete": pairs})
    return len(keys)


def list_expired(state: Snapshot, now: dt.datetime) -> list[str]:
    """Return the keys of the items that have expired."""
    expiries = ((key, read_expiry(entry, key)) for _, key, entry in state.items(EXPIRY))
    return [key for key, expiry in expiries if expiry is not None and expiry.at <= now]


def record_changes(session: Session, type_: str, data: dict[str, Any], changes: Changes) -> None:
    """Record an event whose data tell whether items are left, and whether some have a TTL."""
    rest = Store(max_history=0)
    rest.restore(session.snapshot())
    for pair in changes["delete"]:
        rest.delete(*pair)
    spaces = {*rest.namespaces(), *(each[0] for each in changes["set"])}
    flags = {IS_EMPTY: STATE not in spaces, HAS_EXPIRY: EXPIRY in spaces}
    set_flags = {name: True for name, flag in flags.items() if flag}
    session.record(type_, {**data, **set_flags}, changes=changes)
