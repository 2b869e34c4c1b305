"""The JSON encoding: plain values as they are, tagged objects for other types."""

from __future__ import annotations

import base64
import math
import sys
from typing import Any, Final, cast, final

import msgspec
from msgspec.msgpack import Ext

from holdfast.errors import HoldfastError, InvalidDocumentError, short_repr
from holdfast.values.binary_encoding import build_container, canonicalize, encode, unpack_raw
from holdfast.values.extensions import (
    ATTACHMENT,
    BLOB,
    CODES,
    FIRST_CONTAINER,
    MAP,
    MAX_DEPTH,
    TAGS,
)
from holdfast.values.lowering import LoweringError, lower, pack, validate_text
from holdfast.values.references import BLOB_SIZE, build_reference, externalize, has_references
from holdfast.values.scalars import decode_scalar

# Readers that use doubles are exact up to here; larger integers are tagged.
_JSON_INT: Final = 2**53

ATOMIC: Final = not __file__.endswith(".py") and bool(
    getattr(sys, "_is_gil_enabled", lambda: True)()
)
"""Whether no other thread runs between two calls of this module: it is compiled, under the GIL."""

_pack_sorted: Final = msgspec.msgpack.Encoder(order="sorted").encode
_dump: Final = msgspec.json.encode


def to_json(value: object) -> Any:
    """Return the JSON encoding: a tree of dict, list, str, int, float, bool and None.

    The tree may share parts with ``value``: serialize it before you change either.

    Raises:
        UnsupportedValueError: The value, or a part of it, cannot be stored.

    """
    try:
        if _is_json(value, MAX_DEPTH):
            return value
        return _tagged(lower(value, MAX_DEPTH))
    except LoweringError as refusal:
        raise refusal.error() from None


def encode_canonical(value: object) -> bytes:
    """Return the canonical bytes of a value."""
    return _pack_sorted(value) if _is_json_value(value) else canonicalize(encode(value))


@final
class EncodedValue:
    """One value in all encodings."""

    def __init__(self, data: bytes, canonical: bytes, json: bytes, *, refers: bool = False) -> None:
        self.data = data
        """The binary encoding."""
        self.canonical = canonical
        """The canonical bytes."""
        self.json = json
        """The text of the JSON encoding."""
        self.refers = refers
        """Whether it refers to blobs."""


def encode_value(value: object) -> EncodedValue:
    """Return a value in all encodings; plain data is validated in one pass.

    Raises:
        UnsupportedValueError: The value, or a part of it, cannot be stored.

    """
    if _is_json_value(value):
        data = pack(value)
        if len(data) >= BLOB_SIZE:
            return encode_stored(externalize(data))
        # The encodings must be those of one value, even if another thread is changing it.
        tree = value if ATOMIC else unpack_raw(data)
        return EncodedValue(data, _pack_sorted(tree), _dump(tree))
    return encode_stored(externalize(encode(value)))


def encode_stored(data: bytes) -> EncodedValue:
    """Return a value in all encodings, given the binary one."""
    return EncodedValue(
        data, canonicalize(data), _dump(_tagged(unpack_raw(data))), refers=has_references(data)
    )


def stored_to_json(data: bytes) -> Any:
    """Return the JSON encoding of a value, given the binary one; blobs stay references."""
    return _tagged(unpack_raw(data))


def _is_json_value(value: object) -> bool:
    try:
        return _is_json(value, MAX_DEPTH)
    except LoweringError:
        return False  # encode() reports what is wrong, and where


def from_json(tree: object) -> Any:
    """Decode a value from its JSON encoding.

    Raises:
        InvalidDocumentError: A tag is unknown or malformed, or the nesting is too deep.
        UnsupportedValueError: The value has a registered type that is not registered here.

    """
    try:
        return _untagged(tree, MAX_DEPTH)
    except HoldfastError:
        raise
    except (ValueError, TypeError, ArithmeticError) as error:
        raise InvalidDocumentError(f"JSON is not an encoded value: {error!s:.200}") from error


def is_untagged(tree: object, room: int = MAX_DEPTH) -> bool:
    """Return whether JSON data without a tag represents a value as it is."""
    if isinstance(tree, dict):
        if room == 0:
            return False
        for key, item in tree.items():
            if len(tree) == 1 and type(key) is str and key.startswith("$"):
                return False
            kind = type(item)
            if (kind is dict or kind is list) and not is_untagged(item, room - 1):
                return False
        return True
    if isinstance(tree, list):
        if room == 0:
            return False
        for item in tree:
            kind = type(item)
            if (kind is dict or kind is list) and not is_untagged(item, room - 1):
                return False
    return True


