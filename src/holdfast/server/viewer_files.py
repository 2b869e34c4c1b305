"""The viewer's files, and the page of the API: read once, served by exact name."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from holdfast.errors import NotFoundError, short_repr
from holdfast.server.context import etag_headers, is_cached, not_modified

router = APIRouter(include_in_schema=False)

TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class Page:
    """A file as it is served."""

    content: bytes
    media_type: str
    tag: str


@cache
def pages() -> dict[str, Page]:
    """All files of the viewer, by name."""
    found = {}
    for file in (resources.files("holdfast.server") / "viewer").iterdir():
        kind = TYPES.get(file.name.rpartition(".")[2])
        if kind is not None:
            content = file.read_bytes()
            tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            found[file.name] = Page(content, kind, tag)
    return found


def served(request: Request, name: str) -> Response:
    """One file, or that the one who asks has it already."""
    page = pages().get(name)
    if page is None:
        raise NotFoundError(f"the viewer has no file {short_repr(name)}")
    if is_cached(request, page.tag):
        return not_modified(page.tag)
    return Response(page.content, 200, etag_headers(page.tag), page.media_type)


@router.get("/")
async def index(request: Request) -> Response:
    """The viewer."""
    return served(request, "index.html")


@router.get("/docs")
async def docs(request: Request) -> Response:
    """The API, to be read by people."""
    return served(request, "docs.html")


@router.get("/viewer/{name}")
async def file(request: Request, name: str) -> Response:
    """A file of the viewer."""
    return served(request, name)
