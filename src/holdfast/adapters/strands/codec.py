"""Convert the bytes of a Strands snapshot to the state of a session, and back.

    messages   the conversation, one entry per message
    state      the state of the agent, by key
    strands    the rest: ``data.<field>`` for each other field of the snapshot, and ``shape``, the
               order of all fields

Bytes that would not come back the same, because of other spaces or number formats or because they
are not a snapshot, are also stored as ``bytes`` and read from there.

A snapshot repeats the whole conversation, and most of it is in the state already. So the texts of
its entries are kept, and only what differs from them is parsed and written.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
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
from holdfast.state.diff import Changes, Pair
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store

NAMESPACE = "strands"
SHAPE = "shape"
BYTES = "bytes"
FIELD = "data."
ENCODE = json.JSONEncoder(ensure_ascii=False).encode
MESSAGES_START = b'"messages": ['
SEPARATOR = b", "

Entries: TypeAlias = list[tuple[str, str, Any]]


@dataclass(slots=True)
class EntryTexts:
    """The JSON texts of a snapshot's entries in a state, as Strands writes them."""

    messages: dict[str, bytes] = field(default_factory=dict)
    """The messages in order, by key."""
    others: dict[Pair, bytes] = field(default_factory=dict)

    def set(self, namespace: str, key: str, text: bytes) -> None:
        """Set the text of an entry."""
        if namespace == MESSAGES:
            self.messages[key] = text
        else:
            self.others[namespace, key] = text

    def get(self, namespace: str, key: str) -> bytes | None:
        """Return the text of an entry, or None."""
        if namespace == MESSAGES:
            return self.messages.get(key)
        return self.others.get((namespace, key))

    def join(self, skip: int = 0) -> tuple[bytes | None, int]:
        """Return the whole snapshot, or None, and where the text of its messages starts.

        The first ``skip`` messages are left out.
        """
        if (NAMESPACE, SHAPE) not in self.others:
            return None, 0
        shape = json.loads(self.others[NAMESPACE, SHAPE])
        pieces: list[bytes] = []
        before_messages: list[bytes] = []
        for name, value in shape["top"]:
            pieces += (SEPARATOR if pieces else b"{", dump_name(name), b": ")
            if name != "data":
                pieces.append(dump(value))
                continue
            pieces.append(b"{")
            for number, field_name in enumerate(shape["fields"]):
                pieces += (SEPARATOR if number else b"", dump_name(field_name), b": ")
                if field_name == "messages" and shape.get("messages"):
                    pieces.append(b"[")
                    before_messages = list(pieces)
                    pieces += (SEPARATOR.join(islice(self.messages.values(), skip, None)), b"]")
                elif field_name == "state" and "state" in shape:
                    pieces.append(self._join_state(shape["state"]))
                else:
                    pieces.append(self.others.get((NAMESPACE, FIELD + field_name), b"null"))
            pieces.append(b"}")
        pieces.append(b"}")
        return b"".join(pieces), sum(map(len, before_messages))

    def _join_state(self, names: list[str]) -> bytes:
        """Return the text of the agent's state, given the order of its keys."""
        values = {key: text for (space, key), text in self.others.items() if space == STATE}
        order = dict.fromkeys([*(key for key in names if key in values), *values])
        return b"{%s}" % SEPARATOR.join(
            [b"%s: %s" % (dump_name(key), values[key]) for key in order]
        )


def dump(value: Any) -> bytes:
    """Return the JSON text of a value as Strands writes it."""
    return ENCODE(value).encode()


@lru_cache(1024)
def dump_name(name: str) -> bytes:
    """Return the JSON text of a field's name; most snapshots have the same ones."""
    return dump(name)


def read_texts(state: Snapshot, *, is_strict: bool = True) -> EntryTexts:
    """Return the texts of the snapshot in a state.

    Raises:
        TypeError: It holds values that JSON does not have, as others may have set them. If not
            ``is_strict``, the text of such a value is empty.

    """
    texts = EntryTexts()
    for space in (MESSAGES, STATE, NAMESPACE):
        for _, key, value in state.items(space):
            if (space, key) == (NAMESPACE, BYTES):
                continue
            try:
                texts.set(space, key, dump(value))
            except TypeError:
                if is_strict:
                    raise
                texts.set(space, key, b"")
    return texts


def decode_state(state: Snapshot) -> bytes | None:
    """Return the bytes of the snapshot that a state holds, or None."""
    exact = state.get(NAMESPACE, BYTES)
    return exact if isinstance(exact, bytes) else read_texts(state).join()[0]


def has_snapshot(state: Snapshot) -> bool:
    """Return whether a state holds a Strands snapshot."""
    return any(state.contains(NAMESPACE, key) for key in (SHAPE, BYTES))


# ----------------------------------------------------------------------------------- changes


def encode_changes(before: Snapshot, texts: EntryTexts, data: bytes) -> tuple[Changes, EntryTexts]:
    """Return the changes after which a state holds these bytes, and its texts then.

    ``texts`` are those of the state before. The status changes to that of the run, as the snapshot
    shows it.
    """
    kept = find_kept_messages(texts, data)
    found = replace_snapshot(before, texts, data, kept)
    if kept.keys and not found.is_exact:
        kept = KeptMessages()  # it was a wrong guess
        found = replace_snapshot(before, texts, data, kept)
    if not found.is_exact:
        found.store.set(NAMESPACE, BYTES, data)
    return found.changes(), found.texts


