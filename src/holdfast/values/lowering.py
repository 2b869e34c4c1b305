"""Lower values to the types that msgpack supports.

A plain value consists of dicts, lists and scalars of exactly the types that msgpack returns, and
needs no lowering. Other values are rebuilt, with an ``Ext`` for each type that msgpack lacks.
"""

from __future__ import annotations

import datetime as dt
import math
import uuid
from collections.abc import Callable, Collection
from decimal import Decimal
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec.msgpack import Ext

from holdfast.errors import InvalidDocumentError, UnsupportedValueError, short_repr
from holdfast.values.extensions import (
    ATTACHMENT,
    BLOB,
    CUSTOM,
    FROZENSET,
    MAP,
    MAX_DEPTH,
    SET,
    TUPLE,
)
from holdfast.values.references import Attachment, BlobReference, build_reference
from holdfast.values.scalars import encode_int, encode_scalar

T = TypeVar("T")

pack: Final = msgspec.msgpack.Encoder().encode

NAN: Final = float("nan")

registered_types: Final[dict[type, tuple[str, Callable[[Any], object]]]] = {}
registered_names: Final[dict[str, tuple[type, Callable[[Any], object]]]] = {}

NATIVE: Final[frozenset[type]] = frozenset(
    {type(None), bool, int, float, str, bytes, list, tuple, dict, set, frozenset}
    | {dt.datetime, dt.date, dt.time, dt.timedelta, uuid.UUID, Decimal}
)


