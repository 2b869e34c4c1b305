"""Routes that download blobs, with ranges, and upload attachments, streamed both ways."""

from __future__ import annotations

import mimetypes
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated, Any

from fastapi import Header, Path, Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from holdfast.blobs.source import SpooledSource
from holdfast.errors import HoldfastError, IntegrityError, NotFoundError
from holdfast.server import schemas
from holdfast.server.byte_ranges import parse_range, resolve_range
from holdfast.server.context import (
    AppContext,
    Context,
    Location,
    is_cached,
    json_response,
    make_router,
)
from holdfast.server.event_stream import HEAD_ONLY
from holdfast.server.media_types import (
    BINARY,
    MEDIA_TYPE,
    SAFE_TYPES,
    content_disposition,
    select_content_type,
)
from holdfast.server.positions import Target
from holdfast.server.problems import (
    Problem,
    ResponseCutError,
    describe_problem,
    to_problem,
)
from holdfast.server.read_routes import SESSION
from holdfast.server.write_routes import DryRun, IfMatch, changed_on_conflict, check_head
from holdfast.snapshots.attachments import find_attachments
from holdfast.snapshots.keys import SnapshotLocation, location_fields
from holdfast.values import to_json
from holdfast.values.references import Attachment

router = make_router("blobs")

ADDED = "attachment.added"
"""The type of the event that an upload records."""
DIGEST = "^[0-9a-f]{64}$"
MAX_NAME_LENGTH = 255
CONTENT: dict[str, Any] = {
    each: {"schema": {"type": "string", "format": "binary"}}
    for each in sorted({*SAFE_TYPES, BINARY, "text/plain"})
}
DOWNLOADS: dict[int | str, dict[str, Any]] = {
    200: {"description": "The content.", "content": CONTENT},
    206: {"description": "The range.", "content": CONTENT},
    304: {"description": "The client has it cached."},
    416: describe_problem(416),
    500: describe_problem(500),
}
BODY = {
    "requestBody": {
        "required": True,
        "description": "The content.",
        "content": {BINARY: {"schema": {"type": "string", "format": "binary"}}},
    }
}
HEADERS = {
    "Accept-Ranges": "bytes",
    "Cache-Control": "private, max-age=31536000, immutable",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
}

Digest = Annotated[
    str,
    Path(
        pattern=DIGEST,
        description="The sha256 of the content, in hexadecimal.",
        examples=[schemas.EXAMPLE_HASH],
    ),
]
MediaType = Annotated[
    str | None,
    Query(pattern=MEDIA_TYPE, description="The media type.", examples=["image/png"]),
]
FileName = Annotated[
    str | None,
    Query(
        min_length=1,
        max_length=MAX_NAME_LENGTH,
        description="The name of the file.",
        examples=["chart.png"],
    ),
]
Range = Annotated[
    str | None,
    Header(alias="range", description="One range of bytes.", examples=["bytes=0-1023"]),
]
IfRange = Annotated[str | None, Header(description="Ignore the range unless this is the ETag.")]


# -------------------------------------------------------------------------------------- download


