"""Reading a document: everything is checked, and a refusal says what is wrong, and where.

Digest and chain are computed and compared with what the document says they are, and its events are
folded and compared with its state.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

from holdfast.documents.encode import BASE, DIGEST, SIGNATURES
from holdfast.documents.migrations import migrate_schema
from holdfast.documents.validate import validate_digest, validate_fold
from holdfast.errors import (
    HoldfastError,
    InvalidDocumentError,
    UnsupportedValueError,
    short_repr,
)
from holdfast.log.changes import changes_from_json
from holdfast.log.event import Event, draft_from_json, parse_time
from holdfast.log.hash_chain import GENESIS, link_event
from holdfast.snapshots.keys import SCOPES, validate_id, validate_snapshot_id
from holdfast.snapshots.records import validate_tags
from holdfast.snapshots.session_state import (
    MESSAGES,
    PENDING,
    SESSION,
    SESSION_NAMESPACES,
    STATE,
    STATUS,
    message_key,
)
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store
from holdfast.values import MAX_DEPTH, from_json

FIELDS = (
    "schema_version",
    "snapshot_id",
    "parent_id",
    "agent_id",
    "session_id",
    "scope",
    "created_at",
    "exported_at",
    "source_environment",
    "tags",
    "state",
    "event_log_count",
    "events",
    DIGEST,
    BASE,
)
STATE_FIELDS = ("status", "messages", "message_keys", "values", "session", "namespaces")
REQUIRED = ("schema_version", "agent_id", "session_id", "state")
MALFORMED_DATA = (
    ArithmeticError,
    AttributeError,
    HoldfastError,
    LookupError,
    TypeError,
    ValueError,
)


@contextmanager
def describe_errors_in(where: str) -> Iterator[None]:
    """Say of whatever is wrong inside where that is."""
    try:
        yield
    except UnsupportedValueError as error:
        if "registered" in str(error):
            raise  # nothing is wrong with the document: this program lacks a type
        raise invalid_part_error(where, error) from error
    except MALFORMED_DATA as error:
        raise invalid_part_error(where, error) from error


def invalid_part_error(where: str, error: Exception) -> InvalidDocumentError:
    """The error for a part that is wrong."""
    # A name may be as long as the document, and what is wrong may repeat all of it.
    return InvalidDocumentError(
        f"the document's {where:.200} is not as it should be: {error!s:.400}"
    )


def decode_fields(
    tree: object, *, allow_modified: bool = False
) -> tuple[dict[str, Any], Snapshot | None, dict[str, Any]]:
    """Fields of a snapshot, the state before its events, and what is not known, of a document."""
    if not isinstance(tree, dict):
        raise InvalidDocumentError(f"a document is a JSON object, not {short_repr(tree)}")
    version = tree.get("schema_version")
    given, tree = tree, migrate_schema(tree)
    if tree["schema_version"] != version:
        tree.pop(SIGNATURES, None)  # they are of the document as it was
    missing = [name for name in REQUIRED if name not in tree]
    if missing:
        raise InvalidDocumentError(
            f"this is no document of a session: it lacks {', '.join(missing)}"
        )
    state = decode_state(require_object(tree["state"], "state"))
    base = None if tree.get(BASE) is None else decode_base(tree[BASE])
    events = decode_events(tree.get("events"), allow_modified=allow_modified)
    fields = {
        "schema_version": tree["schema_version"],
        "parent_id": optional_text(tree, "parent_id"),
        "scope": decode_scope(tree.get("scope", SCOPES[0])),
        "exported_at": optional_time(tree, "exported_at"),
        "source_environment": optional_text(tree, "source_environment"),
        "state": state,
        "event_log_count": decode_event_count(tree, len(events), allow_modified=allow_modified),
        "events": tuple(events),
        "state_extra": collect_unknown_fields(tree["state"], STATE_FIELDS, "state"),
    }
    with describe_errors_in("agent_id"):
        fields["agent_id"] = validate_id(tree["agent_id"], "agent_id")
    with describe_errors_in("session_id"):
        fields["session_id"] = validate_id(tree["session_id"], "session_id")
    with describe_errors_in("tags"):
        fields["tags"] = validate_tags(tree.get("tags"))
    if tree.get("snapshot_id") is not None:
        with describe_errors_in("snapshot_id"):
            fields["snapshot_id"] = validate_snapshot_id(tree["snapshot_id"])
    created = optional_time(tree, "created_at")
    if created is not None:
        fields["created_at"] = created
    extra = collect_unknown_fields(tree, FIELDS, "top level")
    if not allow_modified:
        validate_digest(given)
        validate_fold(events, base, state)
    return fields, base, extra


# --------------------------------------------------------------------------------------- state


def decode_state(fields: Mapping[str, Any]) -> Snapshot:
    """The state that JSON data stands for."""
    store = Store(max_history=0)
    messages = require_list(fields.get("messages", []), "state.messages")
    keys = decode_message_keys(fields.get("message_keys"), len(messages))
    for number, (key, message) in enumerate(zip(keys, messages, strict=True)):
        try:
            store.set(MESSAGES, key, from_json(message))
        except MALFORMED_DATA:
            # Only now: for most messages, saying where they are takes longer than reading them.
            with describe_errors_in(f"state.messages[{number}]"):
                raise
    for key, value in require_object(fields.get("values", {}), "state.values").items():
        set_value(store, STATE, key, value, f"state.values.{key}")
    own = require_object(fields.get("session", {}), "state.session")
    for key, value in own.items():
        if key != STATUS:
            set_value(store, SESSION, key, value, f"state.session.{key}")
    decode_status(store, fields, own)
    for space, entries in require_object(fields.get("namespaces", {}), "state.namespaces").items():
        if space in SESSION_NAMESPACES:
            raise InvalidDocumentError(
                f"the document has the namespace {space} under state.namespaces: it has a place of "
                "its own under state"
            )
        for key, value in require_object(entries, f"state.namespaces.{space}").items():
            set_value(store, space, key, value, f"state.namespaces.{space}.{key}")
    return store.snapshot()


def set_value(store: Store, space: str, key: str, value: object, where: str) -> None:
    """One entry of a state."""
    with describe_errors_in(where):
        store.set(space, key, from_json(value))


def decode_message_keys(keys: object, count: int) -> list[str]:
    """The keys of so many messages: those that the document gives, or numbers."""
    if keys is None:
        return [message_key(number) for number in range(count)]
    found = require_list(keys, "state.message_keys")
    with describe_errors_in("state.message_keys"):
        for key in found:
            # A store tells best what can be a key.
            Store(max_history=0).set(MESSAGES, key, None)
        if len(found) != count or len(set(found)) != count:
            raise ValueError(f"there are {count} messages and {len(set(found))} different keys")
    return found


def decode_status(store: Store, fields: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """The status; a state of somebody's own may have something else there, or nothing."""
    if STATUS not in own:
        set_value(
            store, SESSION, STATUS, require_text(fields.get("status", PENDING), "state.status"), ""
        )
    elif own[STATUS] is not None:
        with describe_errors_in("state.session.status"):
            (value,) = require_list(own[STATUS], "state.session.status")
            set_value(store, SESSION, STATUS, value, "state.session.status")


