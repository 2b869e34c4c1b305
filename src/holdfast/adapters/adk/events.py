"""Events of ADK as messages, and the position of a session in its conversation.

An event is stored in ADK's JSON, with the names that its REST API has (``functionCall``). It is
never rewritten, so fields that this version of ADK does not know stay stored.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from google.adk.events import Event
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from holdfast.errors import IntegrityError, UnsupportedValueError, short_repr
from holdfast.log.encoded_event import encode_at
from holdfast.sessions.run_status import COMPLETED, FAILED, RUNNING, WAITING
from holdfast.sessions.session import Session
from holdfast.snapshots.session_state import MESSAGES, message_key
from holdfast.state.snapshot import Snapshot

USER = "user"


# ------------------------------------------------------------------------------------------ codec


def encode_event(event: Event) -> dict[str, Any]:
    """Return an event in ADK's JSON, in which numbers may be infinite or NaN.

    Raises:
        UnsupportedValueError: It holds a value that JSON cannot express.

    """
    try:
        found: dict[str, Any] = event.model_dump(mode="json", by_alias=True, exclude_none=True)
        if has_null(found):
            found = restore_numbers(found, event.model_dump(by_alias=True, exclude_none=True))
    except (PydanticSerializationError, ValueError, TypeError) as error:
        raise UnsupportedValueError(
            f"event {event.id} cannot be stored: {error}; use values that JSON can express"
        ) from error
    return found


def has_null(tree: Any) -> bool:
    """Tell whether a value of nested dicts and lists is None."""
    if isinstance(tree, dict | list):
        return any(map(has_null, tree.values() if isinstance(tree, dict) else tree))
    return tree is None


def restore_numbers(tree: Any, source: Any) -> Any:
    """Return a tree with the infinite numbers and NaN of its source, which ADK dumps as null."""
    if isinstance(tree, dict) and isinstance(source, dict):
        pairs = zip(tree.items(), source.values(), strict=True)
        return {key: restore_numbers(value, exact) for (key, value), exact in pairs}
    if isinstance(tree, list) and isinstance(source, list | tuple | set | frozenset):
        return [restore_numbers(*pair) for pair in zip(tree, source, strict=True)]
    return source if tree is None and isinstance(source, float) else tree


def decode_event(key: str, message: object) -> Event:
    """Return the event of a message, without the fields that this version of ADK does not know.

    Raises:
        IntegrityError: The message is not an event.

    """
    try:
        return Event.model_validate(message)
    except ValidationError as error:
        problem = error
    unknown = [each["loc"] for each in problem.errors() if each["type"] == "extra_forbidden"]
    if len(unknown) == problem.error_count():
        known = copy.deepcopy(message)
        for path in unknown:
            remove_path(known, path)
        try:
            return Event.model_validate(known)
        except ValidationError as error:
            problem = error
    raise IntegrityError(
        f"message {key} is not an event of ADK: {first_line(problem)}; restore the session to an "
        "earlier snapshot, or remove the message with holdfast.Session"
    ) from problem


def remove_path(tree: Any, path: tuple[int | str, ...]) -> None:
    """Remove a field from nested dicts and lists; a path that is not there is ignored."""
    for step in path[:-1]:
        try:
            tree = tree[step]
        except (KeyError, IndexError, TypeError):
            return
    if isinstance(tree, dict):
        tree.pop(path[-1], None)


def first_line(error: ValidationError) -> str:
    """Return the first problem that a validation found."""
    found = error.errors(include_url=False)[0]
    where = ".".join(map(str, found["loc"])) or "value"
    return f"{where}: {found['msg']}, got {short_repr(found['input'])}"


def storable_value(value: Any, path: str) -> Any:
    """Return a value of the state as it is, or else as JSON, as for an instance of a model.

    Raises:
        UnsupportedValueError: Neither can be stored.

    """
    try:
        encode_at(value, path)
    except UnsupportedValueError as error:
        try:
            return to_jsonable_python(value)
        except (PydanticSerializationError, ValueError, TypeError):
            raise error from None
    return value


# --------------------------------------------------------------------------------------- position


@dataclass(frozen=True, slots=True)
class ConversationPosition:
    """The end of a conversation: how many events it has had, and the id of the last."""

    incarnation: str
    number: int
    """The number of the next event."""
    last_id: str

    def to_marker(self) -> str:
        """Return the text that a session object carries."""
        return f"{self.incarnation}/{self.number}/{self.last_id}"


def read_position(session: Session) -> ConversationPosition:
    """Return the end of a session's conversation."""
    number = session.committer.working.next_message
    last = session.snapshot().get(MESSAGES, message_key(number - 1)) if number else None
    return ConversationPosition(session.committer.incarnation.id, number, event_id(last))


def event_id(message: object) -> str:
    """Return the id of a stored event; an empty one if it has none."""
    found = message.get("id") if isinstance(message, dict) else None
    return found if isinstance(found, str) else ""


def event_timestamp(message: object) -> float | None:
    """Return the time of a stored event, or None."""
    found = message.get("timestamp") if isinstance(message, dict) else None
    return float(found) if isinstance(found, int | float) else None


def iterate_backwards(state: Snapshot, count: int) -> Iterator[tuple[str, Any]]:
    """Yield the messages of a conversation from the last to the first.

    Only those that are asked for are decoded. ``count`` is the number of the next message.
    """
    left = state.count(MESSAGES)
    for number in range(count - 1, -1, -1):
        if not left:
            return
        key = message_key(number)
        if state.contains(MESSAGES, key):
            left -= 1
            yield key, state.get(MESSAGES, key)


# ----------------------------------------------------------------------------------------- status


def infer_event_status(event: Event) -> str | None:
    """Return the status of a session after an event, or None if the event does not show it."""
    if event.error_code:
        return FAILED
    if not event.content or not event.content.parts:
        return None
    if event.author == USER:
        return RUNNING
    if event.long_running_tool_ids:
        return WAITING
    return COMPLETED if event.is_final_response() else RUNNING
