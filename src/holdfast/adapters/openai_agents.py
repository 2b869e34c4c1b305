"""A session of the OpenAI Agents SDK that is a session of Holdfast.

The SDK hands over items: messages, tool calls and their outputs, reasoning. Each is one entry of
the conversation, kept as it came, so that three new items are three written ones however many
there are, and viewer, command line and documents show them as they show any conversation.

Every call begins with what is committed now, by whomever, and is durable when it returns. One that
fails leaves nothing waiting: the next one begins with what is stored.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from holdfast.adapters.requirement import check_version, required
from holdfast.errors import ConflictError, shown
from holdfast.sessions.session import Moment, Session
from holdfast.snapshots.layout import AGENT, SnapshotLocation
from holdfast.snapshots.session_snapshot import SessionSnapshot
from holdfast.snapshots.session_state import MESSAGES
from holdfast.snapshots.verifying import Verification
from holdfast.state.snapshot import Snapshot
from holdfast.stores.contract import StateStore

if TYPE_CHECKING:
    from agents.items import TResponseInputItem
    from agents.memory import SessionSettings

EXTRA = "openai-agents"
OLDEST = "0.8"
"""The first one whose sessions have settings."""

check_version("openai-agents", OLDEST, EXTRA)
settings_module = required("agents.memory.session_settings", EXTRA)

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
        session_settings: SessionSettings | None = None,
    ) -> None:
        if not isinstance(state_store, StateStore):
            raise TypeError(
                "a HoldfastSession is made on a StateStore, as open_state_store(url) gives it, not "
                f"{shown(state_store)}"
            )
        self.location = SnapshotLocation(session_id, AGENT, agent_id)
        self.session_id = self.location.session_id
        self.agent_id = self.location.scope_id
        self.state_store = state_store
        self.session_settings: SessionSettings | None = (
            settings_module.SessionSettings() if session_settings is None else session_settings
        )
        self._session: Session | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = asyncio.Lock()

    # -------------------------------------------------------------------- the SDK's protocol

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """The conversation in order, or its last so many items."""
        most = settings_module.resolve_session_limit(limit, self.session_settings)

        def items(session: Session) -> list[Any]:
            keys = session._store.keys(MESSAGES)
            if most is not None:
                keys = keys[-most:] if most > 0 else []
            return session._store.get_many([(MESSAGES, key) for key in keys])

        return cast("list[TResponseInputItem]", await self._looked(items))

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Append items, all of them or none, after what others appended meanwhile."""

        async def add(session: Session) -> None:
            for item in items:
                session.append_message(cast("dict[str, Any]", item))
            await session.commit(on_conflict="rebase")

        if items:
            await self._done(add)

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the last item and return it; None where there is none.

        Of several who do it at the same time each gets another one.
        """

        async def pop(session: Session) -> dict[str, Any] | None:
            found = session.pop_message()
            if found is not None:
                await session.commit()
            return found

        return cast("TResponseInputItem | None", await self._done(pop))

    async def clear_session(self) -> None:
        """Remove all items from the conversation. The log says that they were there."""

        async def clear(session: Session) -> None:
            if session.message_count:
                session.clear_messages()
                await session.commit()

        await self._done(clear)

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

    async def restore(self, moment: Moment) -> None:
        """Make the conversation what it was at a durable snapshot. The log is not shortened."""
        await self._done(lambda session: session.restore(moment))

    async def fork(
        self,
        session_id: str | None = None,
        *,
        at: Moment | None = None,
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
                await self._session._writer.check_there()
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
        """Do what ends with a commit; anew, on what is there then, where another was first."""
        attempt = 0
        async with self._turn():
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
