"""Errors as problem documents (RFC 9457).

400  unreadable request                    409  concurrent writer, or the session exists
401  no valid token                        412  the session changed since it was read
403  the token does not allow it           413  body too large
404  not found                             422  readable but invalid
405  method not allowed                    429  too many event streams
416  range outside the content             503  the store failed, or it took too long
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
    400: ("bad-request", "Bad request"),
    401: ("unauthorized", "Token required"),
    403: ("forbidden", "Not allowed by the token"),
    404: ("not-found", "Not found"),
    405: ("method-not-allowed", "Method not allowed"),
    408: ("too-slow", "Request timeout"),
    409: ("conflict", "Conflict"),
    412: ("moved-on", "Session has changed"),
    413: ("too-large", "Body too large"),
    415: ("wrong-media-type", "Unsupported media type"),
    416: ("no-such-range", "Range not satisfiable"),
    422: ("invalid", "Invalid request"),
    429: ("too-many", "Too many streams"),
    500: ("damaged", "Stored data is damaged"),
    503: ("unavailable", "Service unavailable"),
}


def describe_problem(status: int) -> dict[str, Any]:
    """Return the OpenAPI description of an error response."""
    return {
        "description": KINDS[status][1],
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }


RESPONSES: dict[int | str, dict[str, Any]] = {
    status: describe_problem(status) for status in KINDS if status not in (405, 415, 416, 429, 500)
}
"""The errors of every route in the OpenAPI description."""
HINTS: list[tuple[type[HoldfastError], int, str]] = [
    (NotFoundError, 404, "list agents with GET /agents"),
    (ConflictError, 409, "reload the session and retry"),
    (UnsupportedValueError, 422, "register the type in the process that runs the server"),
    (
        InvalidDocumentError,
        422,
        "get another copy; pass allow_modified=true for an edited document",
    ),
    (IntegrityError, 500, "run holdfast state verify, then restore from a backup"),
    (StateStoreError, 503, "retry later; run holdfast doctor to check the store"),
]


class Problem(Exception):
    """An error response with an HTTP status."""

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
        # The detail may quote long client data.
        self.detail = (
            detail if len(detail) <= MAX_DETAIL_LENGTH else f"{detail[:MAX_DETAIL_LENGTH]}…"
        )
        self.hint = hint
        self.headers = dict(headers or {})
        self.more = dict(more or {})

    def response(self, instance: str) -> Response:
        """Return the response."""
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
        # Client data may contain surrogates, which UTF-8 cannot encode.
        body = msgspec.json.encode(replace_surrogates(tree))
        return Response(body, self.status, self.headers, MEDIA_TYPE)


class ResponseCutError(Exception):
    """A response that has started cannot be completed."""


def replace_surrogates(tree: Any) -> Any:
    """Return the data with surrogates escaped."""
    if isinstance(tree, str):
        return tree.encode("utf-8", "backslashreplace").decode()
    if isinstance(tree, dict):
        return {name: replace_surrogates(value) for name, value in tree.items()}
    if isinstance(tree, list):
        return [replace_surrogates(value) for value in tree]
    return tree


def to_problem(error: Exception) -> Problem:
    """Return the problem for an error of the library."""
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
    return Problem(422, str(error) or type(error).__name__, hint="see /docs")


@contextmanager
def reject_invalid() -> Iterator[None]:
    """Turn TypeError and ValueError about request data into a 422 problem."""
    try:
        yield
    except HoldfastError:
        raise
    except (TypeError, ValueError) as error:
        raise Problem(422, str(error), hint="see /docs") from error


# ---------------------------------------------------------------------------- handlers of the app


async def handle_holdfast_error(request: Request, error: Exception) -> Response:
    """Respond to an error of the library."""
    if isinstance(error, IntegrityError | StateStoreError):
        logger.error("%s %s: %s", request.method, request_path(request), error)
    return to_problem(error).response(request_path(request))


async def handle_http_error(request: Request, error: Exception) -> Response:
    """Respond to an error of the framework, such as an unknown route."""
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for these
    detail, hint = str(error.detail), "see /docs"
    headers = dict(error.headers or {})
    if error.status_code == 404:
        detail = f"no such path {short_repr(request_path(request))}"
    elif error.status_code == 405:
        detail = f"{request.method} is not allowed for {short_repr(request_path(request))}"
        headers["Allow"] = ", ".join(allowed_methods(request))
    elif error.status_code == 400:
        hint = "send JSON in UTF-8"
    return Problem(error.status_code, detail, hint=hint, headers=headers).response(
        request_path(request)
    )


def allowed_methods(request: Request) -> list[str]:
    """Return the methods that a path allows; the framework does not look into routers."""
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
    """Respond to a request that does not match the schema."""
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for these
    found = [
        {"where": ".".join(map(str, each["loc"])), "what": str(each["msg"])}
        for each in error.errors()[:MAX_ERRORS]
    ]
    is_json = all(each["type"] != "json_invalid" for each in error.errors())
    first = found[0] if found else {"where": "body", "what": "invalid"}
    return Problem(
        422 if is_json else 400,
        f"{first['where']}: {first['what']}",
        hint="see /docs",
        more={"errors": found},
    ).response(request_path(request))


async def handle_unexpected_error(request: Request, error: Exception) -> Response:
    """Respond to an unexpected error outside of ErrorMiddleware."""
    return internal_error(error).response(request_path(request))


def internal_error(error: Exception) -> Problem:
    """Return the problem of an unexpected error. Details are only logged."""
    return Problem(
        500,
        f"internal error ({type(error).__name__}); see the server's log",
        hint="report it with the server's log",
        more={"type": "urn:holdfast:failed", "title": "Internal error"},
    )


def request_path(request: Request) -> str:
    """Return the path as it was sent. A URL cannot be built from every Host header."""
    path: str = request.scope["path"]
    return path
