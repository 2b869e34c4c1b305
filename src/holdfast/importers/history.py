"""What somebody else kept, as the log of a session.

Others keep whole states, one after the other. Each becomes an event with what it changed, so that
the session has the same history: it can be replayed, compared and gone back in like any other.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from holdfast.documents.document import Document
from holdfast.errors import InvalidDocumentError, UnsupportedValueError
from holdfast.ids import new_id
from holdfast.importers.source import DEFAULT_AGENT_ID, Source
from holdfast.log.event import EventDraft
from holdfast.log.hash_chain import link_events
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
from holdfast.state.store import Store
from holdfast.values import encode

SESSION_STARTED = "session.started"
CHECKPOINT_IMPORTED = "checkpoint.imported"
SNAPSHOT_IMPORTED = "snapshot.imported"


def choose_ids(source: Source, agent_id: str | None, session_id: str) -> tuple[str, str]:
    """The agent and the session of a document: what was asked for, or what the source says."""
    found = {
        "agent": source.agent_id if source.agent_id is not None else agent_id or DEFAULT_AGENT_ID,
        "session": source.session_id if source.session_id is not None else session_id,
    }
    for what, text in found.items():
        try:
            validate_id(text, f"the name of the {what}")
        except ValueError as error:
            raise InvalidDocumentError(f"{error}. Give another with --{what}") from error
    return found["agent"], found["session"]


class History:
    """Builds a document of states, from the oldest to the newest.

    With ``shares``, a value that is given again as the very same object is taken to be unchanged,
    and not looked at.
    """

    def __init__(
        self,
        agent_id: str,
        session_id: str,
        began: dt.datetime,
        *,
        scope: str = AGENT,
        shares: bool = False,
    ) -> None:
        self._agent_id = agent_id
        self._session_id = session_id
        self._scope = scope
        self._appended = 0
        self._store = Store(max_history=0)
        self._drafts: list[EventDraft] = []
        self._shares = shares
        self._last: dict[str, Mapping[str, Any]] = {}
        self._ids: dict[str, dict[str, object]] = {}
        """The ids of the messages in a namespace, by key."""
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
        """An event after which these namespaces are just so; others stay as they are.

        ``where`` says in an error which part of the source it was.
        """
        before = self._store.snapshot()
        for space, values in spaces.items():
            for key in self._store.keys(space):
                if key not in values:
                    self._store.delete(space, key)
            last = self._last.get(space, {})
            new = [(space, key, v) for key, v in values.items() if last.get(key, self) is not v]
            with name_unsupported(where):
                self._store.set_many(new)
            if self._shares:
                self._last[space] = values
        with name_unsupported(f"what is known of {where}"):
            encode(data)
        changes = self._store.snapshot().changes(before)
        self._drafts.append(EventDraft(new_id(), type_, at, data, changes))

    def key_messages(self, messages: Sequence[Any], space: str = MESSAGES) -> dict[str, Any]:
        """Messages by the keys that they are kept under.

        Where each has an id, one that was there before keeps its key, so that it is seen which were
        removed. Without ids they are counted.
        """
        there = self._ids.get(space, {})
        keys = match_keys(there, messages) or [message_key(n) for n in range(len(messages))]
        self._ids[space] = {
            key: message_id(message) for key, message in zip(keys, messages, strict=True)
        }
        return dict(zip(keys, messages, strict=True))

    def append(self, message: Any, at: dt.datetime, where: str) -> None:
        """One message after the others."""
        key = message_key(self._appended)
        self._appended += 1
        with name_unsupported(where):
            self._store.set(MESSAGES, key, message)
        changes: Changes = {"set": [(MESSAGES, key, message)], "delete": []}
        self._drafts.append(EventDraft(new_id(), "message.appended", at, None, changes))

    def document(self, format_: str) -> Document:
        """All of it, as a document that can be imported."""
        events = link_events(self._drafts, 0, "")
        return Document(
            snapshot=self._store.snapshot(),
            agent_id=self._agent_id,
            session_id=self._session_id,
            scope=self._scope,
            created_at=events[-1].at,
            tags={"format": format_},
            event_log_count=len(events),
            events=tuple(events),
        )


@contextmanager
def name_unsupported(where: str) -> Iterator[None]:
    """Say of a value that no session can keep where it was."""
    try:
        yield
    except (UnsupportedValueError, RecursionError) as error:
        raise InvalidDocumentError(f"{where} cannot be kept: {error!s:.400}") from error


def message_id(message: Any) -> object:
    """What tells a message from all others, where it says that itself."""
    if not isinstance(message, dict):
        return None
    found = message.get("id", message.get("tracking_id"))
    return found if isinstance(found, str) else None


def match_keys(there: Mapping[str, object], messages: Sequence[Any]) -> list[str] | None:
    """The keys of messages of which some were there before; None where they must be counted."""
    ids = [message_id(message) for message in messages]
    if None in ids or len(set(ids)) != len(ids):
        return None
    keys = list(there)
    places = {each: number for number, each in enumerate(there.values())}
    known = [places[each] for each in ids if each in places]
    if known != sorted(known) or any(each in places for each in ids[len(known) :]):
        return None  # put in between, or in another order
    last = message_number(keys[-1]) if keys else None
    following = 0 if last is None else last + 1
    new = [message_key(following + number) for number in range(len(ids) - len(known))]
    return [keys[number] for number in known] + new


def parse_time(text: object, where: str) -> dt.datetime:
    """A time that somebody else wrote; one without a zone is in UTC."""
    try:
        moment = dt.datetime.fromisoformat(text)  # type: ignore[arg-type]
        return (moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).astimezone(dt.UTC)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidDocumentError(
            f"{where} has no time that can be read: {error!s:.200}"
        ) from error
