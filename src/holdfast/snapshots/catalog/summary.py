"""What a list says of sessions: status, last activity, messages, size, unfinished calls and tags.

A summary is read from the latest keyframe, the log after it and the latest snapshot's record, so it
costs what opening the session costs and not what its whole log would. Sessions are read a few at a
time, newest first, and no more of them than a page needs.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import heapq
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.errors import (
    IntegrityError,
    InvalidDocumentError,
    NotFoundError,
    UnsupportedValueError,
)
from holdfast.log.event import Event, format_time
from holdfast.log.timeline import LoadedState, Timeline
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.catalog.listing import AT_ONCE, ListPosition, list_entries
from holdfast.snapshots.filters import ListingFilter
from holdfast.snapshots.incarnation import ACTIVITY_RESOLUTION, PASSIVE_EVENT_TYPES
from holdfast.snapshots.keys import (
    END_OF_TIME,
    SnapshotLocation,
    location_fields,
    validate_limit,
)
from holdfast.snapshots.lifecycle import to_microseconds
from holdfast.snapshots.records import SnapshotInfo
from holdfast.snapshots.session_state import MESSAGES, SessionState
from holdfast.snapshots.tool_calls import ToolCallIndex, UnfinishedCall
from holdfast.stores.base import StateStore

if TYPE_CHECKING:
    from holdfast.snapshots.catalog.catalog import Catalog, SessionEntry

MOST_AHEAD = 64
"""How many sessions are read ahead to tell which of them was active last."""
UNREADABLE = (IntegrityError, InvalidDocumentError, NotFoundError, UnsupportedValueError)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSummary:
    """A session in a list."""

    agent_id: str
    session_id: str
    scope: str
    started_at: dt.datetime
    active_at: dt.datetime
    """When its last event happened."""
    status: str | None = None
    """None where the session cannot be read."""
    message_count: int = 0
    size_bytes: int = 0
    """Bytes of all encoded values of its state."""
    event_count: int = 0
    unfinished: tuple[UnfinishedCall, ...] = ()
    """Tool calls without a result."""
    tags: dict[str, str] = field(default_factory=dict)
    """The tags of its latest snapshot."""
    problem: str | None = None
    """Why it cannot be read, where it cannot."""

    @property
    def location(self) -> SnapshotLocation:
        """The session's location."""
        return SnapshotLocation(self.session_id, self.scope, self.agent_id)

    def to_json(self) -> dict[str, Any]:
        """Return the fields that the command line and the REST API have in common."""
        return {
            **location_fields(self.location),
            "status": self.status,
            "started_at": format_time(self.started_at),
            "active_at": format_time(self.active_at),
            "size_bytes": self.size_bytes,
            "unfinished_calls": len(self.unfinished),
            "tags": self.tags,
        }


@dataclass(frozen=True, slots=True)
class SummaryPage:
    """Some sessions, the one that was active last first, and how to ask for those that follow."""

    sessions: list[SessionSummary] = field(default_factory=list)
    next_token: str | None = None
    """What to give to the next call; None at the end."""


# ---------------------------------------------------------------------------------- one session


async def load_summary(state_store: StateStore, entry: SessionEntry) -> SessionSummary | None:
    """Read what a list says of a session; None where it was deleted.

    A session that is damaged, or that this version cannot read, has a ``problem`` and no status.
    """
    location = entry.location
    archive = SnapshotArchive(state_store)
    try:
        timeline = await archive.timeline(location=location)
        there = await timeline.load()
        latest = await archive.load_info(location=location)
        if there.end.seq == 0:
            return None
        active_at = await last_activity(timeline, there, latest, entry)
        state = there.store.snapshot()
        unfinished = await asyncio.to_thread(ToolCallIndex().unfinished, state)
    except UNREADABLE as error:
        return SessionSummary(
            agent_id=entry.agent_id,
            session_id=entry.session_id,
            scope=entry.scope,
            started_at=entry.started_at,
            active_at=entry.active_at,
            problem=str(error),
        )
    return SessionSummary(
        agent_id=entry.agent_id,
        session_id=entry.session_id,
        scope=entry.scope,
        started_at=entry.started_at,
        active_at=active_at,
        status=SessionState(state).status,
        message_count=state.count(MESSAGES),
        size_bytes=state.size_bytes,
        event_count=there.end.seq,
        unfinished=tuple(unfinished),
        tags={} if latest is None else latest.tags,
    )


