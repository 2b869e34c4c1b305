"""Encode a document: its JSON data, its text, and the canonical bytes that digests cover.

``state`` has the three namespaces of a session by name, and all others under ``namespaces``.
Values are encoded as docs/spec/values.md describes. Fields unknown to this version are preserved.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from holdfast.errors import short_repr
from holdfast.log.changes import changes_to_json
from holdfast.log.event import DEFAULT_TYPE, Event, event_to_json, format_time
from holdfast.log.linked_events import EventBlock, LinkedEvents, decode_plain
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

BASE = "base"
DIGEST = "digest"
SIGNATURES = "signatures"

CHUNK_BYTES = 1 << 16

encode_into = msgspec.json.Encoder().encode_into

encode_sorted = msgspec.json.Encoder(order="sorted").encode

# msgspec may change how it formats floats, but a signature must stay valid for years.
encode_floats = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, sort_keys=True, separators=(",", ":")
).encode


# ------------------------------------------------------------------------------------ JSON data


def encode_fields(
    fields: Mapping[str, Any],
    base: Snapshot | None,
    extra: Mapping[str, Any],
    state_extra: Mapping[str, Any],
    items: ItemEncoding,
) -> dict[str, Any]:
    """Return the JSON data of a document's fields, with the unknown fields added."""
    data = {
        **fields,
        "created_at": format_time(fields["created_at"]),
        "exported_at": fields["exported_at"] and format_time(fields["exported_at"]),
        "state": {
            **encode_state(fields["state"], messages=items.messages),
            **normalize_json(state_extra),
        },
        "events": items.events(fields["events"]),
    }
    if base is not None:
        data[BASE] = changes_to_json(base.changes(Store().snapshot()))
    return {**data, **normalize_json(extra)}


def normalize_json(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return unknown fields as they will be read back: tuples as lists, keys as strings."""
    if not fields:
        return {}
    return msgspec.json.decode(msgspec.json.encode(fields), type=dict[str, Any])


def encode_event(event: Event) -> dict[str, Any]:
    """Return an event with its position in the log, as JSON data."""
    data = {"seq": event.seq, **event_to_json(event), "prev": event.prev, "hash": event.hash}
    return {**data, **normalize_json(event.extra)} if event.extra else data


def encode_state(
    state: Snapshot,
    keys: Sequence[str] | None = None,
    messages: Callable[[Iterator[Any]], Any] = list,
) -> dict[str, Any]:
    """Return a state as JSON data, with all messages or only those of the given keys."""
    if keys is None:
        names = [key for namespace, key in state.keys if namespace == MESSAGES]
        found = (message for _, _, message in state.items(MESSAGES))
    else:
        names = list(keys)
        found = (state.get(MESSAGES, key) for key in keys)
    session = {key: to_json(value) for _, key, value in state.items(SESSION)}
    status = session.pop(STATUS, None)
    if not isinstance(status, str):
        # A Store of other code may have any value as its status, or none: decode_status.
        session[STATUS] = [status] if state.contains(SESSION, STATUS) else None
    data: dict[str, Any] = {
        "status": status if isinstance(status, str) else PENDING,
        "messages": messages(map(to_json, found)),
        "values": {key: to_json(value) for _, key, value in state.items(STATE)},
    }
    if names != [message_key(number) for number in range(len(names))]:
        data["message_keys"] = names
    if session:
        data["session"] = session
    others = [each for each in state.namespaces() if each not in SESSION_NAMESPACES]
    if others:
        data["namespaces"] = {
            namespace: {key: to_json(value) for _, key, value in state.items(namespace)}
            for namespace in others
        }
    return data


# -------------------------------------------------------------------------------- event by event


class EventText(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """An event as segments store it, with its values as text."""

    id: str
    at: str
    type: str = DEFAULT_TYPE
    data: msgspec.Raw = msgspec.Raw(b"null")
    set: msgspec.Raw = msgspec.Raw(b"[]")
    delete: msgspec.Raw = msgspec.Raw(b"[]")


class ChangesLine(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """Changes as a document has them."""

    set: list[tuple[str, str, Any]]
    delete: list[tuple[str, str]]


class EventLine(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """An event as a document has it, without unknown fields."""

    seq: int
    id: str
    type: str
    at: str
    data: Any
    changes: ChangesLine
    prev: str
    hash: str


decode_event_texts = msgspec.json.Decoder(list[EventText]).decode


def encode_event_texts(events: Sequence[Event]) -> Iterator[Any]:
    """Yield each event as JSON data that may contain text, for `encode_chunks`."""
    for block in list_blocks(events):
        if isinstance(block, Event):
            yield encode_event(block)
            continue
        try:
            texts: list[Any] = decode_event_texts(block.text)
        except msgspec.ValidationError:
            yield from map(encode_event, block.events())
            continue
        seq, prev = block.first, block.prev
        for each, hash_ in zip(texts, block.hashes, strict=True):
            changes = ChangesLine(each.set, each.delete)
            yield EventLine(seq, each.id, each.type, each.at, each.data, changes, prev, hash_)
            seq, prev = seq + 1, hash_


def encode_canonical_events(events: Sequence[Event]) -> Iterator[Any]:
    """Yield each event as JSON data, or as its canonical text, for `encode_canonical`."""
    for block in list_blocks(events):
        if isinstance(block, Event):
            yield encode_event(block)
            continue
        stored = decode_plain(block.text)
        if stored is None:
            yield from map(encode_event, block.events())
            continue
        seq, prev = block.first, block.prev
        for each, hash_ in zip(stored, block.hashes, strict=True):
            changes = ChangesLine(each.set, each.delete)
            yield encode_canonical_line(
                EventLine(seq, each.id, each.type, each.at, each.data, changes, prev, hash_)
            )
            seq, prev = seq + 1, hash_


def encode_canonical_line(line: EventLine) -> msgspec.Raw:
    """Return the canonical JSON of an event."""
    has_floats = not is_json_without_floats(line.data)
    for row in line.changes.set:
        has_floats = has_floats or not is_json_without_floats(row[2])
    if has_floats:
        return msgspec.Raw(encode_floats(msgspec.to_builtins(line)).encode())
    return msgspec.Raw(encode_sorted(line))


def list_blocks(events: Sequence[Event]) -> Iterable[EventBlock | Event]:
    """Return blocks of events, or the events."""
    return events.blocks if isinstance(events, LinkedEvents) else events


@dataclass(frozen=True, slots=True)
class ItemEncoding:
    """How to encode the messages and events of a document."""

    messages: Callable[[Iterator[Any]], Any]
    events: Callable[[Sequence[Event]], Any]


TREES = ItemEncoding(list, lambda events: list(map(encode_event, events)))
TEXTS = ItemEncoding(iter, encode_event_texts)
CANONICAL = ItemEncoding(iter, encode_canonical_events)


# ----------------------------------------------------------------------------------------- text


def encode_chunks(data: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield the JSON text of a document in chunks, one line per message, value and event.

    An iterator in place of a list is consumed item by item.

    Raises:
        ValueError: ``source_environment`` is not UTF-8.

    """
    validate_environment(data)
    text = bytearray()
    for _ in write_lines(data, text):
        yield bytes(text)
        text.clear()
    yield bytes(text)


def validate_environment(data: Mapping[str, Any]) -> None:
    """Reject an environment name that is not UTF-8: environment variables may have any bytes."""
    name = data.get("source_environment")
    try:
        str(name).encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"invalid source_environment {short_repr(name)}: not UTF-8; set HOLDFAST_ENVIRONMENT "
            "to a text, or unset it"
        ) from None


