"""Routes that list sessions and snapshots, with filters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from starlette.requests import Request
from starlette.responses import Response

from holdfast.log.event import format_time
from holdfast.server import schemas
from holdfast.server.auth import authority_of
from holdfast.server.context import (
    AgentId,
    AtDesk,
    Desk,
    Place,
    answer,
    bad_cursor,
    from_cursor,
    known_parameters,
    located,
    to_cursor,
)
from holdfast.server.problems import Problem, refusing
from holdfast.server.read_routes import SEARCHED, SESSION, Cursor, Limit, Search
from holdfast.server.serializers import info_json
from holdfast.snapshots.catalog.catalog import SessionEntry
from holdfast.snapshots.catalog.listing import list_session_page
from holdfast.snapshots.catalog.summary import SessionSummary, summarize_sessions
from holdfast.snapshots.filters import ListingFilter, make_filter, parse_since
from holdfast.snapshots.keys import location_fields

router = APIRouter(tags=["look"], dependencies=[Depends(known_parameters)])

MOST_READ = 200
"""How many sessions one request reads to find those that match."""

StatusQuery = Annotated[
    list[schemas.Status] | None,
    Query(description="Only with this status; may be repeated.", examples=[["failed"]]),
]
TagQuery = Annotated[
    list[Annotated[str, Query(pattern="^[^=]+=", max_length=2000)]] | None,
    Query(description="Only with this tag, as name=value; may be repeated.", examples=[["env=x"]]),
]
SinceQuery = Annotated[
    str | None,
    Query(
        pattern=r"^([0-9]{1,9}[smhdw]|[0-9]{4}-[0-9]{2}-[0-9]{2}[0-9T:.Z +-]{0,30})$",
        description="Only since a time, UTC without a zone, or a duration such as 2h or 3d ago.",
        examples=["2h"],
    ),
]
UnfinishedQuery = Annotated[bool, Query(description="Only with tool calls that have no result.")]
DetailsQuery = Annotated[
    bool,
    Query(description="With status, counts and tags, for which each session is read."),
]


def read_filter(
    status: Sequence[str] | None = None,
    tag: Sequence[str] | None = None,
    since: str | None = None,
    *,
    unfinished: bool = False,
) -> ListingFilter:
    """Return the filter that the parameters of a request describe."""
    tags = dict(each.split("=", maxsplit=1) for each in tag or ())
    try:
        moment = None if since is None else parse_since(since)
    except ValueError as error:
        raise Problem(400, str(error), hint="see /docs for what is taken") from error
    with refusing():
        return make_filter(status=status, tags=tags, since=moment, unfinished=unfinished)


async def filter_of(
    status: StatusQuery = None,
    tag: TagQuery = None,
    since: SinceQuery = None,
    unfinished: UnfinishedQuery = False,
) -> ListingFilter:
    """Return the filter of a request."""
    return read_filter(status, tag, since, unfinished=unfinished)


Wanted = Annotated[ListingFilter, Depends(filter_of)]


@router.get("/sessions", response_model=schemas.SessionItems, operation_id="list_all_sessions")
async def all_sessions(
    request: Request,
    desk: AtDesk,
    wanted: Wanted,
    limit: Limit = 100,
    cursor: Cursor = None,
    search: Search = "",
    details: DetailsQuery = False,
) -> Response:
    """The sessions of all agents, the one that was active last first."""
    agents = authority_of(request).agents
    named = None if agents is None else sorted(agents)
    return await session_page(desk, named, wanted, limit, cursor, search, details=details)


@router.get(
    "/agents/{agent_id}/sessions",
    response_model=schemas.SessionItems,
    operation_id="list_sessions",
)
async def sessions(
    request: Request,
    desk: AtDesk,
    agent_id: AgentId,
    wanted: Wanted,
    limit: Limit = 100,
    cursor: Cursor = None,
    search: Search = "",
    details: DetailsQuery = False,
) -> Response:
    """An agent's sessions, the one that was active last first."""
    authority_of(request).check(agent_id)
    if cursor is None:
        await located(request, desk, agent_id)
    return await session_page(desk, [agent_id], wanted, limit, cursor, search, details=details)


async def session_page(
    desk: Desk,
    agent_ids: Sequence[str] | None,
    wanted: ListingFilter,
    limit: int,
    cursor: str | None,
    search: str,
    *,
    details: bool,
) -> Response:
    """Answer with a page of sessions; they are read where a filter or the details need it."""
    token = from_cursor(cursor)
    rows: list[dict[str, Any]]
    try:
        if wanted or details:
            page = await summarize_sessions(
                desk.catalog,
                agent_ids=agent_ids,
                wanted=wanted,
                search=search,
                limit=limit,
                next_token=token,
                max_scanned=MOST_READ,
            )
            rows = [summary_json(each) for each in page.sessions]
            following = page.next_token
        else:
            found, following = await list_session_page(
                desk.catalog,
                agent_ids=agent_ids,
                search=search,
                limit=limit,
                next_token=token,
                max_scanned=SEARCHED,
            )
            rows = [entry_json(each) for each in found]
    except ValueError:
        raise bad_cursor(cursor) from None
    return answer({"sessions": rows, "next_cursor": to_cursor(following)})


def entry_json(entry: SessionEntry) -> dict[str, Any]:
    """Return what is known of a session by its name."""
    return {
        **location_fields(entry.location),
        "started_at": format_time(entry.started_at),
        "active_at": format_time(entry.active_at),
    }


def summary_json(each: SessionSummary) -> dict[str, Any]:
    """Return what a list says of a session."""
    return {
        **location_fields(each.location),
        "started_at": format_time(each.started_at),
        "active_at": format_time(each.active_at),
        "status": each.status,
        "message_count": each.message_count,
        "size_bytes": each.size_bytes,
        "last_event": each.event_count,
        "unfinished_calls": len(each.unfinished),
        "tags": each.tags,
        "problem": each.problem,
    }


@router.get(
    f"{SESSION}/snapshots", response_model=schemas.SnapshotItems, operation_id="list_snapshots"
)
async def snapshots(
    desk: AtDesk, place: Place, wanted: Wanted, limit: Limit = 100, cursor: Cursor = None
) -> Response:
    """The snapshots in the session's history, the oldest first."""
    token = from_cursor(cursor)
    try:
        page = await desk.archive.list_snapshots(
            location=place,
            limit=limit,
            next_token=token,
            status=wanted.statuses,
            tags=wanted.tags,
            since=wanted.since,
            unfinished=wanted.unfinished,
        )
    except ValueError:
        raise bad_cursor(cursor) from None
    rows = [info_json(info) for info in page.snapshots]
    return answer({"snapshots": rows, "next_cursor": to_cursor(page.next_token)})
