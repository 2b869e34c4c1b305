"""Who is there: agents, their sessions, the newest first, and the parts of a session.

Each answer costs what is asked for and not what there is: agents are found by leaping from one to
the next, and the index of an agent's sessions is kept in the order of their beginning.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from holdfast.errors import shown
from holdfast.snapshots.founding import first_key, locations, moment_of
from holdfast.snapshots.layout import (
    SnapshotLocation,
    agent_place,
    checked_count,
    checked_id,
    indexed,
    quoted,
    unquoted,
)
from holdfast.stores.contract import StateStore

AGENTS = "agents/"
SESSIONS = "sessions/"


@dataclass(frozen=True, slots=True)
class SessionEntry:
    """A session in the list of an agent's."""

    agent_id: str
    session_id: str
    scope: str
    started_at: dt.datetime

    @property
    def location(self) -> SnapshotLocation:
        """Where it is kept."""
        return SnapshotLocation(self.session_id, self.scope, self.agent_id)


@dataclass(frozen=True, slots=True)
class SessionPage:
    """Some of an agent's sessions, the newest first, and how to ask for those that follow."""

    sessions: list[SessionEntry] = field(default_factory=list)
    next_token: str | None = None


class Catalog:
    """What a ``StateStore`` holds: agents and sessions."""

    def __init__(self, state_store: StateStore) -> None:
        self.state_store = state_store

    async def agents(self, *, limit: int | None = None, start_after: str = "") -> list[str]:
        """The ids of the agents that have sessions, in the order of their keys."""
        return await self._leap(AGENTS, limit, start_after)

    async def session_ids(self, *, limit: int | None = None, start_after: str = "") -> list[str]:
        """The ids of all sessions of all agents, in the order of their keys."""
        return await self._leap(SESSIONS, limit, start_after)

    async def sessions(
        self, agent_id: str, *, limit: int | None = None, next_token: str | None = None
    ) -> SessionPage:
        """An agent's sessions, the one that was started last first."""
        place = agent_place(checked_id(agent_id, "agent_id"))
        if next_token is not None and not next_token.isascii():
            raise ValueError(f"{shown(next_token)} is no next_token of a page of sessions")
        start = f"{place}{next_token}" if next_token else ""
        if limit is not None:
            checked_count(limit)
        found: list[SessionEntry] = []
        last = ""
        async for key in self._keys(place, start, limit):
            entry = indexed(key)
            if entry is None:
                continue
            if len(found) == limit:
                return SessionPage(found, last[len(place) :])
            location, started = entry
            moment = moment_of(started)
            found.append(
                SessionEntry(location.scope_id, location.session_id, location.scope, moment)
            )
            last = key
        return SessionPage(found, None)

    async def _keys(self, place: str, start: str, limit: int | None) -> AsyncIterator[str]:
        """The keys of a place after one, a little more at a time than are wanted."""
        while True:
            most = None if limit is None else limit + 1
            number = 0
            async for key in self.state_store.list(place, start_after=start, limit=most):
                number += 1
                start = key
                yield key
            if most is None or number < most:
                return

    async def latest_session(self, agent_id: str) -> SessionEntry | None:
        """The session that an agent started last, or None."""
        found = (await self.sessions(agent_id, limit=1)).sessions
        return found[0] if found else None

    async def locations(self, session_id: str) -> list[SnapshotLocation]:
        """The parts of a session, one for each agent or group of agents that take part."""
        return await locations(self.state_store, checked_id(session_id, "session_id"))

    async def _leap(self, prefix: str, limit: int | None, start_after: str) -> list[str]:
        """The names that follow a prefix, each found by leaping over all that is below it."""
        found: list[str] = []
        if limit is not None:
            checked_count(limit)
        # 0 follows /: all keys below a name are before that.
        start = f"{prefix}{quoted(start_after)}0" if start_after else ""
        while limit is None or len(found) < limit:
            key = await first_key(self.state_store, prefix, start)
            if key is None:
                break
            name, slash, _ = key[len(prefix) :].partition("/")
            if not slash:
                start = key  # not ours: nothing is kept directly below the prefix
                continue
            found.append(unquoted(name))
            start = f"{prefix}{name}0"
        return found
