"""A session of the OpenAI Agents SDK that is a session of Holdfast.

The SDK hands over items: messages, tool calls and their outputs, reasoning. Each is one entry of
the conversation, kept as it came, so that three new items are three written ones however many
there are, and viewer, command line and documents show them as they show any conversation.

Every call begins with what is committed now, by any writer, and is durable when it returns. One
that fails leaves nothing pending: the next one begins with what is stored.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

from holdfast.adapters.openai_agents.compaction import (
    CompactionSnapshot,
    last_rows,
    replace_all,
    replace_rows,
)
from holdfast.adapters.openai_agents.run_status import infer_items_status
from holdfast.adapters.requirement import import_requirement
from holdfast.errors import ConflictError, HoldfastError, short_repr
from holdfast.sessions.run_status import CANCELLED, COMPLETED, FAILED, WAITING
from holdfast.sessions.session import Session, SnapshotRef
from holdfast.snapshots.keys import AGENT, SnapshotLocation
from holdfast.snapshots.session_snapshot import SessionSnapshot
from holdfast.snapshots.session_state import MESSAGES, PENDING, validate_status
from holdfast.snapshots.verify import Verification
from holdfast.state.snapshot import Snapshot
from holdfast.stores.base import StateStore

if TYPE_CHECKING:
    from agents.items import TResponseInputItem
    from agents.memory import SessionSettings

settings_module = import_requirement("agents.memory.session_settings", "openai-agents")

T = TypeVar("T")

ATTEMPTS = 16


class HoldfastSession:
    """What ``Runner.run(…, session=…)`` takes: a conversation in a ``StateStore``.

    Runners in other tasks and processes may use the same one, each with an object of its own; no
    item of theirs is lost. An object belongs to one event loop at a time.
    """

    def __init__(
        self,
        session_id: str,
        state_store: StateStore,
        *,
        agent_id: str = "agent",
        session_settings: SessionSettings | dict[str, Any] | None = None,
    ) -> None:
        if not isinstance(state_store, StateStore):
            raise TypeError(
                "a HoldfastSession is made on a StateStore, as open_state_store(url) gives it, not "
                f"{short_repr(state_store)}"
            )
        self.location = SnapshotLocation(session_id, AGENT, agent_id)
        self.session_id = self.location.session_id
        self.agent_id = self.location.scope_id
        self.state_store = state_store
        self.session_settings = session_settings if session_settings is not None else {}
        self._session: Session | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = asyncio.Lock()

    # -------------------------------------------------------------------- the SDK's protocol

    @property
    def session_settings(self) -> SessionSettings | None:
        """How much of the conversation a run reads, unless the run says so itself."""
        return self._session_settings

    @session_settings.setter
    def session_settings(self, settings: SessionSettings | dict[str, Any] | None) -> None:
        self._session_settings = None if settings is None else coerce_settings(settings)

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the conversation in order, or its last ``limit`` items.

        Without a limit that of the settings counts. A negative one is none, as with the SDK's
        ``SQLiteSession``.
        """
        most = settings_module.resolve_session_limit(limit, self.session_settings)

        def items(session: Session) -> list[Any]:
            keys = session._store.keys(MESSAGES)
            if most is not None and most >= 0:
                keys = keys[-most:] if most else []
            return session._store.get_many([(MESSAGES, key) for key in keys])

        return cast("list[TResponseInputItem]", await self._looked(items))

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Append items, all of them or none, after what concurrent writers appended.

        The status of the session follows: running, waiting for an approval, or completed.
        """

        async def add(session: Session) -> None:
            for item in items:
                session.append_message(cast("dict[str, Any]", item))
            status = infer_items_status(items, lambda: bool(session.unfinished))
            if status is not None:
                session.status = status
            await session.commit(on_conflict="rebase")

        if items:
            await self._done(add)

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the last item and return it; None where there is none.

        Each of several callers at the same time gets another item.
        """
        return await self._pop_item_with_validation()

    async def _pop_item_with_validation(
        self, validate: Callable[[TResponseInputItem], None] | None = None
    ) -> TResponseInputItem | None:
        """Remove the last item, unless ``validate`` raises, as the SDK's ``SQLiteSession`` can."""

        async def pop(session: Session) -> TResponseInputItem | None:
            found = cast("TResponseInputItem | None", session.pop_message())
            if found is not None:
                if validate is not None:
                    validate(found)
                await session.commit()
            return found

        return await self._done(pop)

    async def clear_session(self) -> None:
        """Remove all items from the conversation; it is pending again. The log keeps them."""

        async def clear(session: Session) -> None:
            if session.message_count:
                session.clear_messages()
                session.status = PENDING
                await session.commit()

        await self._done(clear)

    async def _get_compaction_snapshot(
        self, limit: int, *, prune_prefix: Callable[[Any], bool] | None = None
    ) -> CompactionSnapshot | None:
        """Return the last items, with the atomic replacement that the SDK's compaction looks for.

        A subclass that stores items in another way has to bring its own, as with the SDK's.
        """
        if type(self) is not HoldfastSession:
            return None

        def read(session: Session) -> tuple[list[tuple[str, Any]], bool]:
            rows = last_rows(session.snapshot(), limit)
            return rows, len(rows) == session.message_count

        rows, complete = await self._looked(read)

        async def replace_suffix(start: int, items: list[Any]) -> bool:
            expected = rows[start:]
            if not expected:
                return False
            return await self._done(
                lambda session: replace_rows(session, expected, items, prune_prefix)
            )

        return CompactionSnapshot([item for _, item in rows], complete, replace_suffix)

    async def _atomic_replace_items(self, items: list[Any]) -> bool:
        """Replace the whole conversation in one commit, which the SDK's compaction looks for."""
        if type(self) is not HoldfastSession:
            return False
        await self._done(lambda session: replace_all(session, items))
        return True

    # -------------------------------------------------------------------------------- status

    async def set_status(self, status: str) -> None:
        """Commit the status of the session, where it is another.

        Raises:
            ValueError: It is not a status.

        """
        wanted = validate_status(status)

        async def change(session: Session) -> None:
            if session.status != wanted:
                session.status = wanted
                await session.commit()

        await self._done(change)

    @asynccontextmanager
    async def track_run(self) -> AsyncIterator[None]:
        """Commit how a run ended that is awaited in this block.

        The SDK does not say so to a session: from its items a run that failed looks like one that
        goes on. An exception is the status ``failed``, a cancellation ``cancelled``. Without one
        the run is ``completed``, also where it ends with a tool's output, unless it waits for an
        approval.
        """
        try:
            yield
        except BaseException as error:
            status = FAILED if isinstance(error, Exception) else CANCELLED
            try:
                await self.set_status(status)
            except HoldfastError as problem:
                error.add_note(f"the status {status} could not be committed: {problem}")
            raise
        if await self._looked(lambda session: session.status) != WAITING:
            await self.set_status(COMPLETED)

    # ------------------------------------------------------------------------------- moments

    async def snapshot(self) -> Snapshot:
        """Freeze the conversation as it is committed now, in memory, to roll back to."""
        return await self._looked(Session.snapshot)

    async def rollback(self, mark: Snapshot) -> None:
        """Go back to a snapshot in memory, whatever was added since. The log is not shortened."""

        async def back(session: Session) -> None:
            session.rollback(mark)
            await session.commit()

        await self._done(back)

    async def save(self, *, tags: Mapping[str, str] | None = None) -> SessionSnapshot:
        """Keep a durable snapshot of the conversation as it is committed now."""
        return await self._done(lambda session: session.save(tags=tags, on_conflict="rebase"))

    async def restore(self, moment: SnapshotRef) -> None:
        """Make the conversation what it was at a durable snapshot. The log is not shortened."""
        await self._done(lambda session: session.restore(moment))

    async def fork(
        self,
        session_id: str | None = None,
        *,
        at: SnapshotRef | None = None,
        agent_id: str | None = None,
    ) -> HoldfastSession:
        """Another conversation that begins as this one is now, or was at a snapshot.

        It is durable when this returns. This one is not touched.
        """
        async with self._turn():
            session = await self._current()
            other = await session.fork(session_id, at=at, agent_id=agent_id)
        return type(self)(
            other.session_id,
            self.state_store,
            agent_id=other.agent_id,
            session_settings=self.session_settings,
        )

    async def export(
        self, *, at: str | None = None, tags: Mapping[str, str] | None = None
    ) -> SessionSnapshot:
        """What is committed, or a kept snapshot, with its events: the whole document."""
        async with self._turn():
            return await (await self._current()).export(at=at, tags=tags)

    async def verify(self) -> Verification:
        """Fold the whole log anew and check all that is stored of it."""
        async with self._turn():
            return await (await self._current()).verify()

    # ---------------------------------------------------------------------------------- rest

    def _turn(self) -> asyncio.Lock:
        """Held by whoever works with the session; a new one in another loop."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._lock, self._session = loop, asyncio.Lock(), None
        return self._lock

    async def _current(self) -> Session:
        """The session as it is committed now, with nothing waiting but its beginning."""
        if self._session is not None:
            try:
                await self._session._committer.check_incarnation()
                await self._session._catch_up()
            except BaseException as error:
                self._session = None
                if not isinstance(error, ConflictError):
                    raise
        if self._session is None:
            self._session = await Session.open(
                self.state_store, agent_id=self.agent_id, session_id=self.session_id
            )
        return self._session

    async def _looked(self, look: Callable[[Session], T]) -> T:
        """What a look at the session gives."""
        async with self._turn():
            return look(await self._current())

    async def _done(self, work: Callable[[Session], Awaitable[T]]) -> T:
        """Do what ends with a commit, to its end even where the caller is cancelled."""
        async with self._turn():
            return await run_to_end(self._attempt(work))

    async def _attempt(self, work: Callable[[Session], Awaitable[T]]) -> T:
        """Do what ends with a commit; after a conflict again, with what is committed then."""
        attempt = 0
        while True:
            try:
                return await work(await self._current())
            except BaseException as error:
                self._session = None
                attempt += 1
                if not isinstance(error, ConflictError) or attempt == ATTEMPTS:
                    raise
            await asyncio.sleep(random.uniform(0, 0.01 * attempt))  # noqa: S311 - takes turns

    def __repr__(self) -> str:
        return f"<HoldfastSession {self.session_id} of {self.agent_id}>"


def coerce_settings(settings: SessionSettings | dict[str, Any]) -> SessionSettings:
    """Return settings as the SDK's own sessions have them, from a dict too.

    Raises:
        TypeError: They are neither, or the dict has unknown names.

    """
    coerce = getattr(settings_module, "coerce_session_settings", None)
    found: SessionSettings
    if coerce is not None:
        found = coerce(settings)
    elif isinstance(settings, dict):  # a release that takes no dict itself
        found = settings_module.SessionSettings(**settings)
    elif isinstance(settings, settings_module.SessionSettings):
        found = settings
    else:
        raise TypeError(
            f"session_settings must be a SessionSettings or a dict, got {short_repr(settings)}"
        )
    return found


async def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Await work to its end, also where the caller is cancelled, and then raise the cancellation.

    So a write is not still under way when its caller goes on, as with the SDK's own sessions.
    """
    task = asyncio.create_task(work)
    cancellation: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancellation = error
    if cancellation is not None:
        if not task.cancelled():
            task.exception()  # looked at, so that asyncio does not report it
        raise cancellation
    return task.result()
