"""An event without a position in the log, encoded once when it is recorded.

Each value is validated and encoded in one place, into the bytes that the state keeps, the canonical
bytes that the hash covers and the JSON text that the segment stores. What follows only joins them:
applying the event to the state, linking it at a position, and linking it again after a conflict.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Sequence
from typing import Any, Final, final

import msgspec

from holdfast.errors import UnsupportedValueError
from holdfast.ids import new_id
from holdfast.log.changes import join_after_seq, join_before_seq, join_canonical_changes
from holdfast.log.event import DEFAULT_TYPE, EventDraft, format_time
from holdfast.state.batch import WriteBatch
from holdfast.state.diff import Changes, Pair
from holdfast.state.snapshot import Snapshot, stored_changes
from holdfast.values.binary_encoding import decode, encode
from holdfast.values.json_encoding import EncodedValue, encode_stored, encode_value
from holdfast.values.references import FILES, find_digests, find_file, find_tokens

NOTHING: Final = encode_value(None)

_to_json: Final = msgspec.json.Encoder().encode
_sha256: Final = hashlib.sha256


@final
class EncodedEvent:
    """An event without a position. It shares nothing with the values that it was made of."""

    def __init__(
        self,
        id_: str,
        type_: str,
        at: dt.datetime,
        data: bytes,
        batch: WriteBatch,
        json: bytes,
        before_seq: bytes,
        after_seq: bytes,
        *,
        refers: bool,
    ) -> None:
        self.id = id_
        self.type = type_
        self.at = at
        self.batch = batch
        """What it writes to the state."""
        self.json = json
        """Its JSON text as segments store it."""
        self.refers = refers
        """Whether it refers to blobs, which are stored before it."""
        self.sources: Sequence[Any] = ()
        """Blobs that it refers to and that are not part of its values."""
        self._data = data
        self._before_seq = before_seq
        self._after_seq = after_seq

    @property
    def data(self) -> Any:
        """A new copy of its data."""
        return decode(self._data)

    @property
    def changes(self) -> Changes:
        """A new copy of its changes."""
        batch = self.batch
        sets: list[tuple[str, str, Any]] = []
        deletes: list[Pair] = []
        for at, data in enumerate(batch.data):
            if data is None:
                deletes.append((batch.namespaces[at], batch.keys[at]))
            else:
                sets.append((batch.namespaces[at], batch.keys[at], decode(data)))
        return {"set": sets, "delete": deletes}

    def batch_rows(self) -> list[tuple[str, str, bytes | None]]:
        """Return the entries that it sets, in the binary encoding, and deletes, as None."""
        batch = self.batch
        return list(zip(batch.namespaces, batch.keys, batch.data, strict=True))

    @property
    def touched(self) -> list[Pair]:
        """The entries that it sets or deletes."""
        return list(zip(self.batch.namespaces, self.batch.keys, strict=True))

    def encoded_values(self) -> list[bytes]:
        """Return its data and the values that it sets, in the binary encoding."""
        return [self._data, *(data for data in self.batch.data if data is not None)]

    def referred_digests(self) -> set[str]:
        """Return the digests of the blobs that its data and the values that it sets refer to."""
        found = find_digests(self._data)
        for at, data in enumerate(self.batch.data):
            if data is not None:
                found |= find_digests(data)
                if self.batch.namespaces[at] == FILES:
                    file = find_file(decode(bytes(data)))
                    if file is not None:
                        found.add(file[0])
        return found

    def mark_digests(self) -> None:
        """Treat any digest in its values as a reference, for values copied from another state."""
        self.refers = self.refers or bool(find_tokens(self.json))

    def hash_at(self, seq: int, prev: str) -> str:
        """Return its hash at a position."""
        canonical = b"".join((prev.encode(), self._before_seq, encode(seq), self._after_seq))
        return _sha256(canonical).hexdigest()


def new_event(
    type_: str, data: object, changes: Changes, *, path: str | None = None
) -> EncodedEvent:
    """Return an event with a new id and the current time; its type and names are valid.

    Values to set may be encoded already. ``path`` is the path of the value to set in errors, if
    there is only one.

    Raises:
        UnsupportedValueError: The data or a value cannot be stored.

    """
    return encode_event(new_id(), type_, dt.datetime.now(dt.UTC), data, changes, path=path)


def encode_draft(draft: EventDraft) -> EncodedEvent:
    """Encode an event.

    Raises:
        UnsupportedValueError: The data or a value cannot be stored.

    """
    return encode_event(
        draft.id, draft.type, draft.at, draft.data, draft.changes, extra=draft.extra
    )


def encode_event(
    id_: str,
    type_: str,
    at: dt.datetime,
    data: object,
    changes: Changes,
    *,
    extra: dict[str, Any] | None = None,
    path: str | None = None,
) -> EncodedEvent:
    """Encode an event, given its fields.

    Raises:
        UnsupportedValueError: The data or a value cannot be stored.

    """
    refers = False
    about = NOTHING if data is None else encode_at(data, "$.data")
    time = format_time(at)
    json: list[bytes] = [b'{"id":', _to_json(id_)]
    if type_ != DEFAULT_TYPE:
        json.append(b',"type":')
        json.append(_to_json(type_))
    json.append(b',"at":')
    json.append(_to_json(time))
    if data is not None:
        json.append(b',"data":')
        json.append(about.json)
        refers = about.refers
    batch = WriteBatch([])
    values: list[bytes] = []
    before_row = b',"set":[['
    for space, key, value in changes["set"]:
        if type(value) is EncodedValue:
            encoded = value
        else:
            encoded = encode_at(value, path or f"$.{space}.{key}")
        batch.add(space, key, encoded.data)
        refers |= encoded.refers or space == FILES
        values.append(encoded.canonical)
        json.append(before_row)
        json.append(_to_json(space))
        json.append(b",")
        json.append(_to_json(key))
        json.append(b",")
        json.append(encoded.json)
        before_row = b"],["
    if values:
        json.append(b"]]")
    deletes = changes["delete"]
    if deletes:
        for space, key in deletes:
            batch.add(space, key, None)
        json.append(b',"delete":')
        json.append(_to_json(deletes))
    if extra:
        json.append(b",")
        json.append(_to_json(extra)[1:-1])
    json.append(b"}")
    canonical = join_canonical_changes(changes, values)
    before = join_before_seq(time, canonical, about.canonical, id_)
    return EncodedEvent(
        id_,
        type_,
        at,
        about.data,
        batch,
        b"".join(json),
        before,
        join_after_seq(type_),
        refers=refers,
    )


def encode_changes(later: Snapshot, base: Snapshot) -> Changes:
    """Return the changes between two states with encoded values; blobs are not read."""
    sets: list[tuple[str, str, Any]] = []
    deletes: list[Pair] = []
    for space, key, data in stored_changes(later, base):
        if data is None:
            deletes.append((space, key))
        else:
            sets.append((space, key, encode_stored(data)))
    return {"set": sets, "delete": deletes}


def encode_at(value: object, path: str) -> EncodedValue:
    """Encode a value; an error has the path below ``path``."""
    try:
        return encode_value(value)
    except UnsupportedValueError as error:
        full = path + error.path[1:]
        raise UnsupportedValueError(str(error).replace(error.path, full), full) from None


def link_encoded(events: Sequence[EncodedEvent], seq: int, prev: str) -> tuple[list[str], bytes]:
    """Return the hashes of events that follow a position, and the JSON text of all of them."""
    hashes: list[str] = []
    texts: list[bytes] = []
    for event in events:
        seq += 1
        prev = event.hash_at(seq, prev)
        hashes.append(prev)
        texts.append(event.json)
    return hashes, b"[" + b",".join(texts) + b"]"
