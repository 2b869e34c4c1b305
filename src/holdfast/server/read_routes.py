"""Read-only routes: agents, sessions, snapshots, events, states, diffs."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import Response

from holdfast.documents.encode import encode_event
from holdfast.errors import NotFoundError
from holdfast.server import schemas
from holdfast.server.auth import get_authority
from holdfast.server.context import (
    AppContext,
    CachedBody,
    Context,
    InSession,
    ScopeQuery,
    SnapshotId,
    body_response,
    decode_cursor,
    encode_body,
    encode_cursor,
    find_location,
    is_cached,
    json_response,
    make_etag,
    make_router,
    not_modified,
    read_head,
    read_head_with_latest,
)
from holdfast.server.heads import SessionHead
from holdfast.server.positions import (
    NOW,
    SessionAt,
    Target,
    event_not_found,
    snapshot_not_found,
)
from holdfast.server.problems import reject_invalid
from holdfast.server.serializers import (
    MAX_COUNTED,
    diff_to_json,
    events_to_brief_json,
    messages_window,
    session_to_json,
    snapshot_to_json,
)
from holdfast.snapshots.keys import MAX_ID_LENGTH
from holdfast.snapshots.records import SnapshotInfo
from holdfast.stores.local import run_in_thread

router = make_router("look", reads=True)

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
async def get_session(request: Request, context: Context, path: InSession) -> Response:
    """Get a session. Its ETag changes with every commit and every snapshot."""
    head, latest = await read_head_with_latest(request, context, path)
    while True:
        try:
            return await respond_with_session(request, context, head, latest)
        except NotFoundError:
            # A prune may have deleted the events that lead to this head, or the last one.
            known = head
            head, latest = await read_head_with_latest(request, context, path)
            if (head.position, head.stored.etag) == (known.position, known.stored.etag):
                raise


async def respond_with_session(
    request: Request, context: AppContext, head: SessionHead, latest: SnapshotInfo | None
) -> Response:
    """Respond with a summary of a session at its head."""
    location = head.location
    ids = await context.archive.list_snapshot_ids(location=location, limit=MAX_COUNTED + 1)
    record = None if latest is None else latest.encode(location)
    tag = make_etag(read_log_version(head), record, ids)
    if is_cached(request, tag):
        return not_modified(tag)

    async def encode() -> CachedBody:
        return encode_body(await session_to_json(context, head, latest, len(ids)), tag)

    return body_response(request, await context.encode_once(head, ("session", tag), encode))


def read_log_version(head: SessionHead) -> object:
    """Return a value that changes with the log."""
    manifest = head.manifest
    return manifest.incarnation, manifest.started_at, manifest.log_start, head.position


# ---------------------------------------------------------------------------------------- events


@router.get(f"{SESSION}/events", response_model=schemas.Events, operation_id="list_events")
async def list_events(
    request: Request,
    context: Context,
    path: InSession,
    first: Annotated[int, Query(ge=1, lt=10**12, description="The first event.")] = 1,
    last: Annotated[int | None, Query(ge=1, lt=10**12, description="The last event.")] = None,
    limit: Limit = 100,
    brief: Annotated[bool, Query(description="Omit values and data.")] = False,
) -> Response:
    """List events from one number to another, both included; pruned ones are omitted.

    A range outside the log is 404. The event after the last one may be requested, to poll for
    new events.
    """
    head = await read_head(request, context, path)
    log_start = head.manifest.log_start.seq
    if last is not None and first <= last <= log_start:
        raise event_not_found(head, last)
    first = max(first, log_start + 1)
    end = first + limit - 1
    asked = end + 1 if last is None else min(last, end + 1)
    if head.end is not None and first > head.end.seq + 1:
        raise event_not_found(head, first)

    async def encode() -> CachedBody:
        found = await context.states.events(head, first, asked)
        following = end + 1 if found and found[-1].seq > end else None
        listed = [event for event in found if event.seq <= end]
        if not brief:
            rows = [encode_event(event) for event in listed]
        elif listed:
            before = await context.states.load(head, Target(first - 1))
            rows = events_to_brief_json(listed, before.state)
        else:
            rows = []
        return encode_body({"events": rows, "next": following})

    # Events that follow the ones asked for do not change the response.
    known = asked if head.end is None else min(asked, head.end.seq)
    key = ("events", first, asked, limit, brief, known)
    return body_response(request, await context.encode_once(head, key, encode))


@router.get(f"{SESSION}/events/{{seq}}", response_model=schemas.Event, operation_id="get_event")
async def get_event(
    request: Request,
    context: Context,
    path: InSession,
    seq: Annotated[int, Path(description="The event number.", examples=[17])],
) -> Response:
    """Get one event. Events are immutable."""
    head = await read_head(request, context, path)
    is_past_end = head.end is not None and seq > head.end.seq
    if seq <= head.manifest.log_start.seq or is_past_end:
        raise event_not_found(head, seq)

    async def encode() -> CachedBody:
        found = await context.states.events(head, seq, seq)
        if not found:
            raise event_not_found(head, seq)
        return encode_body(encode_event(found[0]), make_etag(found[0].hash))

    return body_response(request, await context.encode_once(head, ("event", seq), encode))


@router.get(f"{SESSION}/growth", response_model=schemas.Growth, operation_id="get_growth")
async def get_growth(
    request: Request,
    context: Context,
    path: InSession,
    points: Annotated[int, Query(ge=2, le=2000, description="Page size.")] = 300,
) -> Response:
    """Get the number of messages and bytes over the session's events."""
    head = await read_head(request, context, path)
    tag = make_etag(read_log_version(head), head.location, points)
    if is_cached(request, tag):
        return not_modified(tag)

    async def encode() -> CachedBody:
        return encode_body(await context.growth.compute(head, points), tag)

    return body_response(request, await context.encode_once(head, ("growth", tag), encode))


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
    path: InSession,
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
    without: Annotated[
        list[Annotated[str, Query(max_length=MAX_ID_LENGTH)]] | None,
        Query(
            description="Omit this namespace, such as the files of a workspace. Repeatable.",
            examples=[["files"]],
        ),
    ] = None,
) -> Response:
    """Get the state at a position, with all or some of its messages."""
    head = await read_head(request, context, path)
    target = await context.states.find(head, at)
    window = (message_offset, message_limit, tuple(sorted(set(without or ()))))

    async def encode() -> CachedBody:
        found = await context.states.load(head, target)
        tree = {
            "seq": found.position.seq,
            "hash": found.position.hash,
            "at": await context.states.read_time(head, found),
            "snapshot_id": found.snapshot_id,
            **await run_in_thread(messages_window, found.state, *window),
        }
        return encode_body(tree, make_etag(found.position, found.snapshot_id, *window))

    key = ("state", *target.key, *window)
    return body_response(request, await context.encode_once(head, key, encode))


