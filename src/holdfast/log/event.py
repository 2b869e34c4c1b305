"""One recorded step, and its JSON form.

An event holds what happened (``type``, ``data``), what it changed in the state (``changes``), and
its position in the log (``seq``, ``prev``, ``hash``). JSON values are encoded as in
docs/spec/values.md.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from holdfast.errors import InvalidDocumentError, UnsupportedValueError, short_repr
from holdfast.ids import new_id
from holdfast.log.changes import changes_from_json, changes_to_json, expect_str
from holdfast.state.diff import Changes, Pair
from holdfast.values import from_json, to_json
from holdfast.values.references import BlobReference, find_references, restore_value

DEFAULT_TYPE = "message.appended"
"""The type that segments omit: most events have it."""
EVENT_FIELDS = frozenset(
    ("seq", "id", "type", "at", "data", "changes", "set", "delete", "prev", "hash")
)


@dataclass(frozen=True, slots=True)
class EventDraft:
    """An event without a position in the log."""

    id: str
    type: str
    at: dt.datetime
    data: Any
    changes: Changes
    extra: dict[str, Any] = field(default_factory=dict)
    """Fields unknown to this version, as JSON data. The hash does not cover them."""


@dataclass(frozen=True, slots=True)
class Event:
    """One recorded step of a session.

    ``seq`` starts at 1. ``changes`` lists what the event set and deleted. ``hash`` covers the
    content and ``prev``, the hash of the previous event, and so all events before it.
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
    """Return a new event with a new id and the current time."""
    changes = changes or {"set": set_ or [], "delete": delete or []}
    return EventDraft(new_id(), type_, dt.datetime.now(dt.UTC), data, changes)


def replace_values(event: Event, data: Any, changes: Changes) -> Event:
    """Return an event with other data and changes at the same position."""
    return Event(
        event.seq,
        event.id,
        event.type,
        event.at,
        data,
        changes,
        event.prev,
        event.hash,
        event.extra,
    )


def find_event_references(event: Event) -> set[BlobReference]:
    """Return the large values of an event that are references."""
    found = find_references(event.data)
    for _, _, value in event.changes["set"]:
        found |= find_references(value)
    return found


def restore_event(event: Event, contents: Mapping[str, bytes]) -> Event:
    """Return an event with the contents of blobs in place of the references."""
    if not find_event_references(event):
        return event
    sets = [
        (space, key, restore_value(value, contents)) for space, key, value in event.changes["set"]
    ]
    changes: Changes = {"set": sets, "delete": event.changes["delete"]}
    return replace_values(event, restore_value(event.data, contents), changes)


def format_time(moment: dt.datetime) -> str:
    """Format a time as stored: UTC with six fractional digits."""
    if moment.tzinfo is not dt.UTC:
        moment = moment.astimezone(dt.UTC)
    if moment.microsecond:
        # Ten times faster than isoformat, but omits the fraction of whole seconds.
        return str(msgspec.to_builtins(moment))
    return moment.isoformat(timespec="microseconds")[:-6] + "Z"


def parse_time(text: object) -> dt.datetime:
    """Parse an ISO 8601 time with a zone, and return it in UTC.

    Raises:
        InvalidDocumentError: It is not such a time.

    """
    try:
        moment = dt.datetime.fromisoformat(cast("str", text))
    except (TypeError, ValueError) as error:
        raise InvalidDocumentError(
            f"invalid time {short_repr(text)}: must have the form 2026-11-15T09:30:00.000000Z"
        ) from error
    if moment.tzinfo is dt.UTC:
        return moment
    if moment.tzinfo is None:
        raise InvalidDocumentError(f"time {short_repr(text)} has no zone; append Z for UTC")
    try:
        return moment.astimezone(dt.UTC)
    except OverflowError:
        raise InvalidDocumentError(f"time {short_repr(text)} is out of range") from None


def event_to_json(event: EventDraft | Event) -> dict[str, Any]:
    """Return the content of an event as JSON data, without seq and hashes."""
    return {
        "id": event.id,
        "type": event.type,
        "at": format_time(event.at),
        "data": to_json(event.data),
        "changes": changes_to_json(event.changes),
        **event.extra,
    }


def event_to_compact_json(event: EventDraft | Event) -> dict[str, Any]:
    """Return the content of an event as segments store it.

    Empty fields and the default type are omitted; ``set`` and ``delete`` are fields of the event.
    """
    tree: dict[str, Any] = {"id": event.id}
    if event.type != DEFAULT_TYPE:
        tree["type"] = event.type
    tree["at"] = format_time(event.at)
    changes = changes_to_json(event.changes)
    if event.data is not None:
        tree["data"] = to_json(event.data)
    if changes["set"]:
        tree["set"] = changes["set"]
    if changes["delete"]:
        tree["delete"] = changes["delete"]
    tree.update(event.extra)
    return tree


class StoredEvent(
    msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False
):
    """An event as segments store it, without unknown fields; its values are JSON data."""

    id: str
    type: str = DEFAULT_TYPE
    at: str
    data: Any = None
    set: list[tuple[str, str, Any]] = []
    delete: list[tuple[str, str]] = []


class CanonicalChanges(msgspec.Struct, gc=False):
    """Changes as they are hashed, if all values are plain."""

    delete: list[Pair]
    set: list[tuple[str, str, Any]]


class CanonicalEvent(msgspec.Struct, gc=False):
    """The fields of an event that are hashed, in canonical order."""

    at: str
    changes: CanonicalChanges
    data: Any
    id: str
    seq: int
    type: str


class StoredChanges(msgspec.Struct, gc=False):
    """The changes in a stored event or keyframe; other fields are skipped."""

    set: list[tuple[str, str, Any]] = []
    delete: list[tuple[str, str]] = []


def draft_from_json(tree: object) -> EventDraft:
    """Decode an event from JSON data, in either form; seq and hashes are ignored.

    Raises:
        InvalidDocumentError: A field is missing or malformed.
        UnsupportedValueError: A value has a registered type that is not registered here.

    """
    if not isinstance(tree, dict):
        raise InvalidDocumentError(f"event must be a JSON object, got {short_repr(tree)}")
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
        raise InvalidDocumentError(f"event has no {error}: {short_repr(tree)}") from error
    except (AttributeError, TypeError, ValueError) as error:
        if isinstance(error, InvalidDocumentError | UnsupportedValueError):
            raise
        raise InvalidDocumentError(f"malformed event: {short_repr(tree)}") from error
