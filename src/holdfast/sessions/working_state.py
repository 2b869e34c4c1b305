"""What an agent does, applied at once and waiting to be committed: a store and its new events."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

from holdfast.errors import UnsupportedValueError, shown
from holdfast.log.changes import fold
from holdfast.log.event import Draft, Event, draft
from holdfast.log.event_log import Position
from holdfast.log.hash_chain import linked
from holdfast.snapshots.session_state import (
    MESSAGES,
    SESSION,
    STATUS,
    checked_status,
    message_key,
    message_number,
)
from holdfast.state.batch import check_text
from holdfast.state.diff import Changes, Pair
from holdfast.state.snapshot import Snapshot, as_pair, as_row
from holdfast.state.store import Store
from holdfast.values.binary_encoding import decode, encode

LONGEST_TYPE = 256
STEPS = 1000


@dataclass(frozen=True, slots=True)
class Mark:
    """Some of what waits, and where it leads."""

    count: int
    state: Snapshot
    next_message: int


class Recording:
    """The state of a session in memory, and the events that lead to it from what is committed."""

    def __init__(self, store: Store, end: Position) -> None:
        self.store = store
        self.end = end
        """Where the log ends, as far as it is committed."""
        self.base = store.snapshot()
        """The state there."""
        self.pending: list[Draft] = []
        keys = store.keys(MESSAGES)
        self.message_count = len(keys)
        self.next_message = after_last(keys)
        self.base_next_message = self.next_message
        """The number of the first message that is not committed."""

    def record(self, type_: str, data: Any = None, changes: Changes | None = None) -> Draft:
        """One more event; what it changes is done at once. Bad input leaves everything as it was.

        Data and values are the caller's own: copies are kept.
        """
        return self.record_own(checked_type(type_), copied(data, "$.data"), owned(changes))

    def record_own(self, type_: str, data: Any, changes: Changes) -> Draft:
        """The same of data and values that belong to nobody else."""
        event = draft(type_, data, changes=changes)
        self.add(event)
        return event

    def add(self, event: Draft) -> None:
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
        self.next_message = after_last(self.store.keys(MESSAGES))

    def events(self) -> list[Event]:
        """The events that wait, at the places that they will have if nobody else is first."""
        return linked(self.pending, self.end.seq, self.end.hash)

    def copied_events(self) -> list[Event]:
        """The same, of which nothing leads back here."""
        copies = [
            replace(each, data=copied(each.data, "$.data"), changes=owned(each.changes))
            for each in self.pending
        ]
        return linked(copies, self.end.seq, self.end.hash)

    def mark(self) -> Mark:
        """All that waits now, and where it leads."""
        return Mark(len(self.pending), self.store.snapshot(), self.next_message)

    def mark_of(self, count: int) -> Mark:
        """The first of what waits, and where that leads."""
        store = Store(max_history=0)
        store.restore(self.base)
        fold(store, (each.changes for each in self.pending[:count]))
        return Mark(count, store.snapshot(), after_last(store.keys(MESSAGES)))

    def at_base(self) -> Recording:
        """Return a recording of what is committed, with nothing pending."""
        other = copy(self)
        other.store = Store(max_history=0)
        other.store.restore(self.base)
        other.pending = []
        other.next_message = self.base_next_message
        if self.pending:
            other.message_count = self.base.count(MESSAGES)
        return other

    def insert(self, event: Draft, end: Position) -> None:
        """Note that an event was committed before the pending ones, which touch other entries."""
        store = Store(max_history=0)
        store.restore(self.base)
        store.apply(event.changes)
        self.apply(event.changes)
        self.base = store.snapshot()
        self.end = end

    def committed(self, mark: Mark, end: Position) -> None:
        """What waited then is durable now."""
        del self.pending[: mark.count]
        self.end = end
        self.base = mark.state
        self.base_next_message = mark.next_message


def after_last(keys: Sequence[str]) -> int:
    """The number of the next message, after those with these keys, in order."""
    for key in reversed(keys):
        number = message_number(key)
        if number is not None:
            return number + 1
    return 0


def copied(value: Any, where: str) -> Any:
    """A copy that belongs to nobody else; an error that says where something cannot be kept."""
    try:
        return decode(encode(value))
    except UnsupportedValueError as error:
        path = where + error.path[1:]
        raise UnsupportedValueError(str(error).replace(error.path, path), path) from None


def owned(changes: Changes | None) -> Changes:
    """Changes that belong to nobody else, of the right shape."""
    if changes is None:
        return {"set": [], "delete": []}
    if not isinstance(changes, dict) or changes.keys() != {"set", "delete"}:
        raise TypeError(
            'changes are a dict of "set" and "delete", as Snapshot.changes() returns it, not '
            f"{shown(changes)}"
        )
    sets = [owned_item(item) for item in changes["set"]]
    deletes = [owned_pair(pair) for pair in changes["delete"]]
    return {"set": sets, "delete": deletes}


def owned_item(item: object) -> tuple[str, str, Any]:
    """An entry to set that belongs to nobody else."""
    row = as_row(item)
    if len(row) != 3:
        raise TypeError(f"expected a (namespace, key, value) triple to set, not {shown(item)}")
    space, key = owned_pair(row[:2])
    if (space, key) == (SESSION, STATUS):
        return space, key, checked_status(row[2])
    return space, key, copied(row[2], f"$.{space}.{key}")


def owned_pair(pair: object) -> Pair:
    """A namespace and a key, as plain text that can be stored."""
    space, key = as_pair(pair)
    check_text(space, "namespace")
    check_text(key, "key")
    return space, key


def checked_type(type_: object) -> str:
    """The type of an event, or a refusal."""
    if not isinstance(type_, str):
        raise TypeError(f"the type of an event is a str as in tool.called, not {shown(type_)}")
    if not 1 <= len(type_) <= LONGEST_TYPE:
        raise ValueError(
            f"the type of an event has 1 to {LONGEST_TYPE} characters; this one has {len(type_)}"
        )
    return str(copied(type_, "$.type"))
