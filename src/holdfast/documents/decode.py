"""Decode the JSON data of a document into the fields of a `Document`.

The form of every field is checked, and an error says which field is wrong. Whether the document is
what was written is checked afterwards, by `validate_document`.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from holdfast.blobs.keys import MAX_SIZE
from holdfast.documents.blob_folder import FolderBlob, validate_blob_file
from holdfast.documents.blobs import (
    DocumentBlob,
    DocumentBlobs,
    EmbeddedBlob,
    OmittedBlob,
    bind_contents,
)
from holdfast.documents.encode import BASE, BLOBS, DIGEST, SIGNATURES
from holdfast.documents.migrations import migrate_schema
from holdfast.documents.validate import validate_document
from holdfast.errors import (
    HoldfastError,
    InvalidDocumentError,
    UnregisteredTypeError,
    short_repr,
)
from holdfast.log.changes import changes_from_json
from holdfast.log.event import Event, draft_from_json, find_event_references, parse_time
from holdfast.log.event_log import Position
from holdfast.log.hash_chain import GENESIS, link_event
from holdfast.log.linked_events import EVENTS_PER_BLOCK, EventBlock, LinkedEvents
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
from holdfast.stores.batch_read import split_batches
from holdfast.values import MAX_DEPTH, from_json
from holdfast.values.references import DIGEST as BLOB_DIGEST

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
    BLOBS,
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


def decode_fields(
    data: object,
    *,
    allow_modified: bool = False,
    folder: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """Decode and validate a document; returns the arguments of `Document`.

    ``folder`` is where the document was read from, for blobs in files beside it.

    Raises:
        InvalidDocumentError: It is not a valid document, or its schema is too new.
        ModifiedDocumentError: It was changed after it was written, unless that is allowed.
        UnregisteredTypeError: It has values of a type that is not registered here.

    """
    if not isinstance(data, dict):
        raise InvalidDocumentError(f"a document must be a JSON object, got {short_repr(data)}")
    migrated = migrate_schema(data)
    if migrated["schema_version"] != data["schema_version"]:
        migrated.pop(SIGNATURES, None)  # they cover the document before the migration
    missing = [name for name in REQUIRED if name not in migrated]
    if missing:
        raise InvalidDocumentError(f"not a session document: it lacks {', '.join(missing)}")
    state = decode_state(require_object(migrated["state"], "state"))
    base = None if migrated.get(BASE) is None else decode_base(migrated[BASE])
    events = tuple(decode_events(migrated.get("events")))
    blobs = decode_blobs(migrated.get(BLOBS), folder)
    state = bind_contents(state, blobs)
    base = None if base is None else bind_contents(base, blobs)
    fields = build_fields(migrated, state, base, events, blobs)
    if not allow_modified:
        validate_document(data, migrated, events, base, state)
    return fields


def build_fields(
    data: Mapping[str, Any],
    state: Snapshot,
    base: Snapshot | None,
    events: Sequence[Event],
    blobs: DocumentBlobs,
) -> dict[str, Any]:
    """Return the arguments of `Document`, given its large fields decoded."""
    fields = {
        "schema_version": data["schema_version"],
        "parent_id": optional_text(data, "parent_id"),
        "scope": decode_scope(data.get("scope", SCOPES[0])),
        "exported_at": optional_time(data, "exported_at"),
        "source_environment": optional_text(data, "source_environment"),
        "snapshot": state,
        "base": base,
        "blobs": blobs,
        "event_log_count": decode_event_count(data, len(events)),
        "events": bind_events(events, blobs),
        "state_extra": collect_unknown_fields(data["state"], STATE_FIELDS, "state"),
        "extra": collect_unknown_fields(data, FIELDS, "top level"),
    }
    with describe_errors_in("agent_id"):
        fields["agent_id"] = validate_id(data["agent_id"], "agent_id")
    with describe_errors_in("session_id"):
        fields["session_id"] = validate_id(data["session_id"], "session_id")
    with describe_errors_in("tags"):
        fields["tags"] = validate_tags(data.get("tags"))
    if data.get("snapshot_id") is not None:
        with describe_errors_in("snapshot_id"):
            fields["snapshot_id"] = validate_snapshot_id(data["snapshot_id"])
    created = optional_time(data, "created_at")
    if created is not None:
        fields["created_at"] = created
    return fields


@contextmanager
def describe_errors_in(where: str) -> Iterator[None]:
    """Turn the errors of malformed data into InvalidDocumentError that names the field."""
    try:
        yield
    except UnregisteredTypeError:
        raise  # the document is valid, but this program lacks a type
    except MALFORMED_DATA as error:
        # Both may repeat a name that is as long as the document.
        raise InvalidDocumentError(f"invalid {where:.200} in document: {error!s:.400}") from error


# --------------------------------------------------------------------------------------- state


def decode_state(fields: Mapping[str, Any]) -> Snapshot:
    """Decode the ``state`` of a document."""
    store = Store(max_history=0)
    messages = require_list(fields.get("messages", []), "state.messages")
    keys = decode_message_keys(fields.get("message_keys"), len(messages))
    for number, (key, message) in enumerate(zip(keys, messages, strict=True)):
        try:
            add_message(store, key, message)
        except MALFORMED_DATA:
            # Formatting the name for every message would take longer than decoding it.
            with describe_errors_in(f"state.messages[{number}]"):
                raise
    decode_state_values(store, fields)
    return store.snapshot()


def add_message(store: Store, key: str, message: object) -> None:
    """Decode a message and add it to the store."""
    store.set(MESSAGES, key, from_json(message))


def decode_state_values(store: Store, fields: Mapping[str, Any]) -> None:
    """Decode all but the messages of a ``state``."""
    for key, value in require_object(fields.get("values", {}), "state.values").items():
        set_value(store, STATE, key, value, f"state.values.{key}")
    session = require_object(fields.get("session", {}), "state.session")
    for key, value in session.items():
        if key != STATUS:
            set_value(store, SESSION, key, value, f"state.session.{key}")
    decode_status(store, fields, session)
    namespaces = require_object(fields.get("namespaces", {}), "state.namespaces")
    for namespace, entries in namespaces.items():
        if namespace in SESSION_NAMESPACES:
            raise InvalidDocumentError(
                f"invalid state.namespaces in document: the namespace {namespace} belongs directly "
                "under state"
            )
        for key, value in require_object(entries, f"state.namespaces.{namespace}").items():
            set_value(store, namespace, key, value, f"state.namespaces.{namespace}.{key}")


def set_value(store: Store, namespace: str, key: str, value: object, where: str) -> None:
    """Decode a value and set it in the store."""
    with describe_errors_in(where):
        store.set(namespace, key, from_json(value))


def decode_message_keys(keys: object, count: int) -> list[str]:
    """Return the keys of the messages: those in the document, or consecutive numbers."""
    if keys is None:
        return [message_key(number) for number in range(count)]
    found = require_list(keys, "state.message_keys")
    with describe_errors_in("state.message_keys"):
        for key in found:
            Store(max_history=0).set(MESSAGES, key, None)  # raises if it cannot be a key
        if len(found) != count or len(set(found)) != count:
            raise ValueError(f"there are {count} messages, but {len(set(found))} different keys")
    return found


def decode_status(store: Store, fields: Mapping[str, Any], session: Mapping[str, Any]) -> None:
    """Set the status. Unless it is a str, it is in ``session``, in a list; None means no status."""
    if STATUS not in session:
        status = require_text(fields.get("status", PENDING), "state.status")
        set_value(store, SESSION, STATUS, status, "state.status")
    elif session[STATUS] is not None:
        with describe_errors_in("state.session.status"):
            (value,) = require_list(session[STATUS], "state.session.status")
            set_value(store, SESSION, STATUS, value, "state.session.status")


def decode_base(data: object) -> Snapshot:
    """Decode the state before the first event."""
    store = Store(max_history=0)
    with describe_errors_in(BASE):
        changes = changes_from_json(require_object(data, BASE))
        store.set_many(changes["set"])
    return store.snapshot()


# -------------------------------------------------------------------------------------- events


def decode_events(data: object) -> list[Event]:
    """Decode the events of a document and compute their hash chain."""
    events: list[Event] = []
    for fields in [] if data is None else require_list(data, "events"):
        try:
            event = decode_event(require_object(fields, "event"), events[-1] if events else None)
        except MALFORMED_DATA:
            with describe_errors_in(f"events[{len(events)}]"):
                raise
        events.append(event)
        if event.extra:
            validate_depth(event.extra, f"events[{len(events) - 1}]")
    return events


def decode_event(fields: Mapping[str, Any], previous: Event | Position | None) -> Event:
    """Decode an event and link it to the previous one."""
    seq, prev = fields["seq"], fields.get("prev", GENESIS)
    if previous is not None and (seq != previous.seq + 1 or type(seq) is not int):
        raise ValueError(
            f"event {previous.seq + 1} breaks the hash chain, its seq is {short_repr(seq)}; events "
            "cannot be removed or reordered: get another copy"
        )
    if type(seq) is not int or seq < 1:
        raise ValueError(f"seq must be a positive int, got {short_repr(seq)}")
    if not isinstance(prev, str):
        raise TypeError(f"prev must be a string, got {short_repr(prev)}")
    return link_event(draft_from_json(fields), seq, prev if previous is None else previous.hash)


def bind_events(events: Sequence[Event], blobs: DocumentBlobs) -> Sequence[Event]:
    """Return events that get the contents of their large values from a document's blobs."""
    if isinstance(events, LinkedEvents):
        return events.with_contents(blobs)
    if not any(map(find_event_references, events)):
        return events
    blocks = [EventBlock.encode(batch) for batch in split_batches(events, EVENTS_PER_BLOCK)]
    return LinkedEvents(blocks, contents=blobs)


