"""Changes of events: folding, JSON form and canonical bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from holdfast.errors import InvalidDocumentError, short_repr
from holdfast.state.batch import WriteBatch, encode_entry, validate_name_text
from holdfast.state.diff import Changes, Pair
from holdfast.state.store import Store, write_batch
from holdfast.values.binary_encoding import encode
from holdfast.values.json_encoding import encode_canonical, from_json, is_untagged, to_json
from holdfast.values.lowering import pack
from holdfast.values.references import REFERENCE_MARK, ReferringData, has_references

DELETED = object()

# Keys in canonical order, and the headers of msgpack maps and arrays.
DELETE: Final = b"\x82" + encode("delete")
SET: Final = encode("set")
SHORT_ARRAYS: Final = [bytes([0x90 | count]) for count in range(16)]
ARRAY_OF_2: Final = b"\x92"
ARRAY_OF_3: Final = b"\x93"

# The fields of an event in canonical order; the first is preceded by the header of a map of six.
AT: Final = b"\x86" + encode("at")
CHANGES: Final = encode("changes")
DATA: Final = encode("data")
ID: Final = encode("id")
SEQ: Final = encode("seq")
TYPE: Final = encode("type")


def fold_changes(
    store: Store, changes: Iterable[Changes], contents: Mapping[str, bytes] | None = None
) -> None:
    """Apply changes to a store in order, as one atomic step.

    ``contents`` yields the blobs that the values refer to.
    """
    final: dict[Pair, Any] = {}
    for each in changes:
        for space, key, value in each["set"]:
            final[space, key] = value
        for space, key in each["delete"]:
            final[space, key] = DELETED
    batch = WriteBatch([])
    for pair, value in final.items():
        space, key = pair
        if value is DELETED:
            batch.add(space, key, None)
        else:
            validate_name_text(space, "namespace")
            validate_name_text(key, "key")
            data = encode_entry(space, key, value)
            if contents is not None and REFERENCE_MARK in data and has_references(data):
                data = ReferringData(data, contents)
            batch.add(space, key, data)
    write_batch(store, batch)


def changes_to_json(changes: Changes) -> dict[str, Any]:
    """Return changes as JSON data."""
    return {
        "set": [[space, key, to_json(value)] for space, key, value in changes["set"]],
        "delete": [[space, key] for space, key in changes["delete"]],
    }


def encode_canonical_changes(changes: Changes) -> bytes:
    """Return the canonical bytes of changes.

    The values are encoded separately, so that each has the full nesting limit.
    """
    values = [encode_canonical(value) for _, _, value in changes["set"]]
    return join_canonical_changes(changes, values)


def join_canonical_changes(changes: Changes, values: list[bytes]) -> bytes:
    """Return the canonical bytes of changes, given those of the values to set."""
    deletes = changes["delete"]
    parts: list[bytes] = [DELETE, array_header(len(deletes))]
    for space, key in deletes:
        parts.append(ARRAY_OF_2)
        parts.append(pack(space))
        parts.append(pack(key))
    parts.append(SET)
    parts.append(array_header(len(values)))
    for (space, key, _), value in zip(changes["set"], values, strict=True):
        parts.append(ARRAY_OF_3)
        parts.append(pack(space))
        parts.append(pack(key))
        parts.append(value)
    return b"".join(parts)


def join_before_seq(time: str, changes: bytes, data: bytes, id_: str) -> bytes:
    """Return the canonical bytes of an event up to its seq, given those of data and changes.

    The whole equals the canonical bytes of a dict of the fields. Encoding the fields separately
    gives each value the full nesting limit.
    """
    return b"".join((AT, pack(time), CHANGES, changes, DATA, data, ID, pack(id_), SEQ))


def join_after_seq(type_: str) -> bytes:
    """Return the canonical bytes of an event after its seq."""
    return TYPE + pack(type_)


def array_header(count: int) -> bytes:
    """Return the msgpack header of an array with ``count`` items."""
    if count < 16:
        return SHORT_ARRAYS[count]
    if count < 1 << 16:
        return b"\xdc" + count.to_bytes(2, "big")
    return b"\xdd" + count.to_bytes(4, "big")


def changes_from_json(tree: Any) -> Changes:
    """Decode changes from JSON data.

    Raises:
        InvalidDocumentError: The data has the wrong form.

    """
    sets: list[tuple[str, str, Any]] = []
    for item in expect_list(tree.get("set", [])):
        space, key, value = expect_list(item)
        sets.append((expect_str(space), expect_str(key), from_json(value)))
    deletes: list[Pair] = []
    for item in expect_list(tree.get("delete", [])):
        space, key = expect_list(item)
        deletes.append((expect_str(space), expect_str(key)))
    return {"set": sets, "delete": deletes}


def changes_from_rows(sets: list[tuple[str, str, Any]], deletes: list[Pair]) -> Changes:
    """Decode changes whose structure was validated already; plain values are not copied."""
    return {
        "set": [
            (space, key, tree if is_untagged(tree) else from_json(tree))
            for space, key, tree in sets
        ],
        "delete": deletes,
    }


def expect_list(tree: Any) -> list[Any]:
    """Return JSON data if it is a list."""
    if isinstance(tree, list):
        return tree
    raise InvalidDocumentError(f"expected a list, got {short_repr(tree)}")


def expect_str(value: object) -> str:
    """Return JSON data if it is a string."""
    if isinstance(value, str):
        return value
    raise InvalidDocumentError(f"expected a string, got {short_repr(value)}")
