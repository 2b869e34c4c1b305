"""The base class of network backends: one client per event loop, time limits and safe retries.

The hard part of a retry is a write whose response was lost: it may have been applied. So every
write has a token, stored with it, beside it or in its headers, and the same for all attempts. A
later attempt that finds the token knows that an earlier one succeeded: a conditional write is never
applied twice and never conflicts with itself. If a backend cannot keep tokens long enough, and a
conflict may mean that the lost attempt succeeded and another writer changed the key since, the
error has ``unknown`` set.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, nullcontext
from threading import Lock
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from holdfast.errors import ConflictError, StateStoreError
from holdfast.process_fork import ForkSafeLock
from holdfast.stores.backend import Backend
from holdfast.stores.call_queue import was_not_sent
from holdfast.stores.listener import Listener, Listeners, ListeningWatch
from holdfast.stores.local import RUN_INLINE
from holdfast.stores.urls import StoreURL
from holdfast.stores.watch import StoreWatch

Client = TypeVar("Client")
Answer = TypeVar("Answer")

TIMEOUT = 15.0
PATIENCE = 15.0


class LoopConnection(Generic[Client]):
    """The client of one event loop, created once even if several tasks ask at the same time."""

    def __init__(self) -> None:
        self.client: Client | None = None
        self.lock = asyncio.Lock()
        self.process = os.getpid()


class RemoteStateStore(Backend, Generic[Client]):
    """A ``StateStore`` behind a network.

    ``timeout`` limits one attempt, and ``patience`` is how long transient failures are retried,
    both in seconds. A server that was never reached is not retried.
    """

    failures: tuple[type[Exception], ...] = ()
    """The driver's exceptions, which ``_explain_error`` turns into ``StateStoreError``."""

    runs_inline = False

    def __init__(
        self, url: StoreURL, *, timeout: float = TIMEOUT, patience: float = PATIENCE
    ) -> None:
        self.display_url = str(url)
        self._url = url
        self._timeout = timeout
        self._patience = patience
        self._reached = False
        self._lock = Lock()
        # A driver's client belongs to the event loop that created it; code that calls asyncio.run()
        # several times has several loops.
        self._connections: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopConnection[Client]] = (
            WeakKeyDictionary()
        )
        self._inline_lock = ForkSafeLock("the connections of a store", wait_on_fork=False)
        # By process: a forked child must not use those of its parent, and not close them either.
        self._inline_clients: dict[int, Client] = {}
        self._listeners = Listeners(self._create_listener)

    @abstractmethod
    async def _connect(self) -> Client:
        """Return a client that is ready to use, and create what the store needs on first use."""

    async def _connect_inline(self) -> Client:
        """Return a client that blocks instead of suspending, if the store ``runs_inline``."""
        raise NotImplementedError

    @abstractmethod
    async def _disconnect(self, client: Client) -> None:
        """Close a client."""

    @abstractmethod
    def _explain_error(self, error: Exception) -> StateStoreError:
        """Classify a driver's error: the remedy, ``transient`` and ``unknown``."""

    def _create_listener(self) -> Listener:
        """Return a listener for the running event loop, if the store ``wakes_other_processes``."""
        raise NotImplementedError

    def watch(self, prefix: str) -> AbstractAsyncContextManager[StoreWatch]:
        """Watch for writes and deletes of keys that start with a prefix."""
        in_process = super().watch(prefix)
        if not self.wakes_other_processes:
            return in_process
        return ListeningWatch(in_process, self._listeners, prefix)

    async def _run(
        self,
        call: Callable[[Client, bool], Awaitable[Answer]],
        *,
        writes: bool = False,
        matches: bool = False,
    ) -> Answer:
        """Run an operation, and retry it after transient failures.

        Args:
            call: The operation. Its arguments are the client, and whether an earlier attempt of a
                write may have been applied.
            writes: Whether it writes.
            matches: Whether the write has a condition, so that a conflict after a lost response is
                ambiguous.

        Raises:
            StateStoreError: It failed for good, or until ``patience`` was over.

        """
        unsure = False
        pauses = self._pauses()
        inline = self.runs_inline and RUN_INLINE.get()
        while True:
            sent = False
            try:
                # An inline client limits the time of its calls itself.
                async with nullcontext() if inline else asyncio.timeout(self._timeout):
                    client = await (self._inline_client() if inline else self._client())
                    self._reached = sent = True
                    return await call(client, unsure)
            except ConflictError as conflict:
                if unsure and matches:
                    raise self._ambiguous_conflict(conflict) from conflict
                raise
            except StateStoreError as error:
                failure, cause = error, error.__cause__
            except TimeoutError as error:
                failure = self._timed_out(unknown=sent and not was_not_sent(error))
                cause = error
            except self.failures as error:
                failure, cause = self._explain_error(error), error
            unsure = unsure or (writes and failure.unknown)
            pause = next(pauses, None) if failure.transient and self._reached else None
            if pause is None:
                raise self._final_error(failure, unsure=unsure) from self._safe_cause(cause)
            if inline:
                time.sleep(pause)  # noqa: ASYNC251 - there is no event loop
            else:
                await asyncio.sleep(pause)

    async def _client(self) -> Client:
        loop = asyncio.get_running_loop()
        known = self._connections.get(loop)
        if known is not None and known.client is not None:
            self._check_open()
            return known.client
        with self._lock:
            for ended in [each for each in self._connections if each.is_closed()]:
                # The client may hold a reference to its loop, which keeps the weak key alive.
                del self._connections[ended]
            connection = self._connections.setdefault(loop, LoopConnection())
        async with connection.lock:
            self._check_open()
            if connection.client is None:
                connection.client = await self._connect()
            return connection.client

    async def _inline_client(self) -> Client:
        process = os.getpid()
        known = self._inline_clients.get(process)
        self._check_open()
        if known is None:
            with self._inline_lock:
                known = self._inline_clients.get(process)
                if known is None:
                    known = self._inline_clients[process] = await self._connect_inline()
        return known

    async def _close(self) -> None:
        await self._listeners.close()
        inline = self._inline_clients.pop(os.getpid(), None)
        if inline is not None:
            await self._disconnect(inline)
        with self._lock:
            connections = list(self._connections.items())
        for loop, connection in connections:
            if connection.process != os.getpid():
                continue  # of the process that this one was forked from
            if loop is asyncio.get_running_loop():
                await self._close_connection(connection)
            elif loop.is_running():
                closing = asyncio.run_coroutine_threadsafe(self._close_connection(connection), loop)
                await asyncio.wrap_future(closing)
        with self._lock:
            self._connections.clear()

    async def _close_connection(self, connection: LoopConnection[Client]) -> None:
        async with connection.lock:
            if connection.client is not None:
                await self._disconnect(connection.client)
                connection.client = None

    def _pauses(self) -> Iterator[float]:
        """Yield the seconds to wait before each retry: doubling, with jitter."""
        end = time.monotonic() + self._patience
        pause = 0.02
        while time.monotonic() < end:
            yield pause * random.uniform(0.5, 1.0)  # noqa: S311 - not a secret
            pause = min(pause * 2, 1.0)

    def _timed_out(self, *, unknown: bool) -> StateStoreError:
        return StateStoreError(
            f"{self.display_url} did not respond within {self._timeout:g} seconds; check that it "
            "is reachable, or raise the option timeout of the URL",
            transient=True,
            unknown=unknown,
        )

    def _final_error(self, failure: StateStoreError, *, unsure: bool) -> StateStoreError:
        message = self._url.mask(str(failure))
        if unsure:
            message += "; the write may or may not have been applied: read before writing again"
        return StateStoreError(message, transient=failure.transient, unknown=unsure)

    def _explain_briefly(self, error: Exception) -> str:
        """Return what an error means, without secrets."""
        if isinstance(error, TimeoutError):
            return str(self._timed_out(unknown=False))
        known = error if isinstance(error, StateStoreError) else self._explain_error(error)
        return self._url.mask(str(known))

    def _safe_cause(self, cause: BaseException | None) -> BaseException | None:
        """Return the driver's error, unless its text contains a secret."""
        if cause is None or self._url.mask(str(cause)) != str(cause):
            return None
        # The driver's frames have the password in their local variables.
        cause.__context__ = cause.__cause__ = cause.__traceback__ = None
        return cause

    def _ambiguous_conflict(self, conflict: ConflictError) -> StateStoreError:
        return StateStoreError(
            f"the response to a write was lost, and the next attempt found a conflict: {conflict}; "
            "the write may or may not have been applied before it",
            unknown=True,
        )
