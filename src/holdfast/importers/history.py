"""Turn a sequence of states into the log of a session.

Other tools store whole states, one after the other. Each becomes an event with the changes that
lead to it, so that the imported session can be replayed, compared and restored like any other.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from holdfast.documents.document import Document
from holdfast.documents.document import link_document as link_state
from holdfast.errors import InvalidDocumentError, UnsupportedValueError
from holdfast.ids import new_id
from holdfast.importers.source import DEFAULT_AGENT_ID, Source
from holdfast.log.event import EventDraft
from holdfast.snapshots.keys import AGENT, validate_id
from holdfast.snapshots.session_state import (
    MESSAGES,
    PENDING,
    SESSION,
    STATUS,
    message_key,
    message_number,
)
from holdfast.state.diff import Changes
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store
from holdfast.values import encode

SESSION_STARTED = "session.started"
SNAPSHOT_IMPORTED = "snapshot.imported"


def choose_ids(source: Source, agent_id: str | None, session_id: str) -> tuple[str, str]:
    """Return the agent and session ids of a document: the requested ones, or those given here.

    Raises:
        InvalidDocumentError: An id is not valid.

    """
    ids = {
        "agent": source.agent_id if source.agent_id is not None else agent_id or DEFAULT_AGENT_ID,
        "session": source.session_id if source.session_id is not None else session_id,
    }
    for name, value in ids.items():
        try:
            validate_id(value, f"{name} id")
        except ValueError as error:
            raise InvalidDocumentError(f"{error}; choose another with --{name}") from error
    return ids["agent"], ids["session"]


class History:
    """Builds a document of messages or states, from the oldest to the newest."""

    def __init__(
        self, agent_id: str, session_id: str, began: dt.datetime, *, scope: str = AGENT
    ) -> None:
        self._agent_id = agent_id
        self._session_id = session_id
        self._scope = scope
        self._appended = 0
        self._store = Store(max_history=0)
        self._drafts: list[EventDraft] = []
        self._ids: dict[str, object] = {}
        """The ids of the current messages, by key."""
        names = {"agent_id": agent_id, "session_id": session_id}
        self.add(SESSION_STARTED, began, names, {SESSION: {STATUS: PENDING}}, "the session")

    def add(
        self,
        type_: str,
        at: dt.datetime,
        data: Any,
        spaces: Mapping[str, Mapping[str, Any]],
        where: str,
    ) -> None:
        """Append an event that makes the given namespaces hold exactly these values.

        Other namespaces do not change. ``where`` names the part of the source in errors.

        Raises:
            InvalidDocumentError: A value cannot be stored.

        """
        before = self._store.snapshot()
        for space, values in spaces.items():
            for key in self._store.keys(space):
                if key not in values:
                    self._store.delete(space, key)
            with name_unsupported(where):
                self._store.set_many([(space, key, value) for key, value in values.items()])
        with name_unsupported(f"the data of {where}"):
            encode(data)
        changes = self._store.snapshot().changes(before)
        self._drafts.append(EventDraft(new_id(), type_, at, data, changes))

    def key_messages(self, messages: Sequence[Any]) -> dict[str, Any]:
        """Return messages by the keys to store them under.

        If all messages have ids, those that were there before keep their keys, so that the changes
        show which were removed. Otherwise keys are the numbers of the messages.
        """
        keys = match_keys(self._ids, messages) or [message_key(n) for n in range(len(messages))]
        self._ids = {key: message_id(message) for key, message in zip(keys, messages, strict=True)}
        return dict(zip(keys, messages, strict=True))

    def append(self, message: Any, at: dt.datetime, where: str) -> None:
        """Append a message, as a ``message.appended`` event.

        Raises:
            InvalidDocumentError: The message cannot be stored.

        """
        key = message_key(self._appended)
        self._appended += 1
        with name_unsupported(where):
            self._store.set(MESSAGES, key, message)
        changes: Changes = {"set": [(MESSAGES, key, message)], "delete": []}
        self._drafts.append(EventDraft(new_id(), "message.appended", at, None, changes))

    def record(
        self,
        type_: str,
        at: dt.datetime,
        data: Any,
        where: str,
        *,
        set_: Sequence[tuple[str, str, Any]] = (),
        delete: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Append an event with its changes, each a namespace, a key and, to set, a value.

        Costs what changes, while `add` costs what the namespaces hold.

        Raises:
            InvalidDocumentError: A value cannot be stored.

        """
        with name_unsupported(where):
            if set_:
                self._store.set_many(set_)
            encode(data)
        for space, key in delete:
            self._store.delete(space, key)
        changes: Changes = {
            "set": sorted(set_, key=lambda each: each[:2]),
            "delete": sorted(delete),
        }
        self._drafts.append(EventDraft(new_id(), type_, at, data, changes))

    def document(self, format_: str) -> Document:
        """Return the document, tagged with the format it was read from."""
        return link_document(
            self._agent_id,
            self._session_id,
            self._store.snapshot(),
            self._drafts,
            format_,
            scope=self._scope,
        )


def link_document(
    agent_id: str,
    session_id: str,
    state: Snapshot,
    drafts: Sequence[EventDraft],
    format_: str,
    *,
    scope: str = AGENT,
) -> Document:
    """Return the document of a state and the events that lead to it."""
    return link_state(
        state,
        drafts,
        agent_id=agent_id,
        session_id=session_id,
        scope=scope,
        created_at=drafts[-1].at,
        tags={"format": format_},
    )


@contextmanager
def name_unsupported(where: str) -> Iterator[None]:
    """Add to the error for an unsupported value where it was."""
    try:
        yield
    except (UnsupportedValueError, RecursionError) as error:
        raise InvalidDocumentError(f"{where} cannot be stored: {error!s:.400}") from error


def message_id(message: Any) -> str | None:
    """Return the id of a message, if it has one."""
    if not isinstance(message, dict):
        return None
    found = message.get("id", message.get("tracking_id"))
    return found if isinstance(found, str) else None


def match_keys(known: Mapping[str, object], messages: Sequence[Any]) -> list[str] | None:
    """Return keys for messages of which some are known, or None to number them."""
    ids = [message_id(message) for message in messages]
    if None in ids or len(set(ids)) != len(ids):
        return None
    keys = list(known)
    positions = {each: number for number, each in enumerate(known.values())}
    kept = [positions[each] for each in ids if each in positions]
    if kept != sorted(kept) or any(each in positions for each in ids[len(kept) :]):
        return None  # inserted between others, or reordered
    last = message_number(keys[-1]) if keys else None
    next_number = 0 if last is None else last + 1
    new = [message_key(next_number + number) for number in range(len(ids) - len(kept))]
    return [keys[number] for number in kept] + new


def parse_time(text: object, where: str) -> dt.datetime:
    """Return an ISO 8601 time in UTC; one without a time zone is taken as UTC.

    Raises:
        InvalidDocumentError: It is not an ISO 8601 time.

    """
    try:
        time = dt.datetime.fromisoformat(text)  # type: ignore[arg-type]
        return (time if time.tzinfo else time.replace(tzinfo=dt.UTC)).astimezone(dt.UTC)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidDocumentError(f"{where} has an invalid time: {error!s:.200}") from error