def write_lines(data: Mapping[str, Any], text: bytearray) -> Iterator[None]:
    """Append the JSON text of a document to a buffer, yielding when that has a whole chunk."""
    text += b"{"
    for number, (name, value) in enumerate(data.items()):
        text += b",\n " if number else b"\n "
        encode_into(name, text, -1)
        text += b": "
        yield from write_items(value, text, 2 if name == "state" else 1)
    text += b"\n}\n"


def write_items(value: Any, text: bytearray, levels: int) -> Iterator[None]:
    """Append the JSON text of a value, with one line per item down to a number of levels."""
    if levels == 0 or not isinstance(value, dict | list | Iterator):
        encode_into(value, text, -1)
        return
    names = iter(value) if isinstance(value, dict) else None
    text += b"[" if names is None else b"{"
    for number, item in enumerate(value.values() if isinstance(value, dict) else value):
        text += b",\n  " if number else b"\n  "
        if names is not None:
            encode_into(next(names), text, -1)
            text += b": "
        if levels == 1:
            encode_into(item, text, -1)
        else:
            yield from write_items(item, text, levels - 1)
        if len(text) >= CHUNK_BYTES:
            yield
    text += b"]" if names is None else b"}"


# -------------------------------------------------------------------------------- canonical bytes


def compute_digest(data: Mapping[str, Any]) -> str:
    """Compute the digest of a document, which covers all but itself and the signatures.

    Raises:
        TypeError, ValueError, RecursionError: It is not JSON data.

    """
    digest = hashlib.sha256()
    for piece in encode_canonical(data, (DIGEST, SIGNATURES)):
        digest.update(piece)
    return f"sha256:{digest.hexdigest()}"


def encode_canonical(
    data: Mapping[str, Any], without: Sequence[str] = (SIGNATURES,)
) -> Iterator[bytes]:
    """Yield the canonical JSON of a document in pieces, without some of its fields.

    It does not depend on the layout of the text, its compression, or the order of names. An
    iterator in place of a list is consumed item by item.
    """
    validate_environment(data)
    covered = {name: value for name, value in data.items() if name not in without}
    for number, name in enumerate(sorted(covered)):
        yield (b"," if number else b"{") + encode_canonical_value(name) + b":"
        yield from encode_canonical_items(covered[name], 2 if name == "state" else 1)
    yield b"}" if covered else b"{}"


def encode_canonical_items(value: Any, levels: int) -> Iterator[bytes]:
    """Yield the canonical JSON of a value in pieces, dividing objects down to some levels."""
    if levels == 0 or not value or not isinstance(value, dict | list | Iterator):
        yield encode_canonical_value(value)
    elif isinstance(value, dict):
        for number, name in enumerate(sorted(value)):
            yield (b"," if number else b"{") + encode_canonical_value(name) + b":"
            yield from encode_canonical_items(value[name], levels - 1)
        yield b"}"
    else:
        text = bytearray(b"[")
        for number, item in enumerate(value):
            if number:
                text += b","
            text += item if type(item) is msgspec.Raw else encode_canonical_value(item)
            if len(text) >= CHUNK_BYTES:
                yield bytes(text)
                text.clear()
        yield bytes(text + b"]")


def encode_canonical_value(value: Any) -> bytes:
    """Return the canonical JSON of a value: sorted names, no spaces, floats as Python's repr."""
    if is_json_without_floats(value):
        return encode_sorted(value)
    return encode_floats(value).encode()
