"""Read-only routes: agents, sessions, snapshots, events, states, diffs."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from holdfast.documents.encode import encode_event
from holdfast.log.timeline import Timeline
from holdfast.server import schemas
from holdfast.server.auth import get_authority
from holdfast.server.context import (
    AppContext,
    Context,
    Location,
    ScopeQuery,
    SnapshotId,
    cacheable_response,
    decode_cursor,
    encode_cursor,
    find_location,
    is_cached,
    json_response,
    make_etag,
    not_modified,
    reject_unknown_parameters,
)
from holdfast.server.positions import NOW, event_not_found, read_event_time, snapshot_not_found
from holdfast.server.problems import reject_invalid
from holdfast.server.serializers import (
    MAX_COUNTED,
    compute_growth,
    diff_to_json,
    events_to_brief_json,
    messages_window,
    session_to_json,
    snapshot_to_json,
)
from holdfast.snapshots.keys import MAX_ID_LENGTH, SnapshotLocation
from holdfast.snapshots.manifest import SnapshotManifest

router = APIRouter(tags=["look"], dependencies=[Depends(reject_unknown_parameters)])

MAX_LIMIT = 1000
MAX_SEARCHED = 1000
"""Names that one request searches."""

Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Page size.")]
Cursor = Annotated[
    str | None, Query(max_length=2000, description="next_cursor of the previous page.")
]
Search = Annotated[
    str, Query(max_length=MAX_ID_LENGTH, description="A part of the id, case-insensitive.")
]
PositionQuery = Annotated[
    str,
    Query(
        pattern=schemas.POSITION_PATTERN, description=schemas.POSITION_DESCRIPTION, examples=["17"]
    ),
]
AgentQuery = Annotated[
    str,
    Query(
        min_length=1, max_length=MAX_ID_LENGTH, description="The agent.", examples=["research-bot"]
    ),
]
SessionQuery = Annotated[
    str,
    Query(
        min_length=1, max_length=MAX_ID_LENGTH, description="The session.", examples=["ses_abc123"]
    ),
]
FromQuery = Annotated[
    str,
    Query(
        alias="from",
        pattern=schemas.POSITION_PATTERN,
        description=f"The earlier position. {schemas.POSITION_DESCRIPTION}",
        examples=["5"],
    ),
]

SESSION = "/agents/{agent_id}/sessions/{session_id}"


@router.get("/agents", response_model=schemas.AgentPage, operation_id="list_agents")
async def list_agents(
    request: Request,
    context: Context,
    limit: Limit = 100,
    cursor: Cursor = None,
    search: Search = "",
) -> Response:
    """List the agents that have sessions."""
    authority = get_authority(request)
    start = decode_cursor(cursor) or ""
    wanted = search.casefold()
    if authority.agents is not None:
        named = sorted(authority.agents)
        known = [each for each in named if await context.catalog.latest_session(each)]
        found, token = [each for each in known if each > start], None
    else:
        most = MAX_SEARCHED if wanted else limit
        with reject_invalid():
            found = await context.catalog.agents(limit=most, start_after=start)
        token = found[-1] if len(found) == most else None
    matching = [each for each in found if wanted in each.casefold()]
    if len(matching) > limit:
        matching = matching[:limit]
        token = matching[-1]
    rows = [{"agent_id": each} for each in matching]
    return json_response({"agents": rows, "next_cursor": encode_cursor(token)})


@router.get(SESSION, response_model=schemas.Session, operation_id="get_session")
async def get_session(request: Request, context: Context, location: Location) -> Response:
    """Get a session. Its ETag changes with every commit and every snapshot."""
    manifest = await context.archive.load_manifest(location=location)
    latest = await context.archive.load_info(location=location)
    ids = await context.archive.list_snapshot_ids(location=location, limit=MAX_COUNTED + 1)
    version = await read_log_version(context, location, manifest)
    tag = make_etag(version, latest and latest.encode(location), ids)
    if is_cached(request, tag):
        return not_modified(tag)
    return json_response(
        await session_to_json(context, location, manifest, latest, len(ids)), tag=tag
    )


async def read_log_version(
    context: AppContext, location: SnapshotLocation, manifest: SnapshotManifest
) -> object:
    """Return a value that changes with the log, at the cost of a listing and one entry.

    The entry is needed since a session that was restored from a backup has the same keys.
    """
    last, keyframe = await (await context.archive.timeline(location=location)).change_token()
    entry = await context.state_store.get(last) if last else None
    return last, entry and entry.etag, keyframe, manifest.log_start


# ---------------------------------------------------------------------------------------- events


@router.get(f"{SESSION}/events", response_model=schemas.Events, operation_id="list_events")
async def list_events(
    context: Context,
    location: Location,
    first: Annotated[int, Query(ge=1, lt=10**12, description="The first event.")] = 1,
    last: Annotated[int | None, Query(ge=1, lt=10**12, description="The last event.")] = None,
    limit: Limit = 100,
    brief: Annotated[bool, Query(description="Omit values and data.")] = False,
) -> Response:
    """List events from one number to another, both included; pruned ones are omitted.

    A range outside the log is 404. The event after the last one may be requested, to poll for
    new events.
    """
    log_start = (await context.archive.load_manifest(location=location)).log_start.seq
    if last is not None and first <= last <= log_start:
        raise await event_not_found(context.archive, location, last)
    first = max(first, log_start + 1)
    end = first + limit - 1
    asked = end + 1 if last is None else min(last, end + 1)
    timeline = await context.archive.timeline(location=location)
    found = [event async for event in timeline.events(first, asked)]
    if not found and not await has_reached(timeline, log_start, first - 1):
        raise await event_not_found(context.archive, location, first)
    following = end + 1 if found and found[-1].seq > end else None
    listed = [event for event in found if event.seq <= end]
    if not brief:
        rows = [encode_event(event) for event in listed]
    elif listed:
        rows = events_to_brief_json(
            listed, (await context.states.at(location, str(first - 1))).state
        )
    else:
        rows = []
    return json_response({"events": rows, "next": following})


async def has_reached(timeline: Timeline, log_start: int, seq: int) -> bool:
    """Return whether the log contains or contained an event, without reading all of it."""
    if seq <= log_start:
        return True
    return bool([event async for event in timeline.events(seq, seq)])


@router.get(f"{SESSION}/events/{{seq}}", response_model=schemas.Event, operation_id="get_event")
async def get_event(
    request: Request,
    context: Context,
    location: Location,
    seq: Annotated[int, Path(description="The event number.", examples=[17])],
) -> Response:
    """Get one event. Events are immutable."""
    log_start = (await context.archive.load_manifest(location=location)).log_start.seq
    if log_start < seq < 10**12:
        timeline = await context.archive.timeline(location=location)
        async for found in timeline.events(seq, seq):
            return cacheable_response(request, encode_event(found), make_etag(found.hash))
    raise await event_not_found(context.archive, location, seq)


@router.get(f"{SESSION}/growth", response_model=schemas.Growth, operation_id="get_growth")
async def get_growth(
    request: Request,
    context: Context,
    location: Location,
    points: Annotated[int, Query(ge=2, le=2000, description="Page size.")] = 300,
) -> Response:
    """Get the number of messages and bytes over the session's events."""
    manifest = await context.archive.load_manifest(location=location)
    tag = make_etag(await read_log_version(context, location, manifest), location, points)
    if is_cached(request, tag):
        return not_modified(tag)
    return json_response(await compute_growth(context, location, points), tag=tag)


