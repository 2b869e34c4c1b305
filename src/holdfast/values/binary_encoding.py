"""The binary encoding: msgpack, with extension types for what it lacks."""

from __future__ import annotations

import threading
from typing import Any, Final, cast

import msgspec
from msgspec.msgpack import Ext

from holdfast.errors import (
    HoldfastError,
    InvalidDocumentError,
    UnregisteredTypeError,
    UnsupportedValueError,
    short_repr,
)
from holdfast.values.extensions import (
    ATTACHMENT,
    BLOB,
    FIRST_CONTAINER,
    FROZENSET,
    MAP,
    MAX_DEPTH,
    SET,
    TAGS,
    TUPLE,
)
from holdfast.values.lowering import LoweringError, is_plain, lower, pack, registered_names
from holdfast.values.references import (
    BlobReference,
    ReferringData,
    build_reference,
    externalize,
    is_keeping_references,
    read_reference,
)
from holdfast.values.scalars import decode_scalar

TOO_DEEP: Final = (
    f"encoded value is nested more than {MAX_DEPTH} levels deep, or the call stack is too deep"
)

KEYS: Final = (str, int, float, bytes, tuple)
MAX_COLLISIONS: Final = 1000

_nesting: Final = threading.local()

unpack_raw: Final = msgspec.msgpack.Decoder().decode
_pack_sorted: Final = msgspec.msgpack.Encoder(order="sorted").encode


def encode(value: object) -> bytes:
    """Return the binary encoding of a value.

    Raises:
        UnsupportedValueError: The value, or a part of it, cannot be stored.

    """
    if is_plain(value, MAX_DEPTH):
        try:
            return pack(value)
        except (OverflowError, UnicodeEncodeError, msgspec.MsgspecError):
            # An int beyond 64 bits, or a str with a lone surrogate: the slow path reports where.
            return _encode_lowered(value)
    return _encode_lowered(value)


def _encode_lowered(value: object) -> bytes:
    try:
        return pack(lower(value, MAX_DEPTH))
    except LoweringError as refusal:
        raise refusal.error() from None
    except msgspec.MsgspecError as error:
        raise UnsupportedValueError(f"cannot store the value at $: {error}") from None


def decode(data: bytes) -> Any:
    """Decode a value.

    Raises:
        InvalidDocumentError: The bytes are damaged, or not the encoding of a value.
        UnsupportedValueError: The value has a registered type that is not registered here.

    """
    try:
        if type(data) is bytes and getattr(_nesting, "contents", None) is None:
            return unpack(data)
        return _unpack_referring(data)
    except HoldfastError:
        raise
    except RecursionError:
        raise InvalidDocumentError(TOO_DEEP) from None
    except (msgspec.MsgspecError, ValueError, TypeError, ArithmeticError) as error:
        raise InvalidDocumentError(
            f"bytes are damaged or not an encoded value: {error!s:.200}"
        ) from error


def _unpack_referring(data: bytes) -> Any:
    """Decode a value with references, which yield the contents of its blobs.

    It may be called while the blobs of another value are read.
    """
    before: object = getattr(_nesting, "contents", None)
    is_referring = isinstance(data, ReferringData) and not is_keeping_references()
    _nesting.contents = cast("ReferringData", data).contents if is_referring else None
    try:
        return unpack(data)
    finally:
        _nesting.contents = before


def is_same_value(a: bytes, b: bytes) -> bool:
    """Return whether two encodings represent equal values.

    The order of dict keys is ignored, and whether a large value is inline or a blob.
    """
    if a == b:
        return True
    if type(a) is not type(b):
        a, b = bytes(externalize(a)), bytes(externalize(b))
    # Another order of keys permutes the bytes, which keeps their number and their sum. The
    # remainder modulo 255 is that sum (256 is 1 modulo 255), computed at C speed.
    if len(a) != len(b) or int.from_bytes(a, "big") % 255 != int.from_bytes(b, "big") % 255:
        return False
    return canonicalize(a) == canonicalize(b)


def canonicalize(data: bytes) -> bytes:
    """Return the canonical encoding, which all equal values share, for use in digests."""
    first = data[0]
    # Only maps, arrays and extension types can contain a dict. In msgpack, they start with 80-9f
    # (short maps and arrays), c7-c9 and d4-d8 (extension types), dc-df (long arrays and maps).
    holds_items = 0x80 <= first <= 0x9F or 0xDC <= first <= 0xDF
    if not holds_items and not (0xC7 <= first <= 0xC9 or 0xD4 <= first <= 0xD8):
        return data
    tree = unpack_raw(data)
    if _is_textual(tree):
        return _pack_sorted(tree)
    return pack(_in_order(tree))


