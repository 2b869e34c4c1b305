"""The session of an agent: record events in memory, commit them, save and restore its state.

A recorded event changes the state in memory at once and stays pending until the next commit, which
is one conditional write: of two concurrent writers one gets ``ConflictError`` and writes nothing.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Self, TypeVar, cast, overload
from weakref import WeakValueDictionary

from holdfast.blobs.source import BlobSource
from holdfast.errors import NotFoundError, short_repr
from holdfast.ids import new_id
from holdfast.sessions.backoff import Contention
from holdfast.sessions.commit import Committer, validate_on_conflict
from holdfast.sessions.fork import create_fork
from holdfast.sessions.once import SideEffects, reject_nested_once, validate_once_call
from holdfast.sessions.open import SessionOpener
from holdfast.sessions.rebase import OnConflict, StaleSessionError
from holdfast.sessions.restore import SnapshotRef, compute_restore_changes, load_ref
from holdfast.sessions.save import SnapshotSaver
from holdfast.sessions.session_contents import SessionContents
from holdfast.sessions.update import UpdateAttempts, validate_update_function
from holdfast.sessions.working_state import STARTED
from holdfast.sessions.workspace import Workspace, open_workspace, validate_workspace
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.keys import AGENT, SnapshotLocation, validate_id
from holdfast.snapshots.records import validate_tags
from holdfast.snapshots.session_snapshot import SessionSnapshot
from holdfast.snapshots.session_state import PENDING, SESSION, STATUS
from holdfast.snapshots.tool_calls import ToolCallIndex
from holdfast.stores.base import StateStore
from holdfast.stores.local import RUN_INLINE
from holdfast.workspaces.reports import RestoreReport
from holdfast.workspaces.scan import MAX_FILE_SIZE, MAX_TOTAL_SIZE

T = TypeVar("T")


class Session(SessionContents):
    """One conversation: its messages, its values and the log of its events.

    Open one with `Session.open`. As an async context manager it commits at the end of the block,
    except after an exception. Tasks of one event loop may share it.
    """

    def __init__(self, committer: Committer) -> None:
        self.state_store = committer.state_store
        self.location = committer.location
        self.archive = SnapshotArchive(committer.state_store)
        self._lock = asyncio.Lock()
        self._update_lock = asyncio.Lock()
        self._updating: object = None
        """The task whose update is in progress, or its thread if work runs inline."""
        self._running: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._contention = Contention()
        self._tool_calls = ToolCallIndex()
        self._effects = SideEffects(lambda: self.committer, self._lock)
        self._offered: dict[str, BlobSource] = {}
        """Attachments that no commit refers to yet; a reload keeps them."""
        self._use(committer)

    def _use(self, committer: Committer) -> None:
        committer.blobs.offered.update(self._offered)
        self._offered = committer.blobs.offered
        self._committer = committer
        self._saver = SnapshotSaver(committer, self._tool_calls)

    @property
    def committer(self) -> Committer:
        """The low-level writer of the session, for adapters. A reload replaces it."""
        return self._committer

    @classmethod
    def open(
        cls,
        state_store: StateStore,
        *,
        agent_id: str,
        session_id: str | None = None,
        scope: str = AGENT,
        must_exist: bool = False,
    ) -> SessionOpener[Session]:
        """Open a session at its last commit, or start a new one. Await the result.

        Without a ``session_id`` the session is new, with a generated id. With
        ``scope="multi_agent"`` it belongs to several agents, and ``agent_id`` names them as a
        group. Nothing is written before the first commit.

        Raises:
            NotFoundError: With ``must_exist``, the session does not exist.
            IntegrityError: The stored log or a keyframe is damaged.
            StateStoreError: The store failed.

        """
        if not isinstance(state_store, StateStore):
            raise TypeError(
                f"state_store must be a StateStore, got {short_repr(state_store)}; "
                "open one with holdfast.open_state_store(url)"
            )
        if session_id is None:
            session_id = f"ses_{new_id()}"
        location = SnapshotLocation(session_id, scope, validate_id(agent_id, "agent_id"))
        return SessionOpener(cls._open(state_store, location, must_exist=must_exist))

    @classmethod
    async def _open(
        cls, state_store: StateStore, location: SnapshotLocation, *, must_exist: bool
    ) -> Session:
        committer = await Committer.open(state_store, location)
        if must_exist and committer.working.head.seq == 0:
            raise NotFoundError(
                f"agent {location.scope_id} has no session {location.session_id} in this store; "
                "list its sessions with holdfast.Catalog(state_store).sessions(agent_id)"
            )
        await committer.read_ahead()
        session = cls(committer)
        session._start()
        return session

    def _start(self) -> None:
        """Record the first event of a session that has none."""
        if self._working.head.seq == 0:
            data = {"agent_id": self.agent_id, "session_id": self.session_id}
            self._record(STARTED, data, set_=[(SESSION, STATUS, PENDING)])

    # ------------------------------------------------------------------- commit and refresh

    async def commit(self, *, on_conflict: OnConflict = "raise") -> None:
        """Make the pending events durable, in one conditional write.

        If another writer committed first, ``"raise"`` raises ``ConflictError``, and ``"rebase"``
        applies the other writer's events and commits the pending ones on top of them. After any
        error the events stay pending: call ``commit`` again. A write whose response was lost is
        recognized and not repeated.

        Raises:
            ConflictError: Another writer committed first; with ``"rebase"``, it changed the same
                keys, which ``error.conflicts`` lists. Or the session was deleted, replaced or
                pruned. Nothing was written.
            StateStoreError: The store failed.

        """
        validate_on_conflict(on_conflict)
        async with self._lock:
            if not self._effects.is_empty:
                await self._effects.commit_all()
            await self.committer.commit(on_conflict)

    async def refresh(self) -> None:
        """Apply what other writers committed, and rebase the pending events on top.

        If there are no pending events, a session that was deleted, replaced or pruned in the
        meantime is read again.

        Raises:
            ConflictError: The pending events conflict with those of another writer, or the session
                was deleted, replaced or pruned. The session in memory did not change: `reload`
                drops the pending events.
            StateStoreError: The store failed.

        """
        async with self._lock:
            try:
                await self.committer.refresh()
                await self.committer.read_ahead()
            except StaleSessionError:
                if not self._working.is_unchanged:
                    raise
                await self._reload()

    @overload
    async def update(self, function: Callable[[Session], Awaitable[T]]) -> T: ...
    @overload
    async def update(self, function: Callable[[Session], T]) -> T: ...
    async def update(self, function: Callable[[Session], T | Awaitable[T]]) -> T:
        """Run a function on the session and commit what it recorded; return its result.

        If another writer committed first, the events that the function recorded are discarded,
        the session is refreshed, and the function runs again on the new state. So it should have
        no effects besides those on the session; use `once` for these. Concurrent writers are
        served fairly; after 30 seconds of conflicts the update fails.

        The function may be async. It starts with the session as it is in memory: call `refresh`
        first if it has to see the newest commits. Events that were pending before are committed
        with its own. While an async function runs, no other task should record events.

        Raises:
            ConflictError: Other writers committed first in all attempts, or events that were
                pending before the call conflict with theirs. The function's events are discarded.
            StateStoreError: The commit failed, and its outcome is unknown. The events stay pending:
                `commit` completes the update.
            Exception: What the function raised; its events are discarded.

        """
        validate_update_function(function)
        caller = threading.current_thread() if RUN_INLINE.get() else asyncio.current_task()
        if self._updating is not None and self._updating is caller:
            raise RuntimeError("update() was called by the function of another update()")
        async with self._update_lock:
            self._updating = caller
            try:
                attempts = UpdateAttempts(self, self._contention)
                while await attempts.next():
                    with attempts.recording():
                        result = function(self)
                        if inspect.isawaitable(result):
                            result = await result
                    if await attempts.commit():
                        return cast("T", result)
                raise attempts.gave_up()
            finally:
                self._updating = None

    async def reload(self) -> None:
        """Read the last commit and drop the pending events.

        Results of `once` that could not be committed are kept.

        Raises:
            IntegrityError: The stored log or a keyframe is damaged.
            StateStoreError: The store failed.

        """
        async with self._lock:
            await self._reload()

    async def _reload(self) -> None:
        committer = await Committer.open(self.state_store, self.location)
        await committer.read_ahead()
        self._use(committer)
        self._effects.drop_committed()
        self._start()

    # ------------------------------------------------------------------- durable snapshots

    async def save(
        self,
        *,
        tags: Mapping[str, str] | None = None,
        on_conflict: OnConflict = "raise",
        workspace: Workspace | None = None,
    ) -> SessionSnapshot:
        """Commit, and save a durable snapshot of the committed state.

        With a `workspace` of this session, its folder is captured in the same commit.

        Raises:
            ConflictError: As for `commit`; nothing was written.
            WorkspaceError: A file of the folder cannot be captured; nothing was written.
            StateStoreError: The store failed.

        """
        validate_on_conflict(on_conflict)
        wanted = validate_tags(tags)
        if workspace is None:
            return await self._save(on_conflict, wanted)
        validate_workspace(workspace, self)
        _, saved = await workspace.capture_with(lambda: self._save(on_conflict, wanted))
        return saved

    async def _save(self, on_conflict: OnConflict, tags: dict[str, str]) -> SessionSnapshot:
        async with self._lock:
            if not self._effects.is_empty:
                await self._effects.commit_all()
            return await self._saver.save(on_conflict, tags)

    @overload
    async def restore(self, target: SnapshotRef) -> None: ...
    @overload
    async def restore(
        self, target: SnapshotRef, *, workspace: Workspace, force: bool = False
    ) -> RestoreReport: ...
    async def restore(
        self, target: SnapshotRef, *, workspace: Workspace | None = None, force: bool = False
    ) -> RestoreReport | None:
        """Restore the state to a snapshot or to the state after an event, and commit the change.

        Pending events are committed with it. The log is not truncated: the restore is appended to
        it as a ``state.restored`` event, so it can itself be undone. Results of `once` are kept.

        With a `workspace` of this session, its folder is restored, too, and the report of that is
        returned; ``force`` and the errors are those of `Workspace.restore`. The folder is first.

        Raises:
            NotFoundError: The session has no such snapshot or event, or it was pruned.
            ConflictError: Another writer committed first; nothing was written.
            WorkspaceError: The folder cannot be restored; the state was not restored either.
            StateStoreError: The store failed.

        """
        if workspace is None:
            await self._restore(target, ())
            return None
        validate_workspace(workspace, self)
        return await workspace.restore_with(
            target, lambda _, sources: self._restore(target, sources), force=force
        )

    async def _restore(self, target: SnapshotRef, sources: Sequence[BlobSource]) -> None:
        """Record and commit a restore; ``sources`` are blobs that it may refer to."""
        # Read before the state: what it refers to was stored when the log was swept so often.
        manifest = await self.archive.load_manifest(location=self.location)
        state, snapshot_id = await load_ref(self.archive, self.location, target)
        changes = compute_restore_changes(state, self._store)
        data = {"seq": target} if isinstance(target, int) else {"snapshot_id": snapshot_id}
        event = self._working.record_owned("state.restored", data, changes)
        event.sources = sources
        event.mark_digests()
        if event.refers and isinstance(target, str | int):
            self.committer.blobs.add_known(event.referred_digests(), manifest.blob_sweeps)
        await self.commit()
        await self.committer.read_ahead()
        self._saver.parent_id = snapshot_id or self._saver.parent_id

    async def fork(
        self,
        session_id: str | None = None,
        *,
        at: SnapshotRef | None = None,
        agent_id: str | None = None,
    ) -> Session:
        """Create a session with the current state, or with the state at a snapshot or event.

        The fork is durable when this returns; this session is not changed. A side effect that was
        done by then counts as done in the fork; a later one is done again there.

        Raises:
            NotFoundError: The session has no such snapshot or event, or it was pruned.
            ConflictError: A session with the id of the fork exists.
            StateStoreError: The store failed.

        """
        if at is None:
            state, snapshot_id = self.snapshot(), None
            seq = None if self.is_dirty else self._working.head.seq
        else:
            state, snapshot_id = await load_ref(self.archive, self.location, at)
            seq = at if isinstance(at, int) else None
        location = SnapshotLocation(
            f"ses_{new_id()}" if session_id is None else session_id,
            self.scope,
            self.agent_id if agent_id is None else agent_id,
        )
        origin = {
            "agent_id": self.agent_id,
            "session_id": self.session_id,
            "snapshot_id": snapshot_id,
            "seq": seq,
        }
        fork = type(self)(await create_fork(self.committer, location, state, origin))
        if at is None:
            fork._effects.copy_results(self._effects)
        return fork

    def workspace(
        self,
        folder: str | os.PathLike[str],
        *,
        max_file_size: int = MAX_FILE_SIZE,
        max_total_size: int = MAX_TOTAL_SIZE,
        ignore: Sequence[str] = (),
        respect_gitignore: bool = True,
    ) -> Workspace:
        """Return a folder as the workspace of this session, to capture and restore its files.

        Files of more than ``max_file_size`` bytes are skipped, and so are those beyond
        ``max_total_size``. ``ignore`` has patterns in addition to ``.gitignore``, which
        ``respect_gitignore=False`` turns off, and ``.holdfastignore``. A session has one workspace.

        Raises:
            TypeError: An option has the wrong type.
            ValueError: A limit is not a number of bytes.

        """
        return open_workspace(
            self,
            folder,
            max_file_size=max_file_size,
            max_total_size=max_total_size,
            ignore=ignore,
            respect_gitignore=respect_gitignore,
        )

    # -------------------------------------------------------------------------- side effects

    async def once(self, key: str, function: Callable[[], T | Awaitable[T]]) -> T:
        """Do a side effect once per key; later calls, in any process, return its recorded result.

        Before the effect, the session is refreshed and the pending events are committed, so that a
        conflict is found before anything is done. Afterwards the result is committed on its own. If
        that fails, the session keeps the result, also through `reload`, and the next ``once`` of
        this key, or the next commit, writes it. For a key that is done, nothing is written.

        A process that crashes between the effect and that commit does it again after a restart, and
        so do two processes at the same time. If the effect is a call to a service, pass ``key`` as
        its idempotency key. Restoring a snapshot does not undo it.

        Raises:
            ConflictError: Before the effect, pending events conflict with those of another writer;
                or after it, another process did the same effect, and its result counts.
            UnsupportedValueError: The result of the effect cannot be stored; the effect was done.
            StateStoreError: The store failed.
            Exception: What the function raised; nothing was recorded.

        """
        key = validate_once_call(key, function)
        with reject_nested_once(self, key):
            lock = self._running.setdefault(key, asyncio.Lock())
            async with lock:
                await self._effects.prepare(key)
                if not self._effects.has(key):
                    result = function()
                    self._effects.keep(key, await result if inspect.isawaitable(result) else result)
                return cast("T", await self._effects.result(key))

    # ------------------------------------------------------------------------------ internals

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
        pending = len(self._working.pending)
        return (
            f"<Session {self.session_id} of {self.agent_id}: {self.status}, "
            f"{self.message_count} messages, {self._working.head.seq} events"
            f"{f', {pending} pending' if pending else ''}>"
        )
