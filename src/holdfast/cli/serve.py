"""``holdfast serve``: the REST API and the viewer on a store."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.console import StoreOption, err, errors_told, fail, say
from holdfast.cli.keys import RequireOption, TrustOption, required_keys
from holdfast.cli.names import is_there, named_or_usual
from holdfast.cli.references import open_store
from holdfast.extras import MissingExtraError, require_extra
from holdfast.stores.urls import StoreURL

if TYPE_CHECKING:
    from holdfast.server import Token

TOKEN = "HOLDFAST_TOKEN"  # noqa: S105 - the name of a variable
MEGABYTE = 1 << 20


def serve(
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="The port; 0: any.")] = 8000,
    token: Annotated[
        list[str] | None,
        typer.Option(
            "--token",
            metavar="[read:]SECRET",
            help="Lets its bearer in, to read only with read: in front. Several may be given.",
        ),
    ] = None,
    tokens: Annotated[
        Path | None,
        typer.Option("--tokens", metavar="FILE", help="A TOML file of tokens, also for agents."),
    ] = None,
    max_body: Annotated[
        int, typer.Option("--max-body", min=1, metavar="MB", help="The largest body.")
    ] = 64,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, metavar="S", help="Seconds for a request.")
    ] = 60.0,
    cors: Annotated[
        list[str] | None,
        typer.Option("--cors", metavar="ORIGIN", help="A page that may use it from elsewhere."),
    ] = None,
    require_signature: RequireOption = False,
    trust: TrustOption = None,
    store: StoreOption = None,
) -> None:
    """Serve the REST API and the viewer. On anything but this machine a token is needed.

    Example: holdfast serve --store sqlite:///state.db --port 8000
    """
    with errors_told():
        try:
            with require_extra("server"):
                from holdfast.server import Limits, read_tokens  # noqa: PLC0415 - an extra
                from holdfast.server.app import checked_origins  # noqa: PLC0415 - an extra
                from holdfast.server.run import (  # noqa: PLC0415 - an extra
                    ListenError,
                    check_listening,
                )
                from holdfast.server.run import serve as run  # noqa: PLC0415 - an extra
        except MissingExtraError as error:
            fail(
                f"the server needs {error.name}, which is not installed",
                "pip install 'holdfast[server]'",
            )
        known = given_tokens(token) + (read_tokens(tokens) if tokens else [])
        keys = required_keys(trust, required=require_signature)
        with misused("--host"):
            check_listening(host, known)
        with misused("--cors"):
            checked_origins(cors or [])
        with misused("--timeout"):
            limits = Limits(body_bytes=max_body * MEGABYTE, seconds=timeout)
        state_store = open_store(store)
        url = StoreURL(named_or_usual(store))

        def announce(address: str) -> None:
            if not is_there(url):
                say(f"{url} does not exist yet; the first write creates it", to=err)
            say(f"{address} has the viewer; Ctrl-C ends it", to=err)

        try:
            run(
                state_store,
                host=host,
                port=port,
                tokens=known,
                limits=limits,
                cors_origins=cors or [],
                trusted=keys,
                ready=announce,
            )
        except ListenError as error:
            fail(str(error), listen_hint(error.errno))


def listen_hint(number: int | None) -> str:
    """What to do about an address that cannot be listened on."""
    if number == errno.EADDRINUSE:
        return (
            "another program uses the port; choose one with --port, or any free one with --port 0"
        )
    if number == errno.EACCES:
        return "ports below 1024 need privileges; choose another with --port"
    return "choose another --host or --port"


def given_tokens(texts: list[str] | None) -> list[Token]:
    """The tokens of the command line, or of the environment without them."""
    from holdfast.server import Token  # noqa: PLC0415 - an extra

    given = texts or [each for each in [os.environ.get(TOKEN)] if each]
    found = []
    for number, text in enumerate(given, 1):
        scope, colon, secret = text.partition(":")
        with misused("--token"):
            if colon and scope == "read":
                found.append(Token(secret, "read", name=f"token {number}"))
            else:
                found.append(Token(text, name=f"token {number}"))
    return found


@contextmanager
def misused(option: str) -> Iterator[None]:
    """Make wrong usage of what an option cannot be."""
    try:
        yield
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None
