"""Bound the number of connections and how long each waits for its client.

uvicorn waits without limit for the head of a request and for a client to read a response. Here the
head has a deadline, a response that is not read is abandoned, and if there are too many
connections, the one that has been idle longest is closed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import msgspec
from uvicorn.protocols.http.h11_impl import H11Protocol

from holdfast.server.event_stream import STOPPING
from holdfast.server.problems import KINDS, MEDIA_TYPE

logger = logging.getLogger(__name__)

HEAD_SECONDS = 10.0
MIN_READ_RATE = 1024
"""Bytes per second that a client must read of a response."""
MAX_CONNECTIONS = 1024
PHRASES = {408: "Request Timeout", 503: "Service Unavailable"}


def max_connections() -> int:
    """Return the connection limit: at most half of the open files this process may have."""
    try:
        import resource  # noqa: PLC0415 - not on every system
    except ImportError:
        return MAX_CONNECTIONS
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MAX_CONNECTIONS if files < 0 else max(1, min(MAX_CONNECTIONS, files // 2))


class BoundedProtocol(H11Protocol):
    """A connection with deadlines, one of a limited number."""

    head_seconds = HEAD_SECONDS
    """Time from the start of the connection, or of the idle period, to a complete head."""
    write_seconds = 60.0
    """How often to check that a client reads its response."""
    limit = MAX_CONNECTIONS

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._waits_since = 0.0
        self._head_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._unread = 0
        self._stopping = asyncio.Event()
        # Passed to the app in the scope of each request.
        self.app_state = {**self.app_state, STOPPING: self._stopping}

    @property
    def is_waiting(self) -> bool:
        """Whether no request is being served."""
        return self.cycle is None or self.cycle.response_complete

    # ------------------------------------------------------------------------------ connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, making room for it if needed, or reject it."""
        is_full = len(self.connections) >= self.limit
        super().connection_made(transport)
        if is_full and not self._make_room():
            logger.warning("connection rejected: limit of %d reached", self.limit)
            self._refuse(503, f"all {self.limit} connections are busy")
            return
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel all timers."""
        for timer in (self._head_timer, self._write_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def _make_room(self) -> bool:
        """Close the connection that has been idle longest."""
        others = [
            each
            for each in self.connections
            if each is not self and isinstance(each, BoundedProtocol) and each.is_waiting
        ]
        if not others:
            return False
        logger.warning("idle connection closed: limit of %d reached", self.limit)
        min(others, key=lambda each: each._waits_since).abort()
        return True

    def abort(self) -> None:
        """Close the connection at once, dropping unsent data."""
        self.connections.discard(self)  # connection_lost comes later; do not count it until then
        if self.transport is not None:
            self.transport.abort()

    def shutdown(self) -> None:
        """End the event streams; other responses are completed."""
        self._stopping.set()
        super().shutdown()

    # ------------------------------------------------------------------------------------ head

    def data_received(self, data: bytes) -> None:
        """Handle received data. Partial heads do not extend the deadline."""
        super().data_received(data)
        if not self.is_waiting:
            self._stop_waiting()
        elif self._head_timer is None and not self.transport.is_closing():
            self._wait_for_head()

    def _wait_for_head(self) -> None:
        self._waits_since = time.monotonic()
        self._head_timer = self.loop.call_later(self.head_seconds, self._head_is_late)

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        if self.is_waiting and not self.transport.is_closing():
            logger.warning("request did not arrive within %g s", self.head_seconds)
            self._refuse(408, f"the request did not arrive within {self.head_seconds:g} s")

    def _refuse(self, status: int, detail: str) -> None:
        """Respond without the app, and close the connection."""
        kind, title = KINDS[status]
        body = msgspec.json.encode(
            {"type": f"urn:holdfast:{kind}", "title": title, "status": status, "detail": detail}
        )
        head = (
            f"HTTP/1.1 {status} {PHRASES[status]}\r\nContent-Type: {MEDIA_TYPE}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()
        self._close_soon()

    # ----------------------------------------------------------------------------------- answer

    def pause_writing(self) -> None:
        """Start watching the client."""
        super().pause_writing()
        self._watch_client()

    def resume_writing(self) -> None:
        """Stop watching the client: it has read what was buffered."""
        super().resume_writing()
        if self._write_timer is not None and not self.transport.is_closing():
            self._write_timer.cancel()
            self._write_timer = None

    def _watch_client(self) -> None:
        """Abandon the response if the client does not read it."""
        if self._write_timer is None:
            self._unread = self.transport.get_write_buffer_size()
            self._write_timer = self.loop.call_later(self.write_seconds, self._check_client)

    def _check_client(self) -> None:
        self._write_timer = None
        read = self._unread - self.transport.get_write_buffer_size()
        if not (self.flow.write_paused or self.transport.is_closing()):
            return
        if read < MIN_READ_RATE * self.write_seconds:
            logger.warning("response abandoned: client read only %d bytes", read)
            self.abort()
        else:
            self._watch_client()

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the client to read the rest."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._close_soon()
        elif self.is_waiting:
            self._waits_since = time.monotonic()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection."""
        super().timeout_keep_alive_handler()
        self._close_soon()

    def send_400_response(self, msg: str) -> None:
        """Respond to invalid HTTP."""
        super().send_400_response(msg)
        self._close_soon()

    def _close_soon(self) -> None:
        self._stop_waiting()
        self._watch_client()


def bounded_protocol(seconds: float) -> type[BoundedProtocol]:
    """Return the protocol class for a request time limit."""

    class Protocol(BoundedProtocol):
        head_seconds = min(HEAD_SECONDS, seconds)
        write_seconds = seconds
        limit = max_connections()

    return Protocol