@router.get(f"{SESSION}/diff", response_model=schemas.Diff, operation_id="diff_moments")
async def diff_positions(
    request: Request,
    context: Context,
    path: InSession,
    from_: FromQuery,
    to: PositionQuery = NOW,
    limit: Limit = MAX_LIMIT,
    patch: Annotated[bool, Query(description="Include a JSON Patch.")] = True,
) -> Response:
    """Compare two positions of a session."""
    head = await read_head(request, context, path)
    first, second = await context.states.find(head, from_), await context.states.find(head, to)

    async def encode() -> CachedBody:
        before, after = (
            await context.states.load(head, first),
            await context.states.load(head, second),
        )
        return await run_in_thread(encode_diff, before, after, limit, with_patch=patch)

    key = ("diff", *first.key, *second.key, limit, patch)
    return body_response(request, await context.encode_once(head, key, encode))


def encode_diff(before: SessionAt, after: SessionAt, limit: int, *, with_patch: bool) -> CachedBody:
    """Encode the differences between two positions."""
    return encode_body(diff_to_json(before, after, limit, with_patch=with_patch))


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
    before = await context.states.at(await context.head(first), from_)
    after = await context.states.at(await context.head(second), to)
    found = await run_in_thread(encode_diff, before, after, limit, with_patch=patch)
    return body_response(request, found)


# ------------------------------------------------------------------------------------- snapshots


@router.get(
    f"{SESSION}/snapshots/{{snapshot_id}}",
    response_model=schemas.SnapshotInfo,
    operation_id="get_snapshot",
)
async def get_snapshot(
    request: Request, context: Context, path: InSession, snapshot_id: SnapshotId
) -> Response:
    """Get the metadata of a snapshot. Snapshots are immutable."""
    location = await find_location(request, context, *path)
    info = await context.archive.load_info(location=location, snapshot_id=snapshot_id)
    if info is None:
        raise snapshot_not_found(location, snapshot_id)
    return body_response(
        request, encode_body(snapshot_to_json(info), make_etag(info.encode(location)))
    )
