"""Prepare the write of a record: which entries are new here, and which messages move.

Usually a save extends the history: its messages are appended, whatever the length of the history.
When the history branches, the messages that it leaves move from ``messages`` to their entries, and
those that it returns to move back; what both share stays. Entries of other conversations, which a
fork shares, are copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_ai.conversation_store import ConversationRecord

from holdfast.adapters.pydantic_ai.entry_index import group_ids
from holdfast.adapters.pydantic_ai.layout import (
    BOOKKEEPING,
    BRANCHED_EVENT,
    ENTRIES,
    FORKED_EVENT,
    INDEXED,
    RECORD,
    SAVED_EVENT,
    StoredEntry,
    find_entry,
    find_place,
    parse_place,
)
from holdfast.adapters.pydantic_ai.run_status import infer_status
from holdfast.errors import ConflictError, IntegrityError
from holdfast.sessions.session import Session
from holdfast.snapshots.session_state import MESSAGES, STATE, message_key, message_number
from holdfast.state.snapshot import Snapshot


class MissingEntryError(Exception):
    """An entry that the write refers to is not in this conversation; look for it elsewhere."""

    def __init__(self, entry_id: str) -> None:
        super().__init__(entry_id)
        self.entry_id = entry_id


class ReleasedHeadError(Exception):
    """No conversation has the entry that the history should end with."""


class RecordChange:
    """The write of one record to a session at its last commit.

    ``copied`` has entries of other conversations by their ids; None for one that no conversation
    has.

    Raises:
        MissingEntryError: An entry is neither in the session nor in ``copied``.
        ReleasedHeadError: No conversation has the head of the history.
        ConflictError: A new entry has the id of another one.

    """

    def __init__(
        self,
        state: Snapshot,
        record: dict[str, Any],
        before: ConversationRecord | None,
        new_entries: Sequence[StoredEntry],
        copied: Mapping[str, StoredEntry | None],
    ) -> None:
        self.state = state
        self.record = record
        self.new = {each.id: each for each in new_entries if self._is_new(each)}
        self.copied = copied
        self.is_created = before is None
        self.places: dict[str, StoredEntry] = {}
        """Entries to store with their message, because they are not in the history."""
        self.moved: dict[str, StoredEntry] = {}
        """Entries by their new key in ``messages``."""
        self.left: list[str] = []
        """Keys in ``messages`` of entries that the history leaves."""
        self.appended: list[StoredEntry] = []
        if not self._extends(before):
            self._lay_out()
        known = () if before is None else before.branches
        for tip in record["branches"]:
            if tip not in known:
                self._copy_history(tip)
        added = [*self.moved.values(), *self.places.values(), *self.appended]
        ids = [each.id for each in added if not state.contains(ENTRIES, each.id)]
        self.groups = group_ids(ids)
        """The ids of entries that are new in this session, as the index gets them."""
        self._last_ids = {ids[-1] for ids in self.groups}

    def _is_new(self, entry: StoredEntry) -> bool:
        stored = find_entry(self.state, entry.id)
        if stored is None or stored == entry:
            return stored is None
        raise ConflictError(
            f"entry {entry.id!r} is already stored with another message or parent; give a new "
            "entry a new id"
        )

    def _extends(self, before: ConversationRecord | None) -> bool:
        """Take the new entries as those that follow the history, if they do."""
        head_id = None if before is None else before.head_id
        for each in self.new.values():
            if each.parent_id != head_id:
                return False
            head_id = each.id
        if self.record["head_id"] != head_id:
            return False
        self.appended = list(self.new.values())
        return True

    def _find(self, entry_id: str) -> StoredEntry | None:
        entry = self.new.get(entry_id) or find_entry(self.state, entry_id)
        if entry is not None:
            return entry
        if entry_id not in self.copied:
            raise MissingEntryError(entry_id)
        return self.copied[entry_id]

    def _read_history(self, entry_id: str | None) -> list[StoredEntry]:
        """Return the entries up to one, in order, as far as any conversation has them."""
        found: dict[str, StoredEntry] = {}
        while entry_id is not None and (entry := self._find(entry_id)) is not None:
            if entry_id in found:
                raise IntegrityError(f"entry {entry_id!r} comes before itself in the conversation")
            found[entry_id] = entry
            entry_id = entry.parent_id
        return list(found.values())[::-1]

    def _lay_out(self) -> None:
        """Find out which messages leave the history, return to it, or are appended to it."""
        path = self._read_history(self.record["head_id"])
        if not path and self.record["head_id"] is not None:
            raise ReleasedHeadError(self.record["head_id"])
        places = ((id_, parse_place(id_, value)) for _, id_, value in self.state.items(ENTRIES))
        current = sorted((place.message_key, id_) for id_, place in places if place.message_key)
        shared = 0
        for (_, id_), entry in zip(current, path, strict=False):
            if id_ != entry.id:
                break
            shared += 1
        for key, id_ in current[shared:]:
            leaving = find_entry(self.state, id_)
            if leaving is not None:
                self.left.append(key)
                self.places[id_] = leaving
        rest = path[shared:]
        while rest and rest[-1].id in self.new:
            self.appended.insert(0, rest.pop())
        last = message_number(current[shared - 1][0]) if shared else -1
        number = 0 if last is None else last + 1
        for entry in rest:
            while self._is_taken(message_key(number)):
                number += 1
            self.places.pop(entry.id, None)
            self.moved[message_key(number)] = entry
            number += 1
        in_history = {entry.id for entry in path}
        for entry in self.new.values():
            if entry.id not in in_history:
                self.places[entry.id] = entry
                self._copy_history(entry.parent_id)

    def _is_taken(self, key: str) -> bool:
        """Tell whether a key has a message that the conversation has no entry for."""
        return self.state.contains(MESSAGES, key) and key not in self.left

    def _copy_history(self, entry_id: str | None) -> None:
        """Copy the entries up to one that only other conversations have."""
        in_history = {entry.id for entry in self.moved.values()}
        for entry in self._read_history(entry_id):
            is_known = entry.id in self.new or self.state.contains(ENTRIES, entry.id)
            if not is_known and entry.id not in in_history:
                self.places[entry.id] = entry

    # ---------------------------------------------------------------------------------- recording

    def apply(self, session: Session) -> None:
        """Record the change in the session."""
        self._record_layout(session)
        placed: list[tuple[str, str, Any]] = []
        for entry in self.appended:
            key = message_key(session.committer.working.next_message)
            session.append_message(entry.message)
            placed.append((ENTRIES, entry.id, self._place(entry, at=key)))
        if self.groups:
            placed.append((BOOKKEEPING, INDEXED, self.groups[-1][-1]))
        session.record(
            SAVED_EVENT,
            {"revision": self.record["revision"], "entries": len(self.new)},
            changes={"set": [*placed, (STATE, RECORD, self.record)], "delete": []},
        )
        head_id = self.record["head_id"]
        head = None if head_id is None else find_entry(session.snapshot(), head_id)
        session.status = infer_status(
            None if head is None else head.message,
            has_deferred_requests=self.record["deferred_tool_requests"] is not None,
        )

    def _record_layout(self, session: Session) -> None:
        sets: list[tuple[str, str, Any]] = []
        for entry in self.places.values():
            sets.append((ENTRIES, entry.id, self._place(entry)))
        for key, entry in self.moved.items():
            sets.append((MESSAGES, key, entry.message))
            sets.append((ENTRIES, entry.id, self._place(entry, at=key)))
        deletes = [(MESSAGES, key) for key in self.left if key not in self.moved]
        if not sets and not deletes:
            return
        origin = self.record["forked_from"]
        is_fork = self.is_created and origin is not None
        data = (
            {"agent_id": session.agent_id, "session_id": origin, "snapshot_id": None, "seq": None}
            if is_fork
            else {"head_id": self.record["head_id"]}
        )
        session.record(
            FORKED_EVENT if is_fork else BRANCHED_EVENT,
            data,
            changes={"set": sets, "delete": deletes},
        )

    def _place(self, entry: StoredEntry, *, at: str | None = None) -> dict[str, Any]:
        """Return the value of an entry, with its key in ``messages`` or with its message."""
        value: dict[str, Any] = {"parent_id": entry.parent_id, "kind": entry.kind}
        known = find_place(self.state, entry.id)
        if entry.id in self._last_ids or (known is not None and known.ends_group):
            value["ends_group"] = True
        return {**value, "message": entry.message} if at is None else {**value, "at": at}
