"""The committed events of a session as server-sent events.

A stream is a task of the event loop and takes no request thread. It pulls events from the log by
their numbers, and the next ones only when the client has read the last: a slow client costs a page
of the log, however far it is behind. A client that reads nothing at all is disconnected, as for any
other response (see `connections`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from holdfast.documents.encode import encode_event
from holdfast.errors import HoldfastError
from holdfast.log.event import Event, format_time
from holdfast.server.auth import Authority
from holdfast.server.limits import Limits
from holdfast.server.problems import Problem, to_problem
from holdfast.snapshots.follow import LogFollower

MEDIA_TYPE = "text/event-stream"
STOPPING = "holdfast_stopping"
"""The name of an ``asyncio.Event`` in the state of a connection, set when the server stops."""
HEAD_ONLY = "holdfast.head_only"
"""The name of a flag in the scope of a HEAD request."""
RETRY_MILLISECONDS = 2000
"""How long a browser waits before it connects again."""
FIRST_FRAME = f"retry: {RETRY_MILLISECONDS}\n\n".encode()
HEARTBEAT = b": keep-alive\n\n"


class StreamSlots:
    """Counts the open streams, and limits them."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._by_token: Counter[int] = Counter()

    @property
    def count(self) -> int:
        """The number of open streams."""
        return self._by_token.total()

    @contextmanager
    def hold(self, authority: Authority) -> Iterator[None]:
        """Count a stream for the duration of a block.

        Raises:
            Problem: There are too many, of this token or in all.

        """
        token, limits = authority.token, self._limits
        if self._by_token[token] >= limits.streams_per_token:
            raise too_many_streams(
                f"{authority.name} has {limits.streams_per_token} open event streams in this "
                "process, which is the limit"
            )
        if self.count >= limits.streams:
            raise too_many_streams(
                f"there are {limits.streams} open event streams in this process, which is the limit"
            )
        self._by_token[token] += 1
        try:
            yield
        finally:
            self._by_token[token] -= 1
            if not self._by_token[token]:
                del self._by_token[token]


def too_many_streams(detail: str) -> Problem:
    """Return the problem of a stream that exceeds a limit."""
    return Problem(
        429,
        detail,
        hint="close other streams, or poll with GET …/events?first=N",
        headers={"Retry-After": "5"},
    )


class EventStream(Response):
    """A response that sends events until the client hangs up or the server stops."""

    media_type = MEDIA_TYPE

    def __init__(
        self,
        follower: Callable[[], LogFollower],
        encode: Callable[[Event], Mapping[str, Any]],
        slots: StreamSlots,
        authority: Authority,
        heartbeat: float,
    ) -> None:
        super().__init__(headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._follower = follower
        self._encode = encode
        self._slots = slots
        self._authority = authority
        self._heartbeat = heartbeat

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream. What fails before it has started is an ordinary error."""
        with self._slots.hold(self._authority):
            async with self._follower() as follower:
                await send(
                    {
                        "type": "http.response.start",
                        "status": 200,
                        "headers": self.raw_headers,
                    }
                )
                if not scope.get(HEAD_ONLY):
                    ends = [asyncio.create_task(wait_for_disconnect(receive))]
                    if (stopping := scope.get("state", {}).get(STOPPING)) is not None:
                        ends.append(asyncio.create_task(stopping.wait()))
                    try:
                        await self._send_events(follower, ends, send)
                    finally:
                        for each in ends:
                            each.cancel()
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_events(
        self, follower: LogFollower, ends: list[asyncio.Task[Any]], send: Send
    ) -> None:
        """Send events and heartbeats until one of the tasks ends, or following fails."""

        async def send_frame(frame: bytes) -> None:
            await send({"type": "http.response.body", "body": frame, "more_body": True})

        await send_frame(FIRST_FRAME)
        while True:
            receiving = asyncio.create_task(follower.receive(self._heartbeat))
            try:
                await asyncio.wait([receiving, *ends], return_when=asyncio.FIRST_COMPLETED)
                if not receiving.done():
                    return
                events = receiving.result()
            except HoldfastError as error:
                await send_frame(encode_problem(error))
                return
            finally:
                await cancel(receiving)
            for event in events:
                if any(each.done() for each in ends):
                    return
                await send_frame(encode_frame("event", self._encode(event), event.seq))
            if not events:
                await send_frame(HEARTBEAT)


async def cancel(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait for its end; what it raises was handled, or does not matter."""
    if not task.done():
        task.cancel()
        with suppress(asyncio.CancelledError, HoldfastError):
            await task


async def wait_for_disconnect(receive: Receive) -> None:
    """Return when the client has hung up."""
    while (await receive())["type"] != "http.disconnect":
        pass


def encode_frame(name: str, data: object, seq: int | None = None) -> bytes:
    """Return one server-sent event."""
    number = b"" if seq is None else b"id: %d\n" % seq
    return b"%sevent: %s\ndata: %s\n\n" % (number, name.encode(), msgspec.json.encode(data))


def encode_problem(error: HoldfastError) -> bytes:
    """Return an error as the last event of a stream."""
    problem = to_problem(error)
    return encode_frame(
        "problem", {"status": problem.status, "detail": problem.detail, "hint": problem.hint}
    )


def encode_full(event: Event) -> Mapping[str, Any]:
    """Return an event as the list of events has it."""
    return encode_event(event)


def encode_brief(event: Event) -> Mapping[str, Any]:
    """Return an event without its data and changes."""
    return {"seq": event.seq, "id": event.id, "type": event.type, "at": format_time(event.at)}
