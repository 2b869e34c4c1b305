"""One recorded step, and its JSON form.

An event has what happened (``type``, ``data``), what it did to the state (``changes``), and its
place in the chain (``seq``, ``prev``, ``hash``). In JSON, values have the form of
docs/spec/values.md.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from holdfast.errors import InvalidDocumentError, UnsupportedValueError, short_repr
from holdfast.ids import new_id
from holdfast.log.changes import changes_from_json, changes_to_json, expect_str
from holdfast.state.diff import Changes
from holdfast.values import from_json, to_json

EVENT_FIELDS = frozenset(
    ("seq", "id", "type", "at", "data", "changes", "set", "delete", "prev", "hash")
)


@dataclass(frozen=True, slots=True)
class EventDraft:
    """An event that has no place in the log yet."""

    id: str
    type: str
    at: dt.datetime
    data: Any
    changes: Changes
    extra: dict[str, Any] = field(default_factory=dict)
    """Fields that this version does not know, as JSON data. No hash covers them."""


@dataclass(frozen=True, slots=True)
class Event:
    """One recorded step of a session.

    ``seq`` counts from 1. ``changes`` says what it set and deleted. ``hash`` binds its content to
    ``prev``, the hash of the event before it, and so to all of them.
    """

    seq: int
    id: str
    type: str
    at: dt.datetime
    data: Any
    changes: Changes
    prev: str
    hash: str
    extra: dict[str, Any] = field(default_factory=dict)


def draft_event(
    type_: str,
    data: Any = None,
    *,
    set_: list[tuple[str, str, Any]] | None = None,
    delete: list[tuple[str, str]] | None = None,
    changes: Changes | None = None,
) -> EventDraft:
    """A new event that happened now."""
    changes = changes or {"set": set_ or [], "delete": delete or []}
    return EventDraft(new_id(), type_, dt.datetime.now(dt.UTC), data, changes)


def format_time(moment: dt.datetime) -> str:
    """A time as the log writes it: UTC, to the microsecond, always of one length."""
    if moment.tzinfo is not dt.UTC:
        moment = moment.astimezone(dt.UTC)
    if moment.microsecond:
        # The same text in a tenth of the time; a second without a fraction it writes shorter.
        return str(msgspec.to_builtins(moment))
    return moment.isoformat(timespec="microseconds")[:-6] + "Z"


def parse_time(text: object) -> dt.datetime:
    """The time that a text stands for."""
    try:
        moment = dt.datetime.fromisoformat(cast("str", text))
    except (TypeError, ValueError) as error:
        raise InvalidDocumentError(
            f"{short_repr(text)} is no time as in 2026-11-15T09:30:00.000000Z"
        ) from error
    if moment.tzinfo is dt.UTC:
        return moment
    if moment.tzinfo is None:
        raise InvalidDocumentError(f"the time {short_repr(text)} has no zone: end it with Z")
    try:
        return moment.astimezone(dt.UTC)
    except OverflowError:
        raise InvalidDocumentError(f"the time {short_repr(text)} is out of range") from None


def event_to_json(event: EventDraft | Event) -> dict[str, Any]:
    """What an event says, without its place in the log, as JSON data."""
    return {
        "id": event.id,
        "type": event.type,
        "at": format_time(event.at),
        "data": to_json(event.data),
        "changes": changes_to_json(event.changes),
        **event.extra,
    }


def event_to_compact_json(event: EventDraft | Event) -> dict[str, Any]:
    """The same as a segment has it: without what is empty, and the changes one level up."""
    tree: dict[str, Any] = {"id": event.id, "type": event.type, "at": format_time(event.at)}
    if event.data is not None:
        tree["data"] = to_json(event.data)
    changes = changes_to_json(event.changes)
    if changes["set"]:
        tree["set"] = changes["set"]
    if changes["delete"]:
        tree["delete"] = changes["delete"]
    tree.update(event.extra)
    return tree


class StoredChanges(msgspec.Struct):
    """Changes as they are written, and nothing else of what stands around them."""

    set: list[tuple[str, str, Any]] = []
    delete: list[tuple[str, str]] = []


def draft_from_json(tree: object) -> EventDraft:
    """What JSON data says that an event was."""
    if not isinstance(tree, dict):
        raise InvalidDocumentError(f"an event is a JSON object, not {short_repr(tree)}")
    try:
        return EventDraft(
            expect_str(tree["id"]),
            expect_str(tree["type"]),
            parse_time(tree["at"]),
            from_json(tree.get("data")),
            changes_from_json(tree.get("changes", tree)),
            {}
            if tree.keys() <= EVENT_FIELDS
            else {name: value for name, value in tree.items() if name not in EVENT_FIELDS},
        )
    except KeyError as error:
        raise InvalidDocumentError(f"an event lacks {error}: {short_repr(tree)}") from error
    except (AttributeError, TypeError, ValueError) as error:
        if isinstance(error, InvalidDocumentError | UnsupportedValueError):
            raise
        raise InvalidDocumentError(
            f"an event is not as it should be: {short_repr(tree)}"
        ) from error
