"""What a list says of sessions: status, last activity, messages, size, unfinished calls and tags.

A summary is read from the latest keyframe, the log after it and the latest snapshot's record, so it
costs what opening the session costs and not what its whole log would. Sessions are read a few at a
time, newest first, and no more of them than a page needs. The sessions of several agents are merged
by their last activity.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import heapq
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from holdfast.errors import (
    IntegrityError,
    InvalidDocumentError,
    NotFoundError,
    UnsupportedValueError,
    shown,
)
from holdfast.log.events import Event
from holdfast.log.timeline import Loaded, Timeline
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.filters import ListingFilter
from holdfast.snapshots.founding import microseconds, moment_of
from holdfast.snapshots.layout import (
    END_OF_TIME,
    SCOPES,
    SnapshotLocation,
    checked_count,
    quoted,
    unquoted,
)
from holdfast.snapshots.records import SnapshotInfo
from holdfast.snapshots.session_state import MESSAGES, SessionState
from holdfast.snapshots.tool_calls import CallLedger, UnfinishedCall
from holdfast.stores.contract import StateStore

if TYPE_CHECKING:
    from holdfast.snapshots.catalog import Catalog, SessionEntry

AT_ONCE = 8
"""How many sessions are read at the same time."""
FIRST_NAMES = 8
MOST_NAMES = 256
"""How many names of an agent's sessions are listed at once: few at first, more if they are used."""
LAG = dt.timedelta(seconds=5)
"""How far the index may lag behind a session's last activity."""
MOST_AHEAD = 64
"""How many sessions are read ahead to tell which of them was active last."""
NOT_ACTIVITY = frozenset({"session.forked", "session.imported"})
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
    timeline = Timeline(state_store, location.place)
    try:
        there = await timeline.load()
        latest = await SnapshotArchive(state_store).load_info(location=location)
        if there.end.seq == 0:
            return None
        active_at = await last_activity(timeline, there, latest, entry)
        state = there.store.snapshot()
        unfinished = await asyncio.to_thread(CallLedger().unfinished, state)
    except UNREADABLE as error:
        return SessionSummary(
            agent_id=entry.agent_id,
            session_id=entry.session_id,
            scope=entry.scope,
            started_at=entry.started_at,
            active_at=activity(entry),
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
    timeline: Timeline, there: Loaded, latest: SnapshotInfo | None, entry: SessionEntry
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
    times = [event.at for event in events if event.type not in NOT_ACTIVITY]
    if not events and latest is not None and latest.seq == there.end.seq:
        times = [latest.created_at]
    return max([activity(entry), *times])


def activity(entry: SessionEntry) -> dt.datetime:
    """Return the time by which the index orders a session, its last activity to within `LAG`."""
    at: dt.datetime = getattr(entry, "active_at", entry.started_at)
    return at


# -------------------------------------------------------------------------------- many sessions


class ListPosition(NamedTuple):
    """A session's place in a list of the sessions of several agents, newest first."""

    countdown: int
    agent: str
    rest: str

    @classmethod
    def at(cls, moment: dt.datetime, entry: SessionEntry) -> ListPosition:
        """Return the place of a session that was active at a moment."""
        rest = f"{quoted(entry.session_id)}/{entry.scope}"
        return cls(END_OF_TIME - microseconds(moment), quoted(entry.agent_id), rest)

    def to_token(self) -> str:
        """Return the place as text: ASCII, and safe to type in a shell."""
        return f"{self.countdown:018}/{self.agent}/{self.rest}"

    @classmethod
    def from_token(cls, token: str) -> ListPosition:
        """Return the place that a text stands for.

        Raises:
            ValueError: No page has given this token.

        """
        parts = token.split("/") if token.isascii() else []
        try:
            countdown, agent, session, scope = parts
            is_valid = len(countdown) == 18 and countdown.isdecimal() and scope in SCOPES
            SnapshotLocation(unquoted(session), scope, unquoted(agent))
            moment_of(END_OF_TIME - int(countdown))
        except (ValueError, OverflowError):
            is_valid = False
        if not is_valid:
            raise ValueError(
                f"invalid next_token {shown(token)}; give back the token of a page, or none"
            )
        return cls(int(countdown), agent, f"{session}/{scope}")


async def list_entries(
    catalog: Catalog, agent_ids: Sequence[str] | None = None, countdown: int | None = None
) -> AsyncGenerator[SessionEntry, None]:
    """List the sessions of some agents, or of all, in the order of the index.

    ``countdown`` is that of the time at which the list begins.
    """
    agents = await catalog.agents() if agent_ids is None else list(dict.fromkeys(agent_ids))
    streams = [entries_of(catalog, agent, countdown) for agent in agents]
    waiting: list[tuple[ListPosition, int, SessionEntry]] = []

    async def put_next(number: int) -> None:
        entry = await anext(streams[number], None)
        if entry is not None:
            heapq.heappush(waiting, (ListPosition.at(activity(entry), entry), number, entry))

    for start in range(0, len(streams), AT_ONCE):
        numbers = range(start, min(start + AT_ONCE, len(streams)))
        await asyncio.gather(*map(put_next, numbers))
    while waiting:
        _, number, entry = heapq.heappop(waiting)
        yield entry
        await put_next(number)


async def entries_of(
    catalog: Catalog, agent_id: str, countdown: int | None
) -> AsyncIterator[SessionEntry]:
    """List one agent's sessions from a time back, a few names at a time."""
    # All names that begin with a time follow that time itself.
    token: str | None = None if countdown is None else f"{countdown:018}"
    names = FIRST_NAMES
    while True:
        page = await catalog.sessions(agent_id, limit=names, next_token=token)
        for entry in page.sessions:
            yield entry
        token = page.next_token
        if token is None:
            return
        names = min(2 * names, MOST_NAMES)


class Listed(NamedTuple):
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
) -> AsyncGenerator[Listed, None]:
    """List sessions with their summaries in the order of their last activity.

    The index is in that order to within ``LAG``, so sessions are read ahead until those that follow
    cannot have been active later.
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
                    moment = activity(each) if summary is None else summary.active_at
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
                yield Listed(position, read.pop(position), is_last)


def is_settled(position: ListPosition, following: SessionEntry) -> bool:
    """Return whether a session, and all that follow it, come after a place in any case."""
    latest = END_OF_TIME - microseconds(activity(following) + LAG)
    return position.countdown < latest


def is_before(entry: SessionEntry, since: dt.datetime | None) -> bool:
    """Return whether a session, and all that follow it, were certainly not active since a time."""
    has_activity = hasattr(entry, "active_at")
    return since is not None and has_activity and activity(entry) + LAG < since


async def summarize_sessions(
    catalog: Catalog,
    *,
    agent_ids: Sequence[str] | None = None,
    wanted: ListingFilter = ListingFilter(),  # noqa: B008 - it never changes
    search: str = "",
    limit: int | None = None,
    next_token: str | None = None,
    most_looked: int | None = None,
) -> SummaryPage:
    """Read a page of summaries of the sessions that match, the one that was active last first.

    ``agent_ids`` are the agents whose sessions are listed, all without it. ``search`` is a part of
    the session's id, in any case. ``most_looked`` bounds how many sessions are looked at for one
    page: it may then have fewer than ``limit``, or none, while more follow.

    Raises:
        ValueError: The limit is not positive, or no page has given this token.

    """
    most = None if limit is None else checked_count(limit)
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
            if not is_last and (len(found) == most or looked == most_looked):
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