class LoweringError(Exception):
    """A value cannot be stored. Collects the path to it while the recursion unwinds."""

    def __init__(self, reason: str, *, too_deep: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.too_deep = too_deep
        self.steps: list[str] = []
        self.holders: list[int] = []

    def add_step(self, holder: object, step: str) -> None:
        """Prepend a step of the path, from a container to its member."""
        self.steps.append(step)
        self.holders.append(id(holder))

    def error(self) -> UnsupportedValueError:
        """Return the error for the caller."""
        steps = self.steps[::-1]
        reason = self.reason
        if self.too_deep:
            holders = self.holders[::-1]
            seen: set[int] = set()
            for depth, holder in enumerate(holders):
                if holder in seen:
                    steps, reason = steps[:depth], "value contains itself"
                    break
                seen.add(holder)
            else:
                steps = [*steps[:8], "…"]
        path = "$" + "".join(steps)
        return UnsupportedValueError(f"{reason}, at {path}", path)


def register_type(
    kind: type[T], *, name: str, encode: Callable[[T], object], decode: Callable[[Any], T]
) -> None:
    """Register an encoder and a decoder for objects of a class, excluding its subclasses.

    ``encode`` returns the content as a supported value, ``decode`` restores the object. ``name`` is
    stored with the data and must not change. Reading data with a name that is not registered raises
    `UnsupportedValueError`.

    Raises:
        TypeError: ``kind`` is not a class, or ``encode`` or ``decode`` is not callable.
        ValueError: The class or the name is already registered, or the class is native.

    """
    if not isinstance(kind, type):
        raise TypeError(f"expected a class to register, got {short_repr(kind)}")
    if kind in NATIVE:
        raise ValueError(f"{kind.__name__} is supported natively and cannot be registered")
    if not isinstance(name, str) or not name or not is_text(name):
        raise ValueError(
            f"the name of a registered type must be non-empty text, not {short_repr(name)}"
        )
    if not callable(encode) or not callable(decode):
        raise TypeError(f"encode and decode of {kind.__qualname__} must be functions")
    taken = registered_names.get(name)
    if taken is not None and taken[0] is not kind:
        raise ValueError(
            f"name {name!r} is already registered for {taken[0].__qualname__}; choose another"
        )
    previous = registered_types.get(kind)
    if previous is not None and previous[0] != name:
        raise ValueError(
            f"{kind.__qualname__} is already registered as {previous[0]!r}; keep that name: "
            "stored data contains it"
        )
    registered_types[kind] = (name, encode)
    registered_names[name] = (kind, decode)


def is_plain(value: object, room: int) -> bool:
    """Return whether a value is plain, without checking the range of ints and the text of strs."""
    if room == 0:
        return False
    kind = type(value)
    if kind is dict:
        for key, item in cast("dict[object, object]", value).items():
            if type(key) is not str and not is_plain_key(key):
                return False
            kind = type(item)
            if kind is str or kind is int or kind is bool or item is None:
                continue
            if not is_plain(item, room - 1):
                return False
        return True
    if kind is list:
        for item in cast("list[object]", value):
            kind = type(item)
            if kind is str or kind is int or kind is bool or item is None:
                continue
            if not is_plain(item, room - 1):
                return False
        return True
    if kind is float:
        number = cast("float", value)
        return number == number
    return kind is str or kind is int or kind is bool or value is None or kind is bytes


def is_plain_key(key: object) -> bool:
    """Return whether a dict key other than a str is plain."""
    kind = type(key)
    if kind is float:
        return not math.isnan(cast("float", key))
    return kind is int or kind is bool or key is None or kind is bytes


def lower(value: object, room: int) -> object:
    """Return a value lowered to the types of msgpack; raise LoweringError if it has no encoding."""
    kind = type(value)
    if kind is str:
        return validate_text(cast("str", value))
    if kind is bool or value is None or kind is bytes:
        return value
    if kind is float:
        # NaN has many bit patterns; encode all of them as one.
        return NAN if math.isnan(cast("float", value)) else value
    if kind is int:
        number = cast("int", value)
        if -(2**63) <= number < 2**64:
            return number
        return encode_int(number)
    if kind in registered_types:
        name, to_plain = registered_types[kind]
        return Ext(CUSTOM, pack([name, _lower_into(value, to_plain(value), room)]))
    # Test the type and not the object: a proxy may claim to be an instance of any class.
    scalar = encode_scalar(value, kind)
    if scalar is not None:
        return scalar
    # Subclasses of the scalars: enums of str and int, numpy's floats, and the like.
    if issubclass(kind, str):
        return validate_text(str.__str__(cast("str", value)))
    if issubclass(kind, int):
        return lower(int.__int__(cast("int", value)), room)
    if issubclass(kind, float):
        return lower(float.__float__(cast("float", value)), room)
    if issubclass(kind, bytes):
        return bytes(memoryview(cast("bytes", value)))
    if kind is BlobReference or kind is Attachment:
        return _lower_reference(value)
    if room == 0:
        raise LoweringError(f"value is nested more than {MAX_DEPTH} levels deep", too_deep=True)
    if issubclass(kind, dict):
        return _lower_dict(cast("dict[Any, Any]", value), room)
    if issubclass(kind, list):
        return _lower_items(value, list.copy(cast("list[Any]", value)), room)
    if issubclass(kind, tuple):
        return Ext(TUPLE, pack(_lower_items(value, list(cast("tuple[Any, ...]", value)), room)))
    if issubclass(kind, (set, frozenset)):
        return _lower_set(cast("Collection[Any]", value), room)
    raise LoweringError(
        f"cannot store a value of type {_type_name(kind)}; convert it to a supported type, or "
        "register it with holdfast.register_type"
    )


def _lower_reference(value: Any) -> Ext:
    # A caller may have built it, with fields of any type: what cannot be read must not be written.
    code = BLOB
    items: list[Any] = [value.digest, value.size]
    if type(value) is BlobReference:
        items.append(value.kind)
    else:
        code = ATTACHMENT
        items += [value.media_type, value.name]
    try:
        build_reference(code, items)
    except InvalidDocumentError as error:
        raise LoweringError(str(error)) from None
    for item in items:
        if isinstance(item, str):
            validate_text(item)
    return Ext(code, pack(items))


def _lower_into(holder: object, value: object, room: int) -> object:
    if room == 0:
        raise LoweringError(f"value is nested more than {MAX_DEPTH} levels deep", too_deep=True)
    try:
        return lower(value, room - 1)
    except LoweringError as refusal:
        refusal.add_step(holder, "")
        raise


def _lower_items(holder: object, items: list[Any], room: int) -> list[Any]:
    done: list[Any] = []
    try:
        for item in items:
            done.append(lower(item, room - 1))
    except LoweringError as refusal:
        ordered = isinstance(holder, (list, tuple))
        refusal.add_step(holder, f"[{len(done)}]" if ordered else "{…}")
        raise
    return done


def _lower_set(value: Collection[Any], room: int) -> Ext:
    items = _lower_items(value, list(value), room)
    items.sort(key=pack)
    if len({pack(item) for item in items}) != len(items):
        raise LoweringError("two items of a set are equal when stored as base types")
    return Ext(SET if issubclass(type(value), set) else FROZENSET, pack(items))


def _lower_dict(value: dict[Any, Any], room: int) -> object:
    pairs: list[Any] = []
    simple = True
    converted = False
    at: object = None
    try:
        for at, item in dict(value).items():
            key = at
            kind = type(key)
            if kind is str:
                validate_text(cast("str", key))
            elif not is_plain_key(key):
                if not issubclass(kind, (tuple, str, int, float, bytes)):
                    raise LoweringError(
                        f"cannot store a dict key of type {_type_name(kind)}; keys must be str, "
                        "int, float, bool, None, bytes or tuple"
                    )
                converted = True
                key = lower(key, room - 1)
            elif kind is int:
                key = lower(key, room)
            if type(key) is Ext:
                simple = False
            pairs.append(key)
            pairs.append(lower(item, room - 1))
    except LoweringError as refusal:
        refusal.add_step(value, _step(at))
        raise
    plain = dict(zip(pairs[::2], pairs[1::2], strict=True)) if simple else {}
    if converted:
        # An enum member and its value can be two keys of a dict, but are the same plain str.
        # Two NaNs are two keys and could not be told apart.
        different = len({pack(key) for key in pairs[::2]})
        if different * 2 != len(pairs) or (simple and len(plain) != different):
            raise LoweringError("two keys of a dict are equal when stored as base types")
    return plain if simple else Ext(MAP, pack(pairs))


def _step(key: object) -> str:
    if isinstance(key, str):
        text = str.__str__(key)
        return "." + text if len(text) <= 60 and text.isidentifier() else f"[{short_repr(text)}]"
    return f"[{short_repr(key)}]"


def is_text(value: str) -> bool:
    """Return whether a str can be encoded as UTF-8: a lone surrogate cannot."""
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def validate_text(value: str) -> str:
    """Return a str, or raise LoweringError if UTF-8 cannot encode it."""
    if not is_text(value):
        raise LoweringError("cannot store a str with a lone surrogate, which UTF-8 cannot encode")
    return value


def _type_name(kind: type) -> str:
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
