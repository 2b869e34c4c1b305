"""A proxy in front of a real server that loses requests and responses on demand.

A lost response is the hard case of every retry: the server has done the work, and the client cannot
know. The proxy works with any protocol:

    with CuttingProxy(server.port) as proxy:
        store = open_state_store(f"redis://127.0.0.1:{proxy.port}")
        proxy.lose_next_response(after=b"EVALSHA")
        await store.put("a", b"1", if_absent=True)
        assert proxy.lost == 1
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Self, TypeVar

from servers.process import free_port

T = TypeVar("T")

CHUNK = 65_536
QUIET = 0.05


@dataclass(frozen=True)
class Loss:
    """What to lose: the bytes that trigger it, and a function to call before the cut."""

    mark: bytes
    action: Callable[[], object] | None = None


@dataclass(eq=False)
class Route:
    """A connection through the proxy: the client's side and the server's."""

    near_reader: asyncio.StreamReader
    near_writer: asyncio.StreamWriter
    far_reader: asyncio.StreamReader
    far_writer: asyncio.StreamWriter
    task: asyncio.Task[None] | None = None
    loss: Loss | None = None
    tail: bytes = field(default=b"", repr=False)

    def completes(self, mark: bytes, data: bytes) -> bool:
        """Return whether a mark ends in these bytes; it may start in the bytes before."""
        before = self.tail[max(0, len(self.tail) - len(mark) + 1) :]
        return mark in before + data


class CuttingProxy:
    """Listens on a free local ``port`` and forwards to another one.

    It runs in its own thread. ``lost`` counts the requests and responses that were lost, so that a
    test can tell that its fault happened. With ``tls``, clients of the proxy use TLS, and the
    server behind it does not.
    """

    def __init__(self, to: int, tls: ssl.SSLContext | None = None) -> None:
        self.to = to
        self.tls = tls
        self.port = free_port()
        self.lost = 0
        self._responses: list[Loss] = []
        self._requests: list[Loss] = []
        self._routes: set[Route] = set()
        self._server: asyncio.Server | None = None
        self._return: Future[None] | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="cutting-proxy")

    def lose_next_response(self, after: bytes, action: Callable[[], object] | None = None) -> None:
        """Cut the connection after the next request with these bytes was answered.

        The server has done the work, and the client gets no response. ``action`` is called
        in another thread before the connection is cut. Each further call loses one more.
        """
        self._responses.append(Loss(after, action))

    def lose_next_request(self, at: bytes) -> None:
        """Cut the connection instead of forwarding the next request with these bytes."""
        self._requests.append(Loss(at))

    def cut(self) -> None:
        """Close all current connections; new ones are accepted."""
        self._do(self._cut())

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Close all connections, and refuse new ones within the block."""
        self._do(self._refuse())
        try:
            yield
        finally:
            self._do(self._listen())

    def refuse_for(self, seconds: float) -> None:
        """Close all connections, and refuse new ones for some seconds, without waiting."""

        self._do(self._refuse())
        self._return = asyncio.run_coroutine_threadsafe(self._listen_in(seconds), self._loop)

    def __enter__(self) -> Self:
        self._thread.start()
        self._do(self._listen())
        return self

    def __exit__(self, *problem: object) -> None:
        if self._return is not None:
            self._return.cancel()
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Coroutine[object, object, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _listen(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(
                self._serve, "127.0.0.1", self.port, ssl=self.tls
            )

    async def _listen_in(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self._listen()

    async def _refuse(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        await self._cut()

    async def _end(self) -> None:
        await self._refuse()
        await asyncio.sleep(0)  # otherwise a task that has not started would never close its socket
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:  # clients that were about to connect
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        await asyncio.sleep(0.01)  # closes the sockets

    async def _cut(self) -> None:
        tasks = [route.task for route in self._routes if route.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far = await asyncio.open_connection("127.0.0.1", self.to)
        except (OSError, asyncio.CancelledError):
            writer.transport.abort()
            return
        route = Route(reader, writer, *far, task=asyncio.current_task())
        self._routes.add(route)
        directions = [
            asyncio.ensure_future(self._forward_requests(route)),
            asyncio.ensure_future(self._forward_responses(route)),
        ]
        try:
            with suppress(asyncio.CancelledError):  # by _cut, which waits for this to end
                await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # First, as this may be cancelled again below.
            for end in (route.near_writer, route.far_writer):
                end.transport.abort()
            self._routes.discard(route)
            for direction in directions:
                direction.cancel()
            await asyncio.gather(*directions, return_exceptions=True)

    async def _forward_requests(self, route: Route) -> None:
        while data := await route.near_reader.read(CHUNK):
            if self._take_loss(self._requests, route, data):
                self.lost += 1
                return
            route.loss = route.loss or self._take_loss(self._responses, route, data)
            route.tail = (route.tail + data)[-1024:]
            route.far_writer.write(data)
            await route.far_writer.drain()

    async def _forward_responses(self, route: Route) -> None:
        while data := await route.far_reader.read(CHUNK):
            if route.loss is not None:
                await self._read_rest(route)
                if route.loss.action is not None:
                    await asyncio.to_thread(route.loss.action)
                self.lost += 1
                return
            route.near_writer.write(data)
            await route.near_writer.drain()

    async def _read_rest(self, route: Route) -> None:
        """Wait until the server has sent its whole response, so that the request is done."""
        while True:
            try:
                async with asyncio.timeout(QUIET):
                    if not await route.far_reader.read(CHUNK):
                        return
            except TimeoutError:
                return

    def _take_loss(self, losses: list[Loss], route: Route, data: bytes) -> Loss | None:
        for loss in losses:
            if route.completes(loss.mark, data):
                losses.remove(loss)
                return loss
        return None
