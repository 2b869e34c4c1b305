"""Sessions that an adapter opens once and uses for many calls of its framework.

A framework calls with an id, in any order, from tasks, threads and event loops. Every call starts
from the last commit, by any writer, and is durable when it returns. Calls on one session run one at
a time. A call that fails leaves nothing pending.

SharedSession   one session
SessionPool     the sessions of a store, opened when needed; those not used recently are dropped
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

from holdfast.process_fork import ForkSafeLock
from holdfast.sessions.session import Session
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.stores.base import StateStore
from holdfast.stores.portal import LANES, sync

T = TypeVar("T")

MAX_SESSIONS = 64


class SharedSession:
    """One session, opened on first use. It belongs to one event loop at a time.

    On a store that works on the calling thread, a call is one switch to another thread and back,
    and any number of event loops and threads may use it.
    """

    def __init__(self, state_store: StateStore, location: SnapshotLocation) -> None:
        self.state_store = state_store
        self.location = location
        self._session: Session | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = asyncio.Lock()
        self.users = 0
        """Calls that are in progress."""

    async def open(self) -> Session:
        """Return a session object of its own for the caller, at the last commit."""
        return await Session.open(
            self.state_store,
            agent_id=self.location.scope_id,
            session_id=self.location.session_id,
            scope=self.location.scope,
        )

    async def read(self, function: Callable[[Session], T]) -> T:
        """Return what a function reads from the session at its last commit.

        Raises:
            IntegrityError: Stored data is damaged.
            StateStoreError: The store failed.

        """

        async def work() -> T:
            return function(await self._refresh())

        if self.state_store.runs_inline:
            return await LANES.call_from_loop(self, work())
        async with self._use_lock():
            return await work()

    @overload
    async def update(
        self, function: Callable[[Session], Awaitable[T]], *, must_refresh: bool = True
    ) -> T: ...
    @overload
    async def update(self, function: Callable[[Session], T], *, must_refresh: bool = True) -> T: ...
    async def update(self, function: Callable[[Session], Any], *, must_refresh: bool = True) -> Any:
        """Run `Session.update` to its end, even if the caller is cancelled; return its result.

        Without ``must_refresh`` the function starts with the session as it is in memory, which
        saves a read: if another writer has committed, it runs again on the new state.

        Raises:
            ConflictError: Other writers committed first in all attempts.
            StateStoreError: The store failed.
            Exception: What the function raised; nothing was written.

        """
        if self.state_store.runs_inline:
            work = self._update(function, must_refresh=must_refresh)
            return await wait_to_end(asyncio.wrap_future(LANES.submit(self, work)))
        async with self._use_lock():
            work = self._update(function, must_refresh=must_refresh)
            return await wait_to_end(asyncio.create_task(work))

    def read_blocking(self, function: Callable[[Session], T]) -> T:
        """Do `read` for a caller that is not async, on a store that works on the calling thread."""

        async def work() -> T:
            return function(await self._refresh())

        return LANES.submit(self, work()).result()

    def update_blocking(self, function: Callable[[Session], T], *, must_refresh: bool = True) -> T:
        """Do `update` for such a caller."""
        work = self._update(function, must_refresh=must_refresh)
        result: T = LANES.submit(self, work).result()
        return result

    async def _update(self, function: Callable[[Session], Any], *, must_refresh: bool) -> Any:
        try:
            session = await self._refresh(must_refresh=must_refresh)
            return await session.update(function)
        except BaseException:
            self._session = None  # drops what is pending
            raise

    async def _refresh(self, *, must_refresh: bool = True) -> Session:
        """Return the session at its last commit, or as it is in memory."""
        if self._session is None:
            self._session = await self.open()
        elif must_refresh:
            await self._session.refresh()
        return self._session

    def _use_lock(self) -> asyncio.Lock:
        """Return the lock of the session in the running event loop; in a new loop, a new one."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._lock, self._session = loop, asyncio.Lock(), None
        return self._lock