def replace_snapshot(
    before: Snapshot, texts: EntryTexts, data: bytes, kept: KeptMessages
) -> Replacement:
    """Replace the snapshot in a state; if the bytes are not one, only delete it."""
    rest = data[: kept.start] + data[kept.end :]
    replacement = Replacement(before, texts)
    try:
        replacement.put_snapshot(parse_snapshot(rest), kept)
    except (UnsupportedValueError, ValueError, RecursionError):
        replacement = Replacement(before, texts)
    replacement.delete_rest()
    text, start = replacement.texts.join(skip=len(kept.keys))
    has_more = len(replacement.texts.messages) > len(kept.keys)
    replacement.is_exact = text == rest and (
        not kept.keys or (start == kept.start and has_more == kept.has_separator)
    )
    return replacement


def delete_changes(before: Snapshot, texts: EntryTexts) -> Changes:
    """Return the changes after which a state holds no snapshot."""
    replacement = Replacement(before, texts)
    replacement.delete_rest()
    return replacement.changes()


@dataclass(frozen=True, slots=True)
class KeptMessages:
    """Messages in a state that a new snapshot repeats, and where it has their text."""

    keys: tuple[str, ...] = ()
    start: int = 0
    end: int = 0
    has_separator: bool = False
    """Whether other messages follow."""


def find_kept_messages(texts: EntryTexts, data: bytes) -> KeptMessages:
    """Return the last messages of a state with which a snapshot starts.

    A conversation grows at its end, and may be cut at its beginning. The result is a guess: the
    text may be that of another list.
    """
    start = data.find(MESSAGES_START) + len(MESSAGES_START)
    keys, messages = tuple(texts.messages), list(texts.messages.values())
    if start < len(MESSAGES_START) or not keys or message_number(keys[-1]) is None:
        return KeptMessages()
    if b"" in messages:  # a value that JSON does not have
        return KeptMessages()
    for first, message in enumerate(messages):
        if not data.startswith(message, start):
            continue
        joined = SEPARATOR.join(messages[first:])
        end = start + len(joined)
        if data.startswith(joined, start):
            if data.startswith(SEPARATOR, end):
                return KeptMessages(keys[first:], start, end + len(SEPARATOR), has_separator=True)
            if data.startswith(b"]", end):
                return KeptMessages(keys[first:], start, end)
    return KeptMessages()


def parse_snapshot(data: bytes) -> dict[str, Any]:
    """Return the JSON object of a snapshot.

    Raises:
        ValueError: The bytes are not a snapshot.

    """
    tree = json.loads(data)
    if not isinstance(tree, dict) or not isinstance(tree.get("data"), dict):
        raise ValueError("snapshot must be an object with data")  # noqa: TRY004 - the bytes are wrong
    return tree


class Replacement:
    """Replaces the snapshot in a state by another one."""

    def __init__(self, before: Snapshot, texts: EntryTexts) -> None:
        self._before = before
        self._known = texts
        self.store = Store(max_history=0)
        """The changed state."""
        self.store.restore(before)
        self.store.delete(NAMESPACE, BYTES)
        self.texts = EntryTexts()
        """The texts of the new snapshot."""
        self.is_exact = False
        """Whether the texts are those of the new snapshot, byte for byte."""

    def put_snapshot(self, tree: dict[str, Any], kept: KeptMessages) -> None:
        """Put a snapshot that has further messages after those that are kept."""
        known = self._known
        self.texts.messages = {key: known.messages[key] for key in kept.keys}
        new: Entries = []
        for space, key, value in encode_entries(tree, self._next_number(kept)):
            self.texts.set(space, key, dump(value))
            if self.texts.get(space, key) != known.get(space, key):
                new.append((space, key, value))
        self.store.set_many(new)
        changed = {(space, key) for space, key, _ in self.changes()["set"]}
        for space, key, _ in new:
            if (space, key) not in changed:
                # The keys of a dict only changed their order: that is not a change.
                self.texts.set(space, key, known.get(space, key) or b"")
        fields = dict(tree["data"])
        if kept.keys and not fields.get("messages"):
            fields["messages"] = [json.loads(known.messages[kept.keys[-1]])]
        self.store.set(SESSION, STATUS, infer_strands_status(fields))

    def _next_number(self, kept: KeptMessages) -> int:
        """Return the number of the first message after those that are kept."""
        if kept.keys:
            return (message_number(kept.keys[-1]) or 0) + 1
        return message_number(next(iter(self._known.messages), "")) or 0

    def delete_rest(self) -> None:
        """Delete the entries that the new snapshot does not have."""
        for key in self._known.messages.keys() - self.texts.messages.keys():
            self.store.delete(MESSAGES, key)
        for space, key in self._known.others.keys() - self.texts.others.keys():
            self.store.delete(space, key)

    def changes(self) -> Changes:
        """Return all changes."""
        return self.store.snapshot().changes(self._before)


def encode_entries(tree: dict[str, Any], number: int) -> Entries:
    """Return the entries of a snapshot, its first message with a number."""
    fields: dict[str, Any] = tree["data"]
    shape: dict[str, Any] = {
        "top": [[name, None if name == "data" else value] for name, value in tree.items()],
        "fields": list(fields),
    }
    entries: Entries = []
    for name, value in fields.items():
        if name == "messages" and isinstance(value, list):
            shape["messages"] = True
            entries += [
                (MESSAGES, message_key(at), message) for at, message in enumerate(value, number)
            ]
        elif name == "state" and isinstance(value, dict):
            shape["state"] = list(value)
            entries += [(STATE, key, each) for key, each in value.items()]
        else:
            entries.append((NAMESPACE, FIELD + name, value))
    return [*entries, (NAMESPACE, SHAPE, shape)]
