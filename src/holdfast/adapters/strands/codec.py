"""The bytes of a Strands snapshot as the state of a session, and back.

    messages   the conversation, a message each
    state      what the agent keeps in its own state, by key
    strands    the rest: ``data.<field>`` for each other field of the snapshot, and ``shape``, which
               says in which order all of it was

What would not come back as the same bytes is kept beside it as ``bytes``, and read from there:
numbers or spaces written in another way, or what is no snapshot at all.
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

SPACE = "strands"
SHAPE = "shape"
BYTES = "bytes"
FIELD = "data."
SPACES = (MESSAGES, STATE, SPACE)

Entries: TypeAlias = list[tuple[str, str, Any]]


def encode_changes(before: Snapshot, data: bytes) -> Changes:
    """Return what has to change in a state for these bytes to be read from it.

    The status follows what the snapshot shows of the run.
    """
    try:
        tree = parse_snapshot(data)
        entries = encode_entries(tree, before)
        changes = replace_entries(before, entries)
        # A value that is equal but for the order of its keys is no change, and keeps the old
        # order: so what is compared with the bytes is what the changes lead to.
        if decode_state(apply_changes(before, changes)) != data:
            changes = replace_entries(before, [*entries, (SPACE, BYTES, data)])
        status = infer_strands_status(tree["data"])
        if status != before.get(SESSION, STATUS):
            changes["set"].append((SESSION, STATUS, status))
    except (UnsupportedValueError, ValueError, RecursionError):
        changes = replace_entries(before, [(SPACE, BYTES, data)])
    return changes


def replace_entries(before: Snapshot, entries: Entries) -> Changes:
    """What has to change in a state for it to have these entries where a snapshot's are."""
    store = Store(max_history=0)
    store.restore(before)
    wanted = {(space, key) for space, key, _ in entries}
    for space in SPACES:
        for key in store.keys(space):
            if (space, key) not in wanted:
                store.delete(space, key)
    store.set_many(entries)
    return store.snapshot().changes(before)


def apply_changes(before: Snapshot, changes: Changes) -> Snapshot:
    """The state that changes lead to."""
    store = Store(max_history=0)
    store.restore(before)
    store.apply(changes)
    return store.snapshot()


def parse_snapshot(data: bytes) -> dict[str, Any]:
    """Return the JSON of a snapshot.

    Raises:
        ValueError: The bytes are not a snapshot.

    """
    tree = json.loads(data)
    if not isinstance(tree, dict) or not isinstance(tree.get("data"), dict):
        raise ValueError("a snapshot is an object with data")  # noqa: TRY004 - the bytes are wrong
    return tree


def encode_entries(tree: dict[str, Any], before: Snapshot) -> Entries:
    """Return the entries that a snapshot consists of, in place of what a state has."""
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
            entries.append((SPACE, FIELD + name, value))
    return [*entries, (SPACE, SHAPE, shape)]


def first_number(messages: list[Any], before: Snapshot) -> int:
    """The number of the first message.

    A conversation may be cut at its beginning. Messages that are still there keep their numbers, so
    that they are not written again.
    """
    rows = list(before.items(MESSAGES))
    there = [message for _, _, message in rows]
    starts = [place for place, message in enumerate(there) if message in messages[:1]]
    for place in [*starts, 0]:
        if rows and (place == 0 or there[place:] == messages[: len(there) - place]):
            return message_number(rows[place][1]) or 0
    return 0


def decode_state(state: Snapshot) -> bytes | None:
    """The bytes of the snapshot that a state holds; None where it holds none."""
    exact = state.get(SPACE, BYTES)
    if isinstance(exact, bytes):
        return exact
    shape = state.get(SPACE, SHAPE)
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
            fields[name] = state.get(SPACE, FIELD + name)
    tree = {name: fields if name == "data" else value for name, value in shape["top"]}
    return json.dumps(tree, ensure_ascii=False).encode()


def has_snapshot(state: Snapshot) -> bool:
    """Whether a state holds a snapshot of Strands."""
    return any(state.get(SPACE, key) is not None for key in (SHAPE, BYTES))
