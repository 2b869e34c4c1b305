"""`Catalog`: find agents, their sessions, and the locations of a session."""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncGenerator, Iterable, Mapping

from holdfast.errors import IntegrityError, NotFoundError, UnsupportedValueError
from holdfast.log.event import Event
from holdfast.log.segment import decode_segment
from holdfast.log.timeline import Timeline
from holdfast.snapshots.catalog.follow import CatalogFollower, SessionChange
from holdfast.snapshots.catalog.index import SessionEntry, SessionIndex, find_last_activity
from holdfast.snapshots.catalog.summary import SummaryPage, summarize_sessions
from holdfast.snapshots.discovery import find_locations
from holdfast.snapshots.filters import make_filter
from holdfast.snapshots.incarnation import ACTIVITY_RESOLUTION
from holdfast.snapshots.keys import SnapshotLocation, agent_index_prefix, index_key, validate_id
from holdfast.snapshots.manifest import read_manifests
from holdfast.stores.batch_read import read_entries
from holdfast.stores.entries import Entry
from holdfast.stores.local import gather

PAGE_SIZE = 100
MAX_CANDIDATES = 64
"""How many sessions of an agent are read to find the one with the newest commit."""


class Catalog(SessionIndex):
    """The agents and sessions of a ``StateStore``."""

    async def latest_session(
        self, agent_id: str, *, scope: str | None = None
    ) -> SessionEntry | None:
        """Return the agent's session with the newest commit, or None.

        A fork or an import does not count as a commit.

        Raises:
            ValueError: The id is invalid.

        """
        first = await self._find_first(agent_id, scope)
        if first is None:
            return None
        # A session that was active later is at most ACTIVITY_RESOLUTION behind it in the index.
        oldest = index_key(first.location, first.active_at - ACTIVITY_RESOLUTION)
        listing = self.state_store.list(
            agent_index_prefix(agent_id), start_after=first.key, limit=MAX_CANDIDATES
        )
        others = await self._read_index_entries([key async for key in listing if key < oldest])
        candidates = [first, *(each for each in others if scope in (None, each.scope))]
        if len(candidates) == 1:
            return first
        times = await self._find_last_commits(candidates)
        return max(zip(times, candidates, strict=True), key=lambda pair: pair[0])[1]

    async def _find_first(self, agent_id: str, scope: str | None) -> SessionEntry | None:
        """Return the first session of a scope in an agent's index."""
        token = None
        while True:
            limit = 1 if scope is None else PAGE_SIZE
            page = await self.sessions(agent_id, limit=limit, next_token=token)
            for entry in page.sessions:
                if scope in (None, entry.scope):
                    return entry
            token = page.next_token
            if token is None:
                return None

    async def _find_last_commits(self, entries: list[SessionEntry]) -> list[dt.datetime]:
        """Return when each session was last committed to."""
        manifests = await read_manifests(self.state_store, [each.location for each in entries])

        async def find_last_segment(entry: SessionEntry) -> str:
            manifest = manifests.get(entry.location)
            if manifest is None:
                return ""
            timeline = Timeline(self.state_store, entry.location.prefix, manifest.incarnation)
            return (await timeline.change_token())[0]

        keys = await gather(map(find_last_segment, entries))
        segments = await read_entries(self.state_store, [key for key in keys if key])
        return [
            find_last_activity(entry, decode_events(key, segments.get(key)))
            for entry, key in zip(entries, keys, strict=True)
        ]

    async def locations(self, session_id: str) -> list[SnapshotLocation]:
        """Return the locations of a session, one for each agent or group of agents.

        Raises:
            ValueError: The id is invalid.

        """
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
        """Return a page of summaries of an agent's sessions, or of all, the last active first.

        Sessions must match all filters: ``status`` (one, or several of which one matches), ``tags``
        (all of them, in the latest snapshot), ``since`` (by last activity), ``unfinished`` (with
        tool calls that have no result).

        Raises:
            ValueError: A filter, the limit or the token is invalid.

        """
        return await summarize_sessions(
            self,
            agent_ids=None if agent_id is None else [validate_id(agent_id, "agent_id")],
            wanted=make_filter(status=status, tags=tags, since=since, unfinished=unfinished),
            limit=limit,
            next_token=next_token,
        )

    def follow(self, agent_id: str | None = None) -> AsyncGenerator[SessionChange, None]:
        """Yield sessions as they are created, committed to or deleted, of an agent or of all.

        It starts with the first call of ``anext``: what is there is not yielded. No session is
        loaded. Several commits of a session may be yielded as one change, with the last ``seq``;
        follow a session itself for every event of it. A change may be yielded although only old
        events were pruned.

        Changes of this process are noticed at once, and so are those of others if the store has
        ``wakes_other_processes``. On other stores the index of each agent is polled: new sessions
        and commits are noticed within a second or two, deletions, forks and imports within a
        minute, and longer with many agents or sessions.

        Raises:
            ValueError: The id is invalid.
            StateStoreError: The store failed.

        """
        if agent_id is not None:
            validate_id(agent_id, "agent_id")
        return CatalogFollower(self.state_store, agent_id).changes()


def decode_events(key: str, entry: Entry | IntegrityError | None) -> list[Event]:
    """Return the events of a segment; none if it is damaged, which ``verify`` reports."""
    if not isinstance(entry, Entry):
        return []
    try:
        return decode_segment(key, entry.value).events()
    except (IntegrityError, NotFoundError, UnsupportedValueError):
        return []
