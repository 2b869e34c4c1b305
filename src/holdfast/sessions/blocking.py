"""`Session` for code that is not async."""

from __future__ import annotations

import os
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from inspect import isawaitable, iscoroutine
from types import TracebackType
from typing import Self, TypeVar, cast, overload
from weakref import WeakValueDictionary

from holdfast.documents.blobs import EMBED, Attachments
from holdfast.documents.document import Document
from holdfast.errors import short_repr
from holdfast.log.event import Event
from holdfast.process_fork import ForkSafeLock
from holdfast.sessions.attachments import AttachmentContent
from holdfast.sessions.base import BaseSession
from holdfast.sessions.blocking_workspace import BlockingWorkspace
from holdfast.sessions.commit import Committer
from holdfast.sessions.once import reject_nested_once, validate_once_call
from holdfast.sessions.rebase import OnConflict
from holdfast.sessions.restore import SnapshotRef
from holdfast.sessions.session import Session
from holdfast.sessions.update import UpdateAttempts, validate_update_function
from holdfast.sessions.workspace import Workspace
from holdfast.snapshots.keys import AGENT
from holdfast.snapshots.records import SnapshotInfo
from holdfast.snapshots.session_snapshot import SessionSnapshot
from holdfast.snapshots.verify import Verification
from holdfast.stores.base import StateStore
from holdfast.stores.portal import sync
from holdfast.stores.registry import open_state_store
from holdfast.values.references import Attachment
from holdfast.workspaces.reports import RestoreReport
from holdfast.workspaces.scan import MAX_FILE_SIZE, MAX_TOTAL_SIZE

T = TypeVar("T")


