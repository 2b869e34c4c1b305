"""A real server in a thread, and sockets to talk to it byte by byte."""

from __future__ import annotations

import faulthandler
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

import holdfast
from holdfast.server import Limits, create_app
from holdfast.server.run import open_socket, server_config

STILL_OPEN = b"<still open>"
LOGGERS = ("holdfast", "uvicorn.error")


class AppServer:
    """Serves an app on uvicorn in a thread; can be restarted on the same port."""

    grace_seconds = 1.0
    """Seconds until requests are cancelled when the server stops."""

    def __init__(self, make_app: Callable[[], Any], limits: Limits | None = None) -> None:
        self._make_app = make_app
        self._limits = limits or Limits()
        self.port = 0

    @property
    def url(self) -> str:
        """The address, without a trailing slash."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the server; return when it accepts connections."""
        listener = open_socket("127.0.0.1", self.port)
        self.port = listener.getsockname()[1]
        config = server_config(self._make_app(), self._limits, self.grace_seconds)
        self._server = uvicorn.Server(config)

        def run() -> None:
            with listener:
                self._server.run(sockets=[listener])

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive(), "the server did not start"
            time.sleep(0.01)

    def stop(self) -> None:
        """Stop the server; return when its thread has ended."""
        self._server.should_exit = True
        self._thread.join(timeout=20)
        if self._thread.is_alive():
            faulthandler.dump_traceback(all_threads=True)
            raise AssertionError("the server did not stop")


@contextmanager
def serve_app(make_app: Callable[[], Any]) -> Iterator[AppServer]:
    """Serve an app for the duration of a block."""
    server = AppServer(make_app)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def serve_url(url: str, **options: Any) -> Iterator[str]:
    """Serve the store at a URL for the duration of a block; yield the server's address."""

    def make_app() -> Any:
        return create_app(holdfast.open_state_store(url), owns_store=True, **options)

    with serve_app(make_app) as server:
        yield server.url


class LoggedServer(AppServer):
    """Serves a store and captures what is logged; fails if that includes a traceback."""

    def __init__(self, store, **options):
        super().__init__(lambda: create_app(store, **options), options.get("limits"))
        self._capture = LogCapture()

    def __enter__(self):
        for name in LOGGERS:
            logging.getLogger(name).addHandler(self._capture)
            logging.getLogger(name).setLevel(logging.INFO)
        self.start()
        return self

    def __exit__(self, *error):
        self.stop()
        for name in LOGGERS:
            logging.getLogger(name).removeHandler(self._capture)
            logging.getLogger(name).setLevel(logging.NOTSET)
        assert "Traceback" not in self.log
        assert "Exception in ASGI" not in self.log

    @property
    def log(self):
        """What was logged so far."""
        return "\n".join(self._capture.lines)

    @property
    def connections(self):
        """Open connections."""
        return self._server.server_state.connections

    @property
    def tasks(self):
        """Requests being served."""
        return self._server.server_state.tasks

    def connect(self):
        """Return a new connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)

    def send(self, *parts):
        """Send bytes on a new connection; return what comes back until it is closed."""
        with self.connect() as connection:
            for part in parts:
                connection.sendall(part)
            return read_until_closed(connection)


class LogCapture(logging.Handler):
    """Keeps log lines, with tracebacks."""

    def __init__(self):
        super().__init__()
        self.lines = []
        self.setFormatter(logging.Formatter("%(message)s"))

    def emit(self, record):
        self.lines.append(self.format(record))


def read_until_closed(connection):
    """Return what a connection receives until it is closed, or until nothing more comes."""
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except TimeoutError:
        parts.append(STILL_OPEN)
    return b"".join(parts)


def wait_until(condition, seconds=10.0):
    """Wait until a condition is true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "timed out"
        time.sleep(0.01)