def _is_textual(tree: object) -> bool:
    """Return whether a tree has no extension types, and only str keys in its dicts."""
    kind = type(tree)
    if kind is dict:
        for key, item in cast("dict[object, object]", tree).items():
            if type(key) is not str or not _is_textual(item):
                return False
        return True
    if kind is list:
        for item in cast("list[object]", tree):
            if not _is_textual(item):
                return False
        return True
    return kind is not Ext


def _in_order(tree: object) -> object:
    """Sort the keys of every dict: text by code points, others by packed bytes."""
    if isinstance(tree, list):
        return [_in_order(item) for item in tree]
    if isinstance(tree, dict):
        if all(type(key) is str for key in tree):
            return {key: _in_order(tree[key]) for key in sorted(tree)}
        return {key: _in_order(tree[key]) for key in sorted(tree, key=pack)}
    if isinstance(tree, Ext) and tree.code >= FIRST_CONTAINER:
        items = cast("list[object]", _in_order(unpack_raw(tree.data)))
        if tree.code == MAP:
            pairs = sorted(zip(items[::2], items[1::2], strict=True), key=_packed_key)
            items = [half for pair in pairs for half in pair]
        elif tree.code == SET or tree.code == FROZENSET:
            items.sort(key=pack)
        return Ext(tree.code, pack(items))
    return tree


def _packed_key(pair: tuple[object, object]) -> bytes:
    return pack(pair[0])


def _extension(code: int, data: memoryview) -> object:
    if code < FIRST_CONTAINER and code in TAGS:
        return decode_scalar(code, bytes(data).decode())
    if code in (BLOB, ATTACHMENT):
        reference = build_reference(code, unpack_raw(data))
        contents: Any = getattr(_nesting, "contents", None)
        if contents is not None and isinstance(reference, BlobReference):
            return read_reference(reference, contents)
        return reference
    if code in TAGS:
        # Python's recursion limit does not account for the C stack used here.
        depth: int = getattr(_nesting, "depth", 0)
        if depth == MAX_DEPTH:
            raise InvalidDocumentError(TOO_DEEP)
        _nesting.depth = depth + 1
        try:
            return build_container(code, unpack(data))
        finally:
            _nesting.depth = depth
    raise InvalidDocumentError(
        f"unknown extension type {code}; the data is damaged, or written by a newer version"
    )


unpack: Final = msgspec.msgpack.Decoder(ext_hook=_extension).decode


def _check_hashes(items: list[object]) -> None:
    """Reject members with many equal hashes: building a set or a dict would take quadratic time.

    The hashes of str and bytes are randomized; those of numbers are not.
    """
    if len(items) <= MAX_COLLISIONS:
        return
    counts: dict[int, int] = {}
    for item in items:
        hashed = hash(item)
        count = counts.get(hashed, 0) + 1
        if count > MAX_COLLISIONS:
            raise InvalidDocumentError(
                f"more than {MAX_COLLISIONS} members of a set or keys of a dict have equal hashes; "
                "refusing to build it"
            )
        counts[hashed] = count


def build_container(code: int, items: object) -> object:
    """Return the container or the registered type with the given decoded items."""
    if not isinstance(items, list):
        raise InvalidDocumentError(f"{TAGS[code]} must contain a list, got {type(items).__name__}")
    if code == TUPLE:
        return tuple(items)
    if code == SET:
        _check_hashes(items)
        return set(items)
    if code == FROZENSET:
        _check_hashes(items)
        return frozenset(items)
    if code == MAP:
        _check_hashes(items[::2])
        found = dict(zip(items[::2], items[1::2], strict=True))
        for key in found:
            if not isinstance(key, KEYS) and key is not None:
                raise InvalidDocumentError(f"invalid $map key of type {type(key).__name__}")
        return found
    if len(items) != 2 or not isinstance(items[0], str):
        raise InvalidDocumentError("$type must contain a name and a value")
    known = registered_names.get(items[0])
    if known is None:
        raise UnregisteredTypeError(
            f"type {short_repr(items[0])} is not registered; call holdfast.register_type with that "
            "name before reading the data"
        )
    return known[1](items[1])
