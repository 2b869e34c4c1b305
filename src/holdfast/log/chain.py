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


def link(event: Draft, seq: int, prev: str) -> Event:
    """An event at its place in the log."""
    said = {
        "seq": seq,
        "id": event.id,
        "type": event.type,
        "at": time_text(event.at),
        "data": event.data,
        "changes": {
            "set": [list(item) for item in event.changes["set"]],
            "delete": [list(pair) for pair in event.changes["delete"]],
        },
    }
    digest = hashlib.sha256(prev.encode() + canonical(encode(said))).hexdigest()
    return Event(seq, event.id, event.type, event.at, event.data, event.changes, prev, digest)


def linked(drafts: Iterable[Draft], seq: int, prev: str) -> list[Event]:
    """Events at the places that follow ``seq`` and its hash."""
    events = []
    for event in drafts:
        seq += 1
        placed = link(event, seq, prev)
        events.append(placed)
        prev = placed.hash
    return events
