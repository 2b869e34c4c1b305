"""Summaries of sessions: status, last activity, messages, size, unfinished calls and tags.

A session that was saved at its last commit is summarized by the record of that snapshot and the
last segment of its log, whatever its size. Otherwise a summary costs what opening it costs.
Sessions are read a few at a time, newest first, and not more than a page needs.
"""

from __future__ import annotations

import datetime as dt
import heapq
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from holdfast.errors import (
    IntegrityError,
    InvalidDocumentError,
    NotFoundError,
    UnsupportedValueError,
)
from holdfast.log.event import Event, format_time
from holdfast.log.segment import Segment, decode_segment
from holdfast.log.timeline import MAX_SEGMENTS, LoadedState, Timeline
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.catalog.index import SessionEntry, SessionIndex, find_last_activity
from holdfast.snapshots.catalog.listing import CONCURRENCY, ListPosition, list_entries
from holdfast.snapshots.filters import ListingFilter
from holdfast.snapshots.incarnation import ACTIVITY_RESOLUTION
from holdfast.snapshots.keys import (
    SnapshotLocation,
    location_fields,
    to_countdown,
    validate_limit,
)
from holdfast.snapshots.records import SnapshotInfo
from holdfast.snapshots.session_state import MESSAGES, SessionState
from holdfast.snapshots.tool_calls import ToolCallIndex, UnfinishedCall
from holdfast.stores.base import StateStore
from holdfast.stores.local import gather, run_in_thread

MAX_READ_AHEAD = 64
"""How many sessions are read ahead to find which of them was active last."""
MAX_SEGMENTS_LISTED = 2 * MAX_SEGMENTS
"""How many segments are looked for after the last keyframe before a snapshot."""
UNREADABLE = (IntegrityError, InvalidDocumentError, NotFoundError, UnsupportedValueError)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSummary:
    """A session in a list."""

    agent_id: str
    session_id: str
    scope: str
    started_at: dt.datetime
    active_at: dt.datetime
    """When its last event was recorded."""
    status: str | None = None
    """None if the session cannot be read."""
    message_count: int = 0
    size_bytes: int = 0
    """The size of all encoded values of its state."""
    event_count: int = 0
    unfinished: tuple[UnfinishedCall, ...] = ()
    """Tool calls without a result."""
    tags: dict[str, str] = field(default_factory=dict)
    """The tags of its latest snapshot."""
    problem: str | None = None
    """Why the session cannot be read, or None."""

    @property
    def location(self) -> SnapshotLocation:
        """The location of the session."""
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
    """A page of sessions, the last active first."""

    sessions: list[SessionSummary] = field(default_factory=list)
    next_token: str | None = None
    """The token to pass for the next page; None on the last."""


# ---------------------------------------------------------------------------------- one session


async def load_summary(state_store: StateStore, entry: SessionEntry) -> SessionSummary | None:
    """Return the summary of a session; None if it was deleted.

    A session that is damaged, or that this version cannot read, has a ``problem`` and no status.
    """
    location = entry.location
    archive = SnapshotArchive(state_store)
    try:
        latest = await archive.load_info(location=location)
        if latest is not None and not latest.unfinished:
            segment = await read_segment_of(state_store, location, latest)
            if segment is not None:
                return summarize_record(entry, latest, segment.events())
        timeline = await archive.timeline(location=location)
        loaded = await timeline.load()
        if loaded.end.seq == 0:
            return None
        active_at = await read_last_activity(timeline, loaded, latest, entry)
        state = loaded.store.snapshot()
        unfinished = await run_in_thread(ToolCallIndex().unfinished, state)
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
        event_count=loaded.end.seq,
        unfinished=tuple(unfinished),
        tags={} if latest is None else latest.tags,
    )


async def read_segment_of(
    state_store: StateStore, location: SnapshotLocation, latest: SnapshotInfo
) -> Segment | None:
    """Return the last segment of the log if it ends at a snapshot, otherwise None."""
    log = Timeline(state_store, location.prefix, latest.incarnation).log
    start = log.key(latest.keyframe) if latest.keyframe else ""
    listing = state_store.list(log.prefix, start_after=start, limit=MAX_SEGMENTS_LISTED)
    keys = [key async for key in listing]
    if not keys or len(keys) == MAX_SEGMENTS_LISTED:
        return None
    entry = await state_store.get(keys[-1])
    if entry is None or latest.hash.encode() not in entry.value:
        return None
    segment = decode_segment(keys[-1], entry.value)
    is_at_end = (segment.last, segment.hash) == (latest.seq, latest.hash)
    return segment if is_at_end and not segment.is_pruned else None


def summarize_record(
    entry: SessionEntry, latest: SnapshotInfo, events: Sequence[Event]
) -> SessionSummary:
    """Return the summary of a session that was saved at its last commit."""
    return SessionSummary(
        agent_id=entry.agent_id,
        session_id=entry.session_id,
        scope=entry.scope,
        started_at=entry.started_at,
        active_at=find_last_activity(entry, events),
        status=latest.status,
        message_count=latest.message_count,
        size_bytes=latest.size_bytes,
        event_count=latest.seq,
        tags=latest.tags,
    )


