"""Where the items of a memory namespace are stored in the state of its session.

state                      the value of each item, by its key
langgraph/memory/items     created_at, updated_at, and an id that gives the order of the items
langgraph/memory/expiry    when an item expires, and its TTL in minutes; only for items with a TTL
langgraph/memory/vectors   the embeddings of an item; only for items that are indexed

Times are ISO 8601 texts. The session id is the namespace joined with periods, which labels cannot
contain.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeGuard

from langgraph.store.base import InvalidNamespaceError, Item, SearchItem

from holdfast.errors import IntegrityError, short_repr
from holdfast.snapshots.keys import AGENT, MAX_ID_LENGTH, SnapshotLocation
from holdfast.snapshots.session_state import STATE
from holdfast.state.snapshot import Snapshot

Namespace = tuple[str, ...]

ITEMS = "langgraph/memory/items"
EXPIRY = "langgraph/memory/expiry"
VECTORS = "langgraph/memory/vectors"
SPACES = (STATE, ITEMS, EXPIRY, VECTORS)

PUT_EVENT = "memory.put"
DELETED_EVENT = "memory.deleted"
REFRESHED_EVENT = "memory.refreshed"
EXPIRED_EVENT = "memory.expired"
RESTORED_EVENT = "memory.restored"
EVENTS = frozenset((PUT_EVENT, DELETED_EVENT, REFRESHED_EVENT, EXPIRED_EVENT, RESTORED_EVENT))
IS_EMPTY, HAS_EXPIRY = "is_empty", "has_expiry"
"""Flags in the data of these events, if true: no item is left, and some items have a TTL."""

MAX_TTL = 60 * 24 * 365 * 100
"""A century, in minutes."""
REFRESH_MARGIN = 0.05
"""The part of its TTL by which a read keeps an item longer than needed."""
UNKNOWN_TIME = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
"""The times of a value that was not put by a memory store."""


# ------------------------------------------------------------------------- namespaces, sessions


def validate_labels(namespace: object) -> Namespace:
    """Return a namespace, which may be empty, as a tuple.

    Raises:
        InvalidNamespaceError: It is not a sequence of labels, or a label is invalid.

    """
    if not isinstance(namespace, tuple | list):
        raise InvalidNamespaceError(
            f'namespace must be a tuple of str such as ("users", "7"), got {short_repr(namespace)}'
        )
    for label in namespace:
        if not isinstance(label, str) or not label or "." in label or "\x00" in label:
            raise InvalidNamespaceError(
                f"invalid namespace label {short_repr(label)} in {short_repr(namespace)}; "
                "a label is a str that is not empty, without periods and NUL"
            )
    return tuple(namespace)


def locate_namespace(namespace: Namespace, agent_id: str) -> SnapshotLocation:
    """Return the location of the session of a namespace.

    Raises:
        InvalidNamespaceError: The namespace is invalid, empty or too long.

    """
    session_id = ".".join(validate_labels(namespace))
    if not session_id:
        raise InvalidNamespaceError("namespace is empty; it needs at least one label")
    if len(session_id) > MAX_ID_LENGTH:
        raise InvalidNamespaceError(
            f"namespace {short_repr(namespace)} has {len(session_id)} characters with the periods "
            f"between its labels; use at most {MAX_ID_LENGTH}"
        )
    try:
        return SnapshotLocation(session_id, AGENT, agent_id)
    except ValueError as error:
        raise InvalidNamespaceError(f"invalid namespace {short_repr(namespace)}: {error}") from None


def parse_namespace(session_id: str) -> Namespace | None:
    """Return the namespace of a session, or None if its id is not that of a namespace."""
    labels = tuple(session_id.split("."))
    return labels if all(labels) else None


# ---------------------------------------------------------------------------------------- items


@dataclass(frozen=True, slots=True)
class Expiry:
    """When an item expires, and for how many minutes a read or a write keeps it."""

    at: dt.datetime
    ttl: float

    @classmethod
    def after(cls, now: dt.datetime, ttl: float) -> Expiry:
        """Return the expiry of an item that is written now.

        Raises:
            ValueError: The TTL is not a number of minutes.

        """
        if not is_ttl(ttl):
            raise ValueError(
                f"ttl must be a number of minutes, at most {MAX_TTL}, got {short_repr(ttl)}; "
                "use None for no expiry"
            )
        return cls(now + dt.timedelta(minutes=ttl), float(ttl))

    def is_refresh_due(self, now: dt.datetime) -> bool:
        """Tell whether a read at this time keeps the item longer."""
        return now < self.at < now + dt.timedelta(minutes=self.ttl)

    def refresh(self, now: dt.datetime) -> Expiry:
        """Return the expiry after a read, a little later than needed: not every read writes."""
        return Expiry(now + dt.timedelta(minutes=self.ttl * (1 + REFRESH_MARGIN)), self.ttl)

    def to_value(self) -> dict[str, Any]:
        """Return the stored form."""
        return {"at": self.at.isoformat(), "ttl": self.ttl}


@dataclass(frozen=True, slots=True)
class StoredItem:
    """An item of a namespace."""

    namespace: Namespace
    key: str
    value: dict[str, Any]
    created_at: dt.datetime
    updated_at: dt.datetime
    order: str
    """An id; items are listed in the order of their ids."""
    expiry: Expiry | None

    def to_item(self) -> Item:
        """Return the item for LangGraph."""
        return Item(
            value=self.value,
            key=self.key,
            namespace=self.namespace,
            created_at=self.created_at,
            updated_at=self.updated_at,
        )

    def to_search_item(self, score: float | None = None) -> SearchItem:
        """Return the item as a search result for LangGraph."""
        return SearchItem(
            self.namespace, self.key, self.value, self.created_at, self.updated_at, score
        )


def get_item(
    state: Snapshot, namespace: Namespace, key: str, now: dt.datetime | None
) -> StoredItem | None:
    """Return an item, or None if there is none or it has expired; without ``now`` none expires.

    Raises:
        IntegrityError: The stored entry is damaged.

    """
    value = state.get(STATE, key)
    if not isinstance(value, dict):
        return None
    return build_item(
        namespace, key, value, state.get(ITEMS, key), read_expiry(state.get(EXPIRY, key), key), now
    )


def list_items(state: Snapshot, namespace: Namespace, now: dt.datetime) -> list[StoredItem]:
    """Return the items of a namespace that have not expired, in the order of their creation.

    Raises:
        IntegrityError: A stored entry is damaged.

    """
    entries = {key: entry for _, key, entry in state.items(ITEMS)}
    expiries = {key: read_expiry(entry, key) for _, key, entry in state.items(EXPIRY)}
    found = [
        item
        for _, key, value in state.items(STATE)
        if isinstance(value, dict)
        and (item := build_item(namespace, key, value, entries.get(key), expiries.get(key), now))
    ]
    found.sort(key=lambda item: item.order)
    return found


def build_item(
    namespace: Namespace,
    key: str,
    value: dict[str, Any],
    entry: object,
    expiry: Expiry | None,
    now: dt.datetime | None,
) -> StoredItem | None:
    """Return an item from what is stored, or None if it has expired."""
    if expiry is not None and now is not None and expiry.at <= now:
        return None
    if entry is None:
        return StoredItem(namespace, key, value, UNKNOWN_TIME, UNKNOWN_TIME, "", expiry)
    if isinstance(entry, dict):
        created_at, updated_at = map(parse_time, map(entry.get, ("created_at", "updated_at")))
        order = entry.get("id")
        if created_at and updated_at and isinstance(order, str):
            return StoredItem(namespace, key, value, created_at, updated_at, order, expiry)
    raise damaged_entry_error(ITEMS, key, entry)


def read_expiry(entry: object, key: str) -> Expiry | None:
    """Return the expiry in an entry, or None if there is no entry."""
    if entry is None:
        return None
    if isinstance(entry, dict):
        at, ttl = parse_time(entry.get("at")), entry.get("ttl")
        if at is not None and is_ttl(ttl):
            return Expiry(at, float(ttl))
    raise damaged_entry_error(EXPIRY, key, entry)


def is_ttl(value: object) -> TypeGuard[float]:
    """Tell whether a value is a TTL in minutes."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAX_TTL


def parse_time(text: object) -> dt.datetime | None:
    """Return the time in a text, or None if it is not a time with a time zone."""
    try:
        time = dt.datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return None if time is None or time.tzinfo is None else time


def damaged_entry_error(space: str, key: str, entry: object) -> IntegrityError:
    """Return the error for a stored entry that is not valid."""
    return IntegrityError(
        f"entry {key!r} in namespace {space!r} is damaged: {short_repr(entry)}; delete the item, "
        "or restore its session to an earlier event"
    )


@contextmanager
def name_session(namespace: Namespace) -> Iterator[None]:
    """Add to the error for a damaged entry in which session it is."""
    try:
        yield
    except IntegrityError as error:
        raise IntegrityError(f"session {'.'.join(namespace)}: {error}") from error


def read_clock() -> dt.datetime:
    """Return the current time."""
    return dt.datetime.now(dt.UTC)
