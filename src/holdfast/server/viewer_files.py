"""The pages of the viewer and of the API documentation, with their scripts and styles.

Scripts and styles are bundled once per process, so that a page loads with few requests.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from holdfast.errors import NotFoundError, short_repr
from holdfast.server.bundle import bundle
from holdfast.server.context import etag_headers, is_cached, not_modified

router = APIRouter(include_in_schema=False)

HTML = "text/html; charset=utf-8"
CSS = "text/css; charset=utf-8"
JAVASCRIPT = "text/javascript; charset=utf-8"

STYLES = ("theme", "layout", "components", "views", "docs")
"""The style sheets, in the order in which they override each other."""
SCRIPTS = {"app.js": "app.js", "docs.js": "views/docs.js"}
"""The entry module of each script."""


@dataclass(frozen=True, slots=True)
class ViewerFile:
    """A file as it is served."""

    content: bytes
    media_type: str
    etag: str


@cache
def viewer_files() -> dict[str, ViewerFile]:
    """Return the files of the viewer by name."""
    icon = base64.b64encode(read_source("favicon.svg").encode()).decode()
    files = {}
    for name in ("index.html", "docs.html"):
        page = read_source(name).replace("viewer/favicon.svg", f"data:image/svg+xml;base64,{icon}")
        files[name] = viewer_file(page, HTML)
    styles = "\n".join(read_source(f"styles/{name}.css") for name in STYLES)
    files["style.css"] = viewer_file(styles, CSS)
    for name, entry in SCRIPTS.items():
        files[name] = viewer_file(bundle(entry, read_source), JAVASCRIPT)
    return files


def read_source(path: str) -> str:
    """Return a source file of the viewer."""
    folder = resources.files("holdfast.server") / "viewer"
    return folder.joinpath(*path.split("/")).read_text(encoding="utf-8")


def viewer_file(text: str, media_type: str) -> ViewerFile:
    """Return a file with the ETag of its content."""
    content = text.encode()
    return ViewerFile(content, media_type, f'"{hashlib.sha256(content).hexdigest()[:32]}"')


def respond(request: Request, name: str) -> Response:
    """Return a file, or 304 if the client has it.

    Raises:
        NotFoundError: The viewer has no such file.

    """
    file = viewer_files().get(name)
    if file is None:
        raise NotFoundError(f"the viewer has no file {short_repr(name)}")
    if is_cached(request, file.etag):
        return not_modified(file.etag)
    return Response(file.content, 200, etag_headers(file.etag), file.media_type)


@router.get("/")
async def index(request: Request) -> Response:
    """Return the viewer."""
    return respond(request, "index.html")


@router.get("/docs")
async def docs(request: Request) -> Response:
    """Return the API documentation."""
    return respond(request, "docs.html")


@router.get("/viewer/{name}")
async def file(request: Request, name: str) -> Response:
    """Return a file of the viewer."""
    return respond(request, name)
