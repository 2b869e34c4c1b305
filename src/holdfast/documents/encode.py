"""The document: a session at one moment as JSON data that stands alone, schema version 1.

``state`` has a session's own three namespaces by name and the others under ``namespaces``. Values
have the form of docs/spec/values.md. Fields that this version does not know are kept. The digest
covers all of it, and a signature covers the digest too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from holdfast.errors import short_repr
from holdfast.log.changes import changes_to_json
from holdfast.log.event import Event, event_to_json, format_time
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
from holdfast.values import to_json
from holdfast.values.json_encoding import is_json_without_floats

Listing: TypeAlias = Callable[[Iterator[Any]], Any]

BASE = "base"
DIGEST = "digest"
SIGNATURES = "signatures"

CHUNK_BYTES = 1 << 16

encode_into = msgspec.json.Encoder().encode_into

encode_sorted = msgspec.json.Encoder(order="sorted").encode

# How msgspec writes floats may change between its versions, and signatures are for years.
encode_floats = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, sort_keys=True, separators=(",", ":")
).encode


def encode_canonical_value(value: Any) -> bytes:
    """Return the canonical JSON of data: sorted names, no spaces, floats as Python's repr."""
    return encode_sorted(value) if is_json_without_floats(value) else encode_floats(value).encode()


def encode_fields(
    fields: Mapping[str, Any],
    base: Snapshot | None,
    extra: Mapping[str, Any],
    state_extra: Mapping[str, Any],
    listed: Listing = list,
) -> dict[str, Any]:
    """The document of a snapshot's fields, with those that this version does not know.

    ``listed`` makes a list of the messages and of the events, which are by far the most of it.
    """
    tree = {
        **fields,
        "created_at": format_time(fields["created_at"]),
        "exported_at": fields["exported_at"] and format_time(fields["exported_at"]),
        "state": {**state_json(fields["state"], listed=listed), **plain_json(state_extra)},
        "events": listed(map(event_json, fields["events"])),
    }
    if base is not None:
        tree[BASE] = changes_to_json(base.changes(Store().snapshot()))
    return {**tree, **plain_json(extra)}


def plain_json(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return unknown fields as a reader will find them: a tuple is a list, a name is a text."""
    if not fields:
        return {}
    return msgspec.json.decode(msgspec.json.encode(fields), type=dict[str, Any])


def event_json(event: Event) -> dict[str, Any]:
    """An event at its place in the log, as JSON data."""
    tree = {"seq": event.seq, **event_to_json(event), "prev": event.prev, "hash": event.hash}
    return {**tree, **plain_json(event.extra)} if event.extra else tree


def state_json(
    state: Snapshot, keys: Sequence[str] | None = None, listed: Listing = list
) -> dict[str, Any]:
    """A state as JSON data; with the messages of these keys only, where some are given."""
    if keys is None:
        names = [key for space, key in state.keys if space == MESSAGES]
        messages = (message for _, _, message in state.items(MESSAGES))
    else:
        names = list(keys)
        messages = (state.get(MESSAGES, key) for key in keys)
    own = {key: to_json(value) for _, key, value in state.items(SESSION)}
    status = own.pop(STATUS, None)
    if not isinstance(status, str):
        # A state of somebody's own: what stands there instead, in a list, or nothing at all.
        own[STATUS] = [status] if state.contains(SESSION, STATUS) else None
    tree: dict[str, Any] = {
        "status": status if isinstance(status, str) else PENDING,
        "messages": listed(map(to_json, messages)),
        "values": {key: to_json(value) for _, key, value in state.items(STATE)},
    }
    if names != [message_key(number) for number in range(len(names))]:
        tree["message_keys"] = names
    if own:
        tree["session"] = own
    others = [space for space in state.namespaces() if space not in SESSION_NAMESPACES]
    if others:
        tree["namespaces"] = {
            space: {key: to_json(value) for _, key, value in state.items(space)} for space in others
        }
    return tree


def encode_chunks(tree: Mapping[str, Any]) -> Iterator[bytes]:
    """The text of a document in pieces, a line for each message, value and event.

    What would be a list may be an iterator, so that it never is there as a whole.
    """
    validate_environment(tree)
    text = bytearray()
    for _ in write_lines(tree, text):
        if len(text) >= CHUNK_BYTES:
            yield bytes(text)
            text.clear()
    yield bytes(text)


def validate_environment(tree: Mapping[str, Any]) -> None:
    """Refuse the name of an environment that is no text: the system gives bytes of any kind."""
    name = tree.get("source_environment")
    try:
        str(name).encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"the source_environment {short_repr(name)} is not UTF-8, and a document cannot have it: "
            "set HOLDFAST_ENVIRONMENT, which it comes from, to a text or to nothing"
        ) from None


def write_lines(tree: Mapping[str, Any], text: bytearray) -> Iterator[None]:
    """Write the text of a document to the end of another, with a stop after each line."""
    text += b"{"
    for number, (name, value) in enumerate(tree.items()):
        text += b",\n " if number else b"\n "
        encode_into(name, text, -1)
        text += b": "
        yield from write_items(value, text, 2 if name == "state" else 1)
    text += b"\n}\n"


def write_items(value: Any, text: bytearray, levels: int) -> Iterator[None]:
    """Write the text of a value, with a line for each of its items on so many levels."""
    if levels == 0 or not isinstance(value, dict | list | Iterator):
        encode_into(value, text, -1)
        yield
        return
    names = iter(value) if isinstance(value, dict) else None
    text += b"[" if names is None else b"{"
    for number, item in enumerate(value.values() if isinstance(value, dict) else value):
        text += b",\n  " if number else b"\n  "
        if names is not None:
            encode_into(next(names), text, -1)
            text += b": "
        yield from write_items(item, text, levels - 1)
    text += b"]" if names is None else b"}"


def compute_digest(tree: Mapping[str, Any]) -> str:
    """Return the digest of a document: of all of it but the digest itself and its signatures.

    What would be a list may be an iterator.

    Raises:
        TypeError, ValueError, RecursionError: It is not JSON data.

    """
    found = hashlib.sha256()
    for piece in encode_canonical(tree, (DIGEST, SIGNATURES)):
        found.update(piece)
    return f"sha256:{found.hexdigest()}"


def encode_canonical(
    tree: Mapping[str, Any], without: Sequence[str] = (SIGNATURES,)
) -> Iterator[bytes]:
    """Return the canonical bytes of a document in pieces, without some of its fields.

    They are the same however the document is laid out, packed, and its names ordered. What would be
    a list may be an iterator.
    """
    validate_environment(tree)
    covered = {name: value for name, value in tree.items() if name not in without}
    for number, name in enumerate(sorted(covered)):
        yield (b"," if number else b"{") + encode_canonical_value(name) + b":"
        yield from encode_canonical_items(covered[name], 2 if name == "state" else 1)
    yield b"}" if covered else b"{}"


def encode_canonical_items(value: Any, levels: int) -> Iterator[bytes]:
    """Return the canonical bytes of a value, with a piece for each item on so many levels."""
    if levels == 0 or not value or not isinstance(value, dict | list | Iterator):
        yield encode_canonical_value(value)
    elif isinstance(value, dict):
        for number, name in enumerate(sorted(value)):
            yield (b"," if number else b"{") + encode_canonical_value(name) + b":"
            yield from encode_canonical_items(value[name], levels - 1)
        yield b"}"
    else:
        yield b"["
        for number, item in enumerate(value):
            yield b"," if number else b""
            yield from encode_canonical_items(item, levels - 1)
        yield b"]"
