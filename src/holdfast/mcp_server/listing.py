"""The tool ``list_checkpoints``: newest first, by the records of the snapshots alone."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import NamedTuple

from holdfast.log.event import format_time
from holdfast.mcp_server.access import Access
from holdfast.mcp_server.arguments import ListArguments
from holdfast.mcp_server.cursors import InvalidCursorError, decode_cursor, encode_cursor
from holdfast.mcp_server.excerpts import MAX_RESULT
from holdfast.mcp_server.results import Checkpoint, CheckpointPage
from holdfast.mcp_server.services import Services
from holdfast.snapshots.catalog.listing import list_session_page
from holdfast.snapshots.event_state import find_head
from holdfast.snapshots.history import iterate_newest_first
from holdfast.snapshots.keys import SCOPES, SnapshotLocation
from holdfast.snapshots.records import SnapshotInfo, decode_record

MAX_SESSIONS = 50
"""Sessions that one call looks into."""
MAX_RECORDS = 1000
"""Records that one call reads to find those with the wanted tags."""


class ListCursor(NamedTuple):
    """Where a page of checkpoints ends: in a session, after a key of its history."""

    session_id: str
    scope: str
    name: str | None
    """The name in the history of the last snapshot that was returned; None before the first."""
    token: str | None
    """The token of the list of sessions after this one; None if there are no more."""


async def list_checkpoints(
    services: Services, access: Access, arguments: ListArguments
) -> CheckpointPage:
    """List the checkpoints of a session, or of an agent's sessions, the last active first.

    Raises:
        AccessError: The caller may not use this agent.
        NotFoundError: There is no such agent or session.
        InvalidCursorError: The cursor is not from a page of this list.

    """
    location = await services.locate(access, arguments.agent, arguments.session)
    page = CheckpointCollector(arguments)
    head_seq = None
    if arguments.session is not None:
        head_seq = await find_head(await services.archive.timeline(location=location))
        await page.read_session(services, location, None)
    else:
        await page.read_sessions(services)
    return CheckpointPage(
        agent=arguments.agent,
        checkpoints=page.rows,
        head_seq=head_seq,
        next_cursor=page.next_cursor,
    )


class CheckpointCollector:
    """Collects one page of checkpoints."""

    def __init__(self, arguments: ListArguments) -> None:
        self._arguments = arguments
        self._read = 0
        self._size = 0
        self._after = parse_cursor(arguments)
        self.rows: list[Checkpoint] = []
        self.next_cursor: str | None = None

    async def read_sessions(self, services: Services) -> None:
        """Read the sessions of the agent, until the page is full."""
        agent_id, after = self._arguments.agent, self._after
        token = None
        if after is not None:
            token = after.token
            location = SnapshotLocation(after.session_id, after.scope, agent_id)
            if after.name is not None and not await self.read_session(services, location, token):
                return
            if token is None:
                return
        for _ in range(MAX_SESSIONS):
            try:
                entries, token = await list_session_page(
                    services.catalog, agent_ids=[agent_id], limit=1, next_token=token
                )
            except ValueError:
                raise InvalidCursorError(str(self._arguments.cursor)) from None
            for entry in entries:
                if not await self.read_session(services, entry.location, token):
                    return
            if token is None:
                return
        # The name is not given: the next page starts with the sessions after the token.
        self.next_cursor = encode_cursor(ListCursor("-", SCOPES[0], None, token))

    async def read_session(
        self, services: Services, location: SnapshotLocation, token: str | None
    ) -> bool:
        """Read the checkpoints of a session; return False if the page is full."""
        async with aclosing(iterate_records(services, location, self._after)) as records:
            last: ListCursor | None = None
            async for name, info in records:
                if last is not None and (self._is_full() or self._read >= MAX_RECORDS):
                    self.next_cursor = encode_cursor(last)
                    return False
                self._read += 1
                last = ListCursor(location.session_id, location.scope, name, token)
                if self._arguments.tags.items() <= info.tags.items():
                    self.rows.append(describe_checkpoint(info))
                    self._size += sum(len(name) + len(info.tags[name]) for name in info.tags)
        if self._is_full() and token is not None:
            self.next_cursor = encode_cursor(
                ListCursor(location.session_id, location.scope, None, token)
            )
            return False
        return True

    def _is_full(self) -> bool:
        return len(self.rows) >= self._arguments.limit or self._size >= MAX_RESULT


def parse_cursor(arguments: ListArguments) -> ListCursor | None:
    """Return the position after which a page starts.

    Raises:
        InvalidCursorError: It is not a cursor of this list.

    """
    if arguments.cursor is None:
        return None
    found = decode_cursor(arguments.cursor, ListCursor)
    try:
        SnapshotLocation(found.session_id, found.scope, arguments.agent)
    except ValueError:
        raise InvalidCursorError(arguments.cursor) from None
    if arguments.session is not None and found.session_id != arguments.session:
        raise InvalidCursorError(arguments.cursor)
    return found


async def iterate_records(
    services: Services, location: SnapshotLocation, after: ListCursor | None
) -> AsyncGenerator[tuple[str, SnapshotInfo], None]:
    """Yield the records of a session's history, newest first, from a position on."""
    start = None
    here = (location.session_id, location.scope)
    if after is not None and after.name is not None and (after.session_id, after.scope) == here:
        start = f"{location.history_prefix}{after.name}.json"
    incarnation = (await services.archive.load_manifest(location=location)).incarnation
    async for history_key in iterate_newest_first(services.state_store, location):
        if start is not None and history_key.key >= start:
            continue
        entry = await services.state_store.get(history_key.key)
        if entry is None:
            continue  # deleted since it was listed
        info = decode_record(history_key.key, entry.value, location)
        if info.incarnation == incarnation:
            yield history_key.name, info


def describe_checkpoint(info: SnapshotInfo) -> Checkpoint:
    """Return a snapshot as a row of the list."""
    return Checkpoint(
        session=info.session_id,
        snapshot=info.snapshot_id,
        seq=info.seq,
        created_at=format_time(info.created_at),
        status=info.status,
        message_count=info.message_count,
        size_bytes=info.size_bytes,
        unfinished=info.unfinished,
        tags=info.tags,
    )