def decode_event_count(data: Mapping[str, Any], events: int) -> int:
    """Return the number of events that led to the state: that of the events, if there are any."""
    count = data.get("event_log_count", events)
    if type(count) is not int or count < 0:
        raise InvalidDocumentError(
            f"invalid event_log_count in document: must be a non-negative int, got "
            f"{short_repr(count)}"
        )
    return events or count


# --------------------------------------------------------------------------------------- blobs


def decode_blobs(data: object, folder: str | os.PathLike[str] | None) -> DocumentBlobs:
    """Decode the blobs of a document; embedded ones are verified.

    Raises:
        InvalidDocumentError: The data is malformed, or a content does not match its digest.

    """
    if data is None:
        return DocumentBlobs()
    blobs: list[DocumentBlob] = []
    for digest, entry in require_object(data, BLOBS).items():
        with describe_errors_in(f"{BLOBS}.{digest}"):
            if BLOB_DIGEST.fullmatch(digest) is None:
                raise ValueError("must be named by a sha256 in hexadecimal")
            blobs.append(decode_blob(digest, require_object(entry, "blob"), folder))
    return DocumentBlobs(blobs)


def decode_blob(
    digest: str, entry: Mapping[str, Any], folder: str | os.PathLike[str] | None
) -> DocumentBlob:
    """Decode one blob; an embedded content is verified."""
    size, text, file = entry.get("size"), entry.get("data"), entry.get("file")
    if type(size) is not int or not 0 <= size <= MAX_SIZE:
        raise ValueError(f"size must be a non-negative int, got {short_repr(size)}")
    if text is not None and file is not None:
        raise ValueError("it has both data and a file")
    if text is not None:
        content = base64.b64decode(require_text(text, "data"), validate=True)
        if len(content) != size:
            raise ValueError(f"its size is {size:,}, but its data has {len(content):,} bytes")
        if hashlib.sha256(content).hexdigest() != digest:
            raise ValueError("its data does not match its digest; get another copy")
        return EmbeddedBlob(content, digest)
    if file is None:
        return OmittedBlob(digest, size)
    path = validate_blob_file(require_text(file, "file"), digest)
    if folder is None:
        return OmittedBlob(digest, size, f"it is in {path}, and was read without that folder")
    return FolderBlob(Path(folder), path, digest, size)


