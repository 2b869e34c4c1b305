"""The server over streamable HTTP, with the tokens and limits of the REST API.

It is stateless: any process that serves the same store answers any request. A token with the scope
``read`` may use the tools that read, and a token that is limited to agents these agents.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route
from starlette.types import Scope

from holdfast.mcp_server.access import Access, AccessError
from holdfast.mcp_server.server import MAX_ARGUMENTS, create_server
from holdfast.server.app import validate_origins
from holdfast.server.auth import Token, Tokens, get_authority
from holdfast.server.limits import Limits
from holdfast.server.metrics import Metrics
from holdfast.server.middleware import (
    AccessLogMiddleware,
    AuthMiddleware,
    EncodedPathMiddleware,
    ErrorMiddleware,
    LimitsMiddleware,
    SecurityHeadersMiddleware,
)
from holdfast.server.run import check_listening, run_app
from holdfast.stores.base import StateStore

PATH = "/mcp"
CORS_HEADERS = (
    "authorization",
    "content-type",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
)


class McpAuthMiddleware(AuthMiddleware):
    """Accepts any valid token. Every MCP request is a POST; tools that write check the scope."""

    def needs_write(self, scope: Scope) -> bool:  # noqa: ARG002 - for all requests
        """Return whether a request needs a token with write scope."""
        return False


def create_mcp_app(
    state_store: StateStore,
    *,
    tokens: Iterable[Token] = (),
    access: Access | None = None,
    limits: Limits | None = None,
    cors_origins: Iterable[str] = (),
    owns_store: bool = False,
) -> Starlette:
    """Return the MCP server as an ASGI app, which serves ``/mcp``.

    Args:
        state_store: Where the sessions are.
        tokens: Who may use the app. Without tokens it answers requests from this machine only.
        access: What all callers may do at most.
        limits: What one request may cost.
        cors_origins: Origins of other sites whose pages may use the app.
        owns_store: Whether the store is closed with the app.

    Raises:
        TypeError: ``state_store`` is not a StateStore, or ``cors_origins`` is a str.
        ValueError: An origin is invalid, or two tokens have the same secret.

    """
    limits, origins, known = limits or Limits(), validate_origins(cors_origins), Tokens(tokens)
    server = create_server(state_store, make_access_reader(access or Access()))
    manager = StreamableHTTPSessionManager(
        app=server,
        json_response=True,
        stateless=True,
        # AuthMiddleware checks Host and Origin.
        security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        max_request_body_size=2 * MAX_ARGUMENTS,  # LimitsMiddleware refuses less
    )

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:  # noqa: ARG001
        async with AsyncExitStack() as stack:
            if owns_store:
                await stack.enter_async_context(state_store)
            await stack.enter_async_context(manager.run())
            yield

    return Starlette(
        routes=[Route(PATH, StreamableHTTPASGIApp(manager), methods=["POST"])],
        middleware=make_middleware(known, limits, origins),
        lifespan=lifespan,
    )


def make_middleware(tokens: Tokens, limits: Limits, origins: tuple[str, ...]) -> list[Middleware]:
    """Return the middlewares of the app, the outermost first."""
    cors = Middleware(
        CORSMiddleware,
        allow_origins=origins,
        allow_methods=["POST"],
        allow_headers=CORS_HEADERS,
    )
    return [
        Middleware(EncodedPathMiddleware),
        Middleware(AccessLogMiddleware, metrics=Metrics()),
        Middleware(SecurityHeadersMiddleware),
        *([cors] if origins else []),
        Middleware(ErrorMiddleware),
        Middleware(McpAuthMiddleware, tokens=tokens, origins=origins),
        Middleware(LimitsMiddleware, limits=limits),
    ]


def make_access_reader(most: Access) -> Callable[[Any], Access]:
    """Return a function that reads what the token of a request allows, within ``most``."""

    def read_access(context: Any) -> Access:
        if context.request is None:
            raise AccessError("the request has no token")
        authority = get_authority(context.request)
        agents = authority.agents
        if most.agents is not None:
            agents = most.agents if agents is None else agents & most.agents
        if not most.can_write:
            return Access(can_write=False, agents=agents, refusal=most.refusal)
        return Access(
            can_write=authority.scope == "write",
            agents=agents,
            refusal=f"token {authority.name!r} is read-only; use a token with write scope",
            name="this server" if authority.agents is None else f"token {authority.name!r}",
        )

    return read_access


def serve_http(
    state_store: StateStore,
    *,
    host: str = "127.0.0.1",
    port: int = 8001,
    tokens: Sequence[Token] = (),
    access: Access | None = None,
    limits: Limits | None = None,
    cors_origins: Sequence[str] = (),
    ready: Callable[[str], None] | None = None,
) -> None:
    """Run the app until it is interrupted. Calls ``ready`` with its address.

    Raises:
        ListenError: The address cannot be bound.
        ValueError: A non-loopback address needs a token.

    """
    check_listening(host, tokens)
    app = create_mcp_app(
        state_store,
        tokens=tokens,
        access=access,
        limits=limits,
        cors_origins=cors_origins,
        owns_store=True,
    )
    run_app(app, host=host, port=port, limits=limits or Limits(), ready=ready)
