"""The hash that binds an event to all events before it.

    hash = sha256(prev + canonical bytes of the event)

``prev`` is the previous hash as text, empty for the first event. The hashed fields are seq, id,
type, at (as text), data and changes. Canonical bytes (docs/spec/values.md) do not depend on how the
JSON was written, so the hash is the same in any process and after any export and import.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from holdfast.log.changes import encode_canonical_changes
from holdfast.log.event import Event, EventDraft, format_time
from holdfast.values.binary_encoding import encode
from holdfast.values.json_encoding import encode_canonical

GENESIS = ""

# The field names in canonical order; the first is preceded by the header of a map of six.
AT, CHANGES, DATA, ID, SEQ, TYPE = map(encode, ("at", "changes", "data", "id", "seq", "type"))
AT = b"\x86" + AT


def link_event(event: EventDraft, seq: int, prev: str) -> Event:
    """Return an event with its sequence number and hashes."""
    return place_event(event, seq, prev, hash_event(event, seq, prev))


def link_events(drafts: Iterable[EventDraft], seq: int, prev: str) -> list[Event]:
    """Return the events that follow the position ``(seq, prev)``."""
    events = []
    for draft in drafts:
        seq += 1
        event = link_event(draft, seq, prev)
        events.append(event)
        prev = event.hash
    return events


def place_event(event: EventDraft, seq: int, prev: str, hash_: str) -> Event:
    """Return an event with the given sequence number and hashes."""
    return Event(
        seq, event.id, event.type, event.at, event.data, event.changes, prev, hash_, event.extra
    )


def hash_event(event: EventDraft | Event, seq: int, prev: str) -> str:
    """Return the hash of an event at a position."""
    return hash_bytes(encode_canonical_event(event, seq), prev)


def hash_bytes(canonical: bytes, prev: str) -> str:
    """Return the hash of an event with the given canonical bytes."""
    sha = hashlib.sha256(prev.encode())
    sha.update(canonical)
    return sha.hexdigest()


def encode_canonical_event(event: EventDraft | Event, seq: int) -> bytes:
    """Return the canonical bytes of an event."""
    changes = encode_canonical_changes(event.changes)
    return join_canonical_fields(event, seq, encode_canonical(event.data), changes)


def join_canonical_fields(
    event: EventDraft | Event, seq: int, data: bytes, changes: bytes
) -> bytes:
    """Return the canonical bytes of an event, given those of its data and of its changes.

    The result equals the canonical bytes of a dict of the fields. Encoding the fields separately
    gives each value the full nesting limit.
    """
    return b"".join(
        (
            AT,
            encode(format_time(event.at)),
            CHANGES,
            changes,
            DATA,
            data,
            ID,
            encode(event.id),
            SEQ,
            encode(seq),
            TYPE,
            encode(event.type),
        )
    )