# ------------------------------------------------------------------------------------- fields


def collect_unknown_fields(
    data: Mapping[str, Any], known: Sequence[str], where: str
) -> dict[str, Any]:
    """Return the fields that this version does not know, which are preserved as JSON data."""
    found = {name: value for name, value in data.items() if name not in known}
    validate_depth(found, where)
    return found


def validate_depth(fields: Mapping[str, Any], where: str) -> None:
    """Reject unknown fields that are nested deeper than values may be."""
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
        f"invalid {where} in document: an unknown field is nested deeper than {MAX_DEPTH} levels"
    )


def require_object(data: object, name: str) -> dict[str, Any]:
    """Return the data if it is a JSON object."""
    if isinstance(data, dict):
        return cast("dict[str, Any]", data)
    raise wrong_type_error(name, "a JSON object", data)


def require_list(data: object, name: str) -> list[Any]:
    """Return the data if it is a JSON array."""
    if isinstance(data, list):
        return data
    raise wrong_type_error(name, "a JSON array", data)


def require_text(data: object, name: str) -> str:
    """Return the data if it is a string."""
    if isinstance(data, str):
        return data
    raise wrong_type_error(name, "a string", data)


def optional_text(data: Mapping[str, Any], name: str) -> str | None:
    """Return a field that is a string, null or missing."""
    return None if data.get(name) is None else require_text(data[name], name)


def optional_time(data: Mapping[str, Any], name: str) -> dt.datetime | None:
    """Return a field that is a time, null or missing."""
    if data.get(name) is None:
        return None
    with describe_errors_in(name):
        return parse_time(data[name])


def decode_scope(scope: object) -> str:
    """Return a valid scope."""
    if scope in SCOPES:
        return str(scope)
    raise wrong_type_error("scope", f"one of {', '.join(SCOPES)}", scope)


def wrong_type_error(name: str, expected: str, value: object) -> InvalidDocumentError:
    """Return the error for a field of the wrong type."""
    return InvalidDocumentError(
        f"invalid {name} in document: must be {expected}, got {short_repr(value)}"
    )
