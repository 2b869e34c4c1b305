"""Routes that list and filter sessions and snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

from fastapi import Depends, Query
from starlette.requests import Request
from starlette.responses import Response

from holdfast.log.event import format_time
from holdfast.server import schemas
from holdfast.server.auth import get_authority
from holdfast.server.context import (
    AgentId,
    AppContext,
    Context,
    InSession,
    decode_cursor,
    encode_cursor,
    find_location,
    invalid_cursor,
    json_response,
    make_router,
)
from holdfast.server.problems import Problem, reject_invalid
from holdfast.server.read_routes import MAX_SEARCHED, SESSION, Cursor, Limit, Search
from holdfast.server.serializers import snapshot_to_json
from holdfast.snapshots.catalog.index import SessionEntry
from holdfast.snapshots.catalog.listing import list_session_page
from holdfast.snapshots.catalog.summary import SessionSummary, summarize_sessions
from holdfast.snapshots.filters import ListingFilter, make_filter, parse_since
from holdfast.snapshots.keys import location_fields

router = make_router("look", reads=True)

MAX_READ = 200
"""Sessions that one request reads to find matches."""

StatusQuery = Annotated[
    list[schemas.Status] | None,
    Query(description="Only this status. Repeatable.", examples=[["failed"]]),
]
TagQuery = Annotated[
    list[Annotated[str, Query(pattern="^[^=]+=", max_length=2000)]] | None,
    Query(description="Only with this tag, as K=V. Repeatable.", examples=[["env=x"]]),
]
SinceQuery = Annotated[
    str | None,
    Query(
        pattern=r"^([0-9]{1,9}[smhdw]|[0-9]{4}-[0-9]{2}-[0-9]{2}[0-9T:.Z +-]{0,30})$",
        description="Only since a time (UTC by default), or a duration such as 2h or 3d.",
        examples=["2h"],
    ),
]
UnfinishedQuery = Annotated[bool, Query(description="Only with unfinished tool calls.")]
DetailsQuery = Annotated[
    bool,
    Query(description="Include status, counts and tags; reads each session."),
]


class FilterQuery(NamedTuple):
    """The filter of a request, as it was sent."""

    status: Sequence[str] | None = None
    tag: Sequence[str] | None = None
    since: str | None = None
    unfinished: bool = False

    def read(self) -> ListingFilter:
        """Return the filter; a duration counts from now."""
        tags = dict(each.split("=", maxsplit=1) for each in self.tag or ())
        try:
            moment = None if self.since is None else parse_since(self.since)
        except ValueError as error:
            raise Problem(400, str(error), hint="see /docs") from error
        with reject_invalid():
            return make_filter(
                status=self.status, tags=tags, since=moment, unfinished=self.unfinished
            )


async def get_filter(
    status: StatusQuery = None,
    tag: TagQuery = None,
    since: SinceQuery = None,
    unfinished: UnfinishedQuery = False,
) -> FilterQuery:
    """Dependency: return the filter of a request."""
    return FilterQuery(status, tag, since, unfinished)


Filter = Annotated[FilterQuery, Depends(get_filter)]


@router.get("/sessions", response_model=schemas.SessionPage, operation_id="list_all_sessions")
async def list_all_sessions(
    request: Request,
    context: Context,
    wanted: Filter,
    limit: Limit = 100,
    cursor: Cursor = None,
    search: Search = "",
    details: DetailsQuery = False,
) -> Response:
    """List the sessions of all agents, most recently active first."""
    agents = get_authority(request).agents
    named = None if agents is None else sorted(agents)
    return await respond_with_sessions(
        context, named, wanted.read(), limit, cursor, search, details=details
    )


@router.get(
    "/agents/{agent_id}/sessions",
    response_model=schemas.SessionPage,
    operation_id="list_sessions",
)
async def list_sessions(
    request: Request,
    context: Context,
    agent_id: AgentId,
    wanted: Filter,
    limit: Limit = 100,
    cursor: Cursor = None,
    search: Search = "",
    details: DetailsQuery = False,
) -> Response:
    """List an agent's sessions, most recently active first."""
    get_authority(request).check(agent_id)
    if cursor is None:
        await find_location(request, context, agent_id)
    return await respond_with_sessions(
        context, [agent_id], wanted.read(), limit, cursor, search, details=details
    )


async def respond_with_sessions(
    context: AppContext,
    agent_ids: Sequence[str] | None,
    wanted: ListingFilter,
    limit: int,
    cursor: str | None,
    search: str,
    *,
    details: bool,
) -> Response:
    """Respond with a page of sessions, which are read only for filters or details."""
    token = decode_cursor(cursor)
    rows: list[dict[str, Any]]
    try:
        if wanted or details:
            page = await summarize_sessions(
                context.catalog,
                agent_ids=agent_ids,
                wanted=wanted,
                search=search,
                limit=limit,
                next_token=token,
                max_scanned=MAX_READ,
            )
            rows = [session_summary_to_json(each) for each in page.sessions]
            following = page.next_token
        else:
            found, following = await list_session_page(
                context.catalog,
                agent_ids=agent_ids,
                search=search,
                limit=limit,
                next_token=token,
                max_scanned=MAX_SEARCHED,
            )
            rows = [session_entry_to_json(each) for each in found]
    except ValueError:
        raise invalid_cursor(cursor) from None
    return json_response({"sessions": rows, "next_cursor": encode_cursor(following)})


def session_entry_to_json(entry: SessionEntry) -> dict[str, Any]:
    """Return an index entry as JSON data."""
    return {
        **location_fields(entry.location),
        "started_at": format_time(entry.started_at),
        "active_at": format_time(entry.active_at),
    }


def session_summary_to_json(each: SessionSummary) -> dict[str, Any]:
    """Return a session summary as JSON data."""
    return {
        **each.to_json(),
        "message_count": each.message_count,
        "last_event": each.event_count,
        "problem": each.problem,
    }


@router.get(
    f"{SESSION}/snapshots", response_model=schemas.SnapshotPage, operation_id="list_snapshots"
)
async def list_snapshots(
    request: Request,
    context: Context,
    path: InSession,
    wanted: Filter,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """List the session's snapshots, oldest first."""
    location, needed = await find_location(request, context, *path), wanted.read()
    token = decode_cursor(cursor)
    try:
        page = await context.archive.list_snapshots(
            location=location,
            limit=limit,
            next_token=token,
            status=needed.statuses,
            tags=needed.tags,
            since=needed.since,
            unfinished=needed.unfinished,
        )
    except ValueError:
        raise invalid_cursor(cursor) from None
    rows = [snapshot_to_json(info) for info in page.snapshots]
    return json_response({"snapshots": rows, "next_cursor": encode_cursor(page.next_token)})
