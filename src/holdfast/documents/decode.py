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
from holdfast.documents.migrations import up_to_date
from holdfast.documents.validate import check_digest, check_fold
from holdfast.errors import (
    HoldfastError,
    InvalidDocumentError,
    UnsupportedValueError,
    shown,
)
from holdfast.log.changes import read_changes
from holdfast.log.event import Event, read_content, read_time
from holdfast.log.hash_chain import GENESIS, link
from holdfast.snapshots.keys import SCOPES, checked_id, checked_snapshot_id
from holdfast.snapshots.records import checked_tags
from holdfast.snapshots.session_state import (
    MESSAGES,
    OWN,
    PENDING,
    SESSION,
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
MALFORMED = (
    ArithmeticError,
    AttributeError,
    HoldfastError,
    LookupError,
    TypeError,
    ValueError,
)


@contextmanager
def part(where: str) -> Iterator[None]:
    """Say of whatever is wrong inside where that is."""
    try:
        yield
    except UnsupportedValueError as error:
        if "registered" in str(error):
            raise  # nothing is wrong with the document: this program lacks a type
        raise refused(where, error) from error
    except MALFORMED as error:
        raise refused(where, error) from error


def refused(where: str, error: Exception) -> InvalidDocumentError:
    """The error for a part that is wrong."""
    # A name may be as long as the document, and what is wrong may repeat all of it.
    return InvalidDocumentError(
        f"the document's {where:.200} is not as it should be: {error!s:.400}"
    )


def read(
    tree: object, *, allow_modified: bool = False
) -> tuple[dict[str, Any], Snapshot | None, dict[str, Any]]:
    """Fields of a snapshot, the state before its events, and what is not known, of a document."""
    if not isinstance(tree, dict):
        raise InvalidDocumentError(f"a document is a JSON object, not {shown(tree)}")
    version = tree.get("schema_version")
    given, tree = tree, up_to_date(tree)
    if tree["schema_version"] != version:
        tree.pop(SIGNATURES, None)  # they are of the document as it was
    missing = [name for name in REQUIRED if name not in tree]
    if missing:
        raise InvalidDocumentError(
            f"this is no document of a session: it lacks {', '.join(missing)}"
        )
    state = read_state(as_object(tree["state"], "state"))
    base = None if tree.get(BASE) is None else read_base(tree[BASE])
    events = read_events(tree.get("events"), allow_modified=allow_modified)
    fields = {
        "schema_version": tree["schema_version"],
        "parent_id": optional_text(tree, "parent_id"),
        "scope": read_scope(tree.get("scope", SCOPES[0])),
        "exported_at": optional_time(tree, "exported_at"),
        "source_environment": optional_text(tree, "source_environment"),
        "state": state,
        "event_log_count": read_count(tree, len(events), allow_modified=allow_modified),
        "events": tuple(events),
        "state_extra": unknown(tree["state"], STATE_FIELDS, "state"),
    }
    with part("agent_id"):
        fields["agent_id"] = checked_id(tree["agent_id"], "agent_id")
    with part("session_id"):
        fields["session_id"] = checked_id(tree["session_id"], "session_id")
    with part("tags"):
        fields["tags"] = checked_tags(tree.get("tags"))
    if tree.get("snapshot_id") is not None:
        with part("snapshot_id"):
            fields["snapshot_id"] = checked_snapshot_id(tree["snapshot_id"])
    created = optional_time(tree, "created_at")
    if created is not None:
        fields["created_at"] = created
    extra = unknown(tree, FIELDS, "top level")
    if not allow_modified:
        check_digest(given)
        check_fold(events, base, state)
    return fields, base, extra


# --------------------------------------------------------------------------------------- state


def read_state(fields: Mapping[str, Any]) -> Snapshot:
    """The state that JSON data stands for."""
    store = Store(max_history=0)
    messages = as_list(fields.get("messages", []), "state.messages")
    keys = read_keys(fields.get("message_keys"), len(messages))
    for number, (key, message) in enumerate(zip(keys, messages, strict=True)):
        try:
            store.set(MESSAGES, key, from_json(message))
        except MALFORMED:
            # Only now: for most messages, saying where they are takes longer than reading them.
            with part(f"state.messages[{number}]"):
                raise
    for key, value in as_object(fields.get("values", {}), "state.values").items():
        put(store, STATE, key, value, f"state.values.{key}")
    own = as_object(fields.get("session", {}), "state.session")
    for key, value in own.items():
        if key != STATUS:
            put(store, SESSION, key, value, f"state.session.{key}")
    read_status(store, fields, own)
    for space, entries in as_object(fields.get("namespaces", {}), "state.namespaces").items():
        if space in OWN:
            raise InvalidDocumentError(
                f"the document has the namespace {space} under state.namespaces: it has a place of "
                "its own under state"
            )
        for key, value in as_object(entries, f"state.namespaces.{space}").items():
            put(store, space, key, value, f"state.namespaces.{space}.{key}")
    return store.snapshot()


def put(store: Store, space: str, key: str, value: object, where: str) -> None:
    """One entry of a state."""
    with part(where):
        store.set(space, key, from_json(value))


def read_keys(keys: object, count: int) -> list[str]:
    """The keys of so many messages: those that the document gives, or numbers."""
    if keys is None:
        return [message_key(number) for number in range(count)]
    found = as_list(keys, "state.message_keys")
    with part("state.message_keys"):
        for key in found:
            # A store tells best what can be a key.
            Store(max_history=0).set(MESSAGES, key, None)
        if len(found) != count or len(set(found)) != count:
            raise ValueError(f"there are {count} messages and {len(set(found))} different keys")
    return found


def read_status(store: Store, fields: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """The status; a state of somebody's own may have something else there, or nothing."""
    if STATUS not in own:
        put(store, SESSION, STATUS, read_text(fields.get("status", PENDING), "state.status"), "")
    elif own[STATUS] is not None:
        with part("state.session.status"):
            (value,) = as_list(own[STATUS], "state.session.status")
            put(store, SESSION, STATUS, value, "state.session.status")


def read_base(tree: object) -> Snapshot:
    """The state before the first event."""
    store = Store(max_history=0)
    with part(BASE):
        changes = read_changes(as_object(tree, BASE))
        store.set_many(changes["set"])
    return store.snapshot()


# -------------------------------------------------------------------------------------- events


def read_events(trees: object, *, allow_modified: bool) -> list[Event]:
    """The events of a document, after checking that the chain holds from the first to the last.

    Where it may be modified, the chain is made anew.
    """
    found: list[Event] = []
    for tree in [] if trees is None else as_list(trees, "events"):
        try:
            found.append(read_event(as_object(tree, "event"), found[-1] if found else None))
        except MALFORMED:
            with part(f"events[{len(found)}] (an event)"):
                raise
        if not allow_modified:
            check_place(found[-1], tree)
        if found[-1].extra:
            check_depth(found[-1].extra, f"events[{len(found) - 1}]")
    return found


def read_event(fields: Mapping[str, Any], before: Event | None) -> Event:
    """One event at the place that follows another."""
    seq, prev = fields["seq"], fields.get("prev", GENESIS)
    if before is not None and (seq != before.seq + 1 or type(seq) is not int):
        raise ValueError(
            f"the event {before.seq + 1} of the document breaks the chain: its seq is {shown(seq)}."
            " Events cannot be taken out of the middle: put back what is missing, or get another "
            "copy"
        )
    if type(seq) is not int or seq < 1:
        raise ValueError(f"seq is a number from 1, not {shown(seq)}")
    if not isinstance(prev, str):
        raise TypeError(f"prev is a text, not {shown(prev)}")
    prev = prev if before is None else before.hash
    return link(read_content(fields), seq, prev)


def check_place(event: Event, fields: Mapping[str, Any]) -> None:
    """Refuse an event that the chain does not lead to."""
    for name, value in (("prev", event.prev), ("hash", event.hash)):
        if fields.get(name, value) != value:
            raise InvalidDocumentError(
                f"the event {event.seq} of the document breaks the chain: its {name} is "
                f"{shown(fields[name])} and should be {shown(value)}. It was changed or damaged "
                "after it was written. If it was changed on purpose, read it with allow_modified"
            )


# --------------------------------------------------------------------------------- small parts


def unknown(tree: Mapping[str, Any], known: Sequence[str], where: str) -> dict[str, Any]:
    """The fields that this version does not know, which are kept as the JSON data that they are."""
    found = {name: value for name, value in tree.items() if name not in known}
    check_depth(found, where)
    return found


def check_depth(fields: Mapping[str, Any], where: str) -> None:
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


def as_object(tree: object, what: str) -> dict[str, Any]:
    """A JSON object, or a refusal."""
    if isinstance(tree, dict):
        return cast("dict[str, Any]", tree)
    raise InvalidDocumentError(f"the document's {what} is a JSON object, not {shown(tree)}")


def as_list(tree: object, what: str) -> list[Any]:
    """A JSON list, or a refusal."""
    if isinstance(tree, list):
        return tree
    raise InvalidDocumentError(f"the document's {what} is a JSON list, not {shown(tree)}")


def read_text(value: object, what: str) -> str:
    """A text, or a refusal."""
    if isinstance(value, str):
        return value
    raise InvalidDocumentError(f"the document's {what} is a text, not {shown(value)}")


def optional_text(tree: Mapping[str, Any], name: str) -> str | None:
    """A text or nothing."""
    return None if tree.get(name) is None else read_text(tree[name], name)


def optional_time(tree: Mapping[str, Any], name: str) -> dt.datetime | None:
    """A time or nothing."""
    if tree.get(name) is None:
        return None
    with part(name):
        return read_time(tree[name])


def read_scope(scope: object) -> str:
    """A scope, or a refusal."""
    if scope in SCOPES:
        return str(scope)
    raise InvalidDocumentError(
        f"the document's scope is one of {', '.join(SCOPES)}, not {shown(scope)}"
    )


def read_count(tree: Mapping[str, Any], events: int, *, allow_modified: bool) -> int:
    """How many events led to the state: as many as the document has, where it has any.

    The chain tells of a change in every event but of none that are missing at its end.
    """
    count = tree.get("event_log_count", events)
    if type(count) is not int or count < 0:
        raise InvalidDocumentError(
            f"the document's event_log_count is a number, not {shown(count)}"
        )
    if not events or count == events:
        return count
    if allow_modified:
        return events
    raise InvalidDocumentError(
        f"the document has {events} events, and its event_log_count says {shown(count)}: the last "
        "ones were cut off, or it was changed after it was written. Get another copy; if it was "
        "changed on purpose, read it with allow_modified"
    )