# ---------------------------------------------------------------------------------------- states


@router.get(
    f"{SESSION}/state",
    response_model=schemas.StateAt,
    response_model_exclude_unset=True,
    operation_id="get_state",
)
async def get_state(
    request: Request,
    context: Context,
    location: Location,
    at: PositionQuery = NOW,
    message_offset: Annotated[
        int,
        Query(
            ge=-(10**12), le=10**12, description="The first message; negative counts from the end."
        ),
    ] = 0,
    message_limit: Annotated[
        int | None, Query(ge=0, le=10**12, description="The number of messages.")
    ] = None,
) -> Response:
    """Get the state at a position, with all or some of its messages."""
    found = await context.states.at(location, at)
    tag = make_etag(found.position, found.snapshot_id, message_offset, message_limit)
    if is_cached(request, tag):
        return not_modified(tag)
    window = await asyncio.to_thread(messages_window, found.state, message_offset, message_limit)
    timeline = await context.archive.timeline(location=location)
    seq = found.position.seq
    tree = {
        "seq": seq,
        "hash": found.position.hash,
        "at": found.at or (await read_event_time(timeline, seq) if seq else None),
        "snapshot_id": found.snapshot_id,
        **window,
    }
    return json_response(tree, tag=tag)


@router.get(f"{SESSION}/diff", response_model=schemas.Diff, operation_id="diff_moments")
async def diff_positions(
    context: Context,
    location: Location,
    from_: FromQuery,
    to: PositionQuery = NOW,
    limit: Limit = MAX_LIMIT,
    patch: Annotated[bool, Query(description="Include a JSON Patch.")] = True,
) -> Response:
    """Compare two positions of a session."""
    before = await context.states.at(location, from_)
    after = await context.states.at(location, to)
    return json_response(
        await asyncio.to_thread(diff_to_json, before, after, limit, with_patch=patch)
    )


@router.get("/diff", response_model=schemas.Diff, operation_id="diff_sessions")
async def diff_sessions(
    request: Request,
    context: Context,
    from_agent: AgentQuery,
    from_session: SessionQuery,
    to_agent: AgentQuery,
    to_session: SessionQuery,
    from_scope: ScopeQuery = None,
    to_scope: ScopeQuery = None,
    from_: FromQuery = NOW,
    to: PositionQuery = NOW,
    limit: Limit = MAX_LIMIT,
    patch: Annotated[bool, Query(description="Include a JSON Patch.")] = True,
) -> Response:
    """Compare a position of one session with a position of another."""
    get_authority(request).check(from_agent, to_agent)
    with reject_invalid():
        first = await find_location(request, context, from_agent, from_session, from_scope)
        second = await find_location(request, context, to_agent, to_session, to_scope)
    before = await context.states.at(first, from_)
    after = await context.states.at(second, to)
    return json_response(
        await asyncio.to_thread(diff_to_json, before, after, limit, with_patch=patch)
    )


# ------------------------------------------------------------------------------------- snapshots


@router.get(
    f"{SESSION}/snapshots/{{snapshot_id}}",
    response_model=schemas.SnapshotInfo,
    operation_id="get_snapshot",
)
async def get_snapshot(
    request: Request, context: Context, location: Location, snapshot_id: SnapshotId
) -> Response:
    """Get the metadata of a snapshot. Snapshots are immutable."""
    info = await context.archive.load_info(location=location, snapshot_id=snapshot_id)
    if info is None:
        raise snapshot_not_found(location, snapshot_id)
    return cacheable_response(request, snapshot_to_json(info), make_etag(info.encode(location)))
