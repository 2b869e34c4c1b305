"""Errors as problem documents (RFC 9457), in the library's own words.

400  what was sent cannot be read          409  somebody else was first, or it is there already
401  no valid token                        412  the session went on since it was looked at
403  a token for something else            413  a larger body than is taken
404  it is not there                       422  it can be read, and is wrong
405  not with this method                  503  the store fails, or it took too long
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from holdfast.errors import (
    ConflictError,
    HoldfastError,
    IntegrityError,
    InvalidDocumentError,
    NotFoundError,
    StateStoreError,
    UnsupportedValueError,
    short_repr,
)

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
MAX_ERRORS = 20
MAX_DETAIL_LENGTH = 1900
METHODS = ("GET", "POST", "DELETE")

KINDS: dict[int, tuple[str, str]] = {
    400: ("bad-request", "What was sent cannot be read"),
    401: ("unauthorized", "A token is needed"),
    403: ("forbidden", "The token does not allow this"),
    404: ("not-found", "It is not there"),
    405: ("method-not-allowed", "Not with this method"),
    408: ("too-slow", "The request did not arrive in time"),
    409: ("conflict", "Somebody else was first"),
    412: ("moved-on", "The session went on meanwhile"),
    413: ("too-large", "The body is too large"),
    415: ("wrong-media-type", "Not with this media type"),
    422: ("invalid", "What was sent is wrong"),
    500: ("damaged", "The stored data is damaged"),
    503: ("unavailable", "It cannot be done now"),
}
HINTS: list[tuple[type[HoldfastError], int, str]] = [
    (NotFoundError, 404, "GET /agents, and the session itself, show what there is"),
    (ConflictError, 409, "look again at how it is now, and decide anew"),
    (UnsupportedValueError, 422, "register its types where the server is started"),
    (
        InvalidDocumentError,
        422,
        "get another copy; allow_modified=true takes what was edited on purpose",
    ),
    (IntegrityError, 500, "holdfast state verify lists all damage; restore it from a backup"),
    (StateStoreError, 503, "try again later; holdfast doctor looks at the store"),
]


class Problem(Exception):
    """A refusal with a status of its own."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        hint: str | None = None,
        headers: Mapping[str, str] | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        # What it quotes may be as long as whoever sent it liked.
        self.detail = (
            detail if len(detail) <= MAX_DETAIL_LENGTH else f"{detail[:MAX_DETAIL_LENGTH]}…"
        )
        self.hint = hint
        self.headers = dict(headers or {})
        self.more = dict(more or {})

    def response(self, instance: str) -> Response:
        """The problem document."""
        kind, title = KINDS.get(self.status) or ("error", HTTPStatus(self.status).phrase)
        tree = {
            "type": f"urn:holdfast:{kind}",
            "title": title,
            "status": self.status,
            "detail": self.detail,
            **({} if self.hint is None else {"hint": self.hint}),
            "instance": instance,
            **self.more,
        }
        # A name from outside may have what UTF-8 has not.
        body = msgspec.json.encode(replace_surrogates(tree))
        return Response(body, self.status, self.headers, MEDIA_TYPE)


def replace_surrogates(tree: Any) -> Any:
    """The same with every text in what UTF-8 can write."""
    if isinstance(tree, str):
        return tree.encode("utf-8", "backslashreplace").decode()
    if isinstance(tree, dict):
        return {name: replace_surrogates(value) for name, value in tree.items()}
    if isinstance(tree, list):
        return [replace_surrogates(value) for value in tree]
    return tree


def to_problem(error: Exception) -> Problem:
    """The problem that an error of the library is to the one who asks."""
    if isinstance(error, Problem):
        return error
    for kind, status, hint in HINTS:
        if isinstance(error, kind):
            more: dict[str, Any] = {}
            headers = {}
            if isinstance(error, ConflictError) and error.conflicts:
                more["conflicts"] = [list(pair) for pair in error.conflicts]
            if isinstance(error, StateStoreError) and error.transient:
                headers["Retry-After"] = "1"
            return Problem(status, str(error), hint=hint, more=more, headers=headers)
    return Problem(422, str(error) or type(error).__name__, hint="see /docs for what is taken")


@contextmanager
def reject_invalid() -> Iterator[None]:
    """Make a problem of what the library refuses in something that came with the request."""
    try:
        yield
    except HoldfastError:
        raise
    except (TypeError, ValueError) as error:
        raise Problem(422, str(error), hint="see /docs for what is taken") from error


# ---------------------------------------------------------------------------- handlers of the app


async def handle_holdfast_error(request: Request, error: Exception) -> Response:
    """Answer with what the library said."""
    if isinstance(error, IntegrityError | StateStoreError):
        logger.error("%s %s: %s", request.method, request_path(request), error)
    return to_problem(error).response(request_path(request))


async def handle_http_error(request: Request, error: Exception) -> Response:
    """Answer what the framework refused: no such route, no such method."""
    assert isinstance(error, HTTPException)  # noqa: S101 - it is registered for these
    detail, hint = str(error.detail), "see /docs for what there is"
    headers = dict(error.headers or {})
    if error.status_code == 404:
        detail = f"there is nothing at {short_repr(request_path(request))}"
    elif error.status_code == 405:
        detail = f"{request.method} is not for {short_repr(request_path(request))}"
        headers["Allow"] = ", ".join(allowed_methods(request))
    elif error.status_code == 400:
        hint = "send JSON, in UTF-8"
    return Problem(error.status_code, detail, hint=hint, headers=headers).response(
        request_path(request)
    )


def allowed_methods(request: Request) -> list[str]:
    """The methods that the path of a request takes. The framework does not look into routers."""
    found = [
        method
        for method in METHODS
        if any(
            route.matches({**request.scope, "method": method})[0] is Match.FULL
            for route in request.app.routes
        )
    ]
    return [*found, "HEAD"] if "GET" in found else found


async def handle_validation_error(request: Request, error: Exception) -> Response:
    """Answer what does not have the shape that the route asks for."""
    assert isinstance(error, RequestValidationError)  # noqa: S101 - it is registered for these
    found = [
        {"where": ".".join(map(str, each["loc"])), "what": str(each["msg"])}
        for each in error.errors()[:MAX_ERRORS]
    ]
    is_json = all(each["type"] != "json_invalid" for each in error.errors())
    first = found[0] if found else {"where": "body", "what": "it is not as it should be"}
    return Problem(
        422 if is_json else 400,
        f"{first['where']}: {first['what']}",
        hint="see /docs for what is taken",
        more={"errors": found},
    ).response(request_path(request))


async def handle_unexpected_error(request: Request, error: Exception) -> Response:
    """Answer an error that should not be, where it comes from outside of the gate."""
    return internal_error(error).response(request_path(request))


def internal_error(error: Exception) -> Problem:
    """The problem of an error that should not be. What it says is in the server's log alone."""
    return Problem(
        500,
        f"the server failed ({type(error).__name__}); its log says where",
        hint="report it with the log of the server",
        more={"type": "urn:holdfast:failed", "title": "The server failed"},
    )


def request_path(request: Request) -> str:
    """The path as it was sent. A URL is more, and cannot be made of every header that is sent."""
    path: str = request.scope["path"]
    return path
