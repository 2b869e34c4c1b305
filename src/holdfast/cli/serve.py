"""``holdfast serve``: run the REST API and the viewer."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.console import StoreOption, err, fail, print_line, report_errors
from holdfast.cli.keys import RequireOption, TrustOption, load_required_keys
from holdfast.cli.names import default_url, store_exists
from holdfast.cli.references import open_store
from holdfast.extras import require_extra
from holdfast.stores.urls import StoreURL

if TYPE_CHECKING:
    from holdfast.server import Token

TOKEN = "HOLDFAST_TOKEN"  # noqa: S105 - the name of a variable
MEGABYTE = 1 << 20


def serve(
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="The port; 0 for any free one.")
    ] = 8000,
    token: Annotated[
        list[str] | None,
        typer.Option(
            "--token",
            metavar="[read:]SECRET",
            help="Accept this token; prefix it with read: for read-only access. Repeatable.",
        ),
    ] = None,
    tokens: Annotated[
        Path | None,
        typer.Option(
            "--tokens",
            metavar="FILE",
            help="A TOML file with tokens, which may be limited to agents.",
        ),
    ] = None,
    max_body: Annotated[
        int, typer.Option("--max-body", min=1, metavar="MB", help="Largest request body in MB.")
    ] = 64,
    max_attachment: Annotated[
        int,
        typer.Option(
            "--max-attachment", min=1, metavar="MB", help="Largest uploaded attachment in MB."
        ),
    ] = 1024,
    timeout: Annotated[
        float,
        typer.Option("--timeout", min=0.1, metavar="S", help="Time limit per request in seconds."),
    ] = 60.0,
    max_streams: Annotated[
        int,
        typer.Option("--max-streams", min=1, metavar="N", help="Open event streams per process."),
    ] = 256,
    streams_per_token: Annotated[
        int,
        typer.Option(
            "--streams-per-token", min=1, metavar="N", help="Those of one token, per process."
        ),
    ] = 64,
    heartbeat: Annotated[
        float,
        typer.Option(
            "--heartbeat", min=0.1, metavar="S", help="Seconds between heartbeats of a stream."
        ),
    ] = 15.0,
    cors: Annotated[
        list[str] | None,
        typer.Option("--cors", metavar="ORIGIN", help="Allow pages of this origin. Repeatable."),
    ] = None,
    workers: Annotated[
        int,
        typer.Option("--workers", min=1, metavar="N", help="Processes that serve requests."),
    ] = 1,
    require_signature: RequireOption = False,
    trust: TrustOption = None,
    store: StoreOption = None,
) -> None:
    """Run the REST API and the viewer. A token is required except on loopback.

    Example: holdfast serve --store sqlite:///state.db --port 8000
    """
    with report_errors():
        with require_extra("server"):
            from holdfast.server import Limits, read_tokens  # noqa: PLC0415 - an extra
            from holdfast.server.app import validate_origins  # noqa: PLC0415 - an extra
            from holdfast.server.run import (  # noqa: PLC0415 - an extra
                ListenError,
                check_listening,
            )
            from holdfast.server.run import serve as run  # noqa: PLC0415 - an extra
            from holdfast.server.workers import check_workers  # noqa: PLC0415 - an extra
        known = load_tokens(token) + (read_tokens(tokens) if tokens else [])
        keys = load_required_keys(trust, required=require_signature)
        with usage_error("--host"):
            check_listening(host, known)
        with usage_error("--cors"):
            validate_origins(cors or [])
        with usage_error("--timeout"):
            limits = Limits(
                body_bytes=max_body * MEGABYTE,
                seconds=timeout,
                streams=max_streams,
                streams_per_token=streams_per_token,
                heartbeat=heartbeat,
                attachment_bytes=max_attachment * MEGABYTE,
            )
        state_store = open_store(store)
        with usage_error("--workers"):
            check_workers(state_store, workers)
        url = StoreURL(default_url(store))

        def announce(address: str) -> None:
            if not store_exists(url):
                print_line(f"{url} does not exist yet; the first write creates it", to=err)
            print_line(f"viewer at {address}; press Ctrl-C to stop", to=err)

        try:
            run(
                state_store,
                host=host,
                port=port,
                tokens=known,
                limits=limits,
                cors_origins=cors or [],
                trusted=keys,
                workers=workers,
                ready=announce,
            )
        except ListenError as error:
            fail(str(error), listen_hint(error.errno))


def listen_hint(number: int | None) -> str:
    """Return a hint for an address that cannot be bound."""
    if number == errno.EADDRINUSE:
        return "the port is in use; choose another with --port, or --port 0 for any free one"
    if number == errno.EACCES:
        return "ports below 1024 need privileges; choose another with --port"
    return "choose another --host or --port"


def load_tokens(texts: list[str] | None) -> list[Token]:
    """Return the tokens of the command line, else of the environment."""
    from holdfast.server import Token  # noqa: PLC0415 - an extra

    given = texts or [each for each in [os.environ.get(TOKEN)] if each]
    found = []
    for number, text in enumerate(given, 1):
        scope, colon, secret = text.partition(":")
        with usage_error("--token"):
            if colon and scope == "read":
                found.append(Token(secret, "read", name=f"token {number}"))
            else:
                found.append(Token(text, name=f"token {number}"))
    return found


@contextmanager
def usage_error(option: str) -> Iterator[None]:
    """Report an invalid option value as a usage error."""
    try:
        yield
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None
