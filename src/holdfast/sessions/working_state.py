"""The state of a session in memory: the last commit, and the pending events on top of it.

As in git's working tree, an event takes effect here at once and is shared with a commit.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, final

from holdfast.errors import short_repr
from holdfast.log.encoded_event import EncodedEvent, encode_at, new_event
from holdfast.log.event import DEFAULT_TYPE, Event, replace_values
from holdfast.log.event_log import Position
from holdfast.log.segment import link_segment
from holdfast.snapshots.session_state import (
    MESSAGES,
    SESSION,
    STATUS,
    message_key,
    message_number,
    validate_status,
)
from holdfast.state.batch import WriteBatch, validate_name_text
from holdfast.state.diff import Changes, Pair
from holdfast.state.snapshot import Snapshot, to_row, validate_pair
from holdfast.state.store import Store, write_batch
from holdfast.values.binary_encoding import decode

STARTED = "session.started"
APPENDED = DEFAULT_TYPE
ONCE_DONE = "once.done"

LAST_MESSAGE = 10**12 - 1
MAX_TYPE_LENGTH = 256
MAX_STEPS_BACK = 1000


@final
class CommitPoint:
    """The first ``count`` pending events, and the state that they lead to."""

    def __init__(self, count: int, state: Snapshot, next_message: int) -> None:
        self.count = count
        self.state = state
        self.next_message = next_message


@final
class WorkingState:
    """The state of a session with its pending events applied.

    ``head`` is the last committed position and ``base`` the state there. The numbers of messages
    are counted unless they are given.
    """

    def __init__(
        self,
        store: Store,
        head: Position,
        base: Snapshot | None = None,
        message_count: int = 0,
        next_message: int = 0,
    ) -> None:
        if base is None:
            base = store.snapshot()
            keys = store.keys(MESSAGES)
            message_count = len(keys)
            next_message = next_message_number(keys)
        self.store = store
        self.head = head
        self.base = base
        self.pending: list[EncodedEvent] = []
        self.message_count = message_count
        self.next_message = next_message
        self.base_next_message = next_message
        """The number of the first message that is not committed."""

    @property
    def is_unchanged(self) -> bool:
        """Whether nothing is pending but the start of a new session."""
        return all(each.type == STARTED for each in self.pending)

    def record(self, type_: object, data: object = None, changes: object = None) -> EncodedEvent:
        """Record an event and apply its changes; invalid arguments change nothing.

        Data and values are copied.
        """
        return self.record_owned(validate_event_type(type_), data, validate_changes(changes))

    def record_owned(
        self, type_: str, data: object, changes: Changes, *, path: str | None = None
    ) -> EncodedEvent:
        """Record an event whose type and names are known to be valid.

        ``path`` is the path of the value to set in errors, if there is only one.
        """
        event = new_event(type_, data, changes, path=path)
        self.add(event)
        return event

    def append_message(self, message: dict[str, Any]) -> None:
        """Record a new message at the end of the conversation.

        Raises:
            UnsupportedValueError: The message holds a value that cannot be stored.
            ValueError: The last possible key of a message is in use.

        """
        number = self.next_message
        if number > LAST_MESSAGE:
            raise ValueError(
                f"message number {number} is past {LAST_MESSAGE}; remove message {number - 1}"
            )
        changes: Changes = {"set": [(MESSAGES, message_key(number), message)], "delete": []}
        event = new_event(APPENDED, None, changes, path=f"$.messages[{number}]")
        self.message_count += write_batch(self.store, event.batch, MESSAGES)
        self.next_message = number + 1
        self.pending.append(event)

    def add(self, event: EncodedEvent) -> None:
        """Append an event and apply its changes."""
        self.apply(event.batch)
        self.pending.append(event)

    def apply(self, batch: WriteBatch) -> None:
        """Apply the changes of an event to the state."""
        self.message_count += write_batch(self.store, batch, MESSAGES)
        if MESSAGES not in batch.namespaces:
            return
        is_removed = False
        for space, key, data in zip(batch.namespaces, batch.keys, batch.data, strict=True):
            if space == MESSAGES:
                number = None if data is None else message_number(key)
                if number is not None and number >= self.next_message:
                    self.next_message = number + 1
                is_removed |= data is None
        if is_removed:
            self._find_next_message()

    def _find_next_message(self) -> None:
        """Find the number of the next message after messages were removed."""
        for _ in range(MAX_STEPS_BACK):
            number = self.next_message - 1
            if number < 0 or self.store.contains(MESSAGES, message_key(number)):
                return
            self.next_message = number
        self.next_message = next_message_number(self.store.keys(MESSAGES))

    def discard(self, ids: Collection[str]) -> None:
        """Remove pending events by their ids, and undo their changes."""
        kept = [each for each in self.pending if each.id not in ids]
        if len(kept) == len(self.pending):
            return
        other = self.at_base()
        for each in kept:
            other.add(each)
        self.store, self.pending = other.store, other.pending
        self.message_count, self.next_message = other.message_count, other.next_message

    def events(self) -> list[Event]:
        """Return copies of the pending events, linked as if no other writer commits."""
        if not self.pending:
            return []
        events = link_segment("", self.pending, self.head.seq, self.head.hash)[1].events()
        return [
            replace_values(event, recorded.data, recorded.changes) if recorded.refers else event
            for event, recorded in zip(events, self.pending, strict=True)
        ]

    def commit_point(self, count: int | None = None) -> CommitPoint:
        """Return the first ``count`` pending events, or all of them, and where they lead."""
        if count is None:
            return CommitPoint(len(self.pending), self.store.snapshot(), self.next_message)
        store = Store(max_history=0)
        store.restore(self.base)
        for each in self.pending[:count]:
            write_batch(store, each.batch)
        return CommitPoint(count, store.snapshot(), next_message_number(store.keys(MESSAGES)))

    def at_base(self) -> WorkingState:
        """Return the committed state, with nothing pending."""
        store = Store(max_history=0)
        store.restore(self.base)
        count = self.base.count(MESSAGES) if self.pending else self.message_count
        return WorkingState(store, self.head, self.base, count, self.base_next_message)

    def insert(self, event: EncodedEvent, head: Position) -> None:
        """Apply an event that was committed before the pending ones, which touch other entries."""
        store = Store(max_history=0)
        store.restore(self.base)
        write_batch(store, event.batch)
        self.apply(event.batch)
        self.base = store.snapshot()
        self.head = head

    def committed(self, point: CommitPoint, head: Position) -> None:
        """Mark the events of a commit point as committed."""
        del self.pending[: point.count]
        self.head = head
        self.base = point.state
        self.base_next_message = point.next_message


def next_message_number(keys: Sequence[str]) -> int:
    """Return the number after the last of these message keys, which are in order."""
    for key in reversed(keys):
        number = message_number(key)
        if number is not None:
            return number + 1
    return 0


def copy_value(value: Any, path: str) -> Any:
    """Return a deep copy of a value.

    Raises:
        UnsupportedValueError: The value cannot be stored; the error has the path, below ``path``.

    """
    return decode(encode_at(value, path).data)


def validate_changes(changes: object) -> Changes:
    """Return changes with plain names, after validating them. Values are not copied."""
    if changes is None:
        return {"set": [], "delete": []}
    if not isinstance(changes, dict) or changes.keys() != {"set", "delete"}:
        raise TypeError(
            'changes must be a dict with "set" and "delete", as Snapshot.changes() returns it, '
            f"got {short_repr(changes)}"
        )
    sets = [validate_entry(item) for item in changes["set"]]
    deletes = [validate_entry_name(pair) for pair in changes["delete"]]
    return {"set": sets, "delete": deletes}


def validate_entry(item: object) -> tuple[str, str, Any]:
    """Return an entry to set with plain names, after validating it."""
    row = to_row(item)
    if len(row) != 3:
        raise TypeError(f"expected a (namespace, key, value) triple, got {short_repr(item)}")
    space, key = validate_entry_name(row[:2])
    return space, key, validate_status(row[2]) if (space, key) == (SESSION, STATUS) else row[2]


def validate_entry_name(pair: object) -> Pair:
    """Return a namespace and a key as plain strings, after validating them."""
    space, key = validate_pair(pair)
    validate_name_text(space, "namespace")
    validate_name_text(key, "key")
    return space, key


def validate_event_type(type_: object) -> str:
    """Return the type of an event as a plain string, after validating it."""
    if not isinstance(type_, str):
        raise TypeError(f'event type must be a str such as "tool.called", got {short_repr(type_)}')
    if not 1 <= len(type_) <= MAX_TYPE_LENGTH:
        raise ValueError(
            f"event type must have 1 to {MAX_TYPE_LENGTH} characters, got {len(type_)}"
        )
    return str(copy_value(type_, "$.type"))
