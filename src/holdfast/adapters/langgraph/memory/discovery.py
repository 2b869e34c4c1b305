"""Find the namespaces that hold items, without loading their sessions.

Candidates are found by listing keys. Whether one is empty is known from the last event of its log;
only if that is not an event of a memory store, or if items may have expired, the session is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from holdfast.adapters.langgraph.memory.layout import (
    EVENTS,
    HAS_EXPIRY,
    IS_EMPTY,
    Namespace,
    locate_namespace,
    parse_namespace,
)
from holdfast.log.segment import decode_segment
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.discovery import iterate_folders
from holdfast.snapshots.keys import (
    AGENT,
    SESSIONS,
    SnapshotLocation,
    agent_index_prefix,
    parse_index_key,
    parse_location,
    quote_id,
)
from holdfast.stores.base import StateStore
from holdfast.stores.portal import LANES

T = TypeVar("T")
R = TypeVar("R")

MAX_CONCURRENT = 16
"""How many sessions are read or written at the same time."""


async def find_namespaces(
    state_store: StateStore, agent_id: str, prefix: Namespace
) -> list[Namespace]:
    """Return the namespaces with a prefix that have or had items, sorted."""
    if not prefix:
        index = agent_index_prefix(agent_id)
        entries = [parse_index_key(key) async for key in state_store.list(index)]
        locations = [entry[0] for entry in entries if entry is not None]
    else:
        start = f"{SESSIONS}{quote_id('.'.join(prefix))}"
        locations = []
        for keys in (f"{start}/", f"{start}."):
            async for folder in iterate_folders(state_store, keys, 5):
                location = parse_location(folder)
                if location is not None:
                    locations.append(location)
    found = {
        namespace
        for location in locations
        if location.scope == AGENT and location.scope_id == agent_id
        if (namespace := parse_namespace(location.session_id)) is not None
    }
    return sorted(found)


async def read_flags(
    state_store: StateStore, namespace: Namespace, agent_id: str
) -> tuple[bool, bool] | None:
    """Return whether a namespace has items, and whether some have a TTL, from its last event.

    Return None if the last event does not tell.

    Raises:
        IntegrityError: Stored data is damaged.

    """
    work = read_last_flags(state_store, locate_namespace(namespace, agent_id))
    if state_store.runs_inline:
        return await LANES.call_from_loop(object(), work)  # a lane of its own
    return await work


async def read_last_flags(
    state_store: StateStore, location: SnapshotLocation
) -> tuple[bool, bool] | None:
    """Do `read_flags` in a thread or an event loop."""
    timeline = await SnapshotArchive(state_store).timeline(location=location)
    key, _ = await timeline.change_token()
    entry = await state_store.get(key) if key else None
    if entry is None:
        return None
    segment = decode_segment(key, entry.value)
    if segment.is_pruned:
        return None
    last = segment.events()[-1]
    if last.type not in EVENTS or not isinstance(last.data, dict):
        return None
    return not last.data.get(IS_EMPTY), bool(last.data.get(HAS_EXPIRY))


async def run_all(function: Callable[[T], Awaitable[R]], items: Sequence[T]) -> list[R]:
    """Call an async function for each item, several at a time, and return the results in order.

    All calls are done before the first error is raised.
    """
    results: list[R] = []
    errors: list[BaseException] = []
    for start in range(0, len(items), MAX_CONCURRENT):
        calls = [function(item) for item in items[start : start + MAX_CONCURRENT]]
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(outcome, BaseException):
                errors.append(outcome)
            else:
                results.append(outcome)
    if errors:
        raise errors[0]
    return results