class BlockingSession(BaseSession):
    """A `Session` with blocking methods. Threads may share it.

    Open one with `BlockingSession.open`. As a context manager it commits at the end of the block,
    except after an exception, and closes the store if it opened it.
    """

    def __init__(self, session: Session, *, owns_store: bool = False) -> None:
        self._session = session
        self._owns_store = owns_store
        self.state_store = session.state_store
        self.location = session.location
        self._effects = session._effects
        self._tool_calls = session._tool_calls
        self._guard = ForkSafeLock(f"session {session.session_id!r}")
        self._running: WeakValueDictionary[str, ForkSafeLock] = WeakValueDictionary()
        self._is_updating = False

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
        """Open a session at its last commit, or start a new one. See `Session.open`.

        ``state_store`` may be a URL, or None for ``HOLDFAST_STORE`` or the embedded default. A
        store that is opened here is closed with the session.

        Raises:
            NotFoundError: With ``must_exist``, the session does not exist.
            IntegrityError: The stored log or a keyframe is damaged.
            StateStoreError: The store cannot be opened, or failed.

        """
        owns_store = not isinstance(state_store, StateStore)
        store = (
            state_store if isinstance(state_store, StateStore) else open_state_store(state_store)
        )

        async def open_session() -> Session:
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

        return cls(sync(open_session()), owns_store=owns_store)

    # ------------------------------------------------------------------- commit and refresh

    def commit(self, *, on_conflict: OnConflict = "raise") -> None:
        """Make the pending events durable, in one conditional write. See `Session.commit`.

        Raises:
            ConflictError: Another writer committed first; with ``"rebase"``, it changed the same
                keys. Nothing was written.
            StateStoreError: The store failed.

        """
        with self._guard:
            sync(self._session.commit(on_conflict=on_conflict))

    def refresh(self) -> None:
        """Apply what other writers committed, and rebase the pending events on top.

        See `Session.refresh`.

        Raises:
            ConflictError: The pending events conflict with those of another writer, or the session
                was deleted, replaced or pruned. The session in memory did not change.
            StateStoreError: The store failed.

        """
        with self._guard:
            sync(self._session.refresh())

    def update(self, function: Callable[[Self], T]) -> T:
        """Run a function on the session and commit what it recorded; return its result.

        After a conflict the function runs again, on the refreshed session. It is a plain function
        and runs in the caller's thread; other threads wait. See `Session.update`.

        Raises:
            ConflictError: Other writers committed first in all attempts, or events that were
                pending before the call conflict with theirs. The function's events are discarded.
            StateStoreError: The commit failed, and its outcome is unknown. The events stay pending.
            Exception: What the function raised; its events are discarded.

        """
        validate_update_function(function)
        with self._guard:
            if self._is_updating:
                raise RuntimeError("update() was called by the function of another update()")
            self._is_updating = True
            try:
                attempts = UpdateAttempts(self._session, self._session._contention)
                while sync(attempts.next()):
                    with attempts.recording():
                        result = function(self)
                        reject_awaitable(result)
                    if sync(attempts.commit()):
                        return result
                raise attempts.gave_up()
            finally:
                self._is_updating = False

    def reload(self) -> None:
        """Read the last commit and drop the pending events. See `Session.reload`.

        Raises:
            IntegrityError: The stored log or a keyframe is damaged.
            StateStoreError: The store failed.

        """
        with self._guard:
            sync(self._session.reload())

    def follow(self, after: int | None = None) -> FollowedEvents:
        """Yield committed events as they are committed, here and in other processes.

        The iterator blocks while there is no new event; close it to end it. See `Session.follow`.

        Raises:
            NotFoundError: The log does not have the event ``after``, or the events after it were
                pruned. Or the session was deleted, or deleted and created again.
            IntegrityError: The log is damaged.
            StateStoreError: The store failed.
            TypeError: ``after`` is not an int.
            ValueError: ``after`` is negative.

        """
        with self._guard:
            return FollowedEvents(self._session.follow(after))

    # ------------------------------------------------------------------- durable snapshots

    def save(
        self,
        *,
        tags: Mapping[str, str] | None = None,
        on_conflict: OnConflict = "raise",
        workspace: BlockingWorkspace | None = None,
    ) -> SessionSnapshot:
        """Commit, and save a durable snapshot of the committed state. See `Session.save`.

        Raises:
            ConflictError: As for `commit`; nothing was written.
            WorkspaceError: A file of the folder cannot be captured; nothing was written.
            StateStoreError: The store failed.

        """
        files = None if workspace is None else to_workspace(workspace)
        with self._guard:
            return sync(self._session.save(tags=tags, on_conflict=on_conflict, workspace=files))

    @overload
    def restore(self, target: SnapshotRef) -> None: ...
    @overload
    def restore(
        self, target: SnapshotRef, *, workspace: BlockingWorkspace, force: bool = False
    ) -> RestoreReport: ...
    def restore(
        self,
        target: SnapshotRef,
        *,
        workspace: BlockingWorkspace | None = None,
        force: bool = False,
    ) -> RestoreReport | None:
        """Restore the state to a snapshot or to the state after an event, and commit the change.

        With a workspace, its folder is restored, too. See `Session.restore`.

        Raises:
            NotFoundError: The session has no such snapshot or event, or it was pruned.
            ConflictError: Another writer committed first; nothing was written.
            WorkspaceError: The folder cannot be restored; the state was not restored either.
            StateStoreError: The store failed.

        """
        if workspace is None:
            with self._guard:
                sync(self._session.restore(target))
            return None
        files = to_workspace(workspace)
        with self._guard:
            return sync(self._session.restore(target, workspace=files, force=force))

    def workspace(
        self,
        folder: str | os.PathLike[str],
        *,
        max_file_size: int = MAX_FILE_SIZE,
        max_total_size: int = MAX_TOTAL_SIZE,
        ignore: Sequence[str] = (),
        respect_gitignore: bool = True,
    ) -> BlockingWorkspace:
        """Return a folder as the workspace of this session. See `Session.workspace`.

        Raises:
            TypeError: An option has the wrong type.
            ValueError: A limit is not a number of bytes.

        """
        files = self._session.workspace(
            folder,
            max_file_size=max_file_size,
            max_total_size=max_total_size,
            ignore=ignore,
            respect_gitignore=respect_gitignore,
        )
        return BlockingWorkspace(files, self._guard)

    def fork(
        self,
        session_id: str | None = None,
        *,
        at: SnapshotRef | None = None,
        agent_id: str | None = None,
    ) -> BlockingSession:
        """Create a session with the current state, or with the state at a snapshot or event.

        The fork uses the store of this session. See `Session.fork`.

        Raises:
            NotFoundError: The session has no such snapshot or event, or it was pruned.
            ConflictError: A session with the id of the fork exists.
            StateStoreError: The store failed.

        """
        with self._guard:
            fork = sync(self._session.fork(session_id, at=at, agent_id=agent_id))
        return BlockingSession(fork)

    def last_finished(self) -> SnapshotInfo | None:
        """Return the newest durable snapshot in which every tool call has a result, or None.

        Raises:
            StateStoreError: The store failed.

        """
        return sync(self._session.last_finished())

    def export(
        self,
        *,
        at: str | int | None = None,
        tags: Mapping[str, str] | None = None,
        attachments: Attachments = EMBED,
    ) -> Document:
        """Return the committed state and its events as a document. See `Session.export`.

        Raises:
            NotFoundError: The session has no such snapshot or event, or it was pruned.
            IntegrityError: The stored log or a keyframe is damaged.
            DocumentTooLargeError: The attachments are too large to be embedded.
            StateStoreError: The store failed.

        """
        return sync(self._session.export(at=at, tags=tags, attachments=attachments))

    def verify(self) -> Verification:
        """Check everything that is stored: hash chain, digests, keyframes and snapshots.

        Raises:
            StateStoreError: The store failed.

        """
        return sync(self._session.verify())

    # --------------------------------------------------------------------------- attachments

    def attach(
        self,
        content: AttachmentContent,
        *,
        media_type: str | None = None,
        name: str | None = None,
    ) -> Attachment:
        """Attach bytes, a file or an iterator of bytes. See `Session.attach`.

        Raises:
            HoldfastError: The file cannot be read.

        """
        return sync(self._session.attach(content, media_type=media_type, name=name))

    def read_attachment(self, attachment: Attachment) -> bytes:
        """Return the content of an attachment.

        Raises:
            NotFoundError: The content is not stored in this session.
            IntegrityError: The content is damaged.
            StateStoreError: The store failed.

        """
        return sync(self._session.read_attachment(attachment))

    def stream_attachment(self, attachment: Attachment) -> Iterator[bytes]:
        """Yield the content of an attachment in chunks. See `Session.stream_attachment`.

        Raises:
            NotFoundError: The content is not stored in this session.
            IntegrityError: The content is damaged.
            StateStoreError: The store failed.

        """
        chunks = self._session.stream_attachment(attachment)
        while (chunk := sync(read_next(chunks))) is not None:
            yield chunk

    # -------------------------------------------------------------------------- side effects

    def once(self, key: str, function: Callable[[], T | Awaitable[T]]) -> T:
        """Do a side effect once per key; later calls, in any process, return its recorded result.

        The function runs in the caller's thread, and other threads may use the session in the
        meantime. An async function runs in Holdfast's event loop. See `Session.once`.

        Raises:
            ConflictError: Before the effect, pending events conflict with those of another writer;
                or after it, another process did the same effect, and its result counts.
            UnsupportedValueError: The result of the effect cannot be stored; the effect was done.
            StateStoreError: The store failed.
            Exception: What the function raised; nothing was recorded.

        """
        key = validate_once_call(key, function)
        with self._guard:
            lock = self._running.setdefault(key, ForkSafeLock(f"{key!r}", wait_on_fork=False))
        with reject_nested_once(self, key), lock:
            with self._guard:
                sync(self._effects.prepare(key))
                is_done = self._effects.has(key)
            if not is_done:
                result = function()
                if isawaitable(result):
                    result = sync(wait_for(result))
                with self._guard:
                    self._effects.keep(key, result)
            with self._guard:
                return cast("T", sync(self._effects.result(key)))

    # ------------------------------------------------------------------------------ internals

    @property
    def committer(self) -> Committer:
        """The low-level writer of the session, for adapters. A reload replaces it."""
        return self._session.committer

    def close(self) -> None:
        """Close the store, if this session opened it. Pending events are not committed."""
        if self._owns_store:
            sync(self.state_store.close())

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


