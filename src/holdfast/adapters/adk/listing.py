"""List the sessions of an app or a user without loading them.

The index of the app gives the ids. The time of a session is read from the last segment of its log,
whatever the length of its conversation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.adapters.adk.events import event_timestamp
from holdfast.adapters.adk.layout import ADK, CREATION, parse_session_id
from holdfast.adapters.last_commit import read_last_events
from holdfast.log.event import Event
from holdfast.snapshots.keys import SnapshotLocation, agent_index_prefix, parse_index_key
from holdfast.snapshots.manifest import SnapshotManifest, read_manifests
from holdfast.snapshots.session_state import MESSAGES
from holdfast.stores.base import StateStore
from holdfast.stores.batch_read import split_batches

CONCURRENCY = 16


class ListedSession(NamedTuple):
    """A session in a list. Sorted, the last active session is the last."""

    last_update_time: float
    user_id: str
    session_id: str
    location: SnapshotLocation


async def list_app_sessions(
    state_store: StateStore, app_name: str, user_id: str | None
) -> list[ListedSession]:
    """Return the sessions of an app, or those of one user, the last active last.

    Raises:
        StateStoreError: The store failed.

    """
    wanted: dict[SnapshotLocation, tuple[str, str]] = {}
    async for key in state_store.list(agent_index_prefix(app_name)):
        parsed = parse_index_key(key)
        ids = None if parsed is None else parse_session_id(parsed[0])
        if parsed is not None and ids is not None and user_id in (None, ids[0]):
            wanted[parsed[0]] = ids
    manifests = await read_manifests(state_store, wanted)
    found: list[ListedSession] = []
    for batch in split_batches(list(manifests), CONCURRENCY):
        times = await read_update_times(state_store, {each: manifests[each] for each in batch})
        found += [ListedSession(times[each], *wanted[each], each) for each in batch]
    return sorted(found, key=lambda each: each[:3])


async def read_update_times(
    state_store: StateStore, manifests: dict[SnapshotLocation, SnapshotManifest]
) -> dict[SnapshotLocation, float]:
    """Return when the last event of each session happened."""
    events = await read_last_events(state_store, manifests)
    return {each: find_update_time(events[each], manifests[each]) for each in manifests}


def find_update_time(events: Sequence[Event], manifest: SnapshotManifest) -> float:
    """Return the time of the last event of a commit, or when the session was last active."""
    time = find_event_time(events)
    if time is not None:
        return time
    if events:
        return events[-1].at.timestamp()
    active_at = manifest.active_at or manifest.started_at
    return active_at.timestamp() if active_at is not None else 0.0


def find_event_time(events: Sequence[Event]) -> float | None:
    """Return the time that ADK gave to the last of some events, or None."""
    for event in reversed(events):
        for space, name, value in reversed(event.changes["set"]):
            if space == MESSAGES:
                return event_timestamp(value)
            if (space, name) == (ADK, CREATION) and isinstance(value, dict):
                created = value.get("create_time")
                return float(created) if isinstance(created, int | float) else None
    return None
