"""The blocking twin of a session, for code that is not async."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from types import TracebackType
from typing import Self, TypeVar, cast
from weakref import WeakValueDictionary

from holdfast.log.event_log import EventLog
from holdfast.process_fork import ForkSafeLock
from holdfast.sessions.agents import SessionAgent
from holdfast.sessions.commit import OnConflict
from holdfast.sessions.event_view import EventView
from holdfast.sessions.once import reject_nested_once, validate_once_function, validate_once_key
from holdfast.sessions.portal import get_portal
from holdfast.sessions.recorder import Recorder
from holdfast.sessions.session import Session, SnapshotRef
from holdfast.sessions.working_state import WorkingState
from holdfast.snapshots.keys import AGENT, SnapshotLocation
from holdfast.snapshots.records import SnapshotInfo
from holdfast.snapshots.session_snapshot import SessionSnapshot
from holdfast.snapshots.session_state import STATE
from holdfast.snapshots.tool_calls import UnfinishedCall
from holdfast.snapshots.verify import Verification
from holdfast.state.snapshot import Snapshot
from holdfast.stores.base import StateStore
from holdfast.stores.registry import open_state_store

T = TypeVar("T")


class BlockingSession(Recorder):
    """A `Session` whose calls wait for what they do. Threads may share it.

    Made by `BlockingSession.open`. As a context manager it commits at the end, and not after an
    exception, and closes the store if it opened it itself.
    """

    _space = STATE

    def __init__(self, session: Session, *, owns_store: bool = False) -> None:
        self._session = session
        self._owns_store = owns_store
        self._turn = ForkSafeLock(f"session {session.session_id!r}")
        self._doing: WeakValueDictionary[str, ForkSafeLock] = WeakValueDictionary()

    @classmethod
    def open(
        cls,
        state_store: StateStore | str | None = None,
        *,
        agent_id: str,
        session_id: str | None = None,
        scope: str = AGENT,
        must_exist: bool = False,
    ) -> Self:
        """Begin a session, or resume one exactly as it was committed last.

        ``state_store`` may be a URL, or None for ``HOLDFAST_STORE`` or the embedded default: then
        it is closed with the session.
        """
        owns_store = not isinstance(state_store, StateStore)
        store = (
            state_store if isinstance(state_store, StateStore) else open_state_store(state_store)
        )

        async def opened() -> Session:
            try:
                return await Session.open(
                    store,
                    agent_id=agent_id,
                    session_id=session_id,
                    scope=scope,
                    must_exist=must_exist,
                )
            except BaseException:
                if owns_store:
                    await store.close()
                raise

        return cls(get_portal().call(opened()), owns_store=owns_store)

    # ----------------------------------------------------------------------------- in memory

    @property
    def state_store(self) -> StateStore:
        """Where it lives."""
        return self._session.state_store

    @property
    def agent_id(self) -> str:
        """The agent, or the name of several agents together."""
        return self._session.agent_id

    @property
    def session_id(self) -> str:
        """The id of the session."""
        return self._session.session_id

    @property
    def scope(self) -> str:
        """``agent``, or ``multi_agent`` for a session of several agents."""
        return self._session.scope

    @property
    def location(self) -> SnapshotLocation:
        """Where it is kept."""
        return self._session.location

    @property
    def status(self) -> str:
        """What it is doing: pending, running, waiting, completed, failed or cancelled."""
        return self._session.status

    @status.setter
    def status(self, status: str) -> None:
        with self._turn:
            self._session.status = status

    @property
    def events(self) -> EventView:
        """All that happened, in order, with what waits to be committed at the end."""
        return EventView(lambda: self._session._committer, self._turn)

    @property
    def log(self) -> EventLog:
        """The log of what is committed."""
        return self._session.log

    @property
    def is_dirty(self) -> bool:
        """Whether anything waits to be committed."""
        return self._session.is_dirty

    @property
    def message_count(self) -> int:
        """How many messages the conversation has, without reading them."""
        return self._session.message_count

    @property
    def agents(self) -> list[str]:
        """The agents that take part."""
        return self._session.agents

    @property
    def unfinished(self) -> list[UnfinishedCall]:
        """Tool calls in the conversation that have no result: no model accepts it like that."""
        with self._turn:
            return self._session.unfinished

    def agent(self, agent_id: str) -> SessionAgent:
        """The part of one agent in a session of several: its messages, its values."""
        self._session.require_multi_agent()
        return SessionAgent(self, agent_id)

    def snapshot(self) -> Snapshot:
        """Freeze the state as it is now, in memory, in constant time."""
        return self._session.snapshot()

    def rollback(self, mark: Snapshot) -> None:
        """Go back to a snapshot in memory. The log is not shortened: it says that it was done."""
        with self._turn:
            self._session.rollback(mark)

    # ------------------------------------------------------------------------------- durable

    def commit(self, *, on_conflict: OnConflict = "raise") -> None:
        """Make all that was recorded durable, in one conditional write."""
        with self._turn:
            get_portal().call(self._session.commit(on_conflict=on_conflict))

    def save(
        self, *, tags: Mapping[str, str] | None = None, on_conflict: OnConflict = "raise"
    ) -> SessionSnapshot:
        """Commit, and keep a durable snapshot of what was committed."""
        with self._turn:
            return get_portal().call(self._session.save(tags=tags, on_conflict=on_conflict))

    def restore(self, moment: SnapshotRef) -> None:
        """Make the state what it was at a durable snapshot or after an event, and commit that."""
        with self._turn:
            get_portal().call(self._session.restore(moment))

    def fork(
        self,
        session_id: str | None = None,
        *,
        at: SnapshotRef | None = None,
        agent_id: str | None = None,
    ) -> BlockingSession:
        """A new session with the state that this one has now, or had at a snapshot or an event."""
        with self._turn:
            other = get_portal().call(self._session.fork(session_id, at=at, agent_id=agent_id))
        return BlockingSession(other)

    def reload(self) -> None:
        """Read what is committed now, and drop the pending events. See `Session.reload`."""
        with self._turn:
            get_portal().call(self._session.reload())

    def last_finished(self) -> SnapshotInfo | None:
        """The newest durable snapshot in which every tool call has its result, to restore to."""
        return get_portal().call(self._session.last_finished())

    def export(
        self, *, at: str | int | None = None, tags: Mapping[str, str] | None = None
    ) -> SessionSnapshot:
        """What is committed, or a kept snapshot, with its events: the whole document."""
        return get_portal().call(self._session.export(at=at, tags=tags))

    def verify(self) -> Verification:
        """Fold the whole log anew and check chain, digests, keyframes and every snapshot."""
        return get_portal().call(self._session.verify())

    def once(self, key: str, function: Callable[[], T | Awaitable[T]]) -> T:
        """Do a side effect once: afterwards, and after any crash, return its recorded result.

        The function runs in the caller's own thread, while other threads may use the session. One
        that is async is waited for. See `Session.once`.
        """
        key = validate_once_key(key)
        validate_once_function(function)
        with self._turn:
            lock = self._doing.setdefault(key, ForkSafeLock(f"{key!r}", wait_on_fork=False))
        with reject_nested_once(self, key), lock:
            effects = self._session._effects
            with self._turn:
                get_portal().call(effects.prepare(key))
                is_done = effects.has(key)
            if not is_done:
                given = function()
                result = get_portal().call(waited(given)) if isawaitable(given) else given
                with self._turn:
                    effects.keep(key, result)
            with self._turn:
                return cast("T", get_portal().call(effects.result(key)))

    # ---------------------------------------------------------------------------------- rest

    @property
    def _working(self) -> WorkingState:
        return self._session._working

    def close(self) -> None:
        """Give back the store, if this object opened it. What waits is not committed."""
        if self._owns_store:
            get_portal().call(self._session.state_store.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self.commit()
        finally:
            self.close()

    def __repr__(self) -> str:
        return f"<Blocking{repr(self._session)[1:]}"


async def waited(result: Awaitable[T]) -> T:
    """What something that is awaited gives."""
    return await result