async def read_last_activity(
    timeline: Timeline, loaded: LoadedState, latest: SnapshotInfo | None, entry: SessionEntry
) -> dt.datetime:
    """Return when the last event was recorded, or the last snapshot made if it was pruned."""
    events: list[Event] = []
    if loaded.segments:
        events = loaded.segments[-1].events()
    else:
        with suppress(NotFoundError):  # it was pruned
            events = [each async for each in timeline.events(loaded.end.seq, loaded.end.seq)]
    if not events and latest is not None and latest.seq == loaded.end.seq:
        return max(entry.active_at, latest.created_at)
    return find_last_activity(entry, events)


# -------------------------------------------------------------------------------- many sessions


class ListedSession(NamedTuple):
    """A session in a list; without a summary if it was deleted or does not match the search."""

    position: ListPosition
    summary: SessionSummary | None
    is_last: bool


async def list_summaries(
    index: SessionIndex,
    agent_ids: Sequence[str] | None,
    after: ListPosition | None,
    *,
    search: str,
    since: dt.datetime | None,
    concurrency: int,
) -> AsyncGenerator[ListedSession, None]:
    """Yield sessions with their summaries in the order of their last activity.

    The index is in that order to within ``ACTIVITY_RESOLUTION``, so sessions are read ahead until
    those that follow cannot have been active later.
    """
    heap: list[ListPosition] = []
    read: dict[ListPosition, SessionSummary | None] = {}
    first = None if after is None else after.countdown
    async with aclosing(list_entries(index, agent_ids, first)) as entries:
        following = await anext(entries, None)
        while following is not None or heap:
            while (
                following is not None
                and len(heap) < MAX_READ_AHEAD
                and not (heap and is_certainly_before(heap[0], following))
            ):
                chunk = [following]
                while len(chunk) < concurrency and (entry := await anext(entries, None)):
                    chunk.append(entry)
                matching = [each for each in chunk if search in each.session_id.casefold()]
                loading = (load_summary(index.state_store, each) for each in matching)
                summaries = dict(zip(matching, await gather(loading), strict=True))
                for each in chunk:
                    summary = summaries.get(each)
                    active_at = each.active_at if summary is None else summary.active_at
                    position = ListPosition.at(active_at, each)
                    if position not in read and (after is None or position > after):
                        heapq.heappush(heap, position)
                        read[position] = summary
                following = await anext(entries, None)
                if following is not None and is_certainly_older(following, since):
                    following = None
            if heap:
                position = heapq.heappop(heap)
                is_last = not heap and following is None
                yield ListedSession(position, read.pop(position), is_last)


def is_certainly_before(position: ListPosition, following: SessionEntry) -> bool:
    """Tell whether an entry, and all that follow it in the index, come after a position."""
    return position.countdown < to_countdown(following.active_at + ACTIVITY_RESOLUTION)


def is_certainly_older(entry: SessionEntry, since: dt.datetime | None) -> bool:
    """Tell whether an entry, and all that follow it in the index, were not active since a time."""
    return since is not None and entry.active_at + ACTIVITY_RESOLUTION < since


async def summarize_sessions(
    index: SessionIndex,
    *,
    agent_ids: Sequence[str] | None = None,
    wanted: ListingFilter = ListingFilter(),  # noqa: B008 - immutable
    search: str = "",
    limit: int | None = None,
    next_token: str | None = None,
    max_scanned: int | None = None,
) -> SummaryPage:
    """Return a page of summaries of the sessions that match, the last active first.

    ``agent_ids`` are the agents whose sessions are listed, all by default. ``search`` is a part of
    the session's id, in any case. ``max_scanned`` bounds how many sessions are read for one page:
    it may then have fewer than ``limit``, or none, while more follow.

    Raises:
        ValueError: The limit or the token is invalid.

    """
    limit = None if limit is None else validate_limit(limit)
    after = None if next_token is None else ListPosition.from_token(next_token)
    search = search.casefold()
    concurrency = CONCURRENCY if limit is None or wanted or search else min(CONCURRENCY, limit)
    found: list[SessionSummary] = []
    scanned = 0
    listing = list_summaries(
        index, agent_ids, after, search=search, since=wanted.since, concurrency=concurrency
    )
    async with aclosing(listing):
        async for position, summary, is_last in listing:
            if summary is not None and is_wanted(wanted, summary):
                found.append(summary)
            scanned += 1
            if not is_last and (len(found) == limit or scanned == max_scanned):
                return SummaryPage(found, position.to_token())
    return SummaryPage(found)


def is_wanted(wanted: ListingFilter, summary: SessionSummary) -> bool:
    """Tell whether a session matches; one that cannot be read has no status and no tags."""
    return wanted.matches(
        status=summary.status,
        tags=summary.tags,
        at=summary.active_at,
        unfinished=bool(summary.unfinished),
    )
