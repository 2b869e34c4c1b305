"""List the sessions of several agents together, the last active first.

The indexes of the agents are merged, reading a few entries of each at a time, so that a page costs
what it shows and one read per agent.
"""

from __future__ import annotations

import datetime as dt
import heapq
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import NamedTuple

from holdfast.errors import short_repr
from holdfast.snapshots.catalog.index import SessionEntry, SessionIndex
from holdfast.snapshots.keys import (
    SCOPES,
    SnapshotLocation,
    from_countdown,
    quote_id,
    to_countdown,
    unquote_id,
)
from holdfast.stores.local import gather

CONCURRENCY = 8
"""How many agents or sessions are read at the same time."""
FIRST_PAGE_SIZE = 8
MAX_PAGE_SIZE = 256
"""How many entries of an agent are read at once: few at first, then twice as many each time."""


class ListPosition(NamedTuple):
    """The position of a session in a list of several agents, newest first."""

    countdown: int
    agent: str
    rest: str

    @classmethod
    def at(cls, active_at: dt.datetime, entry: SessionEntry) -> ListPosition:
        """Return the position of a session that was last active at a time."""
        rest = f"{quote_id(entry.session_id)}/{entry.scope}"
        return cls(to_countdown(active_at), quote_id(entry.agent_id), rest)

    def to_token(self) -> str:
        """Return the position as text: ASCII, and safe to type in a shell."""
        return f"{self.countdown:018}/{self.agent}/{self.rest}"

    @classmethod
    def from_token(cls, token: str) -> ListPosition:
        """Parse a token.

        Raises:
            ValueError: The token is not from a page.

        """
        parts = token.split("/") if token.isascii() else []
        try:
            countdown, agent, session, scope = parts
            is_valid = len(countdown) == 18 and countdown.isdecimal() and scope in SCOPES
            SnapshotLocation(unquote_id(session), scope, unquote_id(agent))
            from_countdown(int(countdown))
        except (ValueError, OverflowError):
            is_valid = False
        if not is_valid:
            raise ValueError(f"invalid next_token {short_repr(token)}; use that of a page")
        return cls(int(countdown), agent, f"{session}/{scope}")


async def list_entries(
    index: SessionIndex, agent_ids: Sequence[str] | None = None, countdown: int | None = None
) -> AsyncGenerator[SessionEntry, None]:
    """Yield the sessions of some agents, or of all, in the order of the index.

    ``countdown`` is that of the time at which the list starts.
    """
    agents = await index.agents() if agent_ids is None else list(dict.fromkeys(agent_ids))
    streams = [list_agent_entries(index, agent, countdown) for agent in agents]
    heap: list[tuple[ListPosition, int, SessionEntry]] = []

    async def push_next(number: int) -> None:
        entry = await anext(streams[number], None)
        if entry is not None:
            heapq.heappush(heap, (ListPosition.at(entry.active_at, entry), number, entry))

    for start in range(0, len(streams), CONCURRENCY):
        numbers = range(start, min(start + CONCURRENCY, len(streams)))
        await gather(map(push_next, numbers))
    while heap:
        _, number, entry = heapq.heappop(heap)
        yield entry
        await push_next(number)


async def list_agent_entries(
    index: SessionIndex, agent_id: str, countdown: int | None
) -> AsyncIterator[SessionEntry]:
    """Yield one agent's sessions from a time back, reading a few at a time."""
    # A bare countdown sorts before all names that start with it.
    token: str | None = None if countdown is None else f"{countdown:018}"
    size = FIRST_PAGE_SIZE
    while True:
        page = await index.sessions(agent_id, limit=size, next_token=token)
        for entry in page.sessions:
            yield entry
        token = page.next_token
        if token is None:
            return
        size = min(2 * size, MAX_PAGE_SIZE)


async def list_session_page(
    index: SessionIndex,
    *,
    agent_ids: Sequence[str] | None = None,
    search: str = "",
    limit: int,
    next_token: str | None = None,
    max_scanned: int | None = None,
) -> tuple[list[SessionEntry], str | None]:
    """Return a page of sessions in the order of the index, and the token of the next page.

    The sessions themselves are not read. ``search`` is a part of the session's id, in any case.
    ``max_scanned`` bounds how many entries are read for one page: it may then have fewer than
    ``limit``, or none, while more follow.

    Raises:
        ValueError: The token is not from a page.

    """
    after = None if next_token is None else ListPosition.from_token(next_token)
    found: list[SessionEntry] = []
    last: ListPosition | None = None
    scanned = 0
    first = None if after is None else after.countdown
    async with aclosing(list_entries(index, agent_ids, first)) as entries:
        async for entry in entries:
            position = ListPosition.at(entry.active_at, entry)
            if after is not None and position <= after:
                continue
            if last is not None and (len(found) == limit or scanned == max_scanned):
                return found, last.to_token()
            if search.casefold() in entry.session_id.casefold():
                found.append(entry)
            scanned += 1
            last = position
    return found, None
