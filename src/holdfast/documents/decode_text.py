"""Decode and validate the text of a document item by item.

Parsing the whole text first takes several times its size in memory. Here the text is divided into
messages and events without decoding them, and each is decoded, checked and added to the digest on
its own. This is for documents as `write_document` writes them. It refuses any other, and any that
is invalid: `decode_fields` reads those too, and says what is wrong.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from holdfast.documents.decode import (
    MALFORMED_DATA,
    add_message,
    build_fields,
    decode_base,
    decode_event,
    decode_message_keys,
    decode_state_values,
    validate_depth,
)
from holdfast.documents.encode import BASE, DIGEST, encode_canonical
from holdfast.documents.migrations import SCHEMA_VERSION
from holdfast.documents.validate import is_linked, validate_event_count, validate_fold
from holdfast.log.event import Event
from holdfast.state.store import Store

JsonField = Any | msgspec.UnsetType


class StateText(msgspec.Struct, forbid_unknown_fields=True):
    """The ``state`` of a document, with its messages as text."""

    messages: list[msgspec.Raw]
    status: JsonField = msgspec.UNSET
    message_keys: JsonField = msgspec.UNSET
    values: JsonField = msgspec.UNSET
    session: JsonField = msgspec.UNSET
    namespaces: JsonField = msgspec.UNSET


class DocumentText(msgspec.Struct, forbid_unknown_fields=True):
    """A document, with its messages and events as text."""

    schema_version: int
    state: StateText
    events: list[msgspec.Raw]
    digest: str
    agent_id: Any
    session_id: Any
    snapshot_id: JsonField = msgspec.UNSET
    parent_id: JsonField = msgspec.UNSET
    scope: JsonField = msgspec.UNSET
    created_at: JsonField = msgspec.UNSET
    exported_at: JsonField = msgspec.UNSET
    source_environment: JsonField = msgspec.UNSET
    tags: JsonField = msgspec.UNSET
    event_log_count: JsonField = msgspec.UNSET
    base: JsonField = msgspec.UNSET


decode_structure = msgspec.json.Decoder(DocumentText).decode
decode_item = msgspec.json.Decoder().decode


def decode_text(text: bytes | bytearray) -> DecodedText | None:
    """Decode the items of a document and verify its digest and hash chain; None if refused."""
    try:
        parts = decode_structure(text)
        decoded = DecodedText(present_fields(parts), present_fields(parts.state))
        is_valid = parts.schema_version == SCHEMA_VERSION and decoded.add_items(parts)
    except (msgspec.DecodeError, RecursionError, *MALFORMED_DATA):
        return None
    return decoded if is_valid else None


class DecodedText:
    """The items of a document, decoded, and its other fields as JSON data."""

    def __init__(self, data: dict[str, Any], state: dict[str, Any]) -> None:
        self._data = data
        self._state = state
        self._events: list[Event] = []
        self._store = Store(max_history=0)

    def add_items(self, parts: DocumentText) -> bool:
        """Decode the messages and events; return whether the digest matches."""
        digest = hashlib.sha256()
        state = {**self._state, "messages": self._decode_messages(parts.state.messages)}
        covered = {**self._data, "state": state, "events": self._decode_events(parts.events)}
        for piece in encode_canonical(covered, (DIGEST,)):
            digest.update(piece)
        return bool(self._data[DIGEST] == f"sha256:{digest.hexdigest()}")

    def finish(self) -> dict[str, Any]:
        """Validate the rest, for which the text is not needed; return the arguments of `Document`.

        Raises:
            InvalidDocumentError: It is not a valid document.
            ModifiedDocumentError: Its events do not lead to its state.

        """
        decode_state_values(self._store, self._state)
        base = None if self._data.get(BASE) is None else decode_base(self._data[BASE])
        state = self._store.snapshot()
        fields = build_fields({**self._data, "state": self._state}, state, base, self._events)
        validate_event_count(self._events, self._data)
        validate_fold(self._events, base, state)
        return fields

    def _decode_events(self, texts: Sequence[msgspec.Raw]) -> Iterator[Any]:
        """Yield the JSON data of each event, after decoding it."""
        previous: Event | None = None
        for text in texts:
            fields = decode_item(text)
            previous = decode_event(fields, previous)
            if not is_linked(previous, fields):
                raise ValueError(f"event {previous.seq} breaks the hash chain")
            if previous.extra:
                validate_depth(previous.extra, "events")
            self._events.append(previous)
            yield fields

    def _decode_messages(self, texts: Sequence[msgspec.Raw]) -> Iterator[Any]:
        """Yield the JSON data of each message, after adding it to the state."""
        keys = decode_message_keys(self._state.get("message_keys"), len(texts))
        for key, text in zip(keys, texts, strict=True):
            message = decode_item(text)
            add_message(self._store, key, message)
            yield message


def present_fields(parts: msgspec.Struct) -> dict[str, Any]:
    """Return the fields that the text has, without lists of text."""
    found = {name: getattr(parts, name) for name in parts.__struct_fields__}
    return {
        name: value
        for name, value in found.items()
        if value is not msgspec.UNSET and name not in ("state", "messages", "events")
    }