def is_json_without_floats(tree: object, room: int = 4 * MAX_DEPTH) -> bool:
    """Return whether this is JSON data without floats, nested at most ``room`` levels deep.

    A tuple counts as a list.
    """
    kind = type(tree)
    if kind is str or kind is int or kind is bool or tree is None:
        return True
    if room == 0:
        return False
    if kind is list:
        for item in cast("list[object]", tree):
            if not is_json_without_floats(item, room - 1):
                return False
        return True
    if kind is tuple:
        for part in cast("tuple[object, ...]", tree):
            if not is_json_without_floats(part, room - 1):
                return False
        return True
    if kind is dict:
        for name, item in cast("dict[object, object]", tree).items():
            if type(name) is not str or not is_json_without_floats(item, room - 1):
                return False
        return True
    return False


def _is_json(value: object, room: int) -> bool:
    """Return whether JSON represents a value as it is."""
    if room == 0:
        return False
    kind = type(value)
    if kind is str:
        validate_text(cast("str", value))
        return True
    if kind is bool or value is None:
        return True
    if kind is int:
        return -_JSON_INT < cast("int", value) < _JSON_INT
    if kind is float:
        return math.isfinite(cast("float", value))
    if kind is list:
        for item in cast("list[object]", value):
            if not _is_json(item, room - 1):
                return False
        return True
    if kind is dict:
        entries = cast("dict[object, object]", value)
        for key, item in entries.items():
            if type(key) is not str or not _is_json(item, room - 1):
                return False
            if len(entries) == 1 and key.startswith("$"):
                return False
            validate_text(key)
        return True
    return False


def _tagged(tree: object) -> object:
    """Return the JSON encoding of a lowered tree."""
    if isinstance(tree, dict):
        if not all(type(key) is str for key in tree):
            return {"$map": [[_tagged(key), _tagged(item)] for key, item in tree.items()]}
        entries = {key: _tagged(item) for key, item in tree.items()}
        if len(entries) == 1:
            for key, item in entries.items():
                if key.startswith("$"):
                    return {"$" + key: item}
        return entries
    if isinstance(tree, list):
        return [_tagged(item) for item in tree]
    if isinstance(tree, bytes):
        return {"$bytes": base64.b64encode(tree).decode()}
    if isinstance(tree, float):
        return tree if math.isfinite(tree) else {"$float": repr(tree)}
    if isinstance(tree, Ext):
        if tree.code < FIRST_CONTAINER:
            return {TAGS[tree.code]: bytes(tree.data).decode()}
        items = unpack_raw(tree.data)
        if tree.code == MAP:
            items = [[items[at], items[at + 1]] for at in range(0, len(items), 2)]
        return {TAGS[tree.code]: _tagged(items)}
    if isinstance(tree, int) and type(tree) is int and not -_JSON_INT < tree < _JSON_INT:
        return {"$int": str(tree)}
    return tree


def _untagged(tree: object, room: int) -> object:
    if isinstance(tree, list):
        _check_room(room)
        return [_untagged(item, room - 1) for item in tree]
    if isinstance(tree, dict):
        if len(tree) == 1:
            for tag, content in tree.items():
                if type(tag) is str and tag.startswith("$"):
                    return _read_tag(tag, content, room)
        _check_room(room)
        return {key: _untagged(item, room - 1) for key, item in tree.items()}
    return tree


def _check_room(room: int) -> None:
    if room == 0:
        raise InvalidDocumentError(f"JSON is nested more than {MAX_DEPTH} levels deep")


def _read_tag(tag: str, content: object, room: int) -> object:
    if tag.startswith("$$"):
        _check_room(room)
        return {tag[1:]: _untagged(content, room - 1)}
    code = CODES.get(tag, 0)
    if code in (BLOB, ATTACHMENT):
        return build_reference(code, content)
    if code >= FIRST_CONTAINER:
        _check_room(room)
        if not isinstance(content, list):
            raise InvalidDocumentError(f"{tag} must contain a list, got {type(content).__name__}")
        if code == MAP:
            content = [half for item in content for half in _pair(item)]
        return build_container(code, [_untagged(item, room - 1) for item in content])
    if not isinstance(content, str):
        raise InvalidDocumentError(f"{tag:.60} must contain a str, got {type(content).__name__}")
    if code > 0:
        return decode_scalar(code, content)
    if tag == "$bytes":
        return base64.b64decode(content, validate=True)
    if tag == "$float" and content in ("nan", "inf", "-inf"):
        return float(content)
    raise InvalidDocumentError(
        f"unknown tag {short_repr(tag)}; to store a dict with that key, escape it as "
        f"{short_repr('$' + tag)}"
    )


def _pair(item: object) -> tuple[Any, Any]:
    if not isinstance(item, list) or len(item) != 2:
        raise InvalidDocumentError("$map must contain pairs of a key and a value")
    return item[0], item[1]
