"""What an agent does with a session: messages, values, events. All of it in memory, at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from holdfast.errors import short_repr
from holdfast.sessions.working_state import WorkingState, copy_pair, copy_value
from holdfast.snapshots.session_state import MESSAGES, message_key
from holdfast.state.diff import Changes
from holdfast.state.store import Store
from holdfast.values.binary_encoding import encode, is_same_value

LAST_MESSAGE = 10**12 - 1


class Recorder(ABC):
    """Records what one agent does. What goes in and comes out are copies."""

    _space: str
    """The namespace of the agent's values."""

    _turn: AbstractContextManager[object] = nullcontext()
    """Held while something is recorded, where threads share it."""

    @property
    @abstractmethod
    def _working(self) -> WorkingState:
        """What it records into."""

    def _enter(self) -> None:
        """Called before anything is recorded, with the turn held."""
        return

    def _signed(self, fields: dict[str, Any]) -> dict[str, Any]:
        """A message or an event's data with the name of its agent, where there are several."""
        return fields

    def _is_own(self, message: Any) -> bool:  # noqa: ARG002 - several agents tell them apart
        """Whether a message is this agent's."""
        return True

    # ------------------------------------------------------------------------------ messages

    def add_message(self, role: str, content: Any, **fields: Any) -> None:
        """Append a message to the conversation, with any further fields.

        ``content`` is a text or a list of parts, as the model's API has it.
        """
        if not isinstance(role, str):
            raise TypeError(f"the role of a message is a str as in user, not {short_repr(role)}")
        self.append_message({"role": role, "content": content, **fields})

    def append_message(self, message: dict[str, Any]) -> None:
        """Append a message to the conversation as it is."""
        if not isinstance(message, dict):
            raise TypeError(f"a message is a dict, not {short_repr(message)}")
        with self._turn:
            self._enter()
            number = self._working.next_message
            if number > LAST_MESSAGE:
                raise ValueError(
                    f"the conversation has a message of the number {number - 1}, and none can "
                    "follow it: remove that one"
                )
            kept = copy_value(self._signed(message), f"$.messages[{number}]")
            changes: Changes = {"set": [(MESSAGES, message_key(number), kept)], "delete": []}
            self._working.record_owned("message.appended", None, changes)

    def pop_message(self) -> dict[str, Any] | None:
        """Remove the last message of the conversation and return it; None where there is none."""
        with self._turn:
            self._enter()
            for key in reversed(self._store.keys(MESSAGES)):
                message: dict[str, Any] = self._store.get(MESSAGES, key)
                if self._is_own(message):
                    self._record("message.removed", delete=[(MESSAGES, key)])
                    return message
            return None

    def clear_messages(self) -> None:
        """Remove all messages of the conversation."""
        with self._turn:
            self._enter()
            found = [key for key, message in self._messages() if self._is_own(message)]
            if found:
                self._record("message.removed", delete=[(MESSAGES, key) for key in found])

    @property
    def messages(self) -> list[Any]:
        """The conversation, in order."""
        return [message for _, message in self._messages() if self._is_own(message)]

    def _messages(self) -> list[tuple[str, Any]]:
        with self._turn:
            keys = self._store.keys(MESSAGES)
            found = self._store.get_many([(MESSAGES, key) for key in keys])
        return list(zip(keys, found, strict=True))

    # -------------------------------------------------------------------------------- values

    def set(self, key: str, value: Any) -> None:
        """Keep a value. One that is equal to what is there is not a change."""
        _, key = copy_pair((self._space, key))
        kept = copy_value(value, f"$.state.{key}")
        with self._turn:
            self._enter()
            if self._store.contains(self._space, key):
                there = self._store.get(self._space, key)
                if is_same_value(encode(there), encode(kept)):
                    return
            changes: Changes = {"set": [(self._space, key, kept)], "delete": []}
            self._working.record_owned("state.set", None, changes)

    def get(self, key: str, default: Any = None) -> Any:
        """A copy of a value, or ``default``."""
        return self._store.get(self._space, key, default)

    def delete(self, key: str) -> bool:
        """Remove a value; whether there was one."""
        with self._turn:
            self._enter()
            if not self._store.contains(self._space, key):
                return False
            self._record("state.deleted", delete=[(self._space, key)])
            return True

    @property
    def state(self) -> dict[str, Any]:
        """All values, by key."""
        with self._turn:
            keys = self._store.keys(self._space)
            values = self._store.get_many([(self._space, key) for key in keys])
        return dict(zip(keys, values, strict=True))

    # -------------------------------------------------------------------------------- events

    def record(self, type: str, data: Any = None, *, changes: Changes | None = None) -> None:  # noqa: A002
        """Record that something happened, and what it changed, if anything.

        ``changes`` are like those of `Snapshot.changes`: what to set and what to delete, in any
        namespace.
        """
        if data is None or isinstance(data, dict):
            data = self._signed(data or {}) or data
        with self._turn:
            self._enter()
            self._working.record(type, data, changes)

    @property
    def _store(self) -> Store:
        return self._working.store

    def _record(
        self,
        type_: str,
        data: Any = None,
        *,
        set_: list[tuple[str, str, Any]] | None = None,
        delete: list[tuple[str, str]] | None = None,
    ) -> None:
        self._working.record(type_, data, {"set": set_ or [], "delete": delete or []})