def decode_base(tree: object) -> Snapshot:
    """The state before the first event."""
    store = Store(max_history=0)
    with describe_errors_in(BASE):
        changes = changes_from_json(require_object(tree, BASE))
        store.set_many(changes["set"])
    return store.snapshot()


# -------------------------------------------------------------------------------------- events


def decode_events(trees: object, *, allow_modified: bool) -> list[Event]:
    """The events of a document, after checking that the chain holds from the first to the last.

    Where it may be modified, the chain is made anew.
    """
    found: list[Event] = []
    for tree in [] if trees is None else require_list(trees, "events"):
        try:
            found.append(decode_event(require_object(tree, "event"), found[-1] if found else None))
        except MALFORMED_DATA:
            with describe_errors_in(f"events[{len(found)}] (an event)"):
                raise
        if not allow_modified:
            validate_chain_link(found[-1], tree)
        if found[-1].extra:
            validate_depth(found[-1].extra, f"events[{len(found) - 1}]")
    return found


def decode_event(fields: Mapping[str, Any], before: Event | None) -> Event:
    """One event at the place that follows another."""
    seq, prev = fields["seq"], fields.get("prev", GENESIS)
    if before is not None and (seq != before.seq + 1 or type(seq) is not int):
        raise ValueError(
            f"the event {before.seq + 1} of the document breaks the chain: its seq is {short_repr(seq)}."
            " Events cannot be taken out of the middle: put back what is missing, or get another "
            "copy"
        )
    if type(seq) is not int or seq < 1:
        raise ValueError(f"seq is a number from 1, not {short_repr(seq)}")
    if not isinstance(prev, str):
        raise TypeError(f"prev is a text, not {short_repr(prev)}")
    prev = prev if before is None else before.hash
    return link_event(draft_from_json(fields), seq, prev)


