"""List records without loading histories.

Every save writes the record, so the last segment of a session's log has it. A session whose last
commit was made by another tool is loaded instead. Sessions are read in the order of last activity,
a page at a time, and not more than the limit needs.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from holdfast.adapters.last_commit import read_last_events
from holdfast.adapters.pydantic_ai.layout import DELETED_EVENT, RECORD
from holdfast.log.event import Event
from holdfast.snapshots.catalog.catalog import Catalog
from holdfast.snapshots.catalog.index import SessionEntry
from holdfast.snapshots.incarnation import ACTIVITY_RESOLUTION
from holdfast.snapshots.keys import AGENT, SnapshotLocation
from holdfast.snapshots.manifest import read_manifests
from holdfast.snapshots.session_state import STATE
from holdfast.stores.base import StateStore

PAGE_SIZE = 32
MAX_LAG = ACTIVITY_RESOLUTION + dt.timedelta(minutes=1)
"""How much later than its place in the index a session can have been saved."""

UNKNOWN = object()
"""The last commit of a session does not tell its record."""


async def list_pages(
    state_store: StateStore, agent_id: str
) -> AsyncGenerator[list[tuple[SessionEntry, Any]], None]:
    """Yield the sessions of an agent with their records as JSON data, last active first.

    The record is None if the session has none, and `UNKNOWN` if it has to be loaded. A session
    that becomes active during the listing is yielded at the end.
    """
    catalog = Catalog(state_store)
    seen: set[str] = set()
    token: str | None = None
    pages = 0
    while True:
        page = await catalog.sessions(agent_id, limit=PAGE_SIZE, next_token=token)
        pages += 1
        yield await read_new(state_store, page.sessions, seen)
        token = page.next_token
        if token is None:
            break
    if pages > 1:
        page = await catalog.sessions(agent_id, limit=PAGE_SIZE)
        yield await read_new(state_store, page.sessions, seen)


async def read_new(
    state_store: StateStore, entries: Sequence[SessionEntry], seen: set[str]
) -> list[tuple[SessionEntry, Any]]:
    """Return the sessions that were not seen yet, with their records."""
    new = [each for each in entries if each.scope == AGENT and each.session_id not in seen]
    seen.update(each.session_id for each in new)
    return list(zip(new, await read_records(state_store, [e.location for e in new]), strict=True))


async def read_records(state_store: StateStore, locations: Sequence[SnapshotLocation]) -> list[Any]:
    """Return the records of sessions by their last commits."""
    manifests = await read_manifests(state_store, locations)
    events = await read_last_events(state_store, manifests)
    return [find_record(events.get(location, ())) for location in locations]


def find_record(events: Sequence[Event]) -> Any:
    """Return the record that the events of a segment set last; `UNKNOWN` if there is none."""
    for event in reversed(events):
        if event.type == DELETED_EVENT or (STATE, RECORD) in event.changes["delete"]:
            return UNKNOWN
        for space, key, value in event.changes["set"]:
            if (space, key) == (STATE, RECORD):
                return value
    return UNKNOWN
