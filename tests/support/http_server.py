"""A real server in a thread, on a port of its own."""

from __future__ import annotations

import faulthandler
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

import holdfast
from holdfast.server import Limits, create_app
from holdfast.server.run import open_socket, server_config


class Served:
    """An app on uvicorn in a thread; it can be stopped, and started again on the same port."""

    def __init__(self, make_app: Callable[[], Any], limits: Limits | None = None) -> None:
        self._make_app = make_app
        self._limits = limits or Limits()
        self.port = 0

    @property
    def url(self) -> str:
        """Its address, without a slash at the end."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Serve, and come back when it answers."""
        listener = open_socket("127.0.0.1", self.port)
        self.port = listener.getsockname()[1]
        config = server_config(self._make_app(), self._limits, grace_seconds=1)
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
        """End it, and come back when it is gone."""
        self._server.should_exit = True
        self._thread.join(timeout=20)
        if self._thread.is_alive():
            faulthandler.dump_traceback(all_threads=True)
            raise AssertionError("the server did not end")


@contextmanager
def served(make_app: Callable[[], Any]) -> Iterator[Served]:
    """An app for as long as a block takes."""
    server = Served(make_app)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def serving(url: str, **options: Any) -> Iterator[str]:
    """Serve the store of a URL; gives the address."""

    def make_app() -> Any:
        return create_app(holdfast.open_state_store(url), owns_store=True, **options)

    with served(make_app) as server:
        yield server.url
