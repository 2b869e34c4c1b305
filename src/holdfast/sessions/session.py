"""One agent's conversation: a ``Store``, its log, and the ``StateStore`` they live in.

What is recorded is done in memory at once and becomes durable with the next commit, which is one
conditional write: of two writers one gets ``ConflictError``, with nothing of its own written.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar, cast
from weakref import WeakValueDictionary

from holdfast.documents.export import export_document, load_state_at_event
from holdfast.errors import ConflictError, NotFoundError, short_repr
from holdfast.ids import new_id
from holdfast.log.event_log import EventLog, Position
from holdfast.sessions.agents import SessionAgent, list_agents
from holdfast.sessions.commit import Committer, OnConflict, validate_on_conflict
from holdfast.sessions.effects import SideEffects
from holdfast.sessions.event_view import EventView
from holdfast.sessions.once import (
    compute_restore_changes,
    reject_nested_once,
    validate_once_function,
    validate_once_key,
)
from holdfast.sessions.recorder import Recorder
from holdfast.sessions.working_state import WorkingState
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.history import find_newest_key
from holdfast.snapshots.keys import AGENT, MULTI_AGENT, SnapshotLocation, validate_id
from holdfast.snapshots.records import SnapshotInfo, validate_tags
from holdfast.snapshots.session_snapshot import SessionSnapshot, snapshot_from_info, utc_now
from holdfast.snapshots.session_state import PENDING, SESSION, STATE, STATUS, validate_status
from holdfast.snapshots.tool_calls import ToolCallIndex, UnfinishedCall
from holdfast.snapshots.verify import Verification
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store
from holdfast.stores.base import StateStore
from holdfast.stores.entries import Put

T = TypeVar("T")

SnapshotRef: TypeAlias = str | int | SessionSnapshot | Snapshot
"""A durable snapshot by its id, an event by its number, a snapshot that was saved or loaded, or
one in memory.
"""

UNKNOWN = "?"


class Session(Recorder):
    """One agent's conversation, or that of several agents together.

    Made by `Session.open`. As an async context manager it commits at the end, and not after an
    exception. Tasks of one loop may share it.
    """

    _space = STATE

    def __init__(self, writer: Committer) -> None:
        self._committer = writer
        self.state_store = writer.state_store
        self.location = writer.location
        self.archive = SnapshotArchive(writer.state_store)
        self._ledger = ToolCallIndex()
        self._lock = asyncio.Lock()
        self._doing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._parent: str | None = None if writer.working.end.seq == 0 else UNKNOWN
        self._newest = self._parent
        self._effects = SideEffects(lambda: self._committer, self._lock)

    @classmethod
    def open(
        cls,
        state_store: StateStore,
        *,
        agent_id: str,
        session_id: str | None = None,
        scope: str = AGENT,
        must_exist: bool = False,
    ) -> SessionOpener:
        """Begin a session, or resume one exactly as it was committed last. To be awaited.

        Without a ``session_id`` a new one begins. With ``scope="multi_agent"`` it is one of several
        agents, and ``agent_id`` names them together. Nothing is written before the first commit.
        """
        if not isinstance(state_store, StateStore):
            raise TypeError(
                "a session is opened on a StateStore, as open_state_store(url) gives it, not "
                f"{short_repr(state_store)}"
            )
        if session_id is None:
            session_id = f"ses_{new_id()}"
        location = SnapshotLocation(session_id, scope, validate_id(agent_id, "agent_id"))
        return SessionOpener(cls._opened(state_store, location, must_exist=must_exist))

    @classmethod
    async def _opened(
        cls, state_store: StateStore, location: SnapshotLocation, *, must_exist: bool
    ) -> Session:
        writer = await Committer.open(state_store, location)
        if must_exist and writer.working.end.seq == 0:
            raise NotFoundError(
                f"the agent {location.scope_id} has no session {location.session_id} in this store:"
                " see holdfast.Catalog(state_store).sessions(agent_id)"
            )
        session = cls(writer)
        session._begin()
        return session

    def _begin(self) -> None:
        """Record the beginning of a session that has none."""
        if self._working.end.seq == 0:
            begin = {"agent_id": self.agent_id, "session_id": self.session_id}
            self._record("session.started", begin, set_=[(SESSION, STATUS, PENDING)])

    # ------------------------------------------------------------------------- what it is

    @property
    def agent_id(self) -> str:
        """The agent, or the name of several agents together."""
        return self.location.scope_id

    @property
    def session_id(self) -> str:
        """The id of the session."""
        return self.location.session_id

    @property
    def scope(self) -> str:
        """``agent``, or ``multi_agent`` for a session of several agents."""
        return self.location.scope

    @property
    def status(self) -> str:
        """What it is doing: pending, running, waiting, completed, failed or cancelled."""
        return str(self._store.get(SESSION, STATUS, PENDING))

    @status.setter
    def status(self, status: str) -> None:
        wanted = validate_status(status)
        if wanted != self.status:
            self._record("status.changed", set_=[(SESSION, STATUS, wanted)])

    @property
    def events(self) -> EventView:
        """All that happened, in order, with what waits to be committed at the end."""
        return EventView(lambda: self._committer, self._turn)

    @property
    def log(self) -> EventLog:
        """The log of what is committed."""
        incarnation = self._committer.incarnation.id
        return EventLog(self.state_store, self.location.prefix, incarnation, self._working.end)

    @property
    def is_dirty(self) -> bool:
        """Whether anything waits to be committed."""
        return bool(self._working.pending) or self._effects.is_pending

    @property
    def message_count(self) -> int:
        """How many messages the conversation has, without reading them."""
        return self._working.message_count

    def agent(self, agent_id: str) -> SessionAgent:
        """The part of one agent in a session of several: its messages, its values."""
        self.require_multi_agent()
        return SessionAgent(self, agent_id)

    def require_multi_agent(self) -> None:
        """Refuse what only a session of several agents can do."""
        if self.scope != MULTI_AGENT:
            raise ValueError(
                f"the session {self.session_id} is one agent's; open it with "
                'scope="multi_agent" to have several in it'
            )

    @property
    def agents(self) -> list[str]:
        """The agents that take part."""
        return list_agents(self) if self.scope == MULTI_AGENT else [self.agent_id]

    @property
    def unfinished(self) -> list[UnfinishedCall]:
        """Tool calls in the conversation that have no result: no model accepts it like that."""
        return self._ledger.unfinished(self._store.snapshot())

    async def last_finished(self) -> SnapshotInfo | None:
        """The newest durable snapshot in which every tool call has its result, to restore to."""
        return await self.archive.find_newest_info(
            location=self.location, wanted=lambda info: not info.unfinished
        )

    # --------------------------------------------------------------------- moments in memory

    def snapshot(self) -> Snapshot:
        """Freeze the state as it is now, in memory, in constant time."""
        return self._store.snapshot()

    def rollback(self, mark: Snapshot) -> None:
        """Go back to a snapshot in memory. The log is not shortened: it says that it was done.

        What was done once stays done.
        """
        if not isinstance(mark, Snapshot):
            raise TypeError(
                f"rollback takes what session.snapshot() gave, not {short_repr(mark)}; to a durable "
                "snapshot one goes back with await session.restore(snapshot_id)"
            )
        changes = compute_restore_changes(mark, self._store)
        self._working.record_owned("state.restored", {"snapshot": mark.id}, changes)

    # ------------------------------------------------------------------------------- commits

    async def commit(self, *, on_conflict: OnConflict = "raise") -> None:
        """Make all that was recorded durable, in one conditional write.

        Where another writer was first, ``"raise"`` raises ``ConflictError`` and keeps what waits;
        ``"rebase"`` takes the other's events in and puts one's own on top, where both touched
        different keys.
        """
        validate_on_conflict(on_conflict)
        async with self._lock:
            await self._effects.write_all()
            await self._committer.write(on_conflict)

    async def save(
        self, *, tags: Mapping[str, str] | None = None, on_conflict: OnConflict = "raise"
    ) -> SessionSnapshot:
        """Commit, and keep a durable snapshot of what was committed."""
        validate_on_conflict(on_conflict)
        wanted = validate_tags(tags)
        async with self._lock:
            await self._effects.write_all()
            if UNKNOWN in (self._newest, self._parent):
                found = await find_newest_key(self.state_store, self.location)
                self._newest = None if found is None else found.order
                if self._parent == UNKNOWN:
                    self._parent = None if found is None else found.snapshot_id
            if not self.is_dirty:
                await self._committer.check_incarnation()
            saved: list[SessionSnapshot] = []
            # The next of the list also where another process saved by a clock that was ahead.
            snapshot_id = new_id(after=self._newest)

            def record(end: Position, state: Snapshot) -> Put:
                info = self._info(snapshot_id, end, state, wanted)
                saved[:] = [snapshot_from_info(info, state)]
                return Put(self.location.snapshot_key(snapshot_id), info.encode(self.location))

            await self._committer.write(on_conflict, record)
            self._parent = self._newest = snapshot_id
            return saved[0]

    def _info(
        self, snapshot_id: str, end: Position, state: Snapshot, tags: dict[str, str]
    ) -> SnapshotInfo:
        return SnapshotInfo(
            snapshot_id=snapshot_id,
            parent_id=self._parent,
            agent_id=self.agent_id,
            session_id=self.session_id,
            scope=self.scope,
            created_at=utc_now(),
            tags=tags,
            status=str(state.get(SESSION, STATUS, PENDING)),
            message_count=self.message_count,
            size_bytes=state.size_bytes,
            seq=end.seq,
            hash=end.hash,
            keyframe=self._committer.timeline.base_keyframe.position.seq,
            incarnation=self._committer.incarnation.id,
            unfinished=bool(self._ledger.unfinished(state)),
        )

    async def reload(self) -> None:
        """Read what is committed now, and drop the pending events.

        The result of a side effect that could not be committed is not dropped: see `once`.
        """
        async with self._lock:
            self._committer = await Committer.open(self.state_store, self.location)
            self._effects.reloaded()
            self._parent = None if self._working.end.seq == 0 else UNKNOWN
            self._newest = self._parent
            self._begin()

    # ----------------------------------------------------------------------- durable moments

    async def restore(self, moment: SnapshotRef) -> None:
        """Make the state what it was at a durable snapshot or after an event, and commit that.

        What waits is committed with it. The log is not shortened: it says that it was done. What
        was done once stays done.

        Raises:
            NotFoundError: The session has no such snapshot, or no such event, or it was pruned.
            ConflictError: Another writer committed first; nothing was written.

        """
        state, snapshot_id = await self._at(moment)
        changes = compute_restore_changes(state, self._store)
        data = {"seq": moment} if isinstance(moment, int) else {"snapshot_id": snapshot_id}
        self._working.record_owned("state.restored", data, changes)
        await self.commit()
        self._parent = snapshot_id or self._parent

    async def fork(
        self,
        session_id: str | None = None,
        *,
        at: SnapshotRef | None = None,
        agent_id: str | None = None,
    ) -> Session:
        """A new session with the state that this one has now, or had at a snapshot or an event.

        It is durable when this returns. This session is not touched. What was done once up to that
        moment counts as done in the new one; what was done later, the new one does itself.
        """
        state, snapshot_id = (self.snapshot(), None) if at is None else await self._at(at)
        if session_id is None:
            session_id = f"ses_{new_id()}"
        owner = self.agent_id if agent_id is None else agent_id
        location = SnapshotLocation(session_id, self.scope, owner)
        seq = self._working.end.seq if at is None and not self.is_dirty else None
        origin = {
            "agent_id": self.agent_id,
            "session_id": self.session_id,
            "snapshot_id": snapshot_id,
            "seq": at if isinstance(at, int) else seq,
        }
        changes = state.changes(Store(max_history=0).snapshot())
        try:
            other = type(self)(await Committer.new(self.state_store, location))
            other._committer.origin_active_at = self._committer.origin_time()
            other._working.record_owned("session.forked", origin, changes)
            await other.commit()
        except ConflictError as error:
            raise ConflictError(
                f"there is a session {location.session_id} of {location.scope_id} already: fork "
                "under another id, or delete that one first",
                key=error.key,
            ) from error
        if at is None:
            other._effects.adopt(self._effects)
        return other

    async def _at(self, moment: SnapshotRef) -> tuple[Snapshot, str | None]:
        """The state at a moment, and its id where it is durable."""
        if isinstance(moment, Snapshot):
            return moment, None
        if isinstance(moment, SessionSnapshot):
            return moment.snapshot, moment.snapshot_id
        if isinstance(moment, int):
            return (await load_state_at_event(self.archive, self.location, moment)).snapshot, None
        found = await self.archive.load_snapshot(location=self.location, snapshot_id=moment)
        if found is None:
            raise NotFoundError(
                f"the session {self.session_id} of {self.agent_id} has no snapshot "
                f"{short_repr(moment)}: holdfast state list --session {self.session_id} lists those "
                "there are"
            )
        return found.snapshot, found.snapshot_id

    async def export(
        self, *, at: str | int | None = None, tags: Mapping[str, str] | None = None
    ) -> SessionSnapshot:
        """What is committed, or a kept snapshot, with its events: the whole document.

        ``at`` is the id of a snapshot, or the number of an event.
        """
        wanted = validate_tags(tags)
        if isinstance(at, int):
            return await export_document(self.archive, self.location, seq=at, tags=wanted)
        return await export_document(self.archive, self.location, snapshot_id=at, tags=wanted)

    async def verify(self) -> Verification:
        """Fold the whole log anew and check chain, digests, keyframes and every snapshot."""
        return await self.archive.verify(location=self.location)

    # -------------------------------------------------------------------------- side effects

    async def once(self, key: str, function: Callable[[], T | Awaitable[T]]) -> T:
        """Do a side effect once: afterwards, and after any crash, return its recorded result.

        Before the effect, what others committed is applied and the pending events are committed, so
        a conflict shows before anything was done. After it, the result is committed on its own.
        Where that fails, the result is kept, also through `reload`, and the next ``once`` of this
        key, or the next commit, writes it: this session does not do the effect again. A key that is
        done writes nothing.

        A process that crashes between the effect and that commit does it again on resuming, and so
        do two processes at the same moment: let the effect itself take ``key`` as its idempotency
        key where it can. Going back to a snapshot does not undo it.

        Raises:
            ConflictError: Before the effect, pending events conflict with another writer's; or
                after it, another process did the effect at the same moment, and its result counts.
            UnsupportedValueError: The effect gave what cannot be stored; it was done.

        """
        key = validate_once_key(key)
        validate_once_function(function)
        with reject_nested_once(self, key):
            lock = self._doing.setdefault(key, asyncio.Lock())
            async with lock:
                await self._effects.prepare(key)
                if not self._effects.has(key):
                    result = function()
                    self._effects.keep(key, await result if inspect.isawaitable(result) else result)
                return cast("T", await self._effects.result(key))

    async def _catch_up(self) -> None:
        async with self._lock:
            await self._committer.catch_up()

    # ---------------------------------------------------------------------------------- rest

    @property
    def _working(self) -> WorkingState:
        return self._committer.working

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            await self.commit()

    def __repr__(self) -> str:
        waiting = len(self._working.pending)
        return (
            f"<Session {self.session_id} of {self.agent_id}: {self.status}, "
            f"{self.message_count} messages, {self._working.end.seq} events"
            f"{f', {waiting} waiting' if waiting else ''}>"
        )


class SessionOpener:
    """What `Session.open` returns: to be awaited, or entered with ``async with``."""

    def __init__(self, work: Coroutine[Any, Any, Session]) -> None:
        self._work = work
        self._session: Session | None = None

    def __await__(self) -> Generator[Any, None, Session]:
        return self._work.__await__()

    async def __aenter__(self) -> Session:
        self._session = await self
        return self._session

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.__aexit__(kind, error, trace)
