"""What the routes share: the store and those who work on it, ids from paths, answers with ETags."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
from collections.abc import Collection
from typing import Annotated, Any, cast
from urllib.parse import unquote_to_bytes
from weakref import WeakValueDictionary

import msgspec
from fastapi import Depends, Path, Query
from pydantic import AfterValidator
from starlette.requests import Request
from starlette.responses import Response

from holdfast.documents.signing import PublicKey
from holdfast.errors import NotFoundError, short_repr
from holdfast.server.auth import get_authority
from holdfast.server.cache import StateCache
from holdfast.server.document_decoder import Decoder
from holdfast.server.limits import Limits
from holdfast.server.metrics import Metrics
from holdfast.server.problems import Problem
from holdfast.sessions.session import Session
from holdfast.snapshots.keys import MAX_ID_LENGTH, SCOPES, SnapshotLocation, validate_id
from holdfast.stores.base import StateStore
from holdfast.transfer.manager import SnapshotManager

JSON = "application/json"


class AppContext:
    """The store of an app, and those who work on it."""

    def __init__(
        self,
        state_store: StateStore,
        limits: Limits,
        trusted: Collection[PublicKey] | None = None,
    ) -> None:
        self.state_store = state_store
        self.limits = limits
        self.decoder = Decoder(limits, trusted)
        self.manager = SnapshotManager(state_store)
        self.archive = self.manager.archive
        self.catalog = self.manager.catalog
        self.metrics = Metrics()
        self.states = StateCache(self.archive)
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def session_lock(self, location: SnapshotLocation) -> asyncio.Lock:
        """A lock that lets one request at a time write to a session, to any agent's part of it.

        Who deletes it takes all parts along, also one that another has just begun. Requests of
        other servers are told apart by the store; these need not meet there.
        """
        return self._turns.setdefault(location.session_id, asyncio.Lock())

    async def session(self, location: SnapshotLocation) -> Session:
        """A session that is there, to be written to."""
        return await Session.open(
            self.state_store,
            agent_id=location.scope_id,
            session_id=location.session_id,
            scope=location.scope,
            must_exist=True,
        )


async def get_context(request: Request) -> AppContext:
    """The context of the app that a request came to. An ordinary function would get a thread."""
    return cast("AppContext", request.app.state.context)


Context = Annotated[AppContext, Depends(get_context)]


async def reject_unknown_parameters(request: Request) -> None:
    """Refuse a parameter that the route does not know: a misspelled dry_run would be none."""
    described = request.app.openapi()["paths"][request.scope["route"].path]
    operation = described[request.method.lower()]
    known = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"}
    unknown = sorted(set(request.query_params) - known)
    if unknown:
        raise Problem(
            422,
            f"there is no parameter {short_repr(unknown[0])} here; there are {', '.join(sorted(known))}"
            if known
            else f"there is no parameter {short_repr(unknown[0])} here, nor any other",
            hint="see /docs for what is taken",
        )


# --------------------------------------------------------------------------------- ids in paths


def decode_path_id(text: str) -> str:
    """An id from a path, where it is percent-encoded."""
    try:
        return validate_id(unquote_to_bytes(text).decode(), "the id")
    except UnicodeDecodeError:
        raise ValueError("an id in a path is percent-encoded UTF-8") from None


ID_SCHEMA: dict[str, Any] = {"minLength": 1, "maxLength": MAX_ID_LENGTH}
AgentId = Annotated[
    str,
    Path(description="The agent.", examples=["research-bot"], json_schema_extra=ID_SCHEMA),
    AfterValidator(decode_path_id),
]
SessionId = Annotated[
    str,
    Path(description="The session.", examples=["ses_abc123"], json_schema_extra=ID_SCHEMA),
    AfterValidator(decode_path_id),
]
SNAPSHOT_ID = r"^[A-Za-z0-9_-]{1,128}$"
SnapshotId = Annotated[
    str,
    Path(
        description="The snapshot.",
        pattern=SNAPSHOT_ID,
        examples=["019a8b5e-6f00-7000-8000-000000000000"],
    ),
]
ScopeQuery = Annotated[
    str | None,
    Query(
        description="Which part of the session, where the agent's id has both.",
        pattern=f"^({'|'.join(SCOPES)})$",
    ),
]


async def find_location(
    request: Request,
    context: AppContext,
    agent_id: str,
    session_id: str | None = None,
    scope: str | None = None,
) -> SnapshotLocation:
    """Where a session is kept, the agent's last one without an id; refused as the token is."""
    authority = get_authority(request)
    authority.check(agent_id)
    try:
        return await context.manager.locate(agent_id, session_id, scope=scope)
    except NotFoundError:
        if authority.agents is None:
            raise
        # What is near is named to help, and may be of agents that this token is not for.
        what = "session" if session_id is None else f"session {short_repr(session_id)}"
        raise NotFoundError(f"the agent {short_repr(agent_id)} has no {what}") from None


async def locate_session(
    request: Request,
    context: Context,
    agent_id: AgentId,
    session_id: SessionId,
    scope: ScopeQuery = None,
) -> SnapshotLocation:
    """Where the session of a path is kept, if the token is for its agent and it is there."""
    return await find_location(request, context, agent_id, session_id, scope)


Location = Annotated[SnapshotLocation, Depends(locate_session)]

# --------------------------------------------------------------------------------------- answers


def make_etag(*parts: object) -> str:
    """A tag for an answer that is the same exactly while these are."""
    return '"' + hashlib.sha256(repr(parts).encode()).hexdigest()[:32] + '"'


def is_cached(request: Request, tag: str) -> bool:
    """Whether the one who asks has this answer already."""
    given = request.headers.get("if-none-match", "")
    return given == "*" or tag in [each.strip().removeprefix("W/") for each in given.split(",")]


def not_modified(tag: str) -> Response:
    """The answer to who has it already."""
    return Response(status_code=304, headers=etag_headers(tag))


def etag_headers(tag: str) -> dict[str, str]:
    """Headers of an answer that may be kept, and is asked for again before it is used."""
    return {"ETag": tag, "Cache-Control": "private, no-cache"}


def json_response(data: object, *, status: int = 200, tag: str | None = None) -> Response:
    """JSON, with a tag where it has one."""
    headers = {} if tag is None else etag_headers(tag)
    return Response(msgspec.json.encode(data), status, headers, JSON)


def cacheable_response(request: Request, data: object, tag: str) -> Response:
    """JSON that the one who asks may have already."""
    return not_modified(tag) if is_cached(request, tag) else json_response(data, tag=tag)


# --------------------------------------------------------------------------------------- cursors


def encode_cursor(text: str | None) -> str | None:
    """A location in a listing, as what a client gives back."""
    return None if text is None else base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_cursor(cursor: str | None) -> str | None:
    """The location that a cursor stands for."""
    if not cursor:
        return None
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise invalid_cursor(cursor) from None


def invalid_cursor(cursor: str | None) -> Problem:
    """The problem of a cursor that no answer gave."""
    return Problem(
        400,
        f"{short_repr(cursor)} is no cursor of this listing",
        hint="give back next_cursor of an answer, or begin without one",
    )
