"""From Python to what msgpack knows: what is plain, what becomes of the rest, what is refused.

A plain value holds nothing but dicts, lists and scalars of exactly the types that msgpack gives
back; it needs no lowering. Everything else is rebuilt, with an ``Ext`` for what msgpack cannot say.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec.msgpack import Ext

from holdfast.errors import UnsupportedValueError
from holdfast.values.extensions import CUSTOM, FROZENSET, MAP, MAX_DEPTH, SET, TUPLE
from holdfast.values.scalars import int_extension, scalar_extension

T = TypeVar("T")

pack: Final = msgspec.msgpack.Encoder().encode

registered_types: Final[dict[type, tuple[str, Callable[[Any], object]]]] = {}
registered_names: Final[dict[str, tuple[type, Callable[[Any], object]]]] = {}

NATIVE: Final[frozenset[type]] = frozenset(
    {type(None), bool, int, float, str, bytes, list, tuple, dict, set, frozenset}
    | {dt.datetime, dt.date, dt.time, dt.timedelta, uuid.UUID, Decimal}
)


class Refusal(Exception):
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
    if kind in NATIVE:
        raise ValueError(f"{kind.__name__} is stored as it is; only other types can be registered")
    if not name or not isinstance(name, str):
        raise ValueError(f"the name of a registered type must be a non-empty str, not {name!r}")
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
            if kind is str or kind is int or kind is bool or item is None or kind is float:
                continue
            if not is_plain(item, room - 1):
                return False
        return True
    if kind is list:
        for item in cast("list[object]", value):
            kind = type(item)
            if kind is str or kind is int or kind is bool or item is None or kind is float:
                continue
            if not is_plain(item, room - 1):
                return False
        return True
    return (
        kind is str
        or kind is int
        or kind is bool
        or value is None
        or kind is float
        or kind is bytes
    )


def is_plain_key(key: object) -> bool:
    """Whether msgpack gives back exactly this dict key, other than a str."""
    kind = type(key)
    return kind is int or kind is float or kind is bool or key is None or kind is bytes


def lowered(value: object, room: int) -> object:
    """The value built of what msgpack knows; raises `Refusal` at what no form can say."""
    kind = type(value)
    if kind is str:
        return checked_text(cast("str", value))
    if kind is bool or value is None or kind is float or kind is bytes:
        return value
    if kind is int:
        number = cast("int", value)
        if -(2**63) <= number < 2**64:
            return number
        return int_extension(number)
    if kind in registered_types:
        name, to_plain = registered_types[kind]
        return Ext(CUSTOM, pack([name, _lower_into(value, to_plain(value), room)]))
    scalar = scalar_extension(value)
    if scalar is not None:
        return scalar
    if room == 0:
        raise Refusal(f"the value is nested deeper than {MAX_DEPTH} levels", too_deep=True)
    if isinstance(value, dict):
        return _lower_dict(value, room)
    if isinstance(value, list):
        return _lower_items(value, list.copy(value), room)
    if isinstance(value, tuple):
        return Ext(TUPLE, pack(_lower_items(value, list(value), room)))
    if isinstance(value, (set, frozenset)):
        items = _lower_items(value, list(value), room)
        items.sort(key=pack)
        return Ext(SET if isinstance(value, set) else FROZENSET, pack(items))
    # Subclasses of the scalars: enums of str and int, numpy's floats, and the like.
    if isinstance(value, str):
        return checked_text(str.__str__(value))
    if isinstance(value, int):
        return lowered(int.__int__(value), room)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, bytes):
        return bytes(memoryview(value))
    raise Refusal(
        f"cannot keep a value of type {_type_name(kind)}; convert it to plain data "
        "or register its type with holdfast.register_type"
    )


def _lower_into(holder: object, value: object, room: int) -> object:
    if room == 0:
        raise Refusal(f"the value is nested deeper than {MAX_DEPTH} levels", too_deep=True)
    try:
        return lowered(value, room - 1)
    except Refusal as refusal:
        refusal.passed(holder, "")
        raise


def _lower_items(holder: object, items: list[Any], room: int) -> list[Any]:
    done: list[Any] = []
    try:
        for item in items:
            done.append(lowered(item, room - 1))
    except Refusal as refusal:
        ordered = isinstance(holder, (list, tuple))
        refusal.passed(holder, f"[{len(done)}]" if ordered else "{…}")
        raise
    return done


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
                checked_text(cast("str", key))
            elif not is_plain_key(key):
                if not isinstance(key, (tuple, str, int, float, bytes)):
                    raise Refusal(
                        f"cannot keep a dict key of type {_type_name(kind)}; keys may be str, int, "
                        "float, bool, None, bytes or tuple"
                    )
                converted = True
                key = lowered(key, room - 1)
            elif kind is int:
                key = lowered(key, room)
            if type(key) is Ext:
                simple = False
            pairs.append(key)
            pairs.append(lowered(item, room - 1))
    except Refusal as refusal:
        refusal.passed(value, _step(at))
        raise
    if converted and len({pack(key) for key in pairs[::2]}) * 2 != len(pairs):
        # An enum member and its own value are two keys of one dict, and the same plain str.
        raise Refusal("two keys of a dict become the same when stored as plain types")
    if not simple:
        return Ext(MAP, pack(pairs))
    return dict(zip(pairs[::2], pairs[1::2], strict=True))


def _step(key: object) -> str:
    if isinstance(key, str):
        text = str.__str__(key)
        return "." + text if text.isidentifier() else f"[{_short(repr(text))}]"
    return f"[{_short(repr(key))}]"


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:60] + "…"


def checked_text(value: str) -> str:
    """The str itself, if it is text that can be written down."""
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise Refusal(
                f"cannot keep a str with a lone surrogate ({value[error.start]!r} at index "
                f"{error.start}); it is not text that any encoding can say"
            ) from None
    return value


def _type_name(kind: type) -> str:
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
