"""What backends behind a network share: a client per event loop, time limits, and safe retries.

The hard part of a retry is a write whose answer got lost: it may have been done. So every write
carries a mark of its own (a token that is kept beside it, in it, or in its headers), the same on
every attempt, by which a second attempt knows the first one's work: a conditional write is never
applied twice and never reports a conflict with itself. Where a backend cannot keep such marks for
long enough, and a conflict cannot be told from the success of the lost attempt followed by somebody
else's write, the error says that the outcome is not known.
"""

from __future__ import annotations

import asyncio
import random
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from threading import Lock
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from holdfast.errors import ConflictError, StateStoreError
from holdfast.stores.backend import Backend
from holdfast.stores.urls import StoreURL

Client = TypeVar("Client")
Answer = TypeVar("Answer")

TIMEOUT = 15.0
PATIENCE = 15.0


class LoopConnection(Generic[Client]):
    """The client of one event loop, made once, however many ask at the same time."""

    def __init__(self) -> None:
        self.client: Client | None = None
        self.lock = asyncio.Lock()


class RemoteStateStore(Backend, Generic[Client]):
    """A ``StateStore`` behind a network.

    ``timeout`` bounds one attempt, and ``patience`` is how long failures that may pass are tried
    again, both in seconds. A server that was never reached is not waited for.
    """

    failures: tuple[type[Exception], ...] = ()
    """What the driver raises. ``_explained`` tells what each means."""

    def __init__(
        self, url: StoreURL, *, timeout: float = TIMEOUT, patience: float = PATIENCE
    ) -> None:
        self.place = str(url)
        self._url = url
        self._timeout = timeout
        self._patience = patience
        self._reached = False
        self._lock = Lock()
        # A driver's client belongs to the event loop that made it; code that calls asyncio.run()
        # several times has several.
        self._connections: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopConnection[Client]] = (
            WeakKeyDictionary()
        )

    @abstractmethod
    async def _connect(self) -> Client:
        """A client that is ready to be used, with whatever the store needs made on first use."""

    @abstractmethod
    async def _disconnect(self, client: Client) -> None:
        """Give a client back."""

    @abstractmethod
    def _explained(self, error: Exception) -> StateStoreError:
        """What a driver's error means: the way out, whether it may pass, what became of a write."""

    async def _run(
        self,
        call: Callable[[Client, bool], Awaitable[Answer]],
        *,
        writes: bool = False,
        matches: bool = False,
    ) -> Answer:
        """Do one operation, again while it fails in ways that may pass.

        ``call`` is given the client and whether an earlier attempt of a write may have been done.
        ``matches`` says that the write has an ``if_match``, after which a conflict is ambiguous.
        """
        unsure = False
        pauses = self._pauses()
        while True:
            sent = False
            try:
                async with asyncio.timeout(self._timeout):
                    client = await self._client()
                    self._reached = sent = True
                    return await call(client, unsure)
            except ConflictError as conflict:
                if unsure and matches:
                    raise self._doubtful(conflict) from conflict
                raise
            except StateStoreError as error:
                failure, cause = error, error.__cause__
            except TimeoutError as error:
                failure, cause = self._too_slow(unknown=sent), error
            except self.failures as error:
                failure, cause = self._explained(error), error
            unsure = unsure or (writes and failure.unknown)
            pause = next(pauses, None) if failure.transient and self._reached else None
            if pause is None:
                raise self._final(failure, unsure=unsure) from self._presentable(cause)
            await asyncio.sleep(pause)

    async def _client(self) -> Client:
        with self._lock:
            for loop in [loop for loop in self._connections if loop.is_closed()]:
                # Its client may hold it, so that it would not go by itself.
                del self._connections[loop]
            connection = self._connections.setdefault(asyncio.get_running_loop(), LoopConnection())
        async with connection.lock:
            self._check_open()
            if connection.client is None:
                connection.client = await self._connect()
            return connection.client

    async def _close(self) -> None:
        with self._lock:
            connections = list(self._connections.items())
        for loop, connection in connections:
            if loop is asyncio.get_running_loop():
                await self._end(connection)
            elif loop.is_running():
                ended = asyncio.run_coroutine_threadsafe(self._end(connection), loop)
                await asyncio.wrap_future(ended)
        with self._lock:
            self._connections.clear()

    async def _end(self, connection: LoopConnection[Client]) -> None:
        async with connection.lock:
            if connection.client is not None:
                await self._disconnect(connection.client)
                connection.client = None

    def _pauses(self) -> Iterator[float]:
        """Seconds to wait before each further attempt: doubling, and never in step with others."""
        end = time.monotonic() + self._patience
        pause = 0.02
        while time.monotonic() < end:
            yield pause * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
            pause = min(pause * 2, 1.0)

    def _too_slow(self, *, unknown: bool) -> StateStoreError:
        return StateStoreError(
            f"{self.place} did not answer within {self._timeout:g} seconds: see whether it is "
            "reachable, or give it more time with the option timeout of the URL",
            transient=True,
            unknown=unknown,
        )

    def _final(self, failure: StateStoreError, *, unsure: bool) -> StateStoreError:
        message = self._url.mask(str(failure))
        if unsure:
            message += ". Whether it was written is not known: read before writing again"
        return StateStoreError(message, transient=failure.transient, unknown=unsure)

    def _presentable(self, cause: BaseException | None) -> BaseException | None:
        """The driver's error, unless its text would show a secret."""
        if cause is None or self._url.mask(str(cause)) != str(cause):
            return None
        # The frames of a driver have the password among their variables.
        cause.__context__ = cause.__cause__ = cause.__traceback__ = None
        return cause

    def _doubtful(self, conflict: ConflictError) -> StateStoreError:
        return StateStoreError(
            f"the answer to a write got lost, and meanwhile: {conflict}. Whether it was written "
            "before that is not known",
            unknown=True,
        )