async def last_activity(
    timeline: Timeline, there: LoadedState, latest: SnapshotInfo | None, entry: SessionEntry
) -> dt.datetime:
    """Return when the last event happened, or when a snapshot was made where it was pruned.

    A fork or an import is not activity.
    """
    events: list[Event] = []
    if there.segments:
        events = there.segments[-1].events()
    else:
        with suppress(NotFoundError):  # it was pruned
            events = [each async for each in timeline.events(there.end.seq, there.end.seq)]
    # What came with an import or a fork was not done in this session.
    own = takewhile(lambda event: event.type not in PASSIVE_EVENT_TYPES, reversed(events))
    times = [event.at for event in own]
    if not events and latest is not None and latest.seq == there.end.seq:
        times = [latest.created_at]
    return max([entry.active_at, *times])


# -------------------------------------------------------------------------------- many sessions


class ListedSession(NamedTuple):
    """A session in its place; without a summary if it was deleted or is not searched for."""

    position: ListPosition
    summary: SessionSummary | None
    is_last: bool


async def list_summaries(
    catalog: Catalog,
    agent_ids: Sequence[str] | None,
    after: ListPosition | None,
    *,
    part: str,
    since: dt.datetime | None,
    at_once: int,
) -> AsyncGenerator[ListedSession, None]:
    """List sessions with their summaries in the order of their last activity.

    The index is in that order to within ``ACTIVITY_RESOLUTION``, so sessions are read ahead until
    those that follow cannot have been active later.
    """
    waiting: list[ListPosition] = []
    read: dict[ListPosition, SessionSummary | None] = {}
    first = None if after is None else after.countdown
    async with aclosing(list_entries(catalog, agent_ids, first)) as entries:
        following = await anext(entries, None)
        while following is not None or waiting:
            while (
                following is not None
                and len(waiting) < MOST_AHEAD
                and not (waiting and is_settled(waiting[0], following))
            ):
                chunk = [following]
                while len(chunk) < at_once and (entry := await anext(entries, None)) is not None:
                    chunk.append(entry)
                named = [each for each in chunk if part in each.session_id.casefold()]
                loading = (load_summary(catalog.state_store, each) for each in named)
                summaries = dict(zip(named, await asyncio.gather(*loading), strict=True))
                for each in chunk:
                    summary = summaries.get(each)
                    moment = each.active_at if summary is None else summary.active_at
                    position = ListPosition.at(moment, each)
                    if position not in read and (after is None or position > after):
                        heapq.heappush(waiting, position)
                        read[position] = summary
                following = await anext(entries, None)
                if following is not None and is_before(following, since):
                    following = None
            if waiting:
                position = heapq.heappop(waiting)
                is_last = not waiting and following is None
                yield ListedSession(position, read.pop(position), is_last)


def is_settled(position: ListPosition, following: SessionEntry) -> bool:
    """Return whether a session, and all that follow it, come after a place in any case."""
    latest = END_OF_TIME - to_microseconds(following.active_at + ACTIVITY_RESOLUTION)
    return position.countdown < latest


def is_before(entry: SessionEntry, since: dt.datetime | None) -> bool:
    """Return whether a session, and all that follow it, were certainly not active since a time."""
    return since is not None and entry.active_at + ACTIVITY_RESOLUTION < since


async def summarize_sessions(
    catalog: Catalog,
    *,
    agent_ids: Sequence[str] | None = None,
    wanted: ListingFilter = ListingFilter(),  # noqa: B008 - it never changes
    search: str = "",
    limit: int | None = None,
    next_token: str | None = None,
    max_scanned: int | None = None,
) -> SummaryPage:
    """Read a page of summaries of the sessions that match, the one that was active last first.

    ``agent_ids`` are the agents whose sessions are listed, all without it. ``search`` is a part of
    the session's id, in any case. ``max_scanned`` bounds how many sessions are looked at for one
    page: it may then have fewer than ``limit``, or none, while more follow.

    Raises:
        ValueError: The limit is not positive, or no page has given this token.

    """
    most = None if limit is None else validate_limit(limit)
    after = None if next_token is None else ListPosition.from_token(next_token)
    part = search.casefold()
    at_once = AT_ONCE if most is None or wanted or part else min(AT_ONCE, most)
    found: list[SessionSummary] = []
    looked = 0
    listing = list_summaries(
        catalog, agent_ids, after, part=part, since=wanted.since, at_once=at_once
    )
    async with aclosing(listing):
        async for position, summary, is_last in listing:
            if summary is not None and is_wanted(wanted, summary):
                found.append(summary)
            looked += 1
            if not is_last and (len(found) == most or looked == max_scanned):
                return SummaryPage(found, position.to_token())
    return SummaryPage(found)


def is_wanted(wanted: ListingFilter, summary: SessionSummary) -> bool:
    """Return whether a session matches; one that cannot be read matches by its time alone."""
    return wanted.matches(
        status=summary.status,
        tags=summary.tags,
        at=summary.active_at,
        unfinished=bool(summary.unfinished),
    )
