"""The document: a session at one moment as JSON data that stands alone, schema version 1.

``state`` has a session's own three namespaces by name and the others under ``namespaces``. Values
have the form of docs/spec/values.md. Fields that this version does not know are kept.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import msgspec

from holdfast.errors import HoldfastError, InvalidDocumentError, UnsupportedValueError, shown
from holdfast.log.chain import GENESIS, linked
from holdfast.log.changes import changes_json, read_changes
from holdfast.log.events import (
    Event,
    content,
    read_content,
    read_time,
    time_text,
)
from holdfast.snapshots.layout import SCOPES, checked_id, checked_snapshot_id
from holdfast.snapshots.migrations import up_to_date
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
from holdfast.values import from_json, to_json

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
    "digest",
)
REQUIRED = ("schema_version", "agent_id", "session_id", "state")
BASE = "base"
STATE_FIELDS = ("status", "messages", "message_keys", "values", "session", "namespaces")

encode = msgspec.json.Encoder().encode


# ------------------------------------------------------------------------------------- writing


def written(
    fields: Mapping[str, Any],
    base: Snapshot | None,
    extra: Mapping[str, Any],
    state_extra: Mapping[str, Any],
) -> dict[str, Any]:
    """The document of a snapshot's fields, with those that this version does not know."""
    tree = {
        **fields,
        "created_at": time_text(fields["created_at"]),
        "exported_at": fields["exported_at"] and time_text(fields["exported_at"]),
        "state": {**state_json(fields["state"]), **state_extra},
        "events": [event_json(event) for event in fields["events"]],
    }
    if base is not None:
        tree[BASE] = changes_json(base.changes(Store().snapshot()))
    return {**tree, **extra}


def event_json(event: Event) -> dict[str, Any]:
    """An event at its place in the log, as JSON data."""
    return {"seq": event.seq, **content(event), "prev": event.prev, "hash": event.hash}


def state_json(state: Snapshot) -> dict[str, Any]:
    """A state as JSON data."""
    messages = list(state.items(MESSAGES))
    own = {key: to_json(value) for _, key, value in state.items(SESSION)}
    status = own.pop(STATUS, None)
    if not isinstance(status, str):
        # A state of somebody's own: what stands there instead, in a list, or nothing at all.
        own[STATUS] = [status] if state.contains(SESSION, STATUS) else None
    tree: dict[str, Any] = {
        "status": status if isinstance(status, str) else PENDING,
        "messages": [to_json(message) for _, _, message in messages],
        "values": {key: to_json(value) for _, key, value in state.items(STATE)},
    }
    keys = [key for _, key, _ in messages]
    if keys != [message_key(number) for number in range(len(keys))]:
        tree["message_keys"] = keys
    if own:
        tree["session"] = own
    others = [space for space in state.namespaces() if space not in OWN]
    if others:
        tree["namespaces"] = {
            space: {key: to_json(value) for _, key, value in state.items(space)} for space in others
        }
    return tree


def chunks(tree: Mapping[str, Any]) -> Iterator[bytes]:
    """The text of a document in pieces, a line for each message, value and event."""
    yield b"{"
    for number, (name, value) in enumerate(tree.items()):
        yield (b",\n " if number else b"\n ") + encode(name) + b": "
        yield from pieces(value, 2 if name == "state" else 1)
    yield b"\n}\n"


def pieces(value: Any, levels: int) -> Iterator[bytes]:
    """The text of a value, with a line for each of its items on so many levels."""
    if levels == 0 or not isinstance(value, dict | list) or not value:
        yield encode(value)
        return
    named = value.items() if isinstance(value, dict) else ((None, item) for item in value)
    yield b"{" if isinstance(value, dict) else b"["
    for number, (name, item) in enumerate(named):
        yield b",\n  " if number else b"\n  "
        if name is not None:
            yield encode(name) + b": "
        yield from pieces(item, levels - 1)
    yield b"}" if isinstance(value, dict) else b"]"


# ------------------------------------------------------------------------------------- reading


def read(
    tree: object, *, allow_modified: bool = False
) -> tuple[dict[str, Any], Snapshot | None, dict[str, Any]]:
    """Fields of a snapshot, the state before its events, and what is not known, of a document."""
    if not isinstance(tree, dict):
        raise InvalidDocumentError(f"a document is a JSON object, not {shown(tree)}")
    tree = up_to_date(tree)
    missing = [name for name in REQUIRED if name not in tree]
    if missing:
        raise InvalidDocumentError(
            f"this is no document of a session: it lacks {', '.join(missing)}"
        )
    try:
        return read_fields(tree, allow_modified=allow_modified)
    except InvalidDocumentError:
        raise
    except (HoldfastError, TypeError, ValueError, KeyError) as error:
        raise InvalidDocumentError(f"the document is not as it should be: {error}") from error


