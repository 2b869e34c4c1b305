"""The hash that binds an event to all events before it.

    hash = sha256(prev + canonical bytes of the event)

``prev`` is the previous hash as text, empty for the first event. The hashed fields are seq, id,
type, at (as text), data and changes. Canonical bytes (docs/spec/values.md) do not depend on how the
JSON was written, so the hash is the same in any process and after any export and import.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterable
from typing import Final

import msgspec

from holdfast.log.changes import encode_canonical_changes, join_after_seq, join_before_seq
from holdfast.log.event import (
    CanonicalChanges,
    CanonicalEvent,
    Event,
    EventDraft,
    StoredEvent,
    format_time,
)
from holdfast.values.binary_encoding import encode
from holdfast.values.json_encoding import encode_canonical, is_untagged

GENESIS: Final = ""

TIME_FORM: Final = "2026-11-15T09:30:00.000000Z"

_sha256: Final = hashlib.sha256
_parse_time: Final = dt.datetime.fromisoformat
_pack_sorted: Final = msgspec.msgpack.Encoder(order="sorted").encode


def link_event(event: EventDraft, seq: int, prev: str) -> Event:
    """Return an event with its sequence number and hashes."""
    hash_ = hash_event(event, seq, prev)
    return Event(
        seq, event.id, event.type, event.at, event.data, event.changes, prev, hash_, event.extra
    )


def link_events(drafts: Iterable[EventDraft], seq: int, prev: str) -> list[Event]:
    """Return the events that follow the position ``(seq, prev)``."""
    events = []
    for draft in drafts:
        seq += 1
        event = link_event(draft, seq, prev)
        events.append(event)
        prev = event.hash
    return events


def hash_event(event: EventDraft | Event, seq: int, prev: str) -> str:
    """Return the hash of an event at a position."""
    return _sha256(prev.encode() + encode_canonical_event(event, seq)).hexdigest()


def encode_canonical_event(event: EventDraft | Event, seq: int) -> bytes:
    """Return the canonical bytes of an event."""
    changes, data = encode_canonical_changes(event.changes), encode_canonical(event.data)
    before_seq = join_before_seq(format_time(event.at), changes, data, event.id)
    return before_seq + encode(seq) + join_after_seq(event.type)


def hash_plain_events(events: Iterable[StoredEvent], seq: int, prev: str) -> list[str] | None:
    """Return the hashes of events that follow a position, or None if they have to be decoded.

    JSON data without tags is its own value: all of an event is encoded at once.
    """
    hashes: list[str] = []
    for event in events:
        seq += 1
        data, sets = event.data, event.set
        for row in sets:
            if not is_untagged(row[2]):
                return None
        if (data is not None and not is_untagged(data)) or not is_stored_time(event.at):
            return None
        changes = CanonicalChanges(event.delete, sets)
        fields = CanonicalEvent(event.at, changes, data, event.id, seq, event.type)
        try:
            canonical = _pack_sorted(fields)
        except (OverflowError, msgspec.MsgspecError):
            return None  # an int beyond 64 bits
        prev = _sha256(prev.encode() + canonical).hexdigest()
        hashes.append(prev)
    return hashes


def is_stored_time(text: str) -> bool:
    """Return whether a time is exactly as `format_time` returns it."""
    # The length and the separators exclude all other forms that can be parsed.
    if (
        len(text) != len(TIME_FORM)
        or text[4] != "-"
        or text[7] != "-"
        or text[10] != "T"
        or text[13] != ":"
        or text[16] != ":"
        or text[19] != "."
        or text[26] != "Z"
        or text[11:13] == "24"
    ):
        return False
    try:
        _parse_time(text)
    except ValueError:
        return False
    return True
