"""Convert the bytes of a Strands snapshot to the state of a session, and back.

    messages   the conversation, one entry per message
    state      the state of the agent, by key
    strands    the rest: ``data.<field>`` for each other field of the snapshot, and ``shape``, the
               order of all fields

Bytes that would not come back the same, because of other spaces or number formats or because they
are not a snapshot, are also stored as ``bytes`` and read from there.
"""

from __future__ import annotations

import json
from typing import Any, TypeAlias

from holdfast.errors import UnsupportedValueError
from holdfast.sessions.run_status import infer_strands_status
from holdfast.snapshots.session_state import (
    MESSAGES,
    SESSION,
    STATE,
    STATUS,
    message_key,
    message_number,
)
from holdfast.state.diff import Changes
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store

NAMESPACE = "strands"
SHAPE = "shape"
BYTES = "bytes"
FIELD = "data."
NAMESPACES = (MESSAGES, STATE, NAMESPACE)

Entries: TypeAlias = list[tuple[str, str, Any]]


def encode_changes(before: Snapshot, data: bytes) -> Changes:
    """Return the changes after which a state holds these bytes.

    The status changes to that of the run, as the snapshot shows it.
    """
    try:
        tree = parse_snapshot(data)
        entries = encode_entries(tree, before)
        changes = replace_entries(before, entries)
        # A value whose keys only changed their order is not a change and keeps the old order, so
        # the bytes are compared with those of the changed state.
        if decode_state(apply_changes(before, changes)) != data:
            changes = replace_entries(before, [*entries, (NAMESPACE, BYTES, data)])
        status = infer_strands_status(tree["data"])
        if status != before.get(SESSION, STATUS):
            changes["set"].append((SESSION, STATUS, status))
    except (UnsupportedValueError, ValueError, RecursionError):
        changes = replace_entries(before, [(NAMESPACE, BYTES, data)])
    return changes


def replace_entries(before: Snapshot, entries: Entries) -> Changes:
    """Return the changes that replace the snapshot in a state by these entries."""
    store = Store(max_history=0)
    store.restore(before)
    wanted = {(space, key) for space, key, _ in entries}
    for space in NAMESPACES:
        for key in store.keys(space):
            if (space, key) not in wanted:
                store.delete(space, key)
    store.set_many(entries)
    return store.snapshot().changes(before)


def apply_changes(before: Snapshot, changes: Changes) -> Snapshot:
    """Return the state after changes."""
    store = Store(max_history=0)
    store.restore(before)
    store.apply(changes)
    return store.snapshot()


def parse_snapshot(data: bytes) -> dict[str, Any]:
    """Return the JSON object of a snapshot.

    Raises:
        ValueError: The bytes are not a snapshot.

    """
    tree = json.loads(data)
    if not isinstance(tree, dict) or not isinstance(tree.get("data"), dict):
        raise ValueError("snapshot must be an object with data")  # noqa: TRY004 - the bytes are wrong
    return tree


def encode_entries(tree: dict[str, Any], before: Snapshot) -> Entries:
    """Return the entries of a snapshot that replaces the one in a state."""
    fields: dict[str, Any] = tree["data"]
    shape: dict[str, Any] = {
        "top": [[name, None if name == "data" else value] for name, value in tree.items()],
        "fields": list(fields),
    }
    entries: Entries = []
    for name, value in fields.items():
        if name == "messages" and isinstance(value, list):
            shape["messages"] = True
            first = first_number(value, before)
            entries += [
                (MESSAGES, message_key(number), message)
                for number, message in enumerate(value, start=first)
            ]
        elif name == "state" and isinstance(value, dict):
            shape["state"] = list(value)
            entries += [(STATE, key, each) for key, each in value.items()]
        else:
            entries.append((NAMESPACE, FIELD + name, value))
    return [*entries, (NAMESPACE, SHAPE, shape)]


def first_number(messages: list[Any], before: Snapshot) -> int:
    """Return the number of the first message.

    If a conversation was cut at its beginning, the other messages keep their numbers and are not
    written again.
    """
    rows = list(before.items(MESSAGES))
    known = [message for _, _, message in rows]
    starts = [index for index, message in enumerate(known) if message in messages[:1]]
    for index in [*starts, 0]:
        if rows and (index == 0 or known[index:] == messages[: len(known) - index]):
            return message_number(rows[index][1]) or 0
    return 0


def decode_state(state: Snapshot) -> bytes | None:
    """Return the bytes of the snapshot that a state holds, or None."""
    exact = state.get(NAMESPACE, BYTES)
    if isinstance(exact, bytes):
        return exact
    shape = state.get(NAMESPACE, SHAPE)
    if shape is None:
        return None
    fields: dict[str, Any] = {}
    for name in shape["fields"]:
        if name == "messages" and shape.get("messages"):
            fields[name] = state.values(MESSAGES)
        elif name == "state" and "state" in shape:
            values = {key: value for _, key, value in state.items(STATE)}
            order = [key for key in shape["state"] if key in values]
            fields[name] = {key: values[key] for key in dict.fromkeys([*order, *values])}
        else:
            fields[name] = state.get(NAMESPACE, FIELD + name)
    tree = {name: fields if name == "data" else value for name, value in shape["top"]}
    return json.dumps(tree, ensure_ascii=False).encode()


def has_snapshot(state: Snapshot) -> bool:
    """Return whether a state holds a Strands snapshot."""
    return any(state.get(NAMESPACE, key) is not None for key in (SHAPE, BYTES))