@router.get(
    f"{SESSION}/blobs/{{digest}}",
    response_class=Response,
    responses=DOWNLOADS,
    operation_id="download_blob",
)
async def download_blob(
    request: Request,
    context: Context,
    location: Location,
    digest: Digest,
    media_type: MediaType = None,
    name: FileName = None,
    range_: Range = None,
    if_range: IfRange = None,
) -> Response:
    """Download a large value or an attachment, all of it or a range of its bytes.

    The content type is the given one, or that of the attachment with this digest, if a browser
    cannot run anything in it; otherwise ``application/octet-stream``.
    """
    tag = f'"{digest}"'
    if is_cached(request, tag):
        return Response(status_code=304, headers={**HEADERS, "ETag": tag})
    prefix = location.prefix
    positions = parse_range(range_) if if_range in (None, tag) else None
    is_head = request.scope.get(HEAD_ONLY, False)
    try:
        if is_head:
            status, size, body = 200, await context.blobs.measure(prefix, digest), None
            headers = {"Content-Length": str(size)}
        elif positions is None:
            size, body = await context.blobs.read(prefix, digest)
            status, headers = 200, {"Content-Length": str(size)}
        else:
            size = await context.blobs.verify(prefix, digest)
            wanted = resolve_range(positions, size)
            if wanted is None:
                raise range_not_satisfiable(digest, size)
            body = await context.blobs.read_range(prefix, digest, wanted)
            status, headers = (
                206,
                {
                    "Content-Length": str(wanted.size),
                    "Content-Range": wanted.content_range(size),
                },
            )
    except (NotFoundError, IntegrityError) as error:
        raise blob_problem(error) from error
    if media_type is None:
        known = await find_attachment(context, location, digest)
        if known is not None:
            media_type, name = known.media_type, name or known.name
    content_type = select_content_type(media_type)
    headers |= {
        **HEADERS,
        "ETag": tag,
        "Content-Type": content_type,
        "Content-Disposition": content_disposition(name, digest, content_type),
    }
    if body is None:
        return Response(status_code=status, headers=headers)
    return StreamingResponse(cut_on_error(body), status, headers)


async def cut_on_error(body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the chunks of a body; end the response without its end if one cannot be read."""
    try:
        async for chunk in body:
            yield chunk
    except HoldfastError as error:
        raise ResponseCutError(str(error)) from error


async def find_attachment(
    context: AppContext, location: SnapshotLocation, digest: str
) -> Attachment | None:
    """Return the attachment with a digest in the current state; None if there is none."""
    # The blob can be downloaded even if the log is damaged.
    with suppress(NotFoundError, IntegrityError):
        head = await context.head(location)
        there = await context.states.load(head, Target(head.position.seq))
        for each in find_attachments(there.state):
            if each.digest == digest:
                return each
    return None


def range_not_satisfiable(digest: str, size: int) -> Problem:
    """Return the problem of a range outside the content."""
    return Problem(
        416,
        f"blob {digest} has {size:,} bytes, and none of them are in the range",
        hint=f"request a range from 0 to {max(0, size - 1)}",
        headers={"Content-Range": f"bytes */{size}"},
    )


def blob_problem(error: HoldfastError) -> Problem:
    """Return the problem of a blob that is missing or damaged."""
    return Problem(
        to_problem(error).status,
        str(error),
        hint="list damage with holdfast state verify",
    )


# ---------------------------------------------------------------------------------------- upload


@router.post(
    f"{SESSION}/blobs",
    response_model=schemas.UploadedAttachment,
    status_code=201,
    responses={200: {"model": schemas.UploadedAttachment, "description": "A dry run."}},
    openapi_extra=BODY,
    operation_id="upload_attachment",
)
async def upload_attachment(
    request: Request,
    context: Context,
    location: Location,
    media_type: MediaType = None,
    name: FileName = None,
    dry_run: DryRun = False,
    if_match: IfMatch = None,
) -> Response:
    """Attach a file to a session.

    The content is stored, and an ``attachment.added`` event with the attachment is recorded. The
    media type is guessed from the name by default. ``value`` is the attachment as it stands in
    messages and values.
    """
    session = await context.session(location)
    check_head(session.log.head, if_match)
    source = await SpooledSource.spool(request.stream())
    try:
        media_type = media_type or (name and mimetypes.guess_type(name)[0])
        attachment = Attachment(source.digest, source.size, media_type, name)
        if not dry_run:
            session.record_with_blobs(ADDED, attachment, blobs=[source])
            async with context.session_lock(location):
                with changed_on_conflict(if_match):
                    await session.commit(on_conflict="raise" if if_match else "rebase")
            context.metrics.count_change("attachment added")
    finally:
        source.close()
    tree = {
        "dry_run": dry_run,
        **location_fields(location),
        "digest": attachment.digest,
        "size": attachment.size,
        "media_type": attachment.media_type,
        "name": attachment.name,
        "value": to_json(attachment),
        "last_event": session.log.head.seq,
    }
    return json_response(tree, status=200 if dry_run else 201)
