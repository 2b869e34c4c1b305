"""What request handlers share: services, path parameters, responses with ETags, cursors."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
from collections.abc import Awaitable, Callable, Collection, Coroutine
from functools import partial, wraps
from typing import Annotated, Any, NamedTuple, cast
from urllib.parse import unquote_to_bytes
from weakref import WeakValueDictionary

import msgspec
from fastapi import APIRouter, Depends, Path, Query
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import AfterValidator
from starlette.requests import Request
from starlette.responses import Response

from holdfast.documents.signing import PublicKey
from holdfast.errors import NotFoundError, short_repr
from holdfast.server.auth import get_authority
from holdfast.server.blob_downloads import BlobDownloads
from holdfast.server.byte_cache import ByteCache
from holdfast.server.cache import StateCache
from holdfast.server.document_decoder import Decoder
from holdfast.server.event_stream import StreamSlots
from holdfast.server.growth import GrowthReader
from holdfast.server.heads import HeadReader, SessionHead
from holdfast.server.limits import Limits
from holdfast.server.metrics import Metrics
from holdfast.server.problems import RESPONSES, Problem
from holdfast.server.request_threads import RequestThreads
from holdfast.sessions.session import Session
from holdfast.snapshots.keys import AGENT, MAX_ID_LENGTH, SCOPES, SnapshotLocation, validate_id
from holdfast.snapshots.records import SnapshotInfo
from holdfast.stores.base import StateStore
from holdfast.transfer.manager import SnapshotManager
from holdfast.values.references import keep_references

JSON = "application/json"
MAX_RESPONSES = 64 << 20
MAX_ARGUMENTS = 1 << 20
REQUEST_VALUES = frozenset(("request", "context"))
"""Arguments of a route that differ between requests of the same URL."""
BODY_OVERHEAD = 1 << 10


class CachedBody(NamedTuple):
    """The body of a response, and its ETag if it has one."""

    body: bytes
    tag: str | None = None


class AppContext:
    """The services that request handlers share: store, manager, catalog, caches, metrics."""

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
        self.streams = StreamSlots(limits)
        self.metrics.watch_streams(lambda: self.streams.count)
        self.heads = HeadReader(state_store)
        self.states = StateCache(self.archive)
        self.growth = GrowthReader(state_store, self.states)
        self.blobs = BlobDownloads(state_store)
        self.responses: ByteCache[tuple[object, ...], CachedBody] = ByteCache(MAX_RESPONSES)
        self.threads = RequestThreads(state_store)
        self._session_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def session_lock(self, location: SnapshotLocation) -> asyncio.Lock:
        """Return the lock that serializes writes to one session within this process.

        It covers all agents of the session, since a delete removes them all. Writers in other
        processes are serialized by the store.
        """
        return self._session_locks.setdefault(location.session_id, asyncio.Lock())

    async def session(self, location: SnapshotLocation) -> Session:
        """Open an existing session for writing."""

        async def open_session() -> Session:
            return await Session.open(
                self.state_store,
                agent_id=location.scope_id,
                session_id=location.session_id,
                scope=location.scope,
                must_exist=True,
            )

        return await self.threads.run(open_session)

    async def head(self, location: SnapshotLocation) -> SessionHead:
        """Return the end of a session that exists."""
        return await self.heads.read(location) or SessionHead(location)

    async def encode_once(
        self,
        head: SessionHead,
        key: tuple[object, ...],
        encode: Callable[[], Awaitable[CachedBody]],
    ) -> CachedBody:
        """Return a body that does not change while the log of a session only grows."""
        full_key = (head.location, head.generation, *key)
        found = self.responses.get(full_key)
        if found is None:
            found = await encode()
            self.responses.put(full_key, found, len(found.body) + BODY_OVERHEAD)
        return found


class ReadRoute(APIRoute):
    """A route whose requests run in `RequestThreads`.

    Its parameters depend on the path and the query alone, and are validated once for each URL.
    """

    def __init__(
        self, path: str, endpoint: Callable[..., Coroutine[Any, Any, Response]], **options: Any
    ) -> None:
        self._arguments: ByteCache[tuple[object, ...], dict[str, Any]] = ByteCache(MAX_ARGUMENTS)
        self._call = endpoint

        @wraps(endpoint)
        async def remember_arguments(**values: Any) -> Response:
            key = url_key(values["request"])
            others = {name: each for name, each in values.items() if name not in REQUEST_VALUES}
            self._arguments.put(key, others, len(repr(key)))
            return await endpoint(**values)

        super().__init__(path, remember_arguments, **options)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of the route."""
        handle = super().get_route_handler()

        async def handle_in_thread(request: Request) -> Response:
            context = await get_context(request)
            arguments = self._arguments.get(url_key(request))
            if arguments is None:
                return await context.threads.run(partial(handle, request))
            call = partial(self._call, request=request, context=context, **arguments)
            return await context.threads.run(call)

        return handle_in_thread


