"""The tool ``search``: a text in the messages and values of sessions, newest first.

There is no index: states are read and scanned, within limits. A search that stops before the end
says so, and its cursor continues it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from holdfast.blobs.contents import BlobContents
from holdfast.errors import IntegrityError, NotFoundError
from holdfast.mcp_server.access import Access
from holdfast.mcp_server.arguments import SearchArguments
from holdfast.mcp_server.cursors import InvalidCursorError, decode_cursor, encode_cursor
from holdfast.mcp_server.excerpts import clip_text, iterate_leaves, to_plain_json
from holdfast.mcp_server.results import Match, SearchPage
from holdfast.mcp_server.services import Services
from holdfast.snapshots.catalog.listing import list_session_page
from holdfast.snapshots.event_state import load_state
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.snapshots.session_state import MESSAGES, ONCE, SESSION, message_number
from holdfast.state.snapshot import Snapshot
from holdfast.stores.local import run_in_thread
from holdfast.values.references import TEXT, Attachment, BlobReference, read_reference

MAX_SESSIONS = 20
"""Sessions that one call reads."""
MAX_CHARACTERS = 20_000_000
"""Characters that one call scans."""
CONTEXT = 80
"""Characters before and after a match in its excerpt."""
INTERNAL = frozenset((SESSION, ONCE))
"""Namespaces that are not searched."""


class SearchCursor(NamedTuple):
    """Where a search stopped: after an entry of a session, or before a session."""

    session_id: str | None
    scope: str
    namespace: str
    key: str
    token: str | None
    """The token of the list of sessions after this one; None if there are no more."""


async def search(services: Services, access: Access, arguments: SearchArguments) -> SearchPage:
    """Search a session, or an agent's sessions, the last active first.

    Raises:
        AccessError: The caller may not use this agent.
        NotFoundError: There is no such agent or session.
        InvalidCursorError: The cursor is not from this search.

    """
    location = await services.locate(access, arguments.agent, arguments.session)
    run = SearchRun(services, arguments)
    if arguments.session is not None:
        await run.search_session(location, None)
    else:
        await run.search_sessions()
    return run.page()


class SearchRun:
    """One call of the tool."""

    def __init__(self, services: Services, arguments: SearchArguments) -> None:
        self._services = services
        self._arguments = arguments
        self._pattern = re.compile(re.escape(arguments.query), re.IGNORECASE)
        self._after = parse_cursor(arguments)
        self._sessions = 0
        self._characters = 0
        self._matches: list[Match] = []
        self._stopped: str | None = None
        self._cursor: SearchCursor | None = None
        self._contents: BlobContents | None = None

    async def search_sessions(self) -> None:
        """Search the sessions of the agent until a limit is reached."""
        agent_id, after = self._arguments.agent, self._after
        token = None
        if after is not None:
            token = after.token
            if after.session_id is not None:
                location = SnapshotLocation(after.session_id, after.scope, agent_id)
                await self.search_session(location, token)
            if token is None:
                return
        while self._stopped is None:
            if self._sessions == MAX_SESSIONS:
                self._stop(f"{MAX_SESSIONS} sessions were searched", None, token)
                return
            try:
                entries, token = await list_session_page(
                    self._services.catalog, agent_ids=[agent_id], limit=1, next_token=token
                )
            except ValueError:
                raise InvalidCursorError(str(self._arguments.cursor)) from None
            for entry in entries:
                await self.search_session(entry.location, token)
            if token is None:
                return

    async def search_session(self, location: SnapshotLocation, token: str | None) -> None:
        """Search one session at its head."""
        state = await load_state(self._services.archive, location, None)
        self._sessions += 1
        await run_in_thread(self._scan, location, state, token)

    def _scan(self, location: SnapshotLocation, state: Snapshot, token: str | None) -> None:
        """Scan the entries of a state until a limit is reached."""
        last: SearchCursor | None = None
        after = self._after
        if after is not None and after[:2] != (location.session_id, location.scope):
            after = None
        for namespace, key in iterate_pairs(state, after):
            if last is not None and len(self._matches) >= self._arguments.limit:
                self._stop("the limit of matches was reached", last, token)
                return
            if last is not None and self._characters >= MAX_CHARACTERS:
                self._stop(f"{MAX_CHARACTERS:,} characters were searched", last, token)
                return
            last = SearchCursor(location.session_id, location.scope, namespace, key, token)
            self._search_entry(location, state, namespace, key)
        if token is not None and len(self._matches) >= self._arguments.limit:
            self._stop("the limit of matches was reached", None, token)

    def _search_entry(
        self, location: SnapshotLocation, state: Snapshot, namespace: str, key: str
    ) -> None:
        """Add the first match in an entry, if there is one."""
        value = read_texts(state.get(namespace, key), self._contents_of(location))
        for leaf in iterate_leaves(to_plain_json(value)):
            self._characters += len(leaf.text)
            found = self._pattern.search(leaf.text)
            if found is not None:
                self._matches.append(
                    Match(
                        session=location.session_id,
                        namespace=namespace,
                        key=clip_text(key),
                        message_number=message_number(key) if namespace == MESSAGES else None,
                        path=leaf.path,
                        excerpt=cut_excerpt(leaf.text, found),
                    )
                )
                return

    def _contents_of(self, location: SnapshotLocation) -> BlobContents:
        """Return the large values of a session, which are read when they are searched."""
        if self._contents is None or self._contents.reader.location_prefix != location.prefix:
            self._contents = BlobContents(self._services.state_store, location.prefix)
        return self._contents

    def _stop(self, why: str, last: SearchCursor | None, token: str | None) -> None:
        self._stopped = why
        self._cursor = last or SearchCursor(None, "agent", "", "", token)

    def page(self) -> SearchPage:
        """Return what was found."""
        return SearchPage(
            agent=self._arguments.agent,
            matches=self._matches,
            sessions_searched=self._sessions,
            complete=self._stopped is None,
            stopped=self._stopped,
            next_cursor=None if self._cursor is None else encode_cursor(self._cursor),
        )


def read_texts(value: Any, contents: BlobContents) -> Any:
    """Return a value with its large texts, which are read; other references are left out."""
    if isinstance(value, dict):
        return {key: read_texts(item, contents) for key, item in value.items()}
    if isinstance(value, list):
        return [read_texts(item, contents) for item in value]
    if isinstance(value, Attachment):
        return value.name
    if not isinstance(value, BlobReference):
        return value
    if value.kind == TEXT and value.size <= MAX_CHARACTERS:
        with suppress(NotFoundError, IntegrityError):  # the other texts can be searched
            return read_reference(value, contents)
    return None


def parse_cursor(arguments: SearchArguments) -> SearchCursor | None:
    """Return the position after which a search continues.

    Raises:
        InvalidCursorError: It is not a cursor of this search.

    """
    if arguments.cursor is None:
        return None
    found = decode_cursor(arguments.cursor, SearchCursor)
    try:
        SnapshotLocation(found.session_id or "-", found.scope, arguments.agent)
    except ValueError:
        raise InvalidCursorError(arguments.cursor) from None
    if arguments.session not in (None, found.session_id):
        raise InvalidCursorError(arguments.cursor)
    return found


def iterate_pairs(state: Snapshot, after: SearchCursor | None) -> Iterator[tuple[str, str]]:
    """Yield the entries to search after a position: messages, the last first, then the others."""
    pairs = [pair for pair in state.keys if pair[0] not in INTERNAL]
    messages = [pair for pair in pairs if pair[0] == MESSAGES]
    others = [pair for pair in pairs if pair[0] != MESSAGES]
    if after is not None and after.namespace == MESSAGES:
        messages = [pair for pair in messages if pair[1] < after.key]
    elif after is not None:
        messages = []
        others = [pair for pair in others if pair > (after.namespace, after.key)]
    yield from reversed(messages)
    yield from others


def cut_excerpt(text: str, found: re.Match[str]) -> str:
    """Return a match with some text around it."""
    start, end = max(0, found.start() - CONTEXT), min(len(text), found.end() + CONTEXT)
    return f"{'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}"
