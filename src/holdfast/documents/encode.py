"""Encode a document: its JSON data, its text, and the canonical bytes that digests cover.

``state`` has the three namespaces of a session by name, and all others under ``namespaces``.
Values are encoded as docs/spec/values.md describes. Fields unknown to this version are preserved.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec

from holdfast.documents.blobs import BlobsText
from holdfast.errors import short_repr
from holdfast.log.changes import changes_to_json
from holdfast.log.event import Event, event_to_json, format_time
from holdfast.log.linked_events import LinkedEvents, decode_plain
from holdfast.snapshots.session_state import (
    MESSAGES,
    PENDING,
    SESSION,
    SESSION_NAMESPACES,
    STATE,
    STATUS,
    message_key,
)
from holdfast.state.snapshot import Snapshot, changes_with_references, encoded_entries
from holdfast.state.store import Store
from holdfast.values import decode, to_json
from holdfast.values.json_encoding import is_json_without_floats
from holdfast.values.references import keep_references

BASE = "base"
EVENTS = "events"
DIGEST = "digest"
SIGNATURES = "signatures"
BLOBS = "blobs"
NOT_COVERED = (DIGEST, SIGNATURES, BLOBS)
"""The fields that the digest does not cover; blobs are covered by the references to them."""

CHUNK_BYTES = 1 << 16
ITEMS_PER_BATCH = 16
"""How many messages or events are encoded at once."""

encode_json = msgspec.json.Encoder().encode
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
        EVENTS: items.events(fields[EVENTS]),
    }
    if base is not None:
        data[BASE] = changes_to_json(changes_with_references(base, Store().snapshot()))
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
    messages: Callable[[Iterable[Any]], Any] = list,
    without: Collection[str] = (),
) -> dict[str, Any]:
    """Return a state as JSON data, with all messages or only those of the given keys.

    Blobs stay references and are not read. ``without`` has namespaces to leave out, besides those
    of a session.
    """
    found: Iterable[Any]
    if keys is None:
        entries = encoded_entries(state, MESSAGES)
        names = [key for key, _ in entries]
        found = (decode(bytes(data)) for _, data in entries)
    else:
        names = list(keys)
        with keep_references():
            found = [state.get(MESSAGES, key) for key in keys]
    session = encode_namespace(state, SESSION)
    status = session.pop(STATUS, None)
    if not isinstance(status, str):
        # A Store of other code may have any value as its status, or none: decode_status.
        session[STATUS] = [status] if state.contains(SESSION, STATUS) else None
    data: dict[str, Any] = {
        "status": status if isinstance(status, str) else PENDING,
        "messages": messages(map(to_json, found)),
        "values": encode_namespace(state, STATE),
    }
    if names != [message_key(number) for number in range(len(names))]:
        data["message_keys"] = names
    if session:
        data["session"] = session
    left_out = {*SESSION_NAMESPACES, *without}
    others = [each for each in state.namespaces() if each not in left_out]
    if others:
        data["namespaces"] = {namespace: encode_namespace(state, namespace) for namespace in others}
    return data


def encode_namespace(state: Snapshot, namespace: str) -> dict[str, Any]:
    """Return the values of a namespace as JSON data; blobs stay references."""
    # Plain bytes are decoded without the contents of blobs.
    return {key: to_json(decode(bytes(data))) for key, data in encoded_entries(state, namespace)}


# --------------------------------------------------------------------- messages and events


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


def encode_event_batches(events: Sequence[Event]) -> Iterator[list[Any]]:
    """Yield events as JSON data, in batches of lines or of dicts."""
    if not isinstance(events, LinkedEvents):
        yield from split_items(map(encode_event, events))
        return
    lines: list[Any] = []
    for block in events.blocks:
        stored = decode_plain(block.text)
        if len(lines) >= ITEMS_PER_BATCH or (lines and stored is None):
            yield lines
            lines = []
        if stored is None:
            yield from split_items(map(encode_event, block.events()))
            continue
        seq, prev = block.first, block.prev
        for each, hash_ in zip(stored, block.hashes, strict=True):
            changes = ChangesLine(each.set, each.delete)
            lines.append(
                EventLine(seq, each.id, each.type, each.at, each.data, changes, prev, hash_)
            )
            seq, prev = seq + 1, hash_
    if lines:
        yield lines


def split_items(items: Iterable[Any]) -> Iterator[list[Any]]:
    """Yield items in batches."""
    rest = iter(items)
    while batch := list(islice(rest, ITEMS_PER_BATCH)):
        yield batch


@dataclass(frozen=True, slots=True)
class ItemEncoding:
    """How to encode the messages and events of a document."""

    messages: Callable[[Iterable[Any]], Any]
    events: Callable[[Sequence[Event]], Any]


def encode_events(events: Sequence[Event]) -> list[dict[str, Any]]:
    """Return events as JSON data; blobs stay references."""
    with keep_references():
        return list(map(encode_event, events))


TREES = ItemEncoding(list, encode_events)
BATCHES = ItemEncoding(split_items, encode_event_batches)


# ----------------------------------------------------------------------------------------- text


def encode_chunks(data: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield the JSON text of a document in chunks, one line per message, value and event.

    A list may be an iterator of batches of its items, and the digest a function, which is called
    after them.

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
        found = value() if callable(value) else value
        if isinstance(found, BlobsText):
            for piece in found:
                text += piece
                if len(text) >= CHUNK_BYTES:
                    yield
            continue
        yield from write_items(found, text, 2 if name == "state" else 1)
    text += b"\n}\n"


def write_items(value: Any, text: bytearray, levels: int) -> Iterator[None]:
    """Append the JSON text of a value, with one line per item down to a number of levels."""
    if isinstance(value, Iterator):
        text += b"["
        separator = b"\n  "
        for batch in value:
            text += separator
            text += b",\n  ".join(map(encode_json, batch))
            separator = b",\n  "
            if len(text) >= CHUNK_BYTES:
                yield
        text += b"]"
        return
    if levels == 0 or not isinstance(value, dict | list):
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
    """Compute the digest of a document, which covers all but itself, signatures and blobs.

    Raises:
        TypeError, ValueError, RecursionError: It is not JSON data.

    """
    digest = hashlib.sha256()
    for piece in encode_canonical(data, NOT_COVERED):
        digest.update(piece)
    return f"sha256:{digest.hexdigest()}"


class RunningDigest:
    """The digest of a document, computed while the lines of its text are written.

    The text has the state before the events and the canonical JSON has it after them, so the
    canonical messages are kept until then.
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = data
        self._digest = hashlib.sha256()
        self._messages: list[bytes] = []
        covered = sorted(data.keys() - set(NOT_COVERED))
        at = covered.index(EVENTS)
        self._before, self._after = covered[:at], covered[at + 1 :]

    def observed_data(self) -> dict[str, Any]:
        """Return the data with iterators to consume in this order, then the digest to call."""
        state = self._data["state"]
        messages = observe_batches(state["messages"], self._messages.append)
        return {
            **self._data,
            "state": {**state, "messages": messages},
            EVENTS: self._observe_events(),
            DIGEST: self._finish,
        }

    def _observe_events(self) -> Iterator[Any]:
        for piece in encode_canonical_fields(self._data, self._before, b"{"):
            self._digest.update(piece)
        self._digest.update(
            (b"," if self._before else b"{") + encode_canonical_value(EVENTS) + b":"
        )
        yield from observe_batches(self._data[EVENTS], self._digest.update)

    def _finish(self) -> str:
        state = {**self._data["state"], "messages": CanonicalText(self._messages)}
        for piece in encode_canonical_fields({**self._data, "state": state}, self._after, b","):
            self._digest.update(piece)
        self._digest.update(b"}")
        return f"sha256:{self._digest.hexdigest()}"


