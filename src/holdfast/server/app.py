"""The app put together: routes, errors, the gate in front, and its description."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

import holdfast
from holdfast.documents.signing import PublicKey, validate_trusted_keys
from holdfast.errors import HoldfastError, short_repr
from holdfast.server import (
    document_routes,
    health,
    list_routes,
    problems,
    read_routes,
    schemas,
    viewer_files,
    write_routes,
)
from holdfast.server.auth import Token, Tokens
from holdfast.server.context import Desk
from holdfast.server.middleware import PUBLIC, Gate, Limits
from holdfast.stores.base import StateStore

DESCRIPTION = """The state of AI agents over HTTP: look at it, compare, go back, branch, move it.

An id in a path is percent-encoded, also its slashes. A moment is the number of an event, the id of
a snapshot, or `now`. Errors are problem documents (RFC 9457)."""

PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {
        "description": title,
        "content": {problems.MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemShape"}}},
    }
    for status, (_, title) in problems.KINDS.items()
    if status not in (405, 415, 500)
}


def create_app(
    state_store: StateStore,
    *,
    tokens: Iterable[Token] = (),
    limits: Limits | None = None,
    cors_origins: Iterable[str] = (),
    owns_store: bool = False,
    trusted: Iterable[PublicKey] | None = None,
) -> FastAPI:
    """The server as an ASGI app, to run or to mount in another one.

    Without ``tokens`` it answers requests from its own machine only. ``cors_origins`` are pages of
    others that may use it, none without it. With ``owns_store`` the store is closed with the app.
    With ``trusted`` it imports documents that one of these keys has signed, and no others.
    """
    if not isinstance(state_store, StateStore):
        raise TypeError(
            "an app is made over a StateStore, as open_state_store(url) gives it, not "
            f"{short_repr(state_store)}"
        )
    limits = limits or Limits()
    origins = checked_origins(cors_origins)
    known = Tokens(tokens)
    desk = Desk(
        state_store, limits, None if trusted is None else validate_trusted_keys(trusted).values()
    )
    app = FastAPI(
        title="Holdfast",
        version=holdfast.__version__,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses=PROBLEMS,
        lifespan=closing(desk, state_store if owns_store else None),
        # Spans go to the provider that the process has set up, and nowhere without one.
        telemetry={"logs": False, "metrics": False, "operation_spans": False},
    )
    app.state.desk = desk
    app.state.tokens = known
    for module in (health, document_routes, list_routes, read_routes, write_routes, viewer_files):
        app.include_router(module.router)
    app.add_exception_handler(HoldfastError, problems.of_holdfast)
    app.add_exception_handler(problems.Problem, problems.of_holdfast)
    app.add_exception_handler(HTTPException, problems.of_http)
    app.add_exception_handler(RequestValidationError, problems.of_validation)
    app.add_exception_handler(Exception, problems.of_anything)
    if origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=["GET", "HEAD", "POST", "DELETE"],
            allow_headers=["authorization", "content-type", "if-match", "if-none-match"],
            expose_headers=["etag"],
        )
    app.add_middleware(Gate, tokens=known, limits=limits, metrics=desk.metrics, origins=origins)
    app.openapi = described(app)  # type: ignore[method-assign]
    return app


def checked_origins(origins: Iterable[str]) -> tuple[str, ...]:
    """Origins of pages, or a refusal: a page is named by scheme and host, and all by none."""
    if isinstance(origins, str):
        raise TypeError(f"cors_origins is a list of origins, not the text {short_repr(origins)}")
    found = tuple(origins)
    for origin in found:
        if not origin.startswith(("http://", "https://")) or origin.count("/") != 2:
            raise ValueError(
                f"an origin is as in https://agents.example.com, not {short_repr(origin)}"
            )
    return found


def closing(
    desk: Desk, state_store: StateStore | None
) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    """Return what ends the workers when the app ends, and closes the store where it is its own."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:  # noqa: ARG001
        async with AsyncExitStack() as stack:
            if state_store is not None:
                await stack.enter_async_context(state_store)
            stack.callback(desk.decoder.close)
            yield

    return lifespan


def described(app: FastAPI) -> Callable[[], dict[str, Any]]:
    """The OpenAPI description, with tokens and problem documents in it."""
    make = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is not None:
            return app.openapi_schema
        tree = make()
        parts = tree["components"]
        for shape in (schemas.ProblemShape, schemas.Document):
            schema = shape.model_json_schema(ref_template="#/components/schemas/{model}")
            parts["schemas"].setdefault(shape.__name__, schema)
        if app.state.tokens:
            parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            for path, operations in tree["paths"].items():
                for operation in operations.values():
                    operation["security"] = [] if path in PUBLIC else [{"token": []}]
        return tree

    return openapi
