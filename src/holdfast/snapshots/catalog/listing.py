"""The sessions of one agent, of some or of all in one list, the one that was active last first.

Each agent has an index of its own. They are merged by asking each for a few names at a time, so
that a page costs what it shows and one look at each agent.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import heapq
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, NamedTuple

from holdfast.errors import short_repr
from holdfast.snapshots.keys import END_OF_TIME, SCOPES, SnapshotLocation, quote_id, unquote_id
from holdfast.snapshots.lifecycle import from_microseconds, to_microseconds

if TYPE_CHECKING:
    from holdfast.snapshots.catalog.catalog import Catalog, SessionEntry

AT_ONCE = 8
"""How many agents or sessions are read at the same time."""
FIRST_NAMES = 8
MOST_NAMES = 256
"""How many names of an agent's sessions are listed at once: few at first, more if they are used."""


class ListPosition(NamedTuple):
    """A session's place in a list of the sessions of several agents, newest first."""

    countdown: int
    agent: str
    rest: str

    @classmethod
    def at(cls, moment: dt.datetime, entry: SessionEntry) -> ListPosition:
        """Return the place of a session that was active at a moment."""
        rest = f"{quote_id(entry.session_id)}/{entry.scope}"
        return cls(END_OF_TIME - to_microseconds(moment), quote_id(entry.agent_id), rest)

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
            SnapshotLocation(unquote_id(session), scope, unquote_id(agent))
            from_microseconds(END_OF_TIME - int(countdown))
        except (ValueError, OverflowError):
            is_valid = False
        if not is_valid:
            raise ValueError(
                f"invalid next_token {short_repr(token)}; give back the token of a page, or none"
            )
        return cls(int(countdown), agent, f"{session}/{scope}")


async def list_entries(
    catalog: Catalog, agent_ids: Sequence[str] | None = None, countdown: int | None = None
) -> AsyncGenerator[SessionEntry, None]:
    """List the sessions of some agents, or of all, in the order of the index.

    ``countdown`` is that of the time at which the list begins.
    """
    agents = await catalog.agents() if agent_ids is None else list(dict.fromkeys(agent_ids))
    streams = [list_agent_entries(catalog, agent, countdown) for agent in agents]
    waiting: list[tuple[ListPosition, int, SessionEntry]] = []

    async def put_next(number: int) -> None:
        entry = await anext(streams[number], None)
        if entry is not None:
            heapq.heappush(waiting, (ListPosition.at(entry.active_at, entry), number, entry))

    for start in range(0, len(streams), AT_ONCE):
        numbers = range(start, min(start + AT_ONCE, len(streams)))
        await asyncio.gather(*map(put_next, numbers))
    while waiting:
        _, number, entry = heapq.heappop(waiting)
        yield entry
        await put_next(number)


async def list_agent_entries(
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


async def list_session_page(
    catalog: Catalog,
    *,
    agent_ids: Sequence[str] | None = None,
    search: str = "",
    limit: int,
    next_token: str | None = None,
    max_scanned: int | None = None,
) -> tuple[list[SessionEntry], str | None]:
    """Return a page of sessions in the order of the index, and the token of the next page.

    The sessions themselves are not read. The arguments are those of
    `holdfast.snapshots.catalog.summary.summarize_sessions`.

    Raises:
        ValueError: No page has given this token.

    """
    after = None if next_token is None else ListPosition.from_token(next_token)
    found: list[SessionEntry] = []
    last: ListPosition | None = None
    looked = 0
    first = None if after is None else after.countdown
    async with aclosing(list_entries(catalog, agent_ids, first)) as entries:
        async for entry in entries:
            position = ListPosition.at(entry.active_at, entry)
            if after is not None and position <= after:
                continue
            if last is not None and (len(found) == limit or looked == max_scanned):
                return found, last.to_token()
            if search.casefold() in entry.session_id.casefold():
                found.append(entry)
            looked += 1
            last = position
    return found, None