def read_fields(
    tree: Mapping[str, Any], *, allow_modified: bool
) -> tuple[dict[str, Any], Snapshot | None, dict[str, Any]]:
    """The same of a document that has all that it needs."""
    state = read_state(tree["state"])
    events = read_events(tree.get("events") or [], allow_modified=allow_modified)
    base = read_base(tree[BASE]) if tree.get(BASE) is not None else None
    digest = tree.get("digest")
    if digest is not None and digest != state.digest and not allow_modified:
        raise InvalidDocumentError(
            f"the document's state does not match its digest {shown(digest)}: it was changed or "
            "damaged after it was written. If it was changed on purpose, read it with "
            "allow_modified"
        )
    fields = {
        "schema_version": tree["schema_version"],
        "parent_id": optional_text(tree, "parent_id"),
        "agent_id": checked_id(tree["agent_id"], "agent_id"),
        "session_id": checked_id(tree["session_id"], "session_id"),
        "scope": read_scope(tree.get("scope", SCOPES[0])),
        "exported_at": optional_time(tree, "exported_at"),
        "source_environment": optional_text(tree, "source_environment"),
        "tags": checked_tags(tree.get("tags")),
        "state": state,
        "event_log_count": read_count(tree.get("event_log_count", len(events))),
        "events": tuple(events),
        "digest": digest,
        "state_extra": {
            name: value for name, value in tree["state"].items() if name not in STATE_FIELDS
        },
    }
    if tree.get("snapshot_id") is not None:
        fields["snapshot_id"] = checked_snapshot_id(tree["snapshot_id"])
    created = optional_time(tree, "created_at")
    if created is not None:
        fields["created_at"] = created
    return fields, base, {name: tree[name] for name in tree if name not in (*FIELDS, BASE)}


def read_state(tree: object) -> Snapshot:
    """The state that JSON data stands for."""
    fields = as_object(tree, "state")
    messages = as_list(fields.get("messages", []), "state.messages")
    keys = fields.get("message_keys")
    if keys is None:
        keys = [message_key(number) for number in range(len(messages))]
    elif len(as_list(keys, "state.message_keys")) != len(messages) or len(set(keys)) != len(keys):
        raise InvalidDocumentError(
            f"the document has {len(messages)} messages and {len(set(keys))} different keys for "
            "them in state.message_keys"
        )
    items = [(MESSAGES, key, value) for key, value in zip(keys, messages, strict=True)]
    values = as_object(fields.get("values", {}), "state.values")
    items += [(STATE, *item) for item in values.items()]
    own = as_object(fields.get("session", {}), "state.session")
    items += [(SESSION, *item) for item in own.items() if item[0] != STATUS]
    if STATUS not in own:
        items.append((SESSION, STATUS, read_text(fields.get("status", PENDING), "state.status")))
    elif own[STATUS] is not None:
        items.append((SESSION, STATUS, as_list(own[STATUS], "state.session.status")[0]))
    spaces = as_object(fields.get("namespaces", {}), "state.namespaces")
    for space, entries in spaces.items():
        if space in OWN:
            raise InvalidDocumentError(
                f"the document has the namespace {space} under state.namespaces: it has a place of "
                "its own under state"
            )
        items += [(space, *item) for item in as_object(entries, f"namespace {space}").items()]
    return frozen((space, key, from_json(value)) for space, key, value in items)


def read_base(tree: object) -> Snapshot:
    """The state before the first event."""
    changes = read_changes(as_object(tree, BASE))
    return frozen(changes["set"])


def frozen(items: Iterable[tuple[str, str, Any]]) -> Snapshot:
    """A state of these entries."""
    store = Store(max_history=0)
    try:
        store.set_many(items)
    except UnsupportedValueError as error:
        raise InvalidDocumentError(f"the document's state cannot be kept: {error}") from error
    return store.snapshot()


def read_events(trees: object, *, allow_modified: bool) -> list[Event]:
    """The events of a document, after checking that the chain holds from the first to the last.

    Where it may be modified, the chain is made anew.
    """
    found: list[Event] = []
    for tree in as_list(trees, "events"):
        fields = as_object(tree, "an event")
        seq = found[-1].seq if found else int(fields["seq"]) - 1
        prev = found[-1].hash if found else fields.get("prev", GENESIS)
        (event,) = linked([read_content(fields)], seq, prev)
        for name, value in (("seq", event.seq), ("prev", event.prev), ("hash", event.hash)):
            may_differ = allow_modified and name != "seq"
            if name in fields and fields[name] != value and not may_differ:
                raise InvalidDocumentError(
                    f"the event {event.seq} of the document breaks the chain: its {name} is "
                    f"{shown(fields[name])} and should be {shown(value)}. It was changed or "
                    "damaged after it was written"
                )
        found.append(event)
    return found


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
    value = tree.get(name)
    if value is None or isinstance(value, str):
        return value
    raise InvalidDocumentError(f"the document's {name} is a text or null, not {shown(value)}")


def optional_time(tree: Mapping[str, Any], name: str) -> dt.datetime | None:
    """A time or nothing."""
    return None if tree.get(name) is None else read_time(tree[name])


def read_scope(scope: object) -> str:
    """A scope, or a refusal."""
    if scope in SCOPES:
        return str(scope)
    raise InvalidDocumentError(
        f"the document's scope is one of {', '.join(SCOPES)}, not {shown(scope)}"
    )


def read_count(count: object) -> int:
    """A number of events, or a refusal."""
    if type(count) is int and count >= 0:
        return count
    raise InvalidDocumentError(f"the document's event_log_count is a number, not {shown(count)}")