class ReferenceReadRoute(ReadRoute):
    """A `ReadRoute` that shows large values as references, and reads no blobs."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of the route."""
        return handle_with_references(super().get_route_handler())


class ReferenceWriteRoute(APIRoute):
    """A route that writes, shows large values as references, and reads no blobs."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of the route."""
        return handle_with_references(super().get_route_handler())


def handle_with_references(
    handle: Callable[[Request], Coroutine[Any, Any, Response]],
) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    """Return a handler that decodes large values as references, also in its threads."""

    async def handle_request(request: Request) -> Response:
        with keep_references():
            return await handle(request)

    return handle_request


def make_router(tag: str, *, reads: bool = False, documents: bool = False) -> APIRouter:
    """Return a router whose routes reject unknown parameters.

    Large values are references, except in the documents that routes export and import.
    """
    route_class: type[APIRoute]
    if documents:
        route_class = ReadRoute if reads else APIRoute
    else:
        route_class = ReferenceReadRoute if reads else ReferenceWriteRoute
    return APIRouter(
        tags=[tag],
        dependencies=[Depends(reject_unknown_parameters)],
        responses=RESPONSES,
        route_class=route_class,
    )


def url_key(request: Request) -> tuple[object, ...]:
    """Return what the parameters of a `ReadRoute` depend on."""
    return (*request.path_params.values(), request.scope["query_string"])


async def get_context(request: Request) -> AppContext:
    """Return the context of the app. Async, since FastAPI runs other functions in a thread."""
    return cast("AppContext", request.app.state.context)


Context = Annotated[AppContext, Depends(get_context)]


async def reject_unknown_parameters(request: Request) -> None:
    """Reject unknown query parameters, so that a misspelled dry_run does not write."""
    if not request.scope["query_string"]:
        return
    known = query_parameters(request.scope["route"].dependant)
    unknown = sorted(set(request.query_params) - known)
    if unknown:
        raise Problem(
            422,
            f"unknown parameter {short_repr(unknown[0])}; "
            f"known: {', '.join(sorted(known)) or 'none'}",
            hint="see /docs",
        )


def query_parameters(dependant: Dependant) -> set[str]:
    """Return the names of the query parameters of a route and of its dependencies."""
    names = {each.alias for each in dependant.query_params}
    return names.union(*(query_parameters(each) for each in dependant.dependencies))


# --------------------------------------------------------------------------------- ids in paths


def decode_path_id(text: str) -> str:
    """Decode a percent-encoded id of a path."""
    try:
        return validate_id(unquote_to_bytes(text).decode(), "the id")
    except UnicodeDecodeError:
        raise ValueError("id must be percent-encoded UTF-8") from None


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
        description="The scope, if the session has both for this id.",
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
    """Return the location of a session, by default the latest one, if the token allows it."""
    authority = get_authority(request)
    authority.check(agent_id)
    try:
        return await context.manager.locate(agent_id, session_id, scope=scope)
    except NotFoundError:
        if authority.agents is None:
            raise
        # The error suggests similar names, which may belong to agents that this token is not for.
        what = "session" if session_id is None else f"session {short_repr(session_id)}"
        raise NotFoundError(f"agent {short_repr(agent_id)} has no {what}") from None


