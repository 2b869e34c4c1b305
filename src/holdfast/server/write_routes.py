"""Routes that write: save, restore, fork, delete. Each has a dry run.

``If-Match`` with the session's head makes a request fail if the session changed since it was read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import Body, Header, Query
from starlette.requests import Request
from starlette.responses import Response

from holdfast.errors import ConflictError, NotFoundError
from holdfast.log.encoded_event import new_event
from holdfast.log.event_log import Position
from holdfast.server import schemas
from holdfast.server.auth import get_authority
from holdfast.server.context import (
    AppContext,
    Context,
    Location,
    SnapshotId,
    json_response,
    make_router,
)
from holdfast.server.positions import NOW, SessionAt, snapshot_not_found
from holdfast.server.problems import Problem, reject_invalid
from holdfast.server.read_routes import MAX_LIMIT, SESSION
from holdfast.server.serializers import diff_to_json, snapshot_to_json
from holdfast.sessions.restore import compute_restore_changes
from holdfast.sessions.session import Session
from holdfast.snapshots.keys import SnapshotLocation, location_fields
from holdfast.snapshots.records import validate_tags
from holdfast.snapshots.session_state import MESSAGES, SessionState
from holdfast.state.store import Store, write_batch

router = make_router("change")

DryRun = Annotated[bool, Query(description="Report what would be done without doing it.")]
IfMatch = Annotated[
    str | None,
    Header(
        description="The head that the session must have.",
        examples=[f'"{schemas.EXAMPLE_HASH}"'],
    ),
]


def check_head(position: Position, if_match: str | None) -> None:
    """Reject a head that does not match ``If-Match``."""
    if if_match is None or (if_match.strip() == "*" and position.seq):
        return
    if position.hash not in [each.strip().strip('"') for each in if_match.split(",")]:
        head = f"its head is {position.hash} at event {position.seq}"
        raise session_changed(head if position.seq else "it does not exist")


async def check_session_head(
    context: AppContext, location: SnapshotLocation, if_match: str | None
) -> None:
    """Reject a session whose head does not match ``If-Match``."""
    if if_match is None:
        return
    check_head((await context.head(location)).position, if_match)


@contextmanager
def changed_on_conflict(if_match: str | None) -> Iterator[None]:
    """Turn a conflict into a 412 problem if the request has ``If-Match``."""
    try:
        yield
    except ConflictError as error:
        if if_match is None:
            raise
        raise session_changed(str(error)) from error


def session_changed(how: str) -> Problem:
    """Return the problem of a session that has changed."""
    return Problem(412, f"session has changed: {how}", hint="reload the session and retry")


@router.post(
    f"{SESSION}/snapshots",
    response_model=schemas.SnapshotInfo,
    status_code=201,
    responses={200: {"model": schemas.SaveDryRun, "description": "A dry run."}},
    operation_id="save_snapshot",
)
async def save_snapshot(
    context: Context,
    location: Location,
    body: Annotated[schemas.SaveRequest, Body(default_factory=schemas.SaveRequest)],
    dry_run: DryRun = False,
    if_match: IfMatch = None,
) -> Response:
    """Save a durable snapshot of the session."""
    async with context.session_lock(location):
        session = await context.session(location)
        check_head(session.log.head, if_match)
        if dry_run:
            with reject_invalid():
                validate_tags(body.tags)
            return json_response(preview_save(session))
        with reject_invalid():
            saved = await session.save(tags=body.tags)
    context.metrics.count_change("saved")
    return json_response(snapshot_to_json(saved.info()), status=201)


def preview_save(session: Session) -> dict[str, Any]:
    """Return what a snapshot would contain."""
    return {
        "dry_run": True,
        **location_fields(session.location),
        "status": session.status,
        "message_count": session.message_count,
        "size_bytes": session.snapshot().size_bytes,
        "seq": session.log.head.seq,
        "unfinished": bool(session.unfinished),
    }


@router.delete(
    f"{SESSION}/snapshots/{{snapshot_id}}",
    status_code=204,
    response_class=Response,
    responses={200: {"model": schemas.SnapshotInfo, "description": "A dry run."}},
    operation_id="delete_snapshot",
)
async def delete_snapshot(
    context: Context,
    location: Location,
    snapshot_id: SnapshotId,
    dry_run: DryRun = False,
    if_match: IfMatch = None,
) -> Response:
    """Delete one snapshot."""
    async with context.session_lock(location):
        info = await context.archive.load_info(location=location, snapshot_id=snapshot_id)
        if info is None:
            raise snapshot_not_found(location, snapshot_id)
        await check_session_head(context, location, if_match)
        if dry_run:
            return json_response(snapshot_to_json(info))
        await context.archive.delete_snapshot(location=location, snapshot_id=snapshot_id)
    context.metrics.count_change("snapshot deleted")
    return Response(status_code=204)


@router.post(f"{SESSION}/restore", response_model=schemas.Restored, operation_id="restore_session")
async def restore_session(
    context: Context,
    location: Location,
    body: schemas.RestoreRequest,
    dry_run: DryRun = False,
    if_match: IfMatch = None,
) -> Response:
    """Restore the state to a position. The log is not truncated, so it can be undone."""
    async with context.session_lock(location):
        session = await context.session(location)
        check_head(session.log.head, if_match)
        goal = await load_target(context, session, body.at)
        before = SessionAt(location, session.snapshot(), session.log.head)
        changes = await asyncio.to_thread(preview_restore, before, goal)
        if not dry_run:
            with changed_on_conflict(if_match):
                await apply_restore(session, goal)
            context.metrics.count_change("restored")
    return json_response(
        {
            "dry_run": dry_run,
            **location_fields(location),
            "at": goal.to_json(),
            "changes": changes,
            "previous_event": before.position.seq,
            "last_event": session.log.head.seq,
        }
    )


async def load_target(context: AppContext, session: Session, at: str) -> SessionAt:
    """Return an open session at a position; ``now`` is its head when it was opened."""
    if at == NOW:
        return SessionAt(session.location, session.snapshot(), session.log.head)
    return await context.states.at(await context.head(session.location), at)


async def apply_restore(session: Session, goal: SessionAt) -> None:
    """Restore the session; the log names the snapshot if there is one."""
    if goal.snapshot_id is None:
        await session.restore(goal.state)
    else:
        await session.restore(goal.snapshot_id)


def preview_restore(before: SessionAt, goal: SessionAt) -> dict[str, Any]:
    """Return what a restore changes; results of once() are kept."""
    store = Store(max_history=0)
    store.restore(before.state)
    changes = compute_restore_changes(goal.state, store)
    write_batch(store, new_event("state.restored", None, changes).batch)
    after = SessionAt(goal.location, store.snapshot(), goal.position, goal.snapshot_id)
    return diff_to_json(before, after, MAX_LIMIT)


@router.post(
    f"{SESSION}/fork",
    response_model=schemas.Forked,
    status_code=201,
    responses={200: {"model": schemas.Forked, "description": "A dry run."}},
    operation_id="fork_session",
)
async def fork_session(
    request: Request,
    context: Context,
    location: Location,
    body: Annotated[schemas.ForkRequest, Body(default_factory=schemas.ForkRequest)],
    dry_run: DryRun = False,
    if_match: IfMatch = None,
) -> Response:
    """Create a session with the state of this one at a position."""
    agent_id = location.scope_id if body.agent_id is None else body.agent_id
    # Checked first, so that the response does not reveal sessions of other agents.
    get_authority(request).check(agent_id)
    session = await context.session(location)
    check_head(session.log.head, if_match)
    goal = await load_target(context, session, body.at)
    with reject_invalid():
        if dry_run:
            session_id = body.session_id
            await check_session_free(context, location, agent_id, session_id)
        else:
            at = None if body.at == NOW else goal.snapshot_id or goal.state
            other = await session.fork(body.session_id, at=at, agent_id=body.agent_id)
            session_id = other.session_id
            context.metrics.count_change("forked")
    tree = {
        "dry_run": dry_run,
        "agent_id": agent_id,
        "session_id": session_id,
        "scope": location.scope,
        "message_count": goal.state.count(MESSAGES),
        "status": SessionState(goal.state).status,
        "from": goal.to_json(),
    }
    return json_response(tree, status=200 if dry_run else 201)


async def check_session_free(
    context: Context, location: SnapshotLocation, agent_id: str, session_id: str | None
) -> None:
    """Reject the id of an existing session."""
    if session_id is None:
        return
    target = SnapshotLocation(session_id, location.scope, agent_id)
    if target in await context.catalog.locations(session_id):
        raise Problem(
            409,
            f"session {session_id} of {agent_id} already exists",
            hint="fork under another id, or delete that session first",
        )


@router.delete(
    SESSION,
    status_code=204,
    response_class=Response,
    responses={200: {"model": schemas.Deleted, "description": "A dry run."}},
    operation_id="delete_session",
)
async def delete_session(
    request: Request,
    context: Context,
    location: Location,
    dry_run: DryRun = False,
    if_match: IfMatch = None,
) -> Response:
    """Delete a session for all its agents.

    A token that is limited to agents cannot do this, even if the session has no other agents:
    the response would reveal that.
    """
    get_authority(request).check_unlimited("a session is deleted for all its agents")
    async with context.session_lock(location):
        parts = await context.catalog.locations(location.session_id)
        if location not in parts:
            raise NotFoundError(f"session {location.session_id} was already deleted")
        await check_session_head(context, location, if_match)
        if not dry_run:
            await context.archive.delete_session(session_id=location.session_id)
            context.metrics.count_change("deleted")
            return Response(status_code=204)
    ends = [(await context.head(part)).position for part in parts]
    kept = [len(await context.archive.list_snapshot_ids(location=part)) for part in parts]
    return json_response(
        {
            "dry_run": True,
            "session_id": location.session_id,
            "agents": sorted({part.scope_id for part in parts}),
            "parts": [location_fields(part) for part in parts],
            "events": sum(end.seq for end in ends),
            "snapshots": sum(kept),
        }
    )
