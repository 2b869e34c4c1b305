"""The route of live events."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import Header, Query
from starlette.requests import Request

from holdfast.server.auth import get_authority
from holdfast.server.context import Context, InSession, make_router, read_head
from holdfast.server.event_stream import MEDIA_TYPE, EventStream, encode_brief, encode_full
from holdfast.server.positions import MAX_SEQ, event_not_found
from holdfast.server.problems import describe_problem
from holdfast.server.read_routes import SESSION
from holdfast.snapshots.follow import LogFollower

router = make_router("look")

EXAMPLE = 'id: 17\nevent: event\ndata: {"seq": 17, "type": "message.appended", …}\n\n'
RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Events until the client hangs up.",
        "content": {MEDIA_TYPE: {"schema": {"type": "string"}, "example": EXAMPLE}},
    },
    429: describe_problem(429),
}


@router.get(
    f"{SESSION}/events/stream",
    status_code=200,
    response_class=EventStream,
    responses=RESPONSES,
    operation_id="stream_events",
)
async def stream_events(
    request: Request,
    context: Context,
    path: InSession,
    after: Annotated[
        int | None,
        Query(
            ge=0,
            lt=MAX_SEQ,
            description="Start after this event, 0 for the beginning of the log; by default after "
            "the last one.",
        ),
    ] = None,
    last_event_id: Annotated[
        int | None,
        Header(
            alias="Last-Event-ID",
            ge=0,
            lt=MAX_SEQ,
            description="Start after this event, as a browser does that connects again; takes "
            "precedence over after.",
        ),
    ] = None,
    brief: Annotated[bool, Query(description="Omit data and changes.")] = False,
) -> EventStream:
    """Stream events as they are committed, as server-sent events.

    Each has its number as `id`, the name `event`, and as `data` the JSON of an event. A comment is
    sent as a heartbeat. An error ends the stream with an event named `problem`.
    """
    head = await context.threads.run(partial(read_head, request, context, path))
    start = after if last_event_id is None else last_event_id
    if start is not None and not (
        start == 0 or head.manifest.log_start.seq <= start <= head.position.seq
    ):
        raise event_not_found(head, start)

    def follow() -> LogFollower:
        return LogFollower(
            context.state_store,
            head.location,
            head.position if start is None else start,
            head.manifest.incarnation,
        )

    return EventStream(
        follow,
        encode_brief if brief else encode_full,
        context.streams,
        get_authority(request),
        context.limits.heartbeat,
    )
