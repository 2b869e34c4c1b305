"""Decode and validate the text of a document item by item.

Parsing the whole text first takes several times its size in memory. Here the text is divided into
messages and events without decoding them, and each is decoded, checked and added to the digest on
its own. This is for documents as `write_document` writes them. It refuses any other, and any that
is invalid: `decode_fields` reads those too, and says what is wrong.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from holdfast.documents.blobs import bind_contents
from holdfast.documents.decode import (
    MALFORMED_DATA,
    add_message,
    build_fields,
    decode_base,
    decode_blobs,
    decode_event,
    decode_message_keys,
    decode_state_values,
    validate_depth,
)
from holdfast.documents.encode import (
    BASE,
    BLOBS,
    DIGEST,
    NOT_COVERED,
    EventLine,
    encode_canonical,
    split_items,
)
from holdfast.documents.migrations import SCHEMA_VERSION
from holdfast.documents.validate import is_linked, validate_event_count
from holdfast.log.changes import fold_changes
from holdfast.log.event import Event, StoredEvent
from holdfast.log.event_log import Position
from holdfast.log.hash_chain import hash_plain_events
from holdfast.log.linked_events import EVENTS_PER_BLOCK, EventBlock, LinkedEvents
from holdfast.snapshots.session_state import MESSAGES
from holdfast.state.batch import encode_entry
from holdfast.state.diff import Changes
from holdfast.state.store import Store, get_encoded
from holdfast.stores.batch_read import split_batches
from holdfast.values import from_json

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
    blobs: JsonField = msgspec.UNSET


decode_structure = msgspec.json.Decoder(DocumentText).decode
decode_item = msgspec.json.Decoder().decode
decode_line = msgspec.json.Decoder(EventLine).decode


def decode_text(
    text: bytes | bytearray, folder: str | os.PathLike[str] | None = None
) -> DecodedText | None:
    """Decode the items of a document and verify its digest and hash chain; None if refused.

    ``folder`` is where it was read from, for blobs in files beside it.
    """
    try:
        parts = decode_structure(text)
        decoded = DecodedText(present_fields(parts), present_fields(parts.state), folder)
        is_valid = parts.schema_version == SCHEMA_VERSION and decoded.add_items(parts)
    except (msgspec.DecodeError, RecursionError, *MALFORMED_DATA):
        return None
    return decoded if is_valid else None


class DecodedText:
    """The items of a document, decoded, and its other fields as JSON data.

    The events are folded into the store, and the state of the document is compared with it.
    """

    def __init__(
        self,
        data: dict[str, Any],
        state: dict[str, Any],
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        self._blobs = decode_blobs(data.pop(BLOBS, None), folder)
        self._data = data
        self._state = state
        self._base = None if data.get(BASE) is None else decode_base(data[BASE])
        self._blocks: list[EventBlock] = []
        self._store = Store(max_history=0)
        if self._base is not None:
            self._store.restore(self._base)

    def add_items(self, parts: DocumentText) -> bool:
        """Decode the messages and events; return whether they match each other and the digest."""
        digest = hashlib.sha256()
        # In canonical order, the events come before the state.
        state = {**self._state, "messages": self._decode_messages(parts.state.messages)}
        covered = {**self._data, "state": state, "events": self._decode_events(parts.events)}
        for piece in encode_canonical(covered, NOT_COVERED):
            digest.update(piece)
        return (
            bool(self._data[DIGEST] == f"sha256:{digest.hexdigest()}")
            and self._add_values(len(parts.state.messages))
            and (not self._blocks or self._blocks[0].first == 1 or self._base is not None)
        )

    def finish(self) -> dict[str, Any]:
        """Validate the rest, for which the text is not needed; return the arguments of `Document`.

        Raises:
            InvalidDocumentError: It is not a valid document.
            ModifiedDocumentError: Its number of events is wrong.

        """
        state = bind_contents(self._store.snapshot(), self._blobs)
        base = None if self._base is None else bind_contents(self._base, self._blobs)
        events = LinkedEvents(self._blocks, base=base, state=state) if self._blocks else ()
        data = {**self._data, "state": self._state}
        fields = build_fields(data, state, base, events, self._blobs)
        validate_event_count(events, self._data)
        return fields

    # ---------------------------------------------------------------------------------- events

    def _decode_events(self, texts: Sequence[msgspec.Raw]) -> Iterator[list[Any]]:
        """Yield the events as JSON data, in batches, after folding them."""
        end: Position | None = None
        for batch in split_batches(texts, EVENTS_PER_BLOCK):
            block, changes, lines = decode_lines(batch, end) or decode_trees(batch, end)
            fold_changes(self._store, changes)
            self._blocks.append(block)
            end = Position(block.last, block.hashes[-1])
            yield lines

    # ----------------------------------------------------------------------------------- state

    def _decode_messages(self, texts: Sequence[msgspec.Raw]) -> Iterator[list[Any]]:
        """Yield the JSON data of the messages, in batches, after adding them to the state."""
        keys = decode_message_keys(self._state.get("message_keys"), len(texts))
        for batch in split_items(zip(keys, texts, strict=True)):
            messages = [decode_item(text) for _, text in batch]
            for (key, _), message in zip(batch, messages, strict=True):
                if not self._blocks:
                    add_message(self._store, key, message)
                    continue
                data = encode_entry(MESSAGES, key, from_json(message))
                if data != get_encoded(self._store, MESSAGES, key):
                    raise ValueError(f"the events do not lead to the message {key}")
            yield messages

    def _add_values(self, messages: int) -> bool:
        """Add all but the messages; return whether the events lead to the state."""
        if not self._blocks:
            decode_state_values(self._store, self._state)
            return True
        values = Store(max_history=0)
        decode_state_values(values, self._state)
        return len(self._store) == len(values) + messages and all(
            get_encoded(self._store, *pair) == get_encoded(values, *pair)
            for pair in values.snapshot().keys
        )


Decoded = tuple[EventBlock, list[Changes], list[Any]]
"""Events, the changes of each, and the JSON data of each."""


def decode_lines(texts: Sequence[msgspec.Raw], after: Position | None) -> Decoded | None:
    """Decode events that have the usual fields and plain values, or return None."""
    try:
        lines = [decode_line(text) for text in texts]
    except msgspec.ValidationError:
        return None
    first, prev = (lines[0].seq, lines[0].prev) if after is None else (after.seq + 1, after.hash)
    stored = [
        StoredEvent(
            id=line.id,
            type=line.type,
            at=line.at,
            data=line.data,
            set=line.changes.set,
            delete=line.changes.delete,
        )
        for line in lines
    ]
    hashes = hash_plain_events(stored, first - 1, prev) if first > 0 else None
    if hashes is None:
        return None
    previous = prev
    for seq, (line, hash_) in enumerate(zip(lines, hashes, strict=True), first):
        if line.seq != seq or line.prev != previous or line.hash != hash_:
            raise ValueError(f"event {seq} breaks the hash chain")
        previous = hash_
    changes: list[Changes] = [{"set": each.set, "delete": each.delete} for each in stored]
    block = EventBlock(first, prev, hashes, msgspec.json.encode(stored))
    return block, changes, lines


def decode_trees(texts: Sequence[msgspec.Raw], after: Position | None) -> Decoded:
    """Decode events that may have unknown fields and values of any type."""
    trees = [decode_item(text) for text in texts]
    events: list[Event] = []
    for fields in trees:
        event = decode_event(fields, events[-1] if events else after)
        if not is_linked(event, fields):
            raise ValueError(f"event {event.seq} breaks the hash chain")
        if event.extra:
            validate_depth(event.extra, "events")
        events.append(event)
    return EventBlock.encode(events), [event.changes for event in events], trees


def present_fields(parts: msgspec.Struct) -> dict[str, Any]:
    """Return the fields that the text has, without lists of text."""
    found = {name: getattr(parts, name) for name in parts.__struct_fields__}
    return {
        name: value
        for name, value in found.items()
        if value is not msgspec.UNSET and name not in ("state", "messages", "events")
    }
