"""Who is there: agents, their sessions, the newest first, and the parts of a session.

Each answer costs what is asked for and not what there is: agents are found by leaping from one to
the next, and the index of an agent's sessions is in the order of their last activity, to within
`ACTIVITY_RESOLUTION`. Which of several sessions was active last within that time, their logs tell.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import takewhile

from holdfast.errors import IntegrityError, NotFoundError, UnsupportedValueError, short_repr
from holdfast.log.event_log import read_entries
from holdfast.log.segment import decode_segment
from holdfast.log.timeline import Timeline
from holdfast.snapshots.catalog.summary import SummaryPage, summarize_sessions
from holdfast.snapshots.filters import make_filter
from holdfast.snapshots.incarnation import ACTIVITY_RESOLUTION, PASSIVE_EVENT_TYPES
from holdfast.snapshots.keys import (
    SnapshotLocation,
    agent_index_prefix,
    index_key,
    parse_index_key,
    quote_id,
    unquote_id,
    validate_id,
    validate_limit,
)
from holdfast.snapshots.lifecycle import (
    find_first_key,
    find_locations,
    from_microseconds,
    read_manifests,
    to_microseconds,
)
from holdfast.snapshots.manifest import SnapshotManifest
from holdfast.stores.base import StateStore
from holdfast.stores.entries import Entry

AGENTS = "agents/"
SESSIONS = "sessions/"
AT_ONCE = 100
MOST_CANDIDATES = 64
"""Sessions of an agent that are looked at to tell which of them was committed to last."""


@dataclass(frozen=True, slots=True)
class SessionEntry:
    """A session in the list of an agent's."""

    agent_id: str
    session_id: str
    scope: str
    started_at: dt.datetime
    active_at: dt.datetime
    """When it was last active, to within a few seconds: what the list is ordered by."""

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
        """List an agent's sessions, the one that was active last first."""
        place = agent_index_prefix(validate_id(agent_id, "agent_id"))
        if next_token is not None and not next_token.isascii():
            raise ValueError(
                f"invalid next_token {short_repr(next_token)}; pass one that a page had"
            )
        start = f"{place}{next_token}" if next_token else ""
        if limit is not None:
            validate_limit(limit)
        found: list[SessionEntry] = []
        while True:
            keys = [key async for key in self._keys(place, start, limit)]
            entries = await self._entries(keys)
            for entry in entries.values():
                if len(found) == limit:
                    return SessionPage(found, token_of(found[-1]))
                found.append(entry)
            if limit is None or len(keys) <= limit:
                return SessionPage(found, None)
            start = keys[-1]

    async def _entries(self, keys: list[str]) -> dict[str, SessionEntry]:
        """Return the sessions that index entries stand for, without entries that are stale.

        The entry that a manifest names is the one that counts: a crash may leave another.
        """
        entries = {key: entry for key in keys if (entry := parse_index_key(key)) is not None}
        manifests: dict[SnapshotLocation, SnapshotManifest] = {}
        places = list({location for location, _ in entries.values()})
        for start in range(0, len(places), AT_ONCE):
            manifests |= await read_manifests(self.state_store, places[start : start + AT_ONCE])
        found = {}
        for key, (location, active) in entries.items():
            known = manifests.get(location)
            active_at = from_microseconds(active)
            if known is None or known.started_at is None or known.active_at != active_at:
                continue
            found[key] = SessionEntry(
                location.scope_id, location.session_id, location.scope, known.started_at, active_at
            )
        return found

    async def _keys(self, place: str, start: str, limit: int | None) -> AsyncIterator[str]:
        """List the keys of a place after one, one more than are wanted."""
        most = None if limit is None else limit + 1
        async for key in self.state_store.list(place, start_after=start, limit=most):
            yield key

    async def latest_session(
        self, agent_id: str, *, scope: str | None = None
    ) -> SessionEntry | None:
        """Return the agent's session with the newest commit, or None.

        A fork or an import is not a commit; the first one after it is.
        """
        first = await self._most_recent(agent_id, scope)
        if not first:
            return None
        # Any session that was active later than this one stands at most so far behind it.
        oldest = replace(first[0], active_at=first[0].active_at - ACTIVITY_RESOLUTION)
        place, start = agent_index_prefix(agent_id), index_entry_key(first[0])
        listing = self.state_store.list(place, start_after=start, limit=MOST_CANDIDATES)
        near = [key async for key in listing if key < index_entry_key(oldest)]
        others = (await self._entries(near)).values()
        candidates = [*first, *(each for each in others if scope in (None, each.scope))]
        if len(candidates) == 1:
            return candidates[0]
        times = await self._last_commits(candidates)
        return max(zip(times, candidates, strict=True), key=lambda pair: pair[0])[1]

    async def _most_recent(self, agent_id: str, scope: str | None) -> list[SessionEntry]:
        """Return the first session of an agent in its index, if it has one."""
        token = None
        while True:
            limit = 1 if scope is None else AT_ONCE
            page = await self.sessions(agent_id, limit=limit, next_token=token)
            found = [each for each in page.sessions if scope in (None, each.scope)]
            token = page.next_token
            if found or token is None:
                return found[:1]

    async def _last_commits(self, entries: list[SessionEntry]) -> list[dt.datetime]:
        """Return when each of some sessions was last committed to."""
        manifests = await read_manifests(self.state_store, [each.location for each in entries])

        async def last_segment(entry: SessionEntry) -> str:
            known = manifests.get(entry.location)
            if known is None:
                return ""
            timeline = Timeline(self.state_store, entry.location.prefix, known.incarnation)
            return (await timeline.change_token())[0]

        keys = await asyncio.gather(*map(last_segment, entries))
        found = await read_entries(self.state_store, [key for key in keys if key])
        return [
            last_activity(entry, key, found.get(key))
            for entry, key in zip(entries, keys, strict=True)
        ]

    async def locations(self, session_id: str) -> list[SnapshotLocation]:
        """The parts of a session, one for each agent or group of agents that take part."""
        return await find_locations(self.state_store, validate_id(session_id, "session_id"))

    async def summaries(
        self,
        agent_id: str | None = None,
        *,
        status: str | Iterable[str] | None = None,
        tags: Mapping[str, str] | None = None,
        since: dt.datetime | None = None,
        unfinished: bool = False,
        limit: int | None = None,
        next_token: str | None = None,
    ) -> SummaryPage:
        """Read what a list says of the sessions of an agent, or of all, that match every filter.

        The one that was active last comes first. ``status`` is one status or several of which one
        matches, ``tags`` are tags that the latest snapshot has, ``since`` the earliest last
        activity; ``unfinished`` keeps the sessions with tool calls that have no result.

        Raises:
            ValueError: A filter or the limit is invalid, or no page has given this token.

        """
        return await summarize_sessions(
            self,
            agent_ids=None if agent_id is None else [validate_id(agent_id, "agent_id")],
            wanted=make_filter(status=status, tags=tags, since=since, unfinished=unfinished),
            limit=limit,
            next_token=next_token,
        )

    async def _leap(self, prefix: str, limit: int | None, start_after: str) -> list[str]:
        """The names that follow a prefix, each found by leaping over all that is below it."""
        found: list[str] = []
        if limit is not None:
            validate_limit(limit)
        # 0 follows /: all keys below a name are before that.
        start = f"{prefix}{quote_id(start_after)}0" if start_after else ""
        while limit is None or len(found) < limit:
            key = await find_first_key(self.state_store, prefix, start)
            if key is None:
                break
            name, slash, _ = key[len(prefix) :].partition("/")
            if not slash:
                start = key  # not ours: nothing is kept directly below the prefix
                continue
            found.append(unquote_id(name))
            start = f"{prefix}{name}0"
        return found


def last_activity(
    entry: SessionEntry, key: str, found: Entry | IntegrityError | None
) -> dt.datetime:
    """Return when a session was last committed to, given its last segment."""
    try:
        events = decode_segment(key, found.value).events() if isinstance(found, Entry) else []
    except (IntegrityError, NotFoundError, UnsupportedValueError):
        events = []  # damage is for verify to report
    # What came with an import or a fork was not done in this session.
    own = takewhile(lambda event: event.type not in PASSIVE_EVENT_TYPES, reversed(events))
    return max([entry.active_at, *(event.at for event in own)])


def index_entry_key(entry: SessionEntry) -> str:
    """Return the key of a session in its agent's index."""
    return index_key(entry.location, to_microseconds(entry.active_at))


def token_of(entry: SessionEntry) -> str:
    """Return the token that continues a list of sessions after an entry."""
    return index_entry_key(entry)[len(agent_index_prefix(entry.agent_id)) :]
