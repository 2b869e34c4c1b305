"""The hash that binds an event to all before it.

    hash = sha256(prev + canonical(event))

``prev`` is the hash before it as text, empty for the first. The event is its seq, id, type, at (as
text), data and changes, in the canonical bytes of docs/spec/values.md: so that the hash is the same
however the JSON was written, in any process, and after any number of exports and imports.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from holdfast.log.events import Draft, Event, time_text
from holdfast.values.binary import canonical, encode

GENESIS = ""

# Keys in order, as canonical bytes have them, and what maps and arrays of msgpack begin with.
AT, CHANGES, DATA, ID, SEQ, TYPE = map(encode, ("at", "changes", "data", "id", "seq", "type"))
DELETE, SET = map(encode, ("delete", "set"))
MAP_OF_2, MAP_OF_6, ARRAY_OF_2, ARRAY_OF_3 = b"\x82", b"\x86", b"\x92", b"\x93"


def link(event: Draft, seq: int, prev: str) -> Event:
    """An event at its place in the log."""
    digest = hashlib.sha256(prev.encode() + said(event, seq)).hexdigest()
    return Event(
        seq, event.id, event.type, event.at, event.data, event.changes, prev, digest, event.extra
    )


def said(event: Draft, seq: int) -> bytes:
    """The canonical bytes of an event: those of a dict of its fields, put together piece by piece.

    So each value has its own bound of nesting, and not what the event around it leaves of one.
    """
    changes = event.changes
    parts = [MAP_OF_6, AT, encode(time_text(event.at)), CHANGES, MAP_OF_2, DELETE]
    parts.append(array_of(len(changes["delete"])))
    for space, key in changes["delete"]:
        parts += (ARRAY_OF_2, encode(space), encode(key))
    parts += (SET, array_of(len(changes["set"])))
    for space, key, value in changes["set"]:
        parts += (ARRAY_OF_3, encode(space), encode(key), canonical(encode(value)))
    parts += (DATA, canonical(encode(event.data)), ID, encode(event.id))
    parts += (SEQ, encode(seq), TYPE, encode(event.type))
    return b"".join(parts)


def array_of(count: int) -> bytes:
    """What an array of so many items begins with in msgpack."""
    if count < 16:
        return bytes([0x90 | count])
    if count < 1 << 16:
        return b"\xdc" + count.to_bytes(2)
    return b"\xdd" + count.to_bytes(4)


def linked(drafts: Iterable[Draft], seq: int, prev: str) -> list[Event]:
    """Events at the places that follow ``seq`` and its hash."""
    events = []
    for event in drafts:
        seq += 1
        placed = link(event, seq, prev)
        events.append(placed)
        prev = placed.hash
    return events
