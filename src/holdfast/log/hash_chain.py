"""The hash that binds an event to all before it.

    hash = sha256(prev + canonical(event))

``prev`` is the hash before it as text, empty for the first. The event is its seq, id, type, at (as
text), data and changes, in the canonical bytes of docs/spec/values.md: so that the hash is the same
however the JSON was written, in any process, and after any number of exports and imports.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from holdfast.log.changes import array_header, encode_canonical_changes
from holdfast.log.event import Event, EventDraft, format_time
from holdfast.values.binary_encoding import encode
from holdfast.values.json_encoding import encode_canonical

__all__ = [
    "GENESIS",
    "array_header",
    "encode_canonical_event",
    "hash_event",
    "link_event",
    "link_events",
]

GENESIS = ""

# Keys in order, as canonical bytes have them; the first with what a map of six begins with.
AT, CHANGES, DATA, ID, SEQ, TYPE = map(encode, ("at", "changes", "data", "id", "seq", "type"))
AT = b"\x86" + AT


def link_event(event: EventDraft, seq: int, prev: str) -> Event:
    """An event at its place in the log."""
    found = hash_event(event, seq, prev)
    return Event(
        seq, event.id, event.type, event.at, event.data, event.changes, prev, found, event.extra
    )


def hash_event(event: EventDraft | Event, seq: int, prev: str) -> str:
    """The hash that an event has at a place in the log."""
    return hashlib.sha256(prev.encode() + encode_canonical_event(event, seq)).hexdigest()


def encode_canonical_event(event: EventDraft | Event, seq: int) -> bytes:
    """The canonical bytes of an event: those of a dict of its fields, put together piece by piece.

    So each value has its own bound of nesting, and not what the event around it leaves of one.
    """
    return b"".join(
        (
            AT,
            encode(format_time(event.at)),
            CHANGES,
            encode_canonical_changes(event.changes),
            DATA,
            encode_canonical(event.data),
            ID,
            encode(event.id),
            SEQ,
            encode(seq),
            TYPE,
            encode(event.type),
        )
    )


def link_events(drafts: Iterable[EventDraft], seq: int, prev: str) -> list[Event]:
    """Events at the places that follow ``seq`` and its hash."""
    events = []
    for event in drafts:
        seq += 1
        placed = link_event(event, seq, prev)
        events.append(placed)
        prev = placed.hash
    return events
