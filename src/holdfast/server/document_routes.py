"""Routes that export and import documents, streamed both ways."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import tempfile
from collections.abc import AsyncIterator, Coroutine, Iterator
from functools import partial
from typing import IO, Annotated, Any, Literal, TypeVar

from fastapi import Query
from pydantic import StringConstraints
from starlette.concurrency import iterate_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from holdfast.documents.blobs import EMBED, OMIT, Attachments, DocumentBlobs, OmittedBlob
from holdfast.documents.errors import DocumentTooLargeError
from holdfast.documents.export import ENVIRONMENT_VARIABLE, bind_document, export_document
from holdfast.errors import NotFoundError, short_repr
from holdfast.server import schemas
from holdfast.server.auth import get_authority
from holdfast.server.context import (
    BODY_OVERHEAD,
    JSON,
    AppContext,
    CachedBody,
    Context,
    InSession,
    ScopeQuery,
    SessionId,
    body_response,
    find_location,
    is_cached,
    json_response,
    make_etag,
    make_router,
    not_modified,
)
from holdfast.server.document_decoder import needs_no_worker
from holdfast.server.heads import SessionHead
from holdfast.server.positions import NOW
from holdfast.server.problems import Problem, reject_invalid
from holdfast.server.read_routes import SESSION
from holdfast.server.write_routes import DryRun, IfMatch, check_head
from holdfast.snapshots.keys import MAX_ID_LENGTH, SnapshotLocation
from holdfast.stores.local import run_in_thread
from holdfast.transfer.import_document import ImportResult, import_document
from holdfast.transfer.manager import Redaction

exports = make_router("documents", reads=True, documents=True)
imports = make_router("documents", documents=True)

T = TypeVar("T")
MAX_IN_MEMORY = 1 << 20
UNSAFE_CHARACTERS = re.compile(r"[^A-Za-z0-9._-]+")

AgentFilter = Annotated[
    str | None,
    Query(
        min_length=1,
        max_length=MAX_ID_LENGTH,
        description="The agent, if several share the session.",
    ),
]
TargetAgent = Annotated[
    str | None,
    Query(
        min_length=1,
        max_length=MAX_ID_LENGTH,
        description="Import under this agent id.",
    ),
]
TargetSession = Annotated[
    str | None,
    Query(
        min_length=1,
        max_length=MAX_ID_LENGTH,
        description="Import under this session id.",
    ),
]
SnapshotFilter = Annotated[
    str | None,
    Query(pattern=schemas.SNAPSHOT_ID, description="A snapshot id. Default: the head."),
]
Tags = Annotated[
    list[Annotated[str, StringConstraints(pattern="^[^=]+=")]] | None,
    Query(alias="tag", description="Add a tag, as K=V.", examples=[["reason=incident"]]),
]
Redact = Annotated[bool, Query(description="Remove secrets, email addresses and phone numbers.")]
EmbedOrOmit = Annotated[
    Literal["embed", "omit"],
    Query(description="Whether the document contains large values and attachments."),
]
DOCUMENT: dict[int | str, dict[str, Any]] = {
    200: {"model": schemas.Document, "description": "The document."}
}
BODY = {
    "requestBody": {
        "required": True,
        "description": "A document, optionally compressed with gzip or zstd.",
        "content": {JSON: {"schema": {"$ref": "#/components/schemas/Document"}}},
    }
}


@exports.get(
    "/agents/{session_id}/snapshot",
    response_class=Response,
    responses=DOCUMENT,
    operation_id="export_session",
)
async def export_session(
    request: Request,
    context: Context,
    session_id: SessionId,
    agent_id: AgentFilter = None,
    scope: ScopeQuery = None,
    snapshot_id: SnapshotFilter = None,
    tag: Tags = None,
    redact: Redact = False,
    attachments: EmbedOrOmit = EMBED,
) -> Response:
    """Export a session, at its head or at a snapshot.

    Attachments that are too large to be embedded are 422: omit them, and download each.
    """
    authority = get_authority(request)
    if agent_id is not None:
        authority.check(agent_id)
    with reject_invalid():
        places = await context.catalog.locations(session_id)
    found = [
        each
        for each in places
        if authority.allows(each.scope_id)
        and agent_id in (None, each.scope_id)
        and scope in (None, each.scope)
    ]
    if not found:
        owner = "" if agent_id is None else f" of agent {short_repr(agent_id)}"
        raise NotFoundError(f"no session {short_repr(session_id)}{owner}")
    if len(found) > 1:
        raise ambiguous_session(found)
    return await send_document(
        request, context, found[0], snapshot_id, tag, redact=redact, attachments=attachments
    )


def ambiguous_session(found: list[SnapshotLocation]) -> Problem:
    """Return the problem of an ambiguous session id."""
    session_id, agents = found[0].session_id, sorted({each.scope_id for each in found})
    several = f"several agents: {', '.join(agents)}"
    both = f"two scopes of {agents[0]}: {', '.join(each.scope for each in found)}"
    return Problem(
        409,
        f"session {session_id} has {several if len(agents) > 1 else both}",
        hint=f"choose one with ?{'agent_id' if len(agents) > 1 else 'scope'}=",
        more={"title": "Ambiguous session"},
    )


@exports.get(
    f"{SESSION}/document",
    response_class=Response,
    responses=DOCUMENT,
    operation_id="get_document",
)
async def get_document(
    request: Request,
    context: Context,
    path: InSession,
    at: Annotated[
        str, Query(pattern=schemas.SNAPSHOT_ID, description="A snapshot id, or now.")
    ] = NOW,
    tag: Tags = None,
    redact: Redact = False,
    attachments: EmbedOrOmit = EMBED,
) -> Response:
    """Export a session as a file download.

    Attachments that are too large to be embedded are 422: omit them, and download each.
    """
    location = await find_location(request, context, *path)
    snapshot_id = None if at == NOW else at
    response = await send_document(
        request, context, location, snapshot_id, tag, redact=redact, attachments=attachments
    )
    name = UNSAFE_CHARACTERS.sub(
        "_", f"{location.session_id}{'' if at == NOW else '@' + at}"
    ).strip("._")
    response.headers["Content-Disposition"] = (
        f'attachment; filename="{name[:100] or "session"}.json"'
    )
    return response


async def send_document(
    request: Request,
    context: AppContext,
    location: SnapshotLocation,
    snapshot_id: str | None,
    tags: list[str] | None,
    *,
    redact: bool,
    attachments: Attachments,
) -> Response:
    """Respond with a document, or 304 if the client has it cached.

    As long as the session does not change, the same document is sent again.
    """
    if snapshot_id is None:
        head, latest = await context.heads.read_with_latest(location)
        head = head or SessionHead(location)
        source: object = latest and latest.snapshot_id
    else:
        head = await context.head(location)
        info = await context.archive.load_info(location=location, snapshot_id=snapshot_id)
        source = info and info.encode(location)
    start, end = head.manifest.log_start, head.position
    environment = os.environ.get(ENVIRONMENT_VARIABLE)
    # Other processes make other documents of the same content.
    tag = f"W/{make_etag(start, end, source, environment, tags, redact, attachments)}"
    if is_cached(request, tag):
        return not_modified(tag)
    key = (location, head.generation, "document", tag)
    found = context.responses.get(key)
    if found is not None:
        return body_response(request, found)
    try:
        document = await export_document(
            context.archive,
            location,
            snapshot_id=snapshot_id,
            tags=read_tags(tags or []),
            attachments=attachments,
        )
    except DocumentTooLargeError as error:
        raise too_much_to_embed(error) from error
    if redact:
        document = await run_in_thread(load_redactor(), document)
    chunks = document.chunks(attachments)
    body, is_whole = b"", False
    if document.snapshot.size_bytes <= MAX_IN_MEMORY:
        body, is_whole = await run_in_thread(read_chunks, chunks)
    if not is_whole:
        rest = itertools.chain([body], chunks)
        return StreamingResponse(iterate_in_threadpool(rest), media_type=JSON)
    is_current = snapshot_id is not None or (
        (document.position, document.parent_id) == (end, source)
    )
    if attachments == EMBED and any(each.is_omitted for each in document.blobs.entries):
        is_current = False  # what is missing may be stored again
    found = CachedBody(body, tag if is_current else None)
    if is_current:
        context.responses.put(key, found, len(body) + BODY_OVERHEAD)
    return body_response(request, found)


def too_much_to_embed(error: DocumentTooLargeError) -> Problem:
    """Return the problem of a document whose attachments are too large to be embedded."""
    return Problem(
        422,
        str(error),
        hint="pass attachments=omit and download each blob, or export with the command line",
    )


def read_chunks(chunks: Iterator[bytes]) -> tuple[bytes, bool]:
    """Return the start of a document, and whether it is all of it."""
    body = bytearray()
    for chunk in chunks:
        body += chunk
        if len(body) > MAX_IN_MEMORY:
            return bytes(body), False
    return bytes(body), True


def read_tags(pairs: list[str]) -> dict[str, str]:
    """Return tags of the form K=V as a dict; the route validated them."""
    return {name: value for name, _, value in (pair.partition("=") for pair in pairs)}


def load_redactor() -> Redaction:
    """Return the redaction of the default redactor."""
    from holdfast.redaction.redactor import Redactor  # noqa: PLC0415 - needs an extra

    return Redactor().redact


# ---------------------------------------------------------------------------------------- import


@imports.post(
    "/agents/snapshot/restore",
    response_model=schemas.Imported,
    openapi_extra=BODY,
    operation_id="import_session",
)
async def import_session(
    request: Request,
    context: Context,
    dry_run: DryRun = False,
    agent_id: TargetAgent = None,
    session_id: TargetSession = None,
    allow_modified: Annotated[
        bool, Query(description="Accept an edited document, whose digest does not match.")
    ] = False,
    attachments: EmbedOrOmit = EMBED,
    if_match: IfMatch = None,
) -> Response:
    """Import a document as a session.

    If the session exists, its state becomes the document's, and ``undo_snapshot_id`` is a snapshot
    of the previous state. Attachments that the document does not contain, or that are omitted, are
    missing where they are read.
    """
    if agent_id is not None:
        get_authority(request).check(agent_id)
    with tempfile.SpooledTemporaryFile(MAX_IN_MEMORY) as file:
        await receive_body(request.stream(), file)
        if needs_no_worker(file):
            decode = partial(context.decoder.decode_here, file, allow_modified=allow_modified)
            found = await asyncio.to_thread(decode)
        else:
            decoding = context.decoder.decode(file, allow_modified=allow_modified)
            found = await cancel_on_disconnect(request, decoding)
    if attachments == OMIT:
        left_out = [OmittedBlob(each.digest, each.size) for each in found.blobs.entries]
        found = bind_document(found, DocumentBlobs(left_out))
    owner = found.agent_id if agent_id is None else agent_id
    get_authority(request).check(owner)
    with reject_invalid():
        location = SnapshotLocation(session_id or found.session_id, found.scope, owner)
        write = partial(
            import_document,
            context.state_store,
            found,
            location,
            dry_run=dry_run,
            check=partial(check_head, if_match=if_match),
        )
        result = await context.threads.run(write, lock=context.session_lock(location))
    if not dry_run:
        context.metrics.count_change("imported")
    return json_response(import_result_to_json(result))


async def receive_body(stream: AsyncIterator[bytes], file: IO[bytes]) -> None:
    """Write a body to a file, off the event loop if a chunk is large."""
    async for chunk in stream:
        if len(chunk) > MAX_IN_MEMORY:
            await asyncio.to_thread(file.write, chunk)
        else:
            file.write(chunk)
    file.seek(0)


async def cancel_on_disconnect(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of work; cancel it if the client disconnects."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(wait_for_disconnect(request))
    try:
        await asyncio.wait([working, leaving], return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.wait([working, leaving])


async def wait_for_disconnect(request: Request) -> None:
    """Wait until the client disconnects, after the body was read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def import_result_to_json(result: ImportResult) -> dict[str, object]:
    """Return the result of an import."""
    return {
        "dry_run": result.dry_run,
        "created": result.created,
        "agent_id": result.agent_id,
        "session_id": result.session_id,
        "scope": result.scope,
        "messages_restored": result.messages_restored,
        "events_restored": result.events_restored,
        "undo_snapshot_id": result.undo_id,
        "signed_by": result.signed_by,
        "changes": result.diff,
    }
