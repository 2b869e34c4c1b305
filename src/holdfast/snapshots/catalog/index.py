"""The index of agents and their sessions, newest first.

A query costs what it returns, not what the store holds: agents are found by skipping from one to
the next, and an agent's index keys are in the order of last activity, to within
`ACTIVITY_RESOLUTION`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from holdfast.errors import short_repr
from holdfast.log.event import Event
from holdfast.snapshots.discovery import iterate_folders
from holdfast.snapshots.incarnation import PASSIVE_EVENT_TYPES
from holdfast.snapshots.keys import (
    SESSIONS,
    SnapshotLocation,
    agent_index_prefix,
    index_key,
    parse_index_key,
    quote_id,
    unquote_id,
    validate_id,
    validate_limit,
)
from holdfast.snapshots.manifest import read_manifests
from holdfast.stores.base import StateStore

AGENTS = "agents/"


@dataclass(frozen=True, slots=True)
class SessionEntry:
    """A session in its agent's index."""

    agent_id: str
    session_id: str
    scope: str
    started_at: dt.datetime
    active_at: dt.datetime
    """When it was last active, to within a few seconds. The index is in this order."""

    @property
    def location(self) -> SnapshotLocation:
        """The location of the session."""
        return SnapshotLocation(self.session_id, self.scope, self.agent_id)

    @property
    def key(self) -> str:
        """The key of the entry."""
        return index_key(self.location, self.active_at)


@dataclass(frozen=True, slots=True)
class SessionPage:
    """A page of an agent's sessions, newest first."""

    sessions: list[SessionEntry] = field(default_factory=list)
    next_token: str | None = None
    """The token to pass for the next page; None on the last."""


class SessionIndex:
    """The agents and sessions of a ``StateStore``."""

    def __init__(self, state_store: StateStore) -> None:
        self.state_store = state_store

    async def agents(self, *, limit: int | None = None, start_after: str = "") -> list[str]:
        """Return the ids of the agents that have sessions, in the order of their keys.

        Raises:
            ValueError: The limit is invalid.

        """
        return await self._list_names(AGENTS, limit, start_after)

    async def session_ids(self, *, limit: int | None = None, start_after: str = "") -> list[str]:
        """Return the ids of the sessions of all agents, in the order of their keys.

        Raises:
            ValueError: The limit is invalid.

        """
        return await self._list_names(SESSIONS, limit, start_after)

    async def sessions(
        self, agent_id: str, *, limit: int | None = None, next_token: str | None = None
    ) -> SessionPage:
        """Return a page of an agent's sessions, the last active first.

        Raises:
            ValueError: The id, the limit or the token is invalid.

        """
        prefix = agent_index_prefix(validate_id(agent_id, "agent_id"))
        if next_token is not None and not next_token.isascii():
            raise ValueError(f"invalid next_token {short_repr(next_token)}; use that of a page")
        start = f"{prefix}{next_token}" if next_token else ""
        most = None if limit is None else validate_limit(limit) + 1
        found: list[SessionEntry] = []
        while True:
            listing = self.state_store.list(prefix, start_after=start, limit=most)
            keys = [key async for key in listing]
            for entry in await self._read_index_entries(keys):
                if len(found) == limit:
                    return SessionPage(found, found[-1].key[len(prefix) :])
                found.append(entry)
            if most is None or len(keys) < most:
                return SessionPage(found)
            start = keys[-1]

    async def _read_index_entries(self, keys: Sequence[str]) -> list[SessionEntry]:
        """Return the sessions of index keys.

        A crash can leave a stale key: only the one that the manifest names counts.
        """
        parsed = [entry for key in keys if (entry := parse_index_key(key)) is not None]
        manifests = await read_manifests(self.state_store, {location for location, _ in parsed})
        found = []
        for location, active_at in parsed:
            manifest = manifests.get(location)
            if (
                manifest is not None
                and manifest.started_at is not None
                and manifest.active_at == active_at
            ):
                found.append(
                    SessionEntry(
                        location.scope_id,
                        location.session_id,
                        location.scope,
                        manifest.started_at,
                        active_at,
                    )
                )
        return found

    async def _list_names(self, prefix: str, limit: int | None, start_after: str) -> list[str]:
        """Return the names after a prefix, skipping all keys below each."""
        found: list[str] = []
        if limit is not None:
            validate_limit(limit)
        # 0 follows / in ASCII: all keys below a name are before it.
        start = f"{prefix}{quote_id(start_after)}0" if start_after else ""
        async for folder in iterate_folders(self.state_store, prefix, 2, start_after=start):
            found.append(unquote_id(folder[len(prefix) : -1]))
            if len(found) == limit:
                break
        return found


def find_last_activity(entry: SessionEntry, events: Sequence[Event]) -> dt.datetime:
    """Return when a session was last active, given its last events.

    A fork or an import is not activity, nor are the events before it.
    """
    own = takewhile(lambda event: event.type not in PASSIVE_EVENT_TYPES, reversed(events))
    return max([entry.active_at, *(event.at for event in own)])
