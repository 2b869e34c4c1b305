"""What an agent does, applied at once and waiting to be committed: a store and its new events."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

from holdfast.errors import UnsupportedValueError, short_repr
from holdfast.log.changes import fold_changes
from holdfast.log.event import Event, EventDraft, draft_event
from holdfast.log.event_log import Position
from holdfast.log.hash_chain import link_events
from holdfast.snapshots.session_state import (
    MESSAGES,
    SESSION,
    STATUS,
    message_key,
    message_number,
    validate_status,
)
from holdfast.state.batch import validate_name_text
from holdfast.state.diff import Changes, Pair
from holdfast.state.snapshot import Snapshot, to_row, validate_pair
from holdfast.state.store import Store
from holdfast.values.binary_encoding import decode, encode

LONGEST_TYPE = 256
STEPS = 1000


@dataclass(frozen=True, slots=True)
class CommitPoint:
    """Some of what waits, and where it leads."""

    count: int
    state: Snapshot
    next_message: int


class WorkingState:
    """The state of a session in memory, and the events that lead to it from what is committed."""

    def __init__(self, store: Store, end: Position) -> None:
        self.store = store
        self.end = end
        """Where the log ends, as far as it is committed."""
        self.base = store.snapshot()
        """The state there."""
        self.pending: list[EventDraft] = []
        keys = store.keys(MESSAGES)
        self.message_count = len(keys)
        self.next_message = next_message_number(keys)
        self.base_next_message = self.next_message
        """The number of the first message that is not committed."""

    def record(self, type_: str, data: Any = None, changes: Changes | None = None) -> EventDraft:
        """One more event; what it changes is done at once. Bad input leaves everything as it was.

        Data and values are the caller's own: copies are kept.
        """
        return self.record_owned(
            validate_event_type(type_), copy_value(data, "$.data"), copy_changes(changes)
        )

    def record_owned(self, type_: str, data: Any, changes: Changes) -> EventDraft:
        """The same of data and values that belong to nobody else."""
        event = draft_event(type_, data, changes=changes)
        self.add(event)
        return event

    def add(self, event: EventDraft) -> None:
        """One more event, whose parts belong to it."""
        self.apply(event.changes)
        self.pending.append(event)

    def apply(self, changes: Changes) -> None:
        """Do what an event did to the state."""
        here = self.store
        added = {key for space, key, _ in changes["set"] if space == MESSAGES}
        removed = {key for space, key in changes["delete"] if space == MESSAGES}
        before = sum(1 for key in added | removed if here.contains(MESSAGES, key))
        here.apply(changes)
        after = sum(1 for key in added | removed if here.contains(MESSAGES, key))
        self.message_count += after - before
        for number in map(message_number, added):
            if number is not None:
                self.next_message = max(self.next_message, number + 1)
        if removed:
            self._step_back()

    def _step_back(self) -> None:
        """Find the last message anew, after some were removed."""
        for _ in range(STEPS):
            number = self.next_message - 1
            if number < 0 or self.store.contains(MESSAGES, message_key(number)):
                return
            self.next_message = number
        self.next_message = next_message_number(self.store.keys(MESSAGES))

    def events(self) -> list[Event]:
        """The events that wait, at the places that they will have if nobody else is first."""
        return link_events(self.pending, self.end.seq, self.end.hash)

    def copied_events(self) -> list[Event]:
        """The same, of which nothing leads back here."""
        copies = [
            replace(each, data=copy_value(each.data, "$.data"), changes=copy_changes(each.changes))
            for each in self.pending
        ]
        return link_events(copies, self.end.seq, self.end.hash)

    def mark(self) -> CommitPoint:
        """All that waits now, and where it leads."""
        return CommitPoint(len(self.pending), self.store.snapshot(), self.next_message)

    def mark_of(self, count: int) -> CommitPoint:
        """The first of what waits, and where that leads."""
        store = Store(max_history=0)
        store.restore(self.base)
        fold_changes(store, (each.changes for each in self.pending[:count]))
        return CommitPoint(count, store.snapshot(), next_message_number(store.keys(MESSAGES)))

    def at_base(self) -> WorkingState:
        """Return a working of what is committed, with nothing pending."""
        other = copy(self)
        other.store = Store(max_history=0)
        other.store.restore(self.base)
        other.pending = []
        other.next_message = self.base_next_message
        if self.pending:
            other.message_count = self.base.count(MESSAGES)
        return other

    def insert(self, event: EventDraft, end: Position) -> None:
        """Note that an event was committed before the pending ones, which touch other entries."""
        store = Store(max_history=0)
        store.restore(self.base)
        store.apply(event.changes)
        self.apply(event.changes)
        self.base = store.snapshot()
        self.end = end

    def committed(self, mark: CommitPoint, end: Position) -> None:
        """What waited then is durable now."""
        del self.pending[: mark.count]
        self.end = end
        self.base = mark.state
        self.base_next_message = mark.next_message


def next_message_number(keys: Sequence[str]) -> int:
    """The number of the next message, after those with these keys, in order."""
    for key in reversed(keys):
        number = message_number(key)
        if number is not None:
            return number + 1
    return 0


def copy_value(value: Any, where: str) -> Any:
    """A copy that belongs to nobody else; an error that says where something cannot be kept."""
    try:
        return decode(encode(value))
    except UnsupportedValueError as error:
        path = where + error.path[1:]
        raise UnsupportedValueError(str(error).replace(error.path, path), path) from None


def copy_changes(changes: Changes | None) -> Changes:
    """Changes that belong to nobody else, of the right shape."""
    if changes is None:
        return {"set": [], "delete": []}
    if not isinstance(changes, dict) or changes.keys() != {"set", "delete"}:
        raise TypeError(
            'changes are a dict of "set" and "delete", as Snapshot.changes() returns it, not '
            f"{short_repr(changes)}"
        )
    sets = [copy_entry(item) for item in changes["set"]]
    deletes = [copy_pair(pair) for pair in changes["delete"]]
    return {"set": sets, "delete": deletes}


def copy_entry(item: object) -> tuple[str, str, Any]:
    """An entry to set that belongs to nobody else."""
    row = to_row(item)
    if len(row) != 3:
        raise TypeError(f"expected a (namespace, key, value) triple to set, not {short_repr(item)}")
    space, key = copy_pair(row[:2])
    if (space, key) == (SESSION, STATUS):
        return space, key, validate_status(row[2])
    return space, key, copy_value(row[2], f"$.{space}.{key}")


def copy_pair(pair: object) -> Pair:
    """A namespace and a key, as plain text that can be stored."""
    space, key = validate_pair(pair)
    validate_name_text(space, "namespace")
    validate_name_text(key, "key")
    return space, key


def validate_event_type(type_: object) -> str:
    """The type of an event, or a refusal."""
    if not isinstance(type_, str):
        raise TypeError(f"the type of an event is a str as in tool.called, not {short_repr(type_)}")
    if not 1 <= len(type_) <= LONGEST_TYPE:
        raise ValueError(
            f"the type of an event has 1 to {LONGEST_TYPE} characters; this one has {len(type_)}"
        )
    return str(copy_value(type_, "$.type"))
