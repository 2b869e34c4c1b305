"""Routes that look: agents, sessions, snapshots, events, states, differences."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from holdfast.documents.encode import event_json
from holdfast.log.timeline import Timeline
from holdfast.server import schemas
from holdfast.server.auth import authority_of
from holdfast.server.context import (
    AtDesk,
    Desk,
    Place,
    ScopeQuery,
    SnapshotId,
    answer,
    etag,
    from_cursor,
    is_known,
    known_parameters,
    located,
    tagged,
    to_cursor,
    unchanged,
)
from holdfast.server.moments import NOW, no_snapshot, not_in_log, time_of
from holdfast.server.problems import refusing
from holdfast.server.serializers import (
    MOST_COUNTED,
    brief_events,
    compared,
    growth,
    info_json,
    messages_window,
    summary,
)
from holdfast.snapshots.keys import MAX_ID_LENGTH, SnapshotLocation
from holdfast.snapshots.manifest import SnapshotManifest

router = APIRouter(tags=["look"], dependencies=[Depends(known_parameters)])

MOST = 1000
SEARCHED = 1000
"""How many names one request looks through."""

Limit = Annotated[int, Query(ge=1, le=MOST, description="At most so many.")]
Cursor = Annotated[
    str | None, Query(max_length=2000, description="next_cursor of the answer before.")
]
Search = Annotated[
    str, Query(max_length=MAX_ID_LENGTH, description="A part of the id, in any case.")
]
MomentQuery = Annotated[
    str, Query(pattern=schemas.MOMENT, description=schemas.MOMENT_MEANS, examples=["17"])
]
AgentQuery = Annotated[
    str,
    Query(
        min_length=1, max_length=MAX_ID_LENGTH, description="Its agent.", examples=["research-bot"]
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
        pattern=schemas.MOMENT,
        description=f"What it is compared with. {schemas.MOMENT_MEANS}",
        examples=["5"],
    ),
]

SESSION = "/agents/{agent_id}/sessions/{session_id}"


@router.get("/agents", response_model=schemas.AgentPage, operation_id="list_agents")
async def agents(
    request: Request, desk: AtDesk, limit: Limit = 100, cursor: Cursor = None, search: Search = ""
) -> Response:
    """The agents that have sessions."""
    authority = authority_of(request)
    start = from_cursor(cursor) or ""
    wanted = search.casefold()
    if authority.agents is not None:
        named = sorted(authority.agents)
        known = [each for each in named if await desk.catalog.latest_session(each)]
        found, token = [each for each in known if each > start], None
    else:
        most = SEARCHED if wanted else limit
        with refusing():
            found = await desk.catalog.agents(limit=most, start_after=start)
        token = found[-1] if len(found) == most else None
    matching = [each for each in found if wanted in each.casefold()]
    if len(matching) > limit:
        matching = matching[:limit]
        token = matching[-1]
    rows = [{"agent_id": each} for each in matching]
    return answer({"agents": rows, "next_cursor": to_cursor(token)})


@router.get(SESSION, response_model=schemas.Summary, operation_id="get_session")
async def session(request: Request, desk: AtDesk, place: Place) -> Response:
    """A session as it is now. Its tag changes with every commit and every snapshot."""
    manifest = await desk.archive.load_manifest(location=place)
    latest = await desk.archive.load_info(location=place)
    ids = await desk.archive.list_snapshot_ids(location=place, limit=MOST_COUNTED + 1)
    version = await version_of(desk, place, manifest)
    tag = etag(version, latest and latest.encode(place), ids)
    if is_known(request, tag):
        return unchanged(tag)
    return answer(await summary(desk, place, manifest, latest, len(ids)), tag=tag)


async def version_of(desk: Desk, place: SnapshotLocation, manifest: SnapshotManifest) -> object:
    """What is the same exactly while a log is, at the cost of names and one entry.

    The names are the same in a session that was restored from a backup and continued from there.
    """
    last, keyframe = await (await desk.archive.timeline(location=place)).head()
    entry = await desk.state_store.get(last) if last else None
    return last, entry and entry.etag, keyframe, manifest.log_start


# ---------------------------------------------------------------------------------------- events


@router.get(f"{SESSION}/events", response_model=schemas.Events, operation_id="list_events")
async def events(
    desk: AtDesk,
    place: Place,
    first: Annotated[int, Query(ge=1, lt=10**12, description="From this one.")] = 1,
    last: Annotated[int | None, Query(ge=1, lt=10**12, description="To this one.")] = None,
    limit: Limit = 100,
    brief: Annotated[bool, Query(description="Without values and data.")] = False,
) -> Response:
    """The events from one number to another, both included; what was pruned is left out.

    A range without any event of the log is not found. The event after the last one may be asked
    for, which waits for what comes next.
    """
    log_start = (await desk.archive.load_manifest(location=place)).log_start.seq
    if last is not None and first <= last <= log_start:
        raise await not_in_log(desk.archive, place, last)
    first = max(first, log_start + 1)
    end = first + limit - 1
    asked = end + 1 if last is None else min(last, end + 1)
    timeline = await desk.archive.timeline(location=place)
    found = [event async for event in timeline.events(first, asked)]
    if not found and not await is_reached(timeline, log_start, first - 1):
        raise await not_in_log(desk.archive, place, first)
    following = end + 1 if found and found[-1].seq > end else None
    listed = [event for event in found if event.seq <= end]
    if not brief:
        rows = [event_json(event) for event in listed]
    elif listed:
        rows = brief_events(listed, (await desk.moments.at(place, str(first - 1))).state)
    else:
        rows = []
    return answer({"events": rows, "next": following})


async def is_reached(timeline: Timeline, log_start: int, seq: int) -> bool:
    """Return whether a log has come to an event, pruned or not, without reading all of it."""
    if seq <= log_start:
        return True
    return bool([event async for event in timeline.events(seq, seq)])


@router.get(
    f"{SESSION}/events/{{seq}}", response_model=schemas.EventShape, operation_id="get_event"
)
async def event(
    request: Request,
    desk: AtDesk,
    place: Place,
    seq: Annotated[int, Path(description="The number of the event.", examples=[17])],
) -> Response:
    """One event. It never changes."""
    log_start = (await desk.archive.load_manifest(location=place)).log_start.seq
    if log_start < seq < 10**12:
        timeline = await desk.archive.timeline(location=place)
        async for found in timeline.events(seq, seq):
            return tagged(request, event_json(found), etag(found.hash))
    raise await not_in_log(desk.archive, place, seq)


@router.get(f"{SESSION}/growth", response_model=schemas.Growth, operation_id="get_growth")
async def growth_of(
    request: Request,
    desk: AtDesk,
    place: Place,
    points: Annotated[int, Query(ge=2, le=2000, description="At most so many.")] = 300,
) -> Response:
    """How the session grew: messages and bytes, evenly over its events."""
    manifest = await desk.archive.load_manifest(location=place)
    tag = etag(await version_of(desk, place, manifest), place, points)
    if is_known(request, tag):
        return unchanged(tag)
    return answer(await growth(desk, place, points), tag=tag)


# ---------------------------------------------------------------------------------------- states


@router.get(
    f"{SESSION}/state",
    response_model=schemas.StateAt,
    response_model_exclude_unset=True,
    operation_id="get_state",
)
async def state(
    request: Request,
    desk: AtDesk,
    place: Place,
    at: MomentQuery = NOW,
    message_offset: Annotated[
        int,
        Query(
            ge=-(10**12), le=10**12, description="The first message; counted from the end below 0."
        ),
    ] = 0,
    message_limit: Annotated[
        int | None, Query(ge=0, le=10**12, description="At most so many messages.")
    ] = None,
) -> Response:
    """The state at any step, with all of its messages or some."""
    found = await desk.moments.at(place, at)
    tag = etag(found.position, found.snapshot_id, message_offset, message_limit)
    if is_known(request, tag):
        return unchanged(tag)
    window = await asyncio.to_thread(messages_window, found.state, message_offset, message_limit)
    timeline = await desk.archive.timeline(location=place)
    seq = found.position.seq
    tree = {
        "seq": seq,
        "hash": found.position.hash,
        "at": found.at or (await time_of(timeline, seq) if seq else None),
        "snapshot_id": found.snapshot_id,
        **window,
    }
    return answer(tree, tag=tag)


@router.get(f"{SESSION}/diff", response_model=schemas.DiffShape, operation_id="diff_moments")
async def diff(
    desk: AtDesk,
    place: Place,
    from_: FromQuery,
    to: MomentQuery = NOW,
    limit: Limit = MOST,
    patch: Annotated[bool, Query(description="With a JSON Patch.")] = True,
) -> Response:
    """What differs between two moments of a session."""
    before = await desk.moments.at(place, from_)
    after = await desk.moments.at(place, to)
    return answer(await asyncio.to_thread(compared, before, after, limit, with_patch=patch))


@router.get("/diff", response_model=schemas.DiffShape, operation_id="diff_sessions")
async def diff_of_two(
    request: Request,
    desk: AtDesk,
    from_agent: AgentQuery,
    from_session: SessionQuery,
    to_agent: AgentQuery,
    to_session: SessionQuery,
    from_scope: ScopeQuery = None,
    to_scope: ScopeQuery = None,
    from_: FromQuery = NOW,
    to: MomentQuery = NOW,
    limit: Limit = MOST,
    patch: Annotated[bool, Query(description="With a JSON Patch.")] = True,
) -> Response:
    """What differs between a moment of one session and a moment of another."""
    authority_of(request).check(from_agent, to_agent)
    with refusing():
        first = await located(request, desk, from_agent, from_session, from_scope)
        second = await located(request, desk, to_agent, to_session, to_scope)
    before = await desk.moments.at(first, from_)
    after = await desk.moments.at(second, to)
    return answer(await asyncio.to_thread(compared, before, after, limit, with_patch=patch))


# ------------------------------------------------------------------------------------- snapshots


@router.get(
    f"{SESSION}/snapshots/{{snapshot_id}}",
    response_model=schemas.SnapshotShape,
    operation_id="get_snapshot",
)
async def snapshot(
    request: Request, desk: AtDesk, place: Place, snapshot_id: SnapshotId
) -> Response:
    """What is known of one snapshot. It never changes."""
    info = await desk.archive.load_info(location=place, snapshot_id=snapshot_id)
    if info is None:
        raise no_snapshot(place, snapshot_id)
    return tagged(request, info_json(info), etag(info.encode(place)))
