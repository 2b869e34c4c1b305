"""A Pydantic AI conversation store over a ``StateStore``.

Each conversation is one session, with the conversation's id as session id. A save is one commit,
refused with ``ConversationConflict`` if the stored revision is not the expected one.

Which session has an entry? Pydantic AI asks for the history of a record that it has just read, so
the store remembers in memory to which conversation the last heads and branches belong. For other
ids there is an index in the store, see `entry_index`. Both are only hints: an entry counts if the
session itself has it.

A deletion first commits a mark, on the condition of the revision. From then on the conversation is
gone. Then the session is deleted, by the same call or, after a crash, by the next call that finds
the mark.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any

from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)

from holdfast.adapters.base import StoreAdapter
from holdfast.adapters.pydantic_ai import layout
from holdfast.adapters.pydantic_ai.changes import (
    MissingEntryError,
    RecordChange,
    ReleasedHeadError,
)
from holdfast.adapters.pydantic_ai.codec import (
    decode_entries,
    decode_record,
    encode_entries,
    encode_record,
)
from holdfast.adapters.pydantic_ai.entry_index import EntryIndex
from holdfast.adapters.pydantic_ai.layout import StoredEntry
from holdfast.adapters.pydantic_ai.listing import MAX_LAG, UNKNOWN, list_pages
from holdfast.adapters.shared_session import SessionPool, session_exists
from holdfast.errors import ConflictError
from holdfast.sessions.session import Session
from holdfast.snapshots.delete import delete_incarnation
from holdfast.snapshots.keys import AGENT, SnapshotLocation, validate_id
from holdfast.snapshots.session_state import STATE
from holdfast.stores.base import StateStore

MAX_HINTS = 4096
"""How many heads, branches and index keys are remembered."""


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """The record of a session as JSON data, and what else a reader needs to know."""

    data: Any
    incarnation: str
    indexed_id: str | None


@dataclass(frozen=True, slots=True)
class DeletedConversation:
    """A conversation that was deleted, and whose session is still there."""

    incarnation: str
    last_ids: list[str]
    """The ids that name its keys in the index."""

    @classmethod
    def of(cls, session: Session) -> DeletedConversation:
        """Return what has to be deleted of a session."""
        groups = layout.list_groups(session.snapshot())
        return cls(session.committer.incarnation.id, [ids[-1] for ids in groups])


class InterruptedDeletionError(Exception):
    """A deletion has to be finished before the conversation can be created again."""

    def __init__(self, deleted: DeletedConversation) -> None:
        super().__init__(deleted)
        self.deleted = deleted


class HoldfastConversationStore(StoreAdapter, ConversationStore):
    """Conversations in a ``StateStore``, each an ordinary session of the agent ``agent_id``.

    Stores in other tasks, threads and processes may use the same conversations: of two that save
    the same revision, one gets ``ConversationConflict``. A deleted conversation is deleted with its
    entries; a fork of it has its own.
    """

    def __init__(self, state_store: StateStore, *, agent_id: str = "pydantic-ai") -> None:
        super().__init__(state_store)
        self.agent_id = validate_id(agent_id, "agent_id")
        self._pool = SessionPool(state_store)
        self._index = EntryIndex(state_store, self.agent_id)
        self._conversations: OrderedDict[str, str] = OrderedDict()
        """Conversations by ids of their heads and branches, as last read."""
        self._indexed: OrderedDict[tuple[str, str, str], None] = OrderedDict()
        """Keys of the index that are known to exist."""

    def location(self, conversation_id: str) -> SnapshotLocation:
        """Return the location of a conversation, to use with ``Session``, CLI or ``Catalog``.

        Raises:
            ValueError: The id is empty or too long for a session.

        """
        return SnapshotLocation(conversation_id, AGENT, self.agent_id)

    # ---------------------------------------------------------------------------------- records

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """Return the record of a conversation, or None if the store does not have it.

        Raises:
            InvalidDocumentError: The record has a newer format.
            IntegrityError: Stored data is damaged.
            StateStoreError: The store failed.

        """
        stored = await self._read_stored(conversation_id)
        if stored is None or stored.data is None:
            return None
        record = decode_record(stored.data, conversation_id)
        self._remember(conversation_id, record.head_id, *record.branches)
        if stored.indexed_id is not None and self.state_store.writable:
            await self._index_if_copied(conversation_id, stored.incarnation, stored.indexed_id)
        return record

    async def read_records(
        self, *, scope: str | None = None, limit: int | None = None
    ) -> Sequence[ConversationRecord]:
        """Return the records, or those of a scope, last saved first, without their histories.

        Raises:
            InvalidDocumentError: A record has a newer format.
            IntegrityError: Stored data is damaged.
            StateStoreError: The store failed.

        """
        found: list[ConversationRecord] = []
        if limit == 0:
            return found
        async with aclosing(list_pages(self.state_store, self.agent_id)) as pages:
            async for page in pages:
                for entry, data in page:
                    record = await self._decode_listed(entry.session_id, data)
                    if record is not None and scope in (None, record.scope):
                        found.append(record)
                found.sort(key=lambda record: record.updated_at, reverse=True)
                if limit is None or not page or not 0 < limit <= len(found):
                    continue
                # All that follow were saved earlier.
                if page[-1][0].active_at + MAX_LAG < found[limit - 1].updated_at:
                    break
        return found[:limit]

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Store a record and its new entries in one commit.

        Entries of other conversations that its history has are copied.

        Raises:
            ConversationConflict: The stored revision is not the expected one, or no conversation
                has the head of the history.
            ConflictError: A new entry has the id of another one.
            UnsupportedValueError: A message holds a value that has no JSON form.
            StateStoreError: The store failed.

        """
        conversation_id = record.conversation_id
        location = self.location(conversation_id)
        data, entries = encode_record(record), encode_entries(new_entries)
        copied: dict[str, StoredEntry | None] = {}

        async def write(session: Session) -> tuple[str, str | None]:
            state, incarnation = session.snapshot(), session.committer.incarnation.id
            if layout.is_deleted(state):
                raise InterruptedDeletionError(DeletedConversation.of(session))
            stored = layout.get_record(state)
            before = None if stored is None else decode_record(stored, conversation_id)
            if (None if before is None else before.revision) != expected_revision:
                raise ConversationConflict(conversation_id)
            change = RecordChange(state, data, before, entries, copied)
            await self._index.add(change.groups, conversation_id, incarnation)
            change.apply(session)
            return incarnation, change.groups[-1][-1] if change.groups else None

        if expected_revision is None and record.forked_from is not None:
            await self._copy_history(record.head_id, copied, record.forked_from)
        while True:
            try:
                incarnation, indexed_id = await self._pool.update(location, write)
                break
            except MissingEntryError as error:
                await self._copy_history(error.entry_id, copied, record.forked_from)
            except InterruptedDeletionError as error:
                await self._erase(location, error.deleted)
            except ReleasedHeadError:
                raise ConversationConflict(conversation_id) from None
        if indexed_id is not None:
            self._remember_indexed(conversation_id, incarnation, indexed_id)
        self._remember(conversation_id, record.head_id, *record.branches)

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Delete a conversation with its session, and with it all entries that no other one has.

        Raises:
            ConversationConflict: The stored revision is not the expected one.
            StateStoreError: The store failed.

        """
        location = self.location(conversation_id)

        def mark(session: Session) -> DeletedConversation:
            stored = layout.get_record(session.snapshot())
            record = None if stored is None else decode_record(stored, conversation_id)
            if record is None or record.revision != expected_revision:
                raise ConversationConflict(conversation_id)
            session.record(
                layout.DELETED_EVENT,
                {"revision": expected_revision},
                changes={
                    "set": [(layout.BOOKKEEPING, layout.DELETED, True)],
                    "delete": [(STATE, layout.RECORD)],
                },
            )
            return DeletedConversation.of(session)

        await self._erase(location, await self._pool.update(location, mark))

    # ---------------------------------------------------------------------------------- entries

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """Return an entry of any conversation, in its history or in a branch that it left.

        Raises:
            KeyError: No conversation has it.
            InvalidDocumentError: This version of Pydantic AI cannot read its message.
            IntegrityError: Stored data is damaged.
            StateStoreError: The store failed.

        """
        return (await self.read_history(entry_id, limit=1))[0]

    async def read_history(
        self, head_id: str | None, *, limit: int | None = None
    ) -> list[ConversationEntry]:
        """Return the entries up to one, in order, or only the last ``limit``, in one read.

        Raises:
            KeyError: No conversation has the entry, or one before it.
            InvalidDocumentError: This version of Pydantic AI cannot read a message.
            IntegrityError: Stored data is damaged.
            StateStoreError: The store failed.

        """
        if head_id is None or (limit is not None and limit <= 0):
            return []
        async for conversation_id in self._find_conversations(head_id):
            found = await self._read_entries(conversation_id, head_id, limit)
            if found is not None:
                self._remember(conversation_id, head_id)
                return decode_entries(found)
        raise KeyError(head_id)

    async def _read_entries(
        self, conversation_id: str, head_id: str, limit: int | None
    ) -> list[StoredEntry] | None:
        """Return the history up to an entry if a conversation has it."""

        def read(session: Session) -> list[StoredEntry] | None:
            state = session.snapshot()
            if layout.is_deleted(state):
                return None
            return layout.read_history(state, head_id, limit)

        return await self._pool.read(self.location(conversation_id), read)

    async def _find_conversations(self, entry_id: str) -> AsyncIterator[str]:
        """Yield conversations that may have an entry, the likely ones first."""
        hint = self._conversations.get(entry_id)
        if hint is not None:
            yield hint
        async for conversation_id in self._index.find(entry_id):
            if conversation_id != hint:
                yield conversation_id

    async def _copy_history(
        self, head_id: str | None, copied: dict[str, StoredEntry | None], origin: str | None
    ) -> None:
        """Read the entries up to one from the conversation that has them, best from ``origin``."""
        if head_id is None:
            return

        def read(session: Session) -> list[StoredEntry]:
            state = session.snapshot()
            return [] if layout.is_deleted(state) else list(layout.iterate_history(state, head_id))

        async def find() -> list[StoredEntry]:
            if origin is not None:
                found = await self._pool.read(self.location(origin), read)
                if found:
                    return found
            async for conversation_id in self._find_conversations(head_id):
                found = await self._pool.read(self.location(conversation_id), read)
                if found:
                    return found
            return []

        copied[head_id] = None
        copied.update((each.id, each) for each in await find())

    # -------------------------------------------------------------------------------- internals

    async def _decode_listed(self, conversation_id: str, data: Any) -> ConversationRecord | None:
        """Return the record of a listed session, or None if it is not a conversation."""
        if data is UNKNOWN:
            stored = await self._read_stored(conversation_id)
            data = None if stored is None else stored.data
        return None if data is None else decode_record(data, conversation_id)

    async def _read_stored(self, conversation_id: str) -> StoredRecord | None:
        """Return the stored record of a conversation; finish a deletion that was interrupted."""

        def read(session: Session) -> StoredRecord | DeletedConversation | None:
            if not session_exists(session):
                return None
            state, incarnation = session.snapshot(), session.committer.incarnation.id
            if layout.is_deleted(state):
                return DeletedConversation.of(session)
            return StoredRecord(layout.get_record(state), incarnation, layout.get_indexed_id(state))

        location = self.location(conversation_id)
        found = await self._pool.read(location, read)
        if isinstance(found, DeletedConversation):
            if self.state_store.writable:
                await self._erase(location, found)
            return None
        return found

    async def _erase(self, location: SnapshotLocation, deleted: DeletedConversation) -> None:
        """Delete a deleted conversation from the index, and then its session."""
        await self._index.remove(deleted.last_ids, location.session_id, deleted.incarnation)
        with suppress(ConflictError):  # another process is deleting it
            await delete_incarnation(self.state_store, location, deleted.incarnation)

    async def _index_if_copied(
        self, conversation_id: str, incarnation: str, indexed_id: str
    ) -> None:
        """Add a conversation to the index that an import, a copy or a fork by Holdfast made."""
        if (conversation_id, incarnation, indexed_id) in self._indexed:
            return
        if not await self._index.has(indexed_id, conversation_id, incarnation):

            def read_groups(session: Session) -> list[list[str]]:
                state = session.snapshot()
                return [] if layout.is_deleted(state) else layout.list_groups(state)

            groups = await self._pool.read(self.location(conversation_id), read_groups)
            await self._index.add(groups, conversation_id, incarnation)
        self._remember_indexed(conversation_id, incarnation, indexed_id)

    def _remember_indexed(self, conversation_id: str, incarnation: str, indexed_id: str) -> None:
        self._indexed[conversation_id, incarnation, indexed_id] = None
        if len(self._indexed) > MAX_HINTS:
            self._indexed.popitem(last=False)

    def _remember(self, conversation_id: str, *entry_ids: str | None) -> None:
        for entry_id in entry_ids:
            if entry_id is not None:
                self._conversations.pop(entry_id, None)
                self._conversations[entry_id] = conversation_id
        while len(self._conversations) > MAX_HINTS:
            self._conversations.popitem(last=False)

    def __repr__(self) -> str:
        return f"<HoldfastConversationStore of {self.agent_id} in {self.state_store!r}>"
