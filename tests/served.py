"""A real server in a thread, on a port of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

import holdfast
from holdfast.server import create_app
from holdfast.server.serving import listening


@contextmanager
def serving(url: str, **options: Any) -> Iterator[str]:
    """Serve the store of a URL; gives the address. The store is opened in the server's thread."""
    with listening("127.0.0.1", 0) as listener:
        app = create_app(holdfast.open_state_store(url), owns_store=True, **options)
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(timeout=20)
            assert not thread.is_alive(), "the server did not end"