class FollowedEvents(Iterator[Event]):
    """The events of `BlockingSession.follow`. As a context manager, it closes itself."""

    def __init__(self, events: AsyncGenerator[Event, None]) -> None:
        self._events = events

    def __next__(self) -> Event:
        event = sync(receive_event(self._events))
        if event is None:
            raise StopIteration
        return event

    def close(self) -> None:
        """Stop to follow. Not while another thread waits for the next event."""
        sync(self._events.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


async def receive_event(events: AsyncGenerator[Event, None]) -> Event | None:
    """Return the next event, or None at the end."""
    return await anext(events, None)


def to_workspace(workspace: object) -> Workspace:
    """Return the workspace inside a blocking one."""
    if not isinstance(workspace, BlockingWorkspace):
        raise TypeError(
            "workspace must be what session.workspace(folder) returned, "
            f"got {short_repr(workspace)}"
        )
    return workspace.workspace


async def wait_for(result: Awaitable[T]) -> T:
    """Return the result of an awaitable, as a coroutine."""
    return await result


def reject_awaitable(result: object) -> None:
    """Raise ``TypeError`` if the function of an update was async."""
    if isawaitable(result):
        if iscoroutine(result):
            result.close()
        raise TypeError("BlockingSession.update takes a plain function; use Session.update")


async def read_next(chunks: AsyncIterator[bytes]) -> bytes | None:
    """Return the next chunk, or None at the end."""
    return await anext(chunks, None)