async def locate_session(
    request: Request,
    context: Context,
    agent_id: AgentId,
    session_id: SessionId,
    scope: ScopeQuery = None,
) -> SnapshotLocation:
    """Return the location of the session in the path, if it exists and the token allows it."""
    return await find_location(request, context, agent_id, session_id, scope)


class SessionPath(NamedTuple):
    """The session in a path, which may not exist."""

    agent_id: str
    session_id: str
    scope: str | None

    @property
    def location(self) -> SnapshotLocation:
        """Where it is, unless it has the other scope."""
        return SnapshotLocation(self.session_id, self.scope or AGENT, self.agent_id)


async def get_session_path(
    agent_id: AgentId, session_id: SessionId, scope: ScopeQuery = None
) -> SessionPath:
    """Return the session in the path, without looking for it."""
    return SessionPath(agent_id, session_id, scope)


async def read_head(request: Request, context: AppContext, path: SessionPath) -> SessionHead:
    """Return the session in the path at its end, if it exists and the token allows it."""
    get_authority(request).check(path.agent_id)
    head = await context.heads.read(path.location)
    return head or await context.head(await find_location(request, context, *path))


async def read_head_with_latest(
    request: Request, context: AppContext, path: SessionPath
) -> tuple[SessionHead, SnapshotInfo | None]:
    """Return the session in the path at its end, and the record of its latest snapshot."""
    get_authority(request).check(path.agent_id)
    head, latest = await context.heads.read_with_latest(path.location)
    if head is None:
        location = await find_location(request, context, *path)
        head, latest = await context.heads.read_with_latest(location)
        head = head or SessionHead(location)
    return head, latest


Location = Annotated[SnapshotLocation, Depends(locate_session)]
InSession = Annotated[SessionPath, Depends(get_session_path)]

# --------------------------------------------------------------------------------------- answers


def make_etag(*parts: object) -> str:
    """Return an ETag that is equal exactly if the parts are."""
    return '"' + hashlib.sha256(repr(parts).encode()).hexdigest()[:32] + '"'


def is_cached(request: Request, tag: str) -> bool:
    """Return whether the client has this response cached."""
    given = request.headers.get("if-none-match", "")
    known = [each.strip().removeprefix("W/") for each in given.split(",")]
    return given == "*" or tag.removeprefix("W/") in known


def not_modified(tag: str) -> Response:
    """Return a 304 response."""
    return Response(status_code=304, headers=etag_headers(tag))


def etag_headers(tag: str) -> dict[str, str]:
    """Return headers of a response that may be cached but must be revalidated."""
    return {"ETag": tag, "Cache-Control": "private, no-cache"}


def json_response(data: object, *, status: int = 200) -> Response:
    """Return a JSON response."""
    return Response(msgspec.json.encode(data), status, media_type=JSON)


def encode_body(data: object, tag: str | None = None) -> CachedBody:
    """Encode the JSON of a response."""
    return CachedBody(msgspec.json.encode(data), tag)


def body_response(request: Request, found: CachedBody) -> Response:
    """Return a JSON response, or 304 if the client has it cached."""
    if found.tag is None:
        return Response(found.body, media_type=JSON)
    if is_cached(request, found.tag):
        return not_modified(found.tag)
    return Response(found.body, headers=etag_headers(found.tag), media_type=JSON)


# --------------------------------------------------------------------------------------- cursors


def encode_cursor(text: str | None) -> str | None:
    """Encode a position in a listing as an opaque cursor."""
    return None if text is None else base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_cursor(cursor: str | None) -> str | None:
    """Decode a cursor."""
    if not cursor:
        return None
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise invalid_cursor(cursor) from None


def invalid_cursor(cursor: str | None) -> Problem:
    """Return the problem of an invalid cursor."""
    return Problem(
        400,
        f"invalid cursor {short_repr(cursor)}",
        hint="pass next_cursor of the previous page, or no cursor",
    )
