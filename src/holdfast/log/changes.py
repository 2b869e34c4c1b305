"""What events set and delete: folding it, its JSON form, and its canonical bytes.

Folding is applying changes in order, with no rule for any one type of event.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from holdfast.errors import InvalidDocumentError, short_repr
from holdfast.state.diff import Changes, Pair
from holdfast.state.store import Store
from holdfast.values.binary_encoding import encode
from holdfast.values.json_encoding import encode_canonical, from_json, to_json

DELETED = object()

# Keys in order, as canonical bytes have them, and what maps and arrays of msgpack begin with.
DELETE: Final = b"\x82" + encode("delete")
SET: Final = encode("set")
ARRAY_OF_2: Final = b"\x92"
ARRAY_OF_3: Final = b"\x93"


def fold_changes(store: Store, changes: Iterable[Changes]) -> None:
    """Bring a store to where the changes lead, from where they begin, as one step."""
    final: dict[Pair, Any] = {}
    for each in changes:
        for space, key, value in each["set"]:
            final[space, key] = value
        for space, key in each["delete"]:
            final[space, key] = DELETED
    if final:
        store.apply(
            {
                "set": [(*pair, value) for pair, value in final.items() if value is not DELETED],
                "delete": [pair for pair, value in final.items() if value is DELETED],
            }
        )


def changes_to_json(changes: Changes) -> dict[str, Any]:
    """Changes as JSON data."""
    return {
        "set": [[space, key, to_json(value)] for space, key, value in changes["set"]],
        "delete": [[space, key] for space, key in changes["delete"]],
    }


def encode_canonical_changes(changes: Changes) -> bytes:
    """Canonical bytes, put together piece by piece.

    So each value has its own bound of nesting, and not what stands around it leaves of one.
    """
    deletes, sets = changes["delete"], changes["set"]
    parts = [DELETE, array_header(len(deletes))]
    for space, key in deletes:
        parts += (ARRAY_OF_2, encode(space), encode(key))
    parts += (SET, array_header(len(sets)))
    for space, key, value in sets:
        parts += (ARRAY_OF_3, encode(space), encode(key), encode_canonical(value))
    return b"".join(parts)


def array_header(count: int) -> bytes:
    """What an array of so many items begins with in msgpack."""
    if count < 16:
        return bytes([0x90 | count])
    if count < 1 << 16:
        return b"\xdc" + count.to_bytes(2, "big")
    return b"\xdd" + count.to_bytes(4, "big")


def changes_from_json(tree: Any) -> Changes:
    """What JSON data says that changes are."""
    sets: list[tuple[str, str, Any]] = []
    for item in expect_list(tree.get("set", [])):
        space, key, value = expect_list(item)
        sets.append((expect_str(space), expect_str(key), from_json(value)))
    deletes: list[Pair] = []
    for item in expect_list(tree.get("delete", [])):
        space, key = expect_list(item)
        deletes.append((expect_str(space), expect_str(key)))
    return {"set": sets, "delete": deletes}


def expect_list(tree: Any) -> list[Any]:
    """A list that stands in JSON."""
    if isinstance(tree, list):
        return tree
    raise InvalidDocumentError(f"expected a list, not {short_repr(tree)}")


def changes_from_rows(sets: list[tuple[str, str, Any]], deletes: list[Pair]) -> Changes:
    """What written changes say, whose shape is known to be right."""
    return {
        "set": [(space, key, from_json(value)) for space, key, value in sets],
        "delete": deletes,
    }


def expect_str(value: object) -> str:
    """A text, or a refusal."""
    if isinstance(value, str):
        return value
    raise InvalidDocumentError(f"expected a text, not {short_repr(value)}")
