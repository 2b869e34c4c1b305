"""A session of the OpenAI Agents SDK that is stored as a Holdfast session.

The SDK hands over items: messages, tool calls and their outputs, reasoning. Each is one entry of
the conversation, stored as it is, so that three new items cost three writes however long the
conversation is.

Every call starts from the last commit, by any writer, and is durable when it returns. A call that
fails leaves nothing pending. On a store that works on the calling thread, a call is one switch to
another thread and back.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self, cast

from holdfast.adapters.base import validate_state_store
from holdfast.adapters.openai_agents.compaction import (
    CompactionSnapshot,
    last_rows,
    replace_all,
    replace_rows,
)
from holdfast.adapters.openai_agents.run_status import infer_items_status
from holdfast.adapters.requirement import import_requirement
from holdfast.adapters.shared_session import SharedSession
from holdfast.documents.blobs import EMBED, Attachments
from holdfast.documents.document import Document
from holdfast.errors import HoldfastError, short_repr
from holdfast.sessions.restore import SnapshotRef
from holdfast.sessions.run_status import CANCELLED, COMPLETED, FAILED, WAITING
from holdfast.sessions.session import Session
from holdfast.snapshots.keys import AGENT, SnapshotLocation
from holdfast.snapshots.session_snapshot import SessionSnapshot
from holdfast.snapshots.session_state import MESSAGES, PENDING, validate_status
from holdfast.snapshots.verify import Verification
from holdfast.state.snapshot import Snapshot
from holdfast.stores.base import StateStore
from holdfast.stores.registry import open_state_store

if TYPE_CHECKING:
    from agents.items import TResponseInputItem
    from agents.memory import SessionSettings

settings_module = import_requirement("agents.memory.session_settings", "openai-agents")


class HoldfastSession:
    """A conversation in a ``StateStore``, for ``Runner.run(…, session=…)``.

    Runners in other tasks and processes may use the same conversation, each with its own object; no
    items are lost. An object belongs to one event loop at a time.
    """

    def __init__(
        self,
        session_id: str,
        state_store: StateStore,
        *,
        agent_id: str = "agent",
        session_settings: SessionSettings | dict[str, Any] | None = None,
    ) -> None:
        self.state_store = validate_state_store(state_store)
        self.location = SnapshotLocation(session_id, AGENT, agent_id)
        self.session_id = self.location.session_id
        self.agent_id = self.location.scope_id
        self.session_settings = session_settings if session_settings is not None else {}
        self._shared = SharedSession(state_store, self.location)

    @classmethod
    def from_url(cls, session_id: str, url: str | None = None, **options: Any) -> Self:
        """Open the store of a URL, by default that of ``HOLDFAST_STORE``; `aclose` closes it.

        Raises:
            StateStoreError: The URL is not valid.
            MissingExtraError: The store needs an extra that is not installed.

        """
        return cls(session_id, open_state_store(url), **options)

    async def aclose(self) -> None:
        """Close the store."""
        await self.state_store.close()

    # -------------------------------------------------------------------- the SDK's protocol

    @property
    def session_settings(self) -> SessionSettings | None:
        """How much of the conversation a run reads, unless the run sets it."""
        return self._session_settings

    @session_settings.setter
    def session_settings(self, settings: SessionSettings | dict[str, Any] | None) -> None:
        self._session_settings = None if settings is None else coerce_settings(settings)

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the conversation in order, or its last ``limit`` items.

        The default limit is that of the settings. A negative limit means none, as with the SDK's
        ``SQLiteSession``.

        Raises:
            IntegrityError: Stored data is damaged.
            StateStoreError: The store failed.

        """
        most = settings_module.resolve_session_limit(limit, self.session_settings)

        def read(session: Session) -> list[Any]:
            if most is None or most < 0:
                return session.snapshot().values(MESSAGES)
            return [item for _, item in last_rows(session.snapshot(), most)]

        return cast("list[TResponseInputItem]", await self._shared.read(read))

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Append items, all of them or none, after those of concurrent writers.

        The status of the session follows: running, waiting for an approval, or completed.

        Raises:
            UnsupportedValueError: An item holds a value that cannot be stored.
            StateStoreError: The store failed.

        """

        def add(session: Session) -> None:
            for item in items:
                session.append_message(cast("dict[str, Any]", item))
            status = infer_items_status(items, lambda: bool(session.unfinished))
            if status is not None:
                session.status = status

        if items:
            # Without a read: if another writer committed in the meantime, the update runs again.
            await self._shared.update(add, must_refresh=False)

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the last item and return it, or None if there is none.

        Concurrent callers get different items.

        Raises:
            StateStoreError: The store failed.

        """
        return await self._pop_item_with_validation()

    async def _pop_item_with_validation(
        self, validate: Callable[[TResponseInputItem], None] | None = None
    ) -> TResponseInputItem | None:
        """Remove the last item, unless ``validate`` raises, as the SDK's ``SQLiteSession`` can."""

        def pop(session: Session) -> TResponseInputItem | None:
            item = cast("TResponseInputItem | None", session.pop_message())
            if item is not None and validate is not None:
                validate(item)
            return item

        return await self._shared.update(pop)

    async def clear_session(self) -> None:
        """Remove all items from the conversation and set its status to pending. The log keeps them.

        Raises:
            StateStoreError: The store failed.

        """

        def clear(session: Session) -> None:
            if session.message_count:
                session.clear_messages()
                session.status = PENDING

        await self._shared.update(clear)

    async def _get_compaction_snapshot(
        self, limit: int, *, prune_prefix: Callable[[Any], bool] | None = None
    ) -> CompactionSnapshot | None:
        """Return the last items, with the atomic replacement that the SDK's compaction looks for.

        A subclass that stores items in another way needs its own, as with the SDK's sessions.
        """
        if type(self) is not HoldfastSession:
            return None

        def read(session: Session) -> tuple[list[tuple[str, Any]], bool]:
            rows = last_rows(session.snapshot(), limit)
            return rows, len(rows) == session.message_count

        rows, complete = await self._shared.read(read)

        async def replace_suffix(start: int, items: list[Any]) -> bool:
            expected = rows[start:]
            if not expected:
                return False
            return await self._shared.update(
                lambda session: replace_rows(session, expected, items, prune_prefix)
            )

        return CompactionSnapshot([item for _, item in rows], complete, replace_suffix)

    async def _atomic_replace_items(self, items: list[Any]) -> bool:
        """Replace the whole conversation in one commit, which the SDK's compaction looks for."""
        if type(self) is not HoldfastSession:
            return False
        await self._shared.update(lambda session: replace_all(session, items))
        return True

    # -------------------------------------------------------------------------------- status

    async def set_status(self, status: str) -> None:
        """Commit the status of the session, if it changed.

        Raises:
            ValueError: It is not a status.
            StateStoreError: The store failed.

        """
        wanted = validate_status(status)

        def change(session: Session) -> None:
            session.status = wanted

        await self._shared.update(change)

    @asynccontextmanager
    async def track_run(self) -> AsyncIterator[None]:
        """Commit the outcome of a run that is awaited in this block.

        The SDK does not report it to a session: by its items, a run that failed looks like one that
        continues. The status is ``failed`` after an exception and ``cancelled`` after a
        cancellation. Otherwise it is ``completed``, even if the run ends with a tool's output,
        unless the run waits for an approval.
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
        if await self._shared.read(lambda session: session.status) != WAITING:
            await self.set_status(COMPLETED)

    # ----------------------------------------------------------------------------- snapshots

    async def snapshot(self) -> Snapshot:
        """Return an in-memory snapshot of the conversation at its last commit.

        Raises:
            StateStoreError: The store failed.

        """
        return await self._shared.read(Session.snapshot)

    async def rollback(self, mark: Snapshot) -> None:
        """Restore the conversation to an in-memory snapshot. The log is not truncated.

        Raises:
            StateStoreError: The store failed.

        """
        await self._shared.update(lambda session: session.rollback(mark))

    async def save(self, *, tags: Mapping[str, str] | None = None) -> SessionSnapshot:
        """Save a durable snapshot of the conversation at its last commit.

        Raises:
            StateStoreError: The store failed.

        """
        return await self._shared.update(lambda session: session.save(tags=tags))

    async def restore(self, target: SnapshotRef) -> None:
        """Restore the conversation to a durable snapshot. The log is not truncated.

        Raises:
            NotFoundError: The snapshot or event does not exist, or was pruned.
            StateStoreError: The store failed.

        """
        await self._shared.update(lambda session: session.restore(target))

    async def fork(
        self,
        session_id: str | None = None,
        *,
        at: SnapshotRef | None = None,
        agent_id: str | None = None,
    ) -> HoldfastSession:
        """Create a conversation with the items of this one, now or at a snapshot.

        It is durable when this returns; this conversation is not changed.

        Raises:
            NotFoundError: The snapshot or event does not exist, or was pruned.
            ConflictError: A session with the id of the fork exists.
            StateStoreError: The store failed.

        """
        session = await self._shared.open()
        other = await session.fork(session_id, at=at, agent_id=agent_id)
        return type(self)(
            other.session_id,
            self.state_store,
            agent_id=other.agent_id,
            session_settings=self.session_settings,
        )

    async def export(
        self,
        *,
        at: str | None = None,
        tags: Mapping[str, str] | None = None,
        attachments: Attachments = EMBED,
    ) -> Document:
        """Return the conversation, or a durable snapshot of it, as a document.

        See `Session.export`.

        Raises:
            DocumentTooLargeError: The attachments are too large to be embedded.
            NotFoundError: The snapshot does not exist, or was pruned.
            IntegrityError: Stored data is damaged.
            StateStoreError: The store failed.

        """
        return await (await self._shared.open()).export(at=at, tags=tags, attachments=attachments)

    async def verify(self) -> Verification:
        """Check everything that is stored of the conversation.

        Raises:
            StateStoreError: The store failed.

        """
        return await (await self._shared.open()).verify()

    # ------------------------------------------------------------------------------ internals

    def __repr__(self) -> str:
        return f"<HoldfastSession {self.session_id} of {self.agent_id}>"


def coerce_settings(settings: SessionSettings | dict[str, Any]) -> SessionSettings:
    """Return settings, or a dict of settings, as the SDK's own sessions have them.

    Raises:
        TypeError: They are neither, or the dict has unknown names.

    """
    coerce = getattr(settings_module, "coerce_session_settings", None)
    found: SessionSettings
    if coerce is not None:
        found = coerce(settings)
    elif isinstance(settings, dict):  # a release of the SDK that does not take a dict
        found = settings_module.SessionSettings(**settings)
    elif isinstance(settings, settings_module.SessionSettings):
        found = settings
    else:
        raise TypeError(
            f"session_settings must be a SessionSettings or a dict, got {short_repr(settings)}"
        )
    return found
