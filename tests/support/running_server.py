"""A real server in a thread, and sockets to talk to it byte by byte."""

from __future__ import annotations

import logging
import socket
import time

from holdfast.server import create_app
from support.http_server import Served


class Running(Served):
    """The app of a store, with everything that it logs."""

    def __init__(self, store, **options):
        super().__init__(lambda: create_app(store, **options), options.get("limits"))
        self._lines = Lines()

    def __enter__(self):
        for name in ("holdfast", "uvicorn.error"):
            logging.getLogger(name).addHandler(self._lines)
            logging.getLogger(name).setLevel(logging.INFO)
        self.start()
        return self

    def __exit__(self, *problem):
        self.stop()
        for name in ("holdfast", "uvicorn.error"):
            logging.getLogger(name).removeHandler(self._lines)
            logging.getLogger(name).setLevel(logging.NOTSET)
        assert "Traceback" not in self.log
        assert "Exception in ASGI" not in self.log

    @property
    def log(self):
        """All that was logged."""
        return "\n".join(self._lines.found)

    def connect(self):
        """A connection to it."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)

    def say(self, *parts, pause=0.0):
        """Send bytes on a connection of its own, and give what comes back until it is closed."""
        with self.connect() as connection:
            for part in parts:
                connection.sendall(part)
                time.sleep(pause)
            return received(connection)


class Lines(logging.Handler):
    """Keeps what is logged, with tracebacks."""

    def __init__(self):
        super().__init__()
        self.found = []
        self.setFormatter(logging.Formatter("%(message)s"))

    def emit(self, record):
        self.found.append(self.format(record))


def received(connection):
    """What a connection has until it is closed, or nothing comes any more."""
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except TimeoutError:
        parts.append(b"<and it stays open>")
    return b"".join(parts)


def until(holds, seconds=10.0):
    """Wait until something holds."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it does not come to hold"
        time.sleep(0.01)