@dataclass(frozen=True, slots=True)
class CanonicalText:
    """A value whose canonical JSON is known."""

    pieces: list[bytes]


def encode_canonical(
    data: Mapping[str, Any], without: Sequence[str] = (SIGNATURES, BLOBS)
) -> Iterator[bytes]:
    """Yield the canonical JSON of a document in pieces, without some of its fields.

    It does not depend on the layout of the text, its compression, or the order of names. A list
    may be an iterator of batches of its items.
    """
    validate_environment(data)
    covered = sorted(name for name in data if name not in without)
    yield from encode_canonical_fields(data, covered, b"{")
    yield b"}" if covered else b"{}"


def encode_canonical_fields(
    data: Mapping[str, Any], names: Sequence[str], opening: bytes
) -> Iterator[bytes]:
    """Yield the canonical JSON of some fields of a document in pieces."""
    for number, name in enumerate(names):
        yield (b"," if number else opening) + encode_canonical_value(name) + b":"
        yield from encode_canonical_items(data[name], 2 if name == "state" else 1)


def encode_canonical_items(value: Any, levels: int) -> Iterator[bytes]:
    """Yield the canonical JSON of a value in pieces, dividing objects down to some levels."""
    if isinstance(value, CanonicalText):
        yield from value.pieces
    elif levels == 0 or not value or not isinstance(value, dict | list | Iterator):
        yield encode_canonical_value(value)
    elif isinstance(value, dict):
        for number, name in enumerate(sorted(value)):
            yield (b"," if number else b"{") + encode_canonical_value(name) + b":"
            yield from encode_canonical_items(value[name], levels - 1)
        yield b"}"
    else:
        batches = split_items(value) if isinstance(value, list) else value
        pieces: list[bytes] = []
        for _ in observe_batches(batches, pieces.append):
            yield from pieces
            pieces.clear()
        yield from pieces


def observe_batches(
    batches: Iterable[list[Any]], add: Callable[[bytes], object]
) -> Iterator[list[Any]]:
    """Yield batches of items, and pass on the canonical JSON of their list in pieces."""
    opening = b"["
    for batch in batches:
        add(opening)
        add(encode_canonical_batch(batch))
        opening = b","
        yield batch
    add(b"]" if opening == b"," else b"[]")


def encode_canonical_batch(batch: list[Any]) -> bytes:
    """Return the canonical JSON of items, separated by commas."""
    if isinstance(batch[0], EventLine):
        is_sortable = is_json_without_floats([[line.data, line.changes.set] for line in batch])
        if not is_sortable:
            batch = [msgspec.to_builtins(line) for line in batch]
    else:
        is_sortable = is_json_without_floats(batch)
    if is_sortable:
        return encode_sorted(batch)[1:-1]
    return b",".join(map(encode_canonical_value, batch))


def encode_canonical_value(value: Any) -> bytes:
    """Return the canonical JSON of a value: sorted names, no spaces, floats as Python's repr."""
    if is_json_without_floats(value):
        return encode_sorted(value)
    return encode_floats(value).encode()
