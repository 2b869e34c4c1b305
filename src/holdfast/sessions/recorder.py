"""Record messages, values and events. Everything here happens in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from holdfast.errors import short_repr
from holdfast.log.encoded_event import new_event
from holdfast.sessions.working_state import WorkingState, validate_entry_name
from holdfast.snapshots.session_state import MESSAGES
from holdfast.state.diff import Changes
from holdfast.state.store import Store, has_entries
from holdfast.values.references import keep_references


class Recorder(ABC):
    """Records what one agent does. Arguments and results are copied."""

    _namespace: str
    """The namespace of the agent's values."""

    _guard: AbstractContextManager[object] = nullcontext()
    """Held while the state is read or changed, if threads share it."""

    @property
    @abstractmethod
    def _working(self) -> WorkingState:
        """The state that events are recorded in."""

    def _join(self) -> None:
        """Record that the agent joined, if it has not. Called with the guard held."""
        return

    def _sign(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return a message or the data of an event with the id of its agent, if it has one."""
        return fields

    def _is_own(self, message: Any) -> bool:  # noqa: ARG002 - for one of several agents
        """Return whether a message belongs to this agent."""
        return True

    # ------------------------------------------------------------------------------ messages

    def add_message(self, role: str, content: Any, **fields: Any) -> None:
        """Append a message to the conversation.

        ``content`` is a text or a list of parts, as in the API of the model. ``fields`` are stored
        with it.

        Raises:
            UnsupportedValueError: A field holds a value that cannot be stored.

        """
        if not isinstance(role, str):
            raise TypeError(f'message role must be a str such as "user", got {short_repr(role)}')
        self.append_message({"role": role, "content": content, **fields})

    def append_message(self, message: dict[str, Any]) -> None:
        """Append a message to the conversation as it is.

        Raises:
            UnsupportedValueError: The message holds a value that cannot be stored.

        """
        if not isinstance(message, dict):
            raise TypeError(f"message must be a dict, got {short_repr(message)}")
        with self._guard:
            self._join()
            self._working.append_message(self._sign(message))

    def pop_message(self) -> dict[str, Any] | None:
        """Remove the last message of the conversation and return it, or None if it is empty."""
        with self._guard:
            self._join()
            for key in reversed(self._store.keys(MESSAGES)):
                message: dict[str, Any] = self._store.get(MESSAGES, key)
                if self._is_own(message):
                    self._record("message.removed", delete=[(MESSAGES, key)])
                    return message
            return None

    def clear_messages(self) -> None:
        """Remove all messages of the conversation."""
        with self._guard:
            self._join()
            with keep_references():
                found = [key for key, message in self._messages() if self._is_own(message)]
            if found:
                self._record("message.removed", delete=[(MESSAGES, key) for key in found])

    @property
    def messages(self) -> list[Any]:
        """The messages of the conversation, in order.

        Raises:
            NotFoundError: The content of a large value is missing; see `keep_references`.
            IntegrityError: The content of a large value is damaged.

        """
        return [message for _, message in self._messages() if self._is_own(message)]

    def _messages(self) -> list[tuple[str, Any]]:
        with self._guard:
            keys = self._store.keys(MESSAGES)
            found = self._store.get_many([(MESSAGES, key) for key in keys])
        return list(zip(keys, found, strict=True))

    # -------------------------------------------------------------------------------- values

    def set(self, key: str, value: Any) -> None:
        """Set a value. Setting an equal value records nothing.

        Raises:
            UnsupportedValueError: The value cannot be stored.

        """
        _, key = validate_entry_name((self._namespace, key))
        changes: Changes = {"set": [(self._namespace, key, value)], "delete": []}
        with self._guard:
            self._join()
            event = new_event("state.set", None, changes, path=f"$.state.{key}")
            if not has_entries(self._store, event.batch):
                self._working.add(event)

    def get(self, key: str, default: Any = None) -> Any:
        """Return a copy of a value, or ``default``."""
        return self._store.get(self._namespace, key, default)

    def delete(self, key: str) -> bool:
        """Delete a value; return whether it existed."""
        with self._guard:
            self._join()
            if not self._store.contains(self._namespace, key):
                return False
            self._record("state.deleted", delete=[(self._namespace, key)])
            return True

    @property
    def state(self) -> dict[str, Any]:
        """All values by key."""
        with self._guard:
            keys = self._store.keys(self._namespace)
            values = self._store.get_many([(self._namespace, key) for key in keys])
        return dict(zip(keys, values, strict=True))

    # -------------------------------------------------------------------------------- events

    def record(self, type: str, data: Any = None, *, changes: Changes | None = None) -> None:  # noqa: A002
        """Record an event, and the changes that it makes to the state.

        ``changes`` has the form of `Snapshot.changes`: entries to set and to delete, in any
        namespace.

        Raises:
            UnsupportedValueError: The data or a value cannot be stored.

        """
        if data is None or isinstance(data, dict):
            data = self._sign(data or {}) or data
        with self._guard:
            self._join()
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
