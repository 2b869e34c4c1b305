"""The app on uvicorn, from the command line: where it may listen, what it logs, how it ends."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import uvicorn

from holdfast.documents.signing import PublicKey
from holdfast.errors import HoldfastError, short_repr
from holdfast.server.app import create_app
from holdfast.server.auth import Token
from holdfast.server.connections import bounded_protocol
from holdfast.server.limits import Limits
from holdfast.server.log_rate import RateLimit
from holdfast.server.loopback import is_loopback
from holdfast.stores.base import StateStore

GRACE_SECONDS = 5
BACKLOG = 1024


class ListenError(HoldfastError):
    """The server cannot listen on its address; ``errno`` says why, as the system does."""

    def __init__(self, message: str, errno: int | None = None) -> None:
        super().__init__(message)
        self.errno = errno


def check_listening(host: str, tokens: Sequence[Token]) -> None:
    """Refuse to answer a network without asking who it is."""
    if not tokens and not is_loopback(host):
        raise ValueError(
            f"{host} can be reached from other machines, and so a token is needed: give --token, "
            "--tokens or $HOLDFAST_TOKEN, or listen on 127.0.0.1"
        )


def open_socket(host: str, port: int) -> socket.socket:
    """A socket that listens, made before anything else so that a port in use is said at once."""
    listener = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_PASSIVE
        )[0]
        # asyncio sends small answers at once where the socket says that it is TCP: 40 ms each.
        listener = socket.socket(family, kind, protocol)
        # Whoever restarts a server need not wait for old connections to be forgotten.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
        return listener
    except OSError as error:
        if listener is not None:
            listener.close()
        raise ListenError(
            f"cannot listen on {host} port {port}: {error.strerror or error}", error.errno
        ) from error
    except UnicodeError as error:
        raise ValueError(f"{short_repr(host)} is no name of a host") from error


def serve(
    state_store: StateStore,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    tokens: Sequence[Token] = (),
    limits: Limits | None = None,
    cors_origins: Sequence[str] = (),
    trusted: Sequence[PublicKey] | None = None,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Run the server until it is interrupted. ``ready`` is told its address."""
    check_listening(host, tokens)
    app = create_app(
        state_store,
        tokens=tokens,
        limits=limits,
        cors_origins=cors_origins,
        owns_store=True,
        trusted=trusted,
    )
    with open_socket(host, port) as listener:
        name = f"[{host}]" if ":" in host else host
        if ready is not None:
            ready(f"http://{name}:{listener.getsockname()[1]}")
        log_to_stderr()
        config = server_config(app, limits or Limits())
        with ignore_signals():
            uvicorn.Server(config).run(sockets=[listener])


def server_config(app: Any, limits: Limits, grace_seconds: float | None = None) -> uvicorn.Config:
    """Return how uvicorn runs an app: with bounded connections, and nothing that is not needed."""
    grace = GRACE_SECONDS if grace_seconds is None else grace_seconds
    return uvicorn.Config(
        app,
        http=bounded_protocol(limits.seconds),
        ws="none",
        log_config=None,
        access_log=False,  # the gate writes one that names no secrets
        server_header=False,
        date_header=True,
        timeout_graceful_shutdown=grace,  # type: ignore[arg-type] # it takes parts of seconds
        proxy_headers=False,
    )


@contextmanager
def ignore_signals() -> Iterator[None]:
    """Make an interrupted server one that has ended well.

    uvicorn raises the signal that ended it once more, which would end this process as if it failed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ending = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(each, lambda *_: None) for each in ending]
    try:
        yield
    finally:
        for each, handler in zip(ending, before, strict=True):
            signal.signal(each, handler)


def log_to_stderr() -> None:
    """Log one line per request, and what goes wrong."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    handler.addFilter(is_not_cancellation)
    handler.addFilter(RateLimit())
    levels = {"holdfast": logging.INFO, "uvicorn.error": logging.WARNING, "asyncio": logging.ERROR}
    for name, level in levels.items():
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.setLevel(level)
        logger.propagate = False


def is_not_cancellation(record: logging.LogRecord) -> bool:
    """Whether a record says more than that a request was cut off because the server ends."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))
