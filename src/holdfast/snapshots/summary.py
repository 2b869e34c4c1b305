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
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from holdfast.errors import (
    IntegrityError,
    InvalidDocumentError,
    NotFoundError,
    UnsupportedValueError,
    shown,
)
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
    """Return when the last event happened, or when a snapshot was made where it was pruned."""
    if there.segments:
        return there.segments[-1].events()[-1].at
    try:
        async for event in timeline.events(there.end.seq, there.end.seq):
            return event.at
    except NotFoundError:
        pass  # pruned: a snapshot or the index still tells the time
    if latest is not None and latest.seq == there.end.seq:
        return latest.created_at
    return activity(entry)


def activity(entry: SessionEntry) -> dt.datetime:
    """Return the time by which the index orders a session."""
    at: dt.datetime = getattr(entry, "active_at", entry.started_at)
    return at


# -------------------------------------------------------------------------------- many sessions


class ListPosition(NamedTuple):
    """A session's place in a list of the sessions of several agents, newest first."""

    countdown: int
    agent: str
    rest: str

    @classmethod
    def of(cls, entry: SessionEntry) -> ListPosition:
        """Return the place of a session."""
        micros = microseconds(activity(entry))
        rest = f"{quoted(entry.session_id)}/{entry.scope}"
        return cls(END_OF_TIME - micros, quoted(entry.agent_id), rest)

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
    catalog: Catalog, agent_ids: Sequence[str] | None = None, next_token: str | None = None
) -> AsyncGenerator[SessionEntry, None]:
    """List the sessions of some agents, or of all, the one that was active last first.

    ``next_token`` is the token of the session after which the list begins.

    Raises:
        ValueError: No page has given this token.

    """
    after = None if next_token is None else ListPosition.from_token(next_token)
    agents = await catalog.agents() if agent_ids is None else list(dict.fromkeys(agent_ids))
    waiting: list[tuple[ListPosition, int, SessionEntry]] = []
    streams = [entries_of(catalog, agent, after) for agent in agents]

    async def put_next(number: int) -> None:
        entry = await anext(streams[number], None)
        if entry is not None:
            heapq.heappush(waiting, (ListPosition.of(entry), number, entry))

    for start in range(0, len(streams), AT_ONCE):
        numbers = range(start, min(start + AT_ONCE, len(streams)))
        await asyncio.gather(*map(put_next, numbers))
    while waiting:
        _, number, entry = heapq.heappop(waiting)
        yield entry
        await put_next(number)


async def entries_of(
    catalog: Catalog, agent_id: str, after: ListPosition | None
) -> AsyncIterator[SessionEntry]:
    """List one agent's sessions after a place in the list, a few names at a time."""
    # All names that begin with a time follow that time itself.
    token: str | None = None if after is None else f"{after.countdown:018}"
    names = FIRST_NAMES
    while True:
        page = await catalog.sessions(agent_id, limit=names, next_token=token)
        for entry in page.sessions:
            if after is None or ListPosition.of(entry) > after:
                yield entry
        token = page.next_token
        if token is None:
            return
        names = min(2 * names, MOST_NAMES)


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
    part = search.casefold()
    found: list[SessionSummary] = []
    last: SessionEntry | None = None
    looked = 0
    async with aclosing(list_entries(catalog, agent_ids, next_token)) as entries:
        while True:
            room = AT_ONCE
            if most is not None and not (wanted or part):
                room = min(AT_ONCE, max(1, most - len(found)))
            chunk = await take(entries, room, wanted.since)
            if not chunk:
                return SummaryPage(found)
            if last is not None and (len(found) == most or looked == most_looked):
                return SummaryPage(found, ListPosition.of(last).to_token())
            named = [each for each in chunk if part in each.session_id.casefold()]
            loading = (load_summary(catalog.state_store, each) for each in named)
            summaries = dict(zip(named, await asyncio.gather(*loading), strict=True))
            for entry in chunk:
                if last is not None and (len(found) == most or looked == most_looked):
                    return SummaryPage(found, ListPosition.of(last).to_token())
                summary = summaries.get(entry)
                if summary is not None and is_wanted(wanted, summary):
                    found.append(summary)
                looked += 1
                last = entry


async def take(
    entries: AsyncIterator[SessionEntry], most: int, since: dt.datetime | None
) -> list[SessionEntry]:
    """Take the next sessions of a list, and none that were not active since a time."""
    found: list[SessionEntry] = []
    while len(found) < most and (entry := await anext(entries, None)) is not None:
        if since is not None and hasattr(entry, "active_at") and activity(entry) < since:
            break  # and so are all that follow
        found.append(entry)
    return found


def is_wanted(wanted: ListingFilter, summary: SessionSummary) -> bool:
    """Return whether a session matches; one that cannot be read matches by its time alone."""
    return wanted.matches(
        status=summary.status,
        tags=summary.tags,
        at=summary.active_at,
        unfinished=bool(summary.unfinished),
    )