def validate_chain_link(event: Event, fields: Mapping[str, Any]) -> None:
    """Refuse an event that the chain does not lead to."""
    for name, value in (("prev", event.prev), ("hash", event.hash)):
        if fields.get(name, value) != value:
            raise InvalidDocumentError(
                f"the event {event.seq} of the document breaks the chain: its {name} is "
                f"{short_repr(fields[name])} and should be {short_repr(value)}. It was changed or damaged "
                "after it was written. If it was changed on purpose, read it with allow_modified"
            )


# --------------------------------------------------------------------------------- small parts


def collect_unknown_fields(
    tree: Mapping[str, Any], known: Sequence[str], where: str
) -> dict[str, Any]:
    """The fields that this version does not know, which are kept as the JSON data that they are."""
    found = {name: value for name, value in tree.items() if name not in known}
    validate_depth(found, where)
    return found


def validate_depth(fields: Mapping[str, Any], where: str) -> None:
    """Refuse unknown fields that are nested deeper than values may be."""
    level: list[Any] = list(fields.values())
    for _ in range(MAX_DEPTH + 1):
        inside: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inside += item.values()
            elif isinstance(item, list):
                inside += item
        if not inside:
            return
        level = inside
    raise InvalidDocumentError(
        f"the document's {where} has an unknown field that is nested deeper than {MAX_DEPTH} "
        "levels, which no value is"
    )


def require_object(tree: object, what: str) -> dict[str, Any]:
    """A JSON object, or a refusal."""
    if isinstance(tree, dict):
        return cast("dict[str, Any]", tree)
    raise InvalidDocumentError(f"the document's {what} is a JSON object, not {short_repr(tree)}")


def require_list(tree: object, what: str) -> list[Any]:
    """A JSON list, or a refusal."""
    if isinstance(tree, list):
        return tree
    raise InvalidDocumentError(f"the document's {what} is a JSON list, not {short_repr(tree)}")


def require_text(value: object, what: str) -> str:
    """A text, or a refusal."""
    if isinstance(value, str):
        return value
    raise InvalidDocumentError(f"the document's {what} is a text, not {short_repr(value)}")


def optional_text(tree: Mapping[str, Any], name: str) -> str | None:
    """A text or nothing."""
    return None if tree.get(name) is None else require_text(tree[name], name)


def optional_time(tree: Mapping[str, Any], name: str) -> dt.datetime | None:
    """A time or nothing."""
    if tree.get(name) is None:
        return None
    with describe_errors_in(name):
        return parse_time(tree[name])


def decode_scope(scope: object) -> str:
    """A scope, or a refusal."""
    if scope in SCOPES:
        return str(scope)
    raise InvalidDocumentError(
        f"the document's scope is one of {', '.join(SCOPES)}, not {short_repr(scope)}"
    )


def decode_event_count(tree: Mapping[str, Any], events: int, *, allow_modified: bool) -> int:
    """How many events led to the state: as many as the document has, where it has any.

    The chain tells of a change in every event but of none that are missing at its end.
    """
    count = tree.get("event_log_count", events)
    if type(count) is not int or count < 0:
        raise InvalidDocumentError(
            f"the document's event_log_count is a number, not {short_repr(count)}"
        )
    if not events or count == events:
        return count
    if allow_modified:
        return events
    raise InvalidDocumentError(
        f"the document has {events} events, and its event_log_count says {short_repr(count)}: the last "
        "ones were cut off, or it was changed after it was written. Get another copy; if it was "
        "changed on purpose, read it with allow_modified"
    )