class SessionPool:
    """The sessions of a store that were used recently, for any number of threads and event loops.

    The functions passed to it get a `Session`. One that does not exist yet is empty, see
    `session_exists`; it is created by an update that records something.
    """

    def __init__(self, state_store: StateStore, *, max_sessions: int = MAX_SESSIONS) -> None:
        self.state_store = state_store
        self.max_sessions = max_sessions
        self._guard = ForkSafeLock("the sessions of an adapter", wait_on_fork=False)
        self._start()

    def _start(self) -> None:
        self._process = os.getpid()
        self._inline: OrderedDict[SnapshotLocation, SharedSession] = OrderedDict()
        self._by_loop: dict[
            asyncio.AbstractEventLoop, OrderedDict[SnapshotLocation, SharedSession]
        ] = {}

    async def read(self, location: SnapshotLocation, function: Callable[[Session], T]) -> T:
        """Return what a function reads from a session at its last commit.

        Raises:
            IntegrityError: Stored data is damaged.
            StateStoreError: The store failed.

        """
        shared = self._take(location)
        try:
            return await shared.read(function)
        finally:
            self._give_back(shared)

    @overload
    async def update(
        self,
        location: SnapshotLocation,
        function: Callable[[Session], Awaitable[T]],
        *,
        must_refresh: bool = True,
    ) -> T: ...
    @overload
    async def update(
        self,
        location: SnapshotLocation,
        function: Callable[[Session], T],
        *,
        must_refresh: bool = True,
    ) -> T: ...
    async def update(
        self,
        location: SnapshotLocation,
        function: Callable[[Session], Any],
        *,
        must_refresh: bool = True,
    ) -> Any:
        """Run a function on a session and commit what it recorded, see `SharedSession.update`.

        Raises:
            ConflictError: Other writers committed first in all attempts.
            StateStoreError: The store failed.
            Exception: What the function raised; nothing was written.

        """
        shared = self._take(location)
        try:
            return await shared.update(function, must_refresh=must_refresh)
        finally:
            self._give_back(shared)

    def read_blocking(self, location: SnapshotLocation, function: Callable[[Session], T]) -> T:
        """Do `read` for a caller that is not async."""
        if not self.state_store.runs_inline:
            return sync(self.read(location, function))
        shared = self._take(location)
        try:
            return shared.read_blocking(function)
        finally:
            self._give_back(shared)

    def update_blocking(
        self,
        location: SnapshotLocation,
        function: Callable[[Session], T],
        *,
        must_refresh: bool = True,
    ) -> T:
        """Do `update` for a caller that is not async."""
        if not self.state_store.runs_inline:
            return sync(self.update(location, function, must_refresh=must_refresh))
        shared = self._take(location)
        try:
            return shared.update_blocking(function, must_refresh=must_refresh)
        finally:
            self._give_back(shared)

    def _sessions(self) -> OrderedDict[SnapshotLocation, SharedSession]:
        if self._process != os.getpid():
            self._start()
        if self.state_store.runs_inline:
            return self._inline
        loop = asyncio.get_running_loop()
        if loop not in self._by_loop:
            # Sessions refer to their loop, so weak references would keep both.
            for closed in [each for each in self._by_loop if each.is_closed()]:
                del self._by_loop[closed]
            self._by_loop[loop] = OrderedDict()
        return self._by_loop[loop]

    def _take(self, location: SnapshotLocation) -> SharedSession:
        """Return a session, and keep it until `_give_back`."""
        with self._guard:
            sessions = self._sessions()
            shared = sessions.get(location)
            if shared is None:
                shared = sessions[location] = SharedSession(self.state_store, location)
            sessions.move_to_end(location)
            shared.users += 1
            if len(sessions) > self.max_sessions:
                unused = [each for each, one in sessions.items() if not one.users]
                for each in unused[: len(sessions) - self.max_sessions]:
                    del sessions[each]
            return shared

    def _give_back(self, shared: SharedSession) -> None:
        with self._guard:
            shared.users -= 1


def session_exists(session: Session) -> bool:
    """Tell whether a session has been committed by any writer."""
    return session.committer.working.head.seq > 0


async def wait_to_end(work: asyncio.Future[T]) -> T:
    """Await work to its end even if the caller is cancelled, and then raise the cancellation.

    So no write is in progress when its caller continues.
    """
    cancellation: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait({work})
        except asyncio.CancelledError as error:
            cancellation = error
    if cancellation is not None:
        if not work.cancelled():
            work.exception()  # retrieved, so that asyncio does not log it
        raise cancellation
    return work.result()
