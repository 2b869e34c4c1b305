"""From Python to what msgpack knows: what is plain, what becomes of the rest, what is refused.

A plain value holds nothing but dicts, lists and scalars of exactly the types that msgpack gives
back; it needs no lowering. Everything else is rebuilt, with an ``Ext`` for what msgpack cannot say.
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

from holdfast.errors import UnsupportedValueError, short_repr
from holdfast.values.extensions import CUSTOM, FROZENSET, MAP, MAX_DEPTH, SET, TUPLE
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
    """A value cannot be kept; collects the way to the culprit while the walk unwinds."""

    def __init__(self, reason: str, *, too_deep: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.too_deep = too_deep
        self.steps: list[str] = []
        self.holders: list[int] = []

    def passed(self, holder: object, step: str) -> None:
        """Note that the way leads through ``holder`` by ``step``."""
        self.steps.append(step)
        self.holders.append(id(holder))

    def error(self) -> UnsupportedValueError:
        """What the caller gets to see."""
        steps = self.steps[::-1]
        reason = self.reason
        if self.too_deep:
            holders = self.holders[::-1]
            seen: set[int] = set()
            for depth, holder in enumerate(holders):
                if holder in seen:
                    steps, reason = steps[:depth], "the value contains itself"
                    break
                seen.add(holder)
            else:
                steps = [*steps[:8], "…"]
        path = "$" + "".join(steps)
        return UnsupportedValueError(f"{reason}, at {path}", path)


def register_type(
    kind: type[T], *, name: str, encode: Callable[[T], object], decode: Callable[[Any], T]
) -> None:
    """Let values hold objects of class ``kind`` (that very class, not its subclasses).

    ``encode`` gives the content as a value that Holdfast knows, ``decode`` makes the object again.
    ``name`` is what is stored, so it must stay the same for as long as the data lives. Data with a
    name that was not registered is refused when it is read.
    """
    if not isinstance(kind, type):
        raise TypeError(f"expected a class to register, not {short_repr(kind)}")
    if kind in NATIVE:
        raise ValueError(f"{kind.__name__} is stored as it is; only other types can be registered")
    if not isinstance(name, str) or not name or not is_text(name):
        raise ValueError(
            f"the name of a registered type must be non-empty text, not {short_repr(name)}"
        )
    if not callable(encode) or not callable(decode):
        raise TypeError(f"encode and decode of {kind.__qualname__} must be functions")
    taken = registered_names.get(name)
    if taken is not None and taken[0] is not kind:
        raise ValueError(
            f"the name {name!r} already stands for {taken[0].__qualname__}; choose another"
        )
    former = registered_types.get(kind)
    if former is not None and former[0] != name:
        raise ValueError(
            f"{kind.__qualname__} is already registered as {former[0]!r}; keep that name, "
            "stored data uses it"
        )
    registered_types[kind] = (name, encode)
    registered_names[name] = (kind, decode)


def is_plain(value: object, room: int) -> bool:
    """Whether msgpack gives back exactly this, without a look at how large an int or a str is."""
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
    """Whether msgpack gives back exactly this dict key, other than a str."""
    kind = type(key)
    if kind is float:
        return not math.isnan(cast("float", key))
    return kind is int or kind is bool or key is None or kind is bytes


def lower(value: object, room: int) -> object:
    """The value built of what msgpack knows; raises `Refusal` at what no form can say."""
    kind = type(value)
    if kind is str:
        return validate_text(cast("str", value))
    if kind is bool or value is None or kind is bytes:
        return value
    if kind is float:
        # Many bit patterns say NaN, some processors even make negative ones: one stands for all.
        return NAN if math.isnan(cast("float", value)) else value
    if kind is int:
        number = cast("int", value)
        if -(2**63) <= number < 2**64:
            return number
        return encode_int(number)
    if kind in registered_types:
        name, to_plain = registered_types[kind]
        return Ext(CUSTOM, pack([name, _lower_into(value, to_plain(value), room)]))
    # The type is asked and not the object: a proxy may claim any class for itself.
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
    if room == 0:
        raise LoweringError(f"the value is nested deeper than {MAX_DEPTH} levels", too_deep=True)
    if issubclass(kind, dict):
        return _lower_dict(cast("dict[Any, Any]", value), room)
    if issubclass(kind, list):
        return _lower_items(value, list.copy(cast("list[Any]", value)), room)
    if issubclass(kind, tuple):
        return Ext(TUPLE, pack(_lower_items(value, list(cast("tuple[Any, ...]", value)), room)))
    if issubclass(kind, (set, frozenset)):
        return _lower_set(cast("Collection[Any]", value), room)
    raise LoweringError(
        f"cannot keep a value of type {_type_name(kind)}; convert it to plain data "
        "or register its type with holdfast.register_type"
    )


def _lower_into(holder: object, value: object, room: int) -> object:
    if room == 0:
        raise LoweringError(f"the value is nested deeper than {MAX_DEPTH} levels", too_deep=True)
    try:
        return lower(value, room - 1)
    except LoweringError as refusal:
        refusal.passed(holder, "")
        raise


def _lower_items(holder: object, items: list[Any], room: int) -> list[Any]:
    done: list[Any] = []
    try:
        for item in items:
            done.append(lower(item, room - 1))
    except LoweringError as refusal:
        ordered = isinstance(holder, (list, tuple))
        refusal.passed(holder, f"[{len(done)}]" if ordered else "{…}")
        raise
    return done


def _lower_set(value: Collection[Any], room: int) -> Ext:
    items = _lower_items(value, list(value), room)
    items.sort(key=pack)
    if len({pack(item) for item in items}) != len(items):
        raise LoweringError("two items of a set become the same when stored as plain types")
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
                        f"cannot keep a dict key of type {_type_name(kind)}; keys may be str, int, "
                        "float, bool, None, bytes or tuple"
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
        refusal.passed(value, _step(at))
        raise
    plain = dict(zip(pairs[::2], pairs[1::2], strict=True)) if simple else {}
    if converted:
        # A member of an enum and its own value may be two keys of one dict, and are one plain str.
        # Two NaNs are two keys, and stay so; but nobody could say which is which.
        different = len({pack(key) for key in pairs[::2]})
        if different * 2 != len(pairs) or (simple and len(plain) != different):
            raise LoweringError("two keys of a dict become the same when stored as plain types")
    return plain if simple else Ext(MAP, pack(pairs))


def _step(key: object) -> str:
    if isinstance(key, str):
        text = str.__str__(key)
        return "." + text if len(text) <= 60 and text.isidentifier() else f"[{short_repr(text)}]"
    return f"[{short_repr(key)}]"


def is_text(value: str) -> bool:
    """Whether a str can be written down: one with a lone surrogate cannot."""
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def validate_text(value: str) -> str:
    """The str itself, if it is text."""
    if not is_text(value):
        raise LoweringError(
            "cannot keep a str with a lone surrogate: no encoding can write it down"
        )
    return value


def _type_name(kind: type) -> str:
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
