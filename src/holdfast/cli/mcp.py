"""``holdfast mcp``: run the MCP server, for a local client or over HTTP."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.completion import complete_agent
from holdfast.cli.console import StoreOption, err, fail, print_line, report_errors
from holdfast.cli.references import open_store
from holdfast.cli.serve import listen_hint, load_tokens, usage_error
from holdfast.extras import require_extra

if TYPE_CHECKING:
    from holdfast.mcp_server import Access

PORT = 8001


def mcp(
    agent: Annotated[
        list[str] | None,
        typer.Option(
            "--agent",
            metavar="AGENT",
            help="Allow only this agent. Repeatable.",
            autocompletion=complete_agent,
        ),
    ] = None,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Allow only the tools that read.")
    ] = False,
    http: Annotated[
        bool, typer.Option("--http", help="Serve streamable HTTP instead of stdin and stdout.")
    ] = False,
    host: Annotated[
        str | None,
        typer.Option("--host", help="With --http, the address to listen on. Default: 127.0.0.1."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            min=0,
            max=65535,
            help=f"With --http, the port; 0 for any free one. Default: {PORT}.",
        ),
    ] = None,
    token: Annotated[
        list[str] | None,
        typer.Option(
            "--token",
            metavar="[read:]SECRET",
            help="With --http, accept this token; prefix it with read: for read-only access. "
            "Repeatable.",
        ),
    ] = None,
    tokens: Annotated[
        Path | None,
        typer.Option(
            "--tokens",
            metavar="FILE",
            help="With --http, a TOML file with tokens, which may be limited to agents.",
        ),
    ] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option(
            "--cors",
            metavar="ORIGIN",
            help="With --http, allow pages of this origin. Repeatable.",
        ),
    ] = None,
    store: StoreOption = None,
) -> None:
    """Run the MCP server, so that an agent can save, search and restore its own state.

    Example: holdfast mcp --store sqlite:///state.db
    """
    with report_errors():
        with require_extra("mcp"):
            from holdfast.mcp_server import Access  # noqa: PLC0415 - an extra
            from holdfast.mcp_server.stdio import serve_stdio  # noqa: PLC0415 - an extra
        with usage_error("--agent"):
            access = Access(can_write=not read_only, agents=frozenset(agent) if agent else None)
        if http:
            serve_over_http(
                store,
                access,
                host or "127.0.0.1",
                PORT if port is None else port,
                token,
                tokens,
                cors,
            )
            return
        given = {
            "--host": host,
            "--port": port,
            "--token": token,
            "--tokens": tokens,
            "--cors": cors,
        }
        for option, value in given.items():
            if value not in (None, []):
                raise typer.BadParameter("needs --http", param_hint=option)
        with end_on_interrupt():
            asyncio.run(serve_stdio(open_store(store), access))


@contextmanager
def end_on_interrupt() -> Iterator[None]:
    """Let Ctrl-C end the process at once: a thread waits for a line of the client.

    Nothing is lost, as everything that was acknowledged is durable.
    """
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def serve_over_http(
    store: str | None,
    access: Access,
    host: str,
    port: int,
    token: list[str] | None,
    tokens: Path | None,
    cors: list[str] | None,
) -> None:
    """Run the server over HTTP until it is interrupted."""
    with require_extra("mcp"):
        from holdfast.mcp_server.http import PATH, serve_http  # noqa: PLC0415 - an extra
        from holdfast.server import read_tokens  # noqa: PLC0415 - an extra
        from holdfast.server.app import validate_origins  # noqa: PLC0415 - an extra
        from holdfast.server.run import ListenError, check_listening  # noqa: PLC0415 - an extra
    known = load_tokens(token) + (read_tokens(tokens) if tokens else [])
    with usage_error("--host"):
        check_listening(host, known)
    with usage_error("--cors"):
        validate_origins(cors or [])
    try:
        serve_http(
            open_store(store),
            host=host,
            port=port,
            tokens=known,
            access=access,
            cors_origins=cors or [],
            ready=lambda address: print_line(
                f"MCP server at {address}{PATH}; press Ctrl-C to stop", to=err
            ),
        )
    except ListenError as error:
        fail(str(error), listen_hint(error.errno))
