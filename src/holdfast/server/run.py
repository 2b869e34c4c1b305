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
from holdfast.server.workers import Supervisor, check_workers
from holdfast.stores.base import StateStore

GRACE_SECONDS = 5
SWITCH_SECONDS = 0.001
"""How long a thread computes while another waits: the event loop is one of those that wait."""
BACKLOG = 1024


class ListenError(HoldfastError):
    """The server cannot listen on its address; ``errno`` is the system's error number."""

    def __init__(self, message: str, errno: int | None = None) -> None:
        super().__init__(message)
        self.errno = errno


def check_listening(host: str, tokens: Sequence[Token]) -> None:
    """Reject a non-loopback address without tokens."""
    if not tokens and not is_loopback(host):
        raise ValueError(
            f"{host} is reachable from other machines and needs a token; pass --token, --tokens or "
            "$HOLDFAST_TOKEN, or listen on 127.0.0.1"
        )


def open_socket(host: str, port: int) -> socket.socket:
    """Open the listening socket first, so that a port in use is reported at once."""
    listener = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_PASSIVE
        )[0]
        # asyncio sets TCP_NODELAY only if the protocol is given; without it a response takes 40 ms.
        listener = socket.socket(family, kind, protocol)
        # A restarted server need not wait for connections in TIME_WAIT.
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
        raise ValueError(f"invalid host name {short_repr(host)}") from error


def serve(
    state_store: StateStore,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    tokens: Sequence[Token] = (),
    limits: Limits | None = None,
    cors_origins: Sequence[str] = (),
    trusted: Sequence[PublicKey] | None = None,
    workers: int = 1,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Run the server until it is interrupted. Calls ``ready`` with its address.

    Args:
        state_store: Where the sessions are. It is closed at the end.
        host: The address to listen on.
        port: The port, 0 for any free one.
        tokens: Who may use the server.
        limits: What one request may cost.
        cors_origins: Origins of other sites whose pages may use the server.
        trusted: Import only documents that one of these keys signed.
        workers: How many processes serve requests. Several need a store that is ``shared`` and
            has not been used yet.
        ready: A function to call with the server's address.

    Raises:
        ListenError: The address cannot be bound.
        ValueError: A non-loopback address needs a token, or the store cannot be shared.
        HoldfastError: The workers failed to start.

    """
    check_listening(host, tokens)
    check_workers(state_store, workers)
    app = create_app(
        state_store,
        tokens=tokens,
        limits=limits,
        cors_origins=cors_origins,
        owns_store=True,
        trusted=trusted,
    )
    run_app(app, host=host, port=port, limits=limits or Limits(), workers=workers, ready=ready)


def run_app(
    app: Any,
    *,
    host: str,
    port: int,
    limits: Limits,
    workers: int = 1,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Run an app on uvicorn until it is interrupted. Calls ``ready`` with its address.

    Raises:
        ListenError: The address cannot be bound.
        HoldfastError: The workers failed to start.

    """
    with open_socket(host, port) as listener:
        name = f"[{host}]" if ":" in host else host
        if ready is not None:
            ready(f"http://{name}:{listener.getsockname()[1]}")
        log_to_stderr()
        config = server_config(app, limits)

        def run_worker() -> None:
            sys.setswitchinterval(SWITCH_SECONDS)
            with ignore_signals():
                uvicorn.Server(config).run(sockets=[listener])

        if workers == 1:
            run_worker()
        else:
            Supervisor(run_worker, workers).run()


def server_config(app: Any, limits: Limits, grace_seconds: float | None = None) -> uvicorn.Config:
    """Return the configuration of uvicorn: bounded connections, no features that are not used."""
    grace = GRACE_SECONDS if grace_seconds is None else grace_seconds
    return uvicorn.Config(
        app,
        http=bounded_protocol(limits.seconds),
        ws="none",
        log_config=None,
        access_log=False,  # AccessLogMiddleware writes one without secrets
        server_header=False,
        date_header=True,
        timeout_graceful_shutdown=grace,  # type: ignore[arg-type] # a float works too
        proxy_headers=False,
    )


@contextmanager
def ignore_signals() -> Iterator[None]:
    """Exit normally after Ctrl-C: uvicorn raises the signal again when it has stopped."""
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
    """Log requests and errors to stderr."""
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
    """Return whether a record is not just a request cancelled by shutdown."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))
