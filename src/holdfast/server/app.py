"""Build the ASGI app: routes, middlewares, error handlers and the OpenAPI description."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

import holdfast
from holdfast.documents.signing import PublicKey, validate_trusted_keys
from holdfast.errors import HoldfastError, short_repr
from holdfast.server import (
    blob_routes,
    document_routes,
    health,
    list_routes,
    problems,
    read_routes,
    schemas,
    stream_routes,
    viewer_files,
    write_routes,
)
from holdfast.server.auth import Token, Tokens
from holdfast.server.context import AppContext
from holdfast.server.limits import Limits
from holdfast.server.middleware import (
    PUBLIC,
    AccessLogMiddleware,
    AuthMiddleware,
    EncodedPathMiddleware,
    ErrorMiddleware,
    HeadMiddleware,
    LimitsMiddleware,
    SecurityHeadersMiddleware,
)
from holdfast.stores.base import StateStore

DESCRIPTION = """Inspect, compare, restore, fork, export and import the state of AI agents.

Percent-encode ids in paths, including their slashes. A position is an event number, a snapshot id,
or `now`. Errors are problem documents (RFC 9457)."""

LAST_SECONDS = 5.0
"""How long the app waits for cancelled requests to end before it closes the store."""


def create_app(
    state_store: StateStore,
    *,
    tokens: Iterable[Token] = (),
    limits: Limits | None = None,
    cors_origins: Iterable[str] = (),
    owns_store: bool = False,
    trusted: Iterable[PublicKey] | None = None,
) -> FastAPI:
    """Return the server as an ASGI app, to run or to mount in another app.

    Args:
        state_store: Where the sessions are.
        tokens: Who may use the app. Without tokens it answers requests from this machine only.
        limits: What one request may cost.
        cors_origins: Origins of other sites whose pages may use the app.
        owns_store: Whether the store is closed with the app.
        trusted: Import only documents that one of these keys signed.

    Raises:
        TypeError: ``state_store`` is not a StateStore, or ``cors_origins`` is a str.
        ValueError: An origin is invalid, or two tokens have the same secret.

    """
    if not isinstance(state_store, StateStore):
        raise TypeError(
            f"state_store must be a StateStore, got {short_repr(state_store)}; "
            "open one with open_state_store(url)"
        )
    limits = limits or Limits()
    origins = validate_origins(cors_origins)
    known = Tokens(tokens)
    context = AppContext(
        state_store, limits, None if trusted is None else validate_trusted_keys(trusted).values()
    )
    app = FastAPI(
        title="Holdfast",
        version=holdfast.__version__,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        middleware=make_middleware(known, limits, context, origins),
        lifespan=make_lifespan(context, state_store if owns_store else None),
        # Spans go to the provider that the process has set up, and nowhere without one.
        telemetry={"logs": False, "metrics": False, "operation_spans": False},
    )
    app.state.context = context
    app.state.tokens = known
    # Not included as routers: those are searched twice for each request.
    for router in (
        document_routes.exports,
        stream_routes.router,  # before the events by number
        read_routes.router,
        list_routes.router,
        write_routes.router,
        blob_routes.router,
        document_routes.imports,
        health.router,
        viewer_files.router,
    ):
        app.router.routes.extend(router.routes)
    app.add_exception_handler(HoldfastError, problems.handle_holdfast_error)
    app.add_exception_handler(problems.Problem, problems.handle_holdfast_error)
    app.add_exception_handler(HTTPException, problems.handle_http_error)
    app.add_exception_handler(RequestValidationError, problems.handle_validation_error)
    app.add_exception_handler(Exception, problems.handle_unexpected_error)
    app.openapi = make_openapi(app)  # type: ignore[method-assign]
    return app


def make_middleware(
    tokens: Tokens, limits: Limits, context: AppContext, origins: tuple[str, ...]
) -> list[Middleware]:
    """Return the middlewares of the app, the outermost first."""
    cors = Middleware(
        CORSMiddleware,
        allow_origins=origins,
        allow_methods=["GET", "HEAD", "POST", "DELETE"],
        allow_headers=[
            "authorization",
            "content-type",
            "if-match",
            "if-none-match",
            "if-range",
            "last-event-id",
            "range",
        ],
        expose_headers=["content-disposition", "content-range", "etag"],
    )
    return [
        Middleware(EncodedPathMiddleware),
        Middleware(AccessLogMiddleware, metrics=context.metrics),
        Middleware(SecurityHeadersMiddleware),
        Middleware(HeadMiddleware),
        *([cors] if origins else []),
        Middleware(ErrorMiddleware),
        Middleware(AuthMiddleware, tokens=tokens, origins=origins),
        Middleware(LimitsMiddleware, limits=limits),
    ]


def validate_origins(origins: Iterable[str]) -> tuple[str, ...]:
    """Return the origins if each is a scheme and a host; wildcards are not allowed."""
    if isinstance(origins, str):
        raise TypeError(f"cors_origins must be a list of origins, got {short_repr(origins)}")
    found = tuple(origins)
    for origin in found:
        if not origin.startswith(("http://", "https://")) or origin.count("/") != 2:
            raise ValueError(
                f"invalid origin {short_repr(origin)}: must be like https://agents.example.com"
            )
    return found


def make_lifespan(
    context: AppContext, state_store: StateStore | None
) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    """Return the lifespan that stops the decoder and closes a store that the app owns."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:  # noqa: ARG001
        async with AsyncExitStack() as stack:
            if state_store is not None:
                await stack.enter_async_context(state_store)
            stack.push_async_callback(context.threads.wait_until_idle, LAST_SECONDS)
            stack.callback(context.decoder.close)
            yield

    return lifespan


def make_openapi(app: FastAPI) -> Callable[[], dict[str, Any]]:
    """Return a function that makes the OpenAPI description, with tokens and problem documents."""
    make = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is not None:
            return app.openapi_schema
        tree = make()
        parts = tree["components"]
        for shape in (schemas.Problem, schemas.Document):
            schema = shape.model_json_schema(ref_template="#/components/schemas/{model}")
            parts["schemas"].setdefault(shape.__name__, schema)
        if app.state.tokens:
            parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            for path, operations in tree["paths"].items():
                for operation in operations.values():
                    operation["security"] = [] if path in PUBLIC else [{"token": []}]
        return tree

    return openapi
