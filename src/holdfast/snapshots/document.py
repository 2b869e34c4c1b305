"""The document: a session at one moment as JSON data that stands alone, schema version 1.

``state`` has a session's own three namespaces by name and the others under ``namespaces``. Values
have the form of docs/spec/values.md. Fields that this version does not know are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from holdfast.log.changes import changes_json
from holdfast.log.events import Event, content, time_text
from holdfast.snapshots.session_state import (
    MESSAGES,
    OWN,
    PENDING,
    SESSION,
    STATE,
    STATUS,
    message_key,
)
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store
from holdfast.values import to_json

BASE = "base"

encode = msgspec.json.Encoder().encode


def written(
    fields: Mapping[str, Any],
    base: Snapshot | None,
    extra: Mapping[str, Any],
    state_extra: Mapping[str, Any],
) -> dict[str, Any]:
    """The document of a snapshot's fields, with those that this version does not know."""
    tree = {
        **fields,
        "created_at": time_text(fields["created_at"]),
        "exported_at": fields["exported_at"] and time_text(fields["exported_at"]),
        "state": {**state_json(fields["state"]), **state_extra},
        "events": [event_json(event) for event in fields["events"]],
    }
    if base is not None:
        tree[BASE] = changes_json(base.changes(Store().snapshot()))
    return {**tree, **extra}


def event_json(event: Event) -> dict[str, Any]:
    """An event at its place in the log, as JSON data."""
    return {"seq": event.seq, **content(event), "prev": event.prev, "hash": event.hash}


def state_json(state: Snapshot) -> dict[str, Any]:
    """A state as JSON data."""
    messages = list(state.items(MESSAGES))
    own = {key: to_json(value) for _, key, value in state.items(SESSION)}
    status = own.pop(STATUS, None)
    if not isinstance(status, str):
        # A state of somebody's own: what stands there instead, in a list, or nothing at all.
        own[STATUS] = [status] if state.contains(SESSION, STATUS) else None
    tree: dict[str, Any] = {
        "status": status if isinstance(status, str) else PENDING,
        "messages": [to_json(message) for _, _, message in messages],
        "values": {key: to_json(value) for _, key, value in state.items(STATE)},
    }
    keys = [key for _, key, _ in messages]
    if keys != [message_key(number) for number in range(len(keys))]:
        tree["message_keys"] = keys
    if own:
        tree["session"] = own
    others = [space for space in state.namespaces() if space not in OWN]
    if others:
        tree["namespaces"] = {
            space: {key: to_json(value) for _, key, value in state.items(space)} for space in others
        }
    return tree


def chunks(tree: Mapping[str, Any]) -> Iterator[bytes]:
    """The text of a document in pieces, a line for each message, value and event."""
    yield b"{"
    for number, (name, value) in enumerate(tree.items()):
        yield (b",\n " if number else b"\n ") + encode(name) + b": "
        yield from pieces(value, 2 if name == "state" else 1)
    yield b"\n}\n"


def pieces(value: Any, levels: int) -> Iterator[bytes]:
    """The text of a value, with a line for each of its items on so many levels."""
    if levels == 0 or not isinstance(value, dict | list) or not value:
        yield encode(value)
        return
    named = value.items() if isinstance(value, dict) else ((None, item) for item in value)
    yield b"{" if isinstance(value, dict) else b"["
    for number, (name, item) in enumerate(named):
        yield b",\n  " if number else b"\n  "
        if name is not None:
            yield encode(name) + b": "
        yield from pieces(item, levels - 1)
    yield b"}" if isinstance(value, dict) else b"]"
