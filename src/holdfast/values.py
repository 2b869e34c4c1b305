"""What a value may be, and its two forms: bytes and JSON.

A value goes in as Python data and comes back equal and of the same types. In bytes it is msgpack;
what msgpack cannot say is an extension type. In JSON it is itself; what JSON cannot say is an
object with one key that starts with ``$`` (a tag), and a user's own dict of that shape gets a
second ``$``. Decoding is data only: nothing that the data names is ever imported or called, except
the functions that the caller registered for that very name. docs/spec/values.md describes both.

Most values are plain: dicts, lists and scalars of exactly these types. They are checked in one
pass and then packed by msgspec in C. Everything else is first *lowered*: rebuilt from what msgpack
knows, with an ``Ext`` for the rest.
"""

from __future__ import annotations

import base64
import datetime
import math
import uuid
import zoneinfo
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec.msgpack import Ext

from holdfast.errors import HoldfastError, InvalidDocumentError, UnsupportedValueError

T = TypeVar("T")

MAX_DEPTH: Final = 256
"""How deep a value may be nested. Beyond it there is a clear error instead of a full stack."""

# Extension types of the bytes form. They are stored: a number is never given a second meaning.
_INT: Final = 1
_DECIMAL: Final = 2
_UUID: Final = 3
_DATETIME: Final = 4
_DATE: Final = 5
_TIME: Final = 6
_TIMEDELTA: Final = 7
_TUPLE: Final = 16
_SET: Final = 17
_FROZENSET: Final = 18
_MAP: Final = 19
_CUSTOM: Final = 20

# The same in JSON, plus what msgpack says natively and JSON does not.
_TAGS: Final[dict[int, str]] = {
    _INT: "$int",
    _DECIMAL: "$decimal",
    _UUID: "$uuid",
    _DATETIME: "$datetime",
    _DATE: "$date",
    _TIME: "$time",
    _TIMEDELTA: "$timedelta",
    _TUPLE: "$tuple",
    _SET: "$set",
    _FROZENSET: "$frozenset",
    _MAP: "$map",
    _CUSTOM: "$type",
}
_CODES: Final[dict[str, int]] = {tag: code for code, tag in _TAGS.items()}

# Readers that keep numbers as doubles are exact up to here; larger integers are tagged in JSON.
_JSON_INT: Final = 2**53

_pack: Final = msgspec.msgpack.Encoder().encode
_pack_sorted: Final = msgspec.msgpack.Encoder(order="sorted").encode
_unpack_raw: Final = msgspec.msgpack.Decoder().decode

_by_type: Final[dict[type, tuple[str, Callable[[Any], object]]]] = {}
_by_name: Final[dict[str, tuple[type, Callable[[Any], object]]]] = {}


class _Refusal(Exception):
    """A value cannot be kept; collects the way to the culprit while the walk unwinds."""

    def __init__(self, reason: str, too_deep: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.too_deep = too_deep
        self.steps: list[str] = []
        self.holders: list[int] = []

    def passed(self, holder: object, step: str) -> None:
        self.steps.append(step)
        self.holders.append(id(holder))

    def error(self) -> UnsupportedValueError:
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
    if kind in _NATIVE:
        raise ValueError(f"{kind.__name__} is stored as it is; only other types can be registered")
    if not name or not isinstance(name, str):
        raise ValueError(f"the name of a registered type must be a non-empty str, not {name!r}")
    taken = _by_name.get(name)
    if taken is not None and taken[0] is not kind:
        raise ValueError(
            f"the name {name!r} already stands for {taken[0].__qualname__}; choose another"
        )
    former = _by_type.get(kind)
    if former is not None and former[0] != name:
        raise ValueError(
            f"{kind.__qualname__} is already registered as {former[0]!r}; keep that name, "
            "stored data uses it"
        )
    _by_type[kind] = (name, encode)
    _by_name[name] = (kind, decode)


# ---------------------------------------------------------------------------- bytes


def encode(value: object) -> bytes:
    """The bytes form. Raises `UnsupportedValueError` with the path to what cannot be kept."""
    if _is_plain(value, MAX_DEPTH):
        try:
            return _pack(value)
        except (OverflowError, UnicodeEncodeError):
            # An int beyond 64 bits, or a str that is not text: the slow way tells which, and where.
            return _encode_slowly(value)
    return _encode_slowly(value)


def _encode_slowly(value: object) -> bytes:
    try:
        return _pack(_lower(value, MAX_DEPTH))
    except _Refusal as refusal:
        raise refusal.error() from None


def decode(data: bytes) -> Any:
    """The value whose bytes form this is, made anew on every call."""
    try:
        return _unpack(data)
    except HoldfastError:
        raise
    except RecursionError:
        raise InvalidDocumentError(
            f"the bytes of a value are nested too deep to be read: Holdfast writes at most {MAX_DEPTH} "
            "levels; if these are no deeper, the call itself comes from too deep a recursion"
        ) from None
    except (msgspec.MsgspecError, ValueError, TypeError, ArithmeticError) as error:
        raise InvalidDocumentError(
            f"the bytes are not a Holdfast value ({error}); they are damaged or from elsewhere"
        ) from error


def same(a: bytes, b: bytes) -> bool:
    """Whether two bytes forms say the same value; the order of a dict's keys does not count."""
    if a == b:
        return True
    # Another order of keys has the same bytes in another order, and so the same length and the same
    # sum. The remainder by 255 is that sum (256 is 1 modulo 255), taken at C speed.
    if len(a) != len(b) or int.from_bytes(a, "big") % 255 != int.from_bytes(b, "big") % 255:
        return False
    return canonical(a) == canonical(b)


def canonical(data: bytes) -> bytes:
    """The one bytes form that all equal values share: what a digest is computed over."""
    first = data[0]
    # Only maps, arrays and extension types can hold a dict. msgpack's first byte tells: 80-9f are
    # short maps and arrays, c7-c9 and d4-d8 extension types, dc-df long arrays and maps.
    if first < 0x80 or 0x9F < first < 0xC7 or 0xC9 < first < 0xD4 or 0xD8 < first < 0xDC:
        return data
    if first > 0xDF:
        return data
    tree = _unpack_raw(data)
    if _is_textual(tree):
        return _pack_sorted(tree)
    return _pack(_in_order(tree))


def _is_textual(tree: object) -> bool:
    """Whether the tree has no extension type and all its dicts have only str keys."""
    kind = type(tree)
    if kind is dict:
        for key, item in cast(dict[object, object], tree).items():
            if type(key) is not str or not _is_textual(item):
                return False
        return True
    if kind is list:
        for item in cast(list[object], tree):
            if not _is_textual(item):
                return False
        return True
    return kind is not Ext


def _in_order(tree: object) -> object:
    """The tree with every dict's keys in order: text by code points, the rest by packed bytes."""
    if isinstance(tree, list):
        return [_in_order(item) for item in tree]
    if isinstance(tree, dict):
        if all(type(key) is str for key in tree):
            return {key: _in_order(tree[key]) for key in sorted(tree)}
        return {key: _in_order(tree[key]) for key in sorted(tree, key=_pack)}
    if isinstance(tree, Ext) and tree.code >= _TUPLE:
        items = cast(list[object], _in_order(_unpack_raw(tree.data)))
        if tree.code == _MAP:
            pairs = sorted(zip(items[::2], items[1::2], strict=True), key=_packed_key)
            items = [half for pair in pairs for half in pair]
        elif tree.code == _SET or tree.code == _FROZENSET:
            items.sort(key=_pack)
        return Ext(tree.code, _pack(items))
    return tree


def _packed_key(pair: tuple[object, object]) -> bytes:
    return _pack(pair[0])


def _is_plain(value: object, room: int) -> bool:
    """Whether msgpack gives back exactly this, without a look at how large an int or a str is."""
    if room == 0:
        return False
    kind = type(value)
    if kind is dict:
        for key, item in cast(dict[object, object], value).items():
            if type(key) is not str and not _is_plain_key(key):
                return False
            kind = type(item)
            if kind is str or kind is int or kind is bool or item is None or kind is float:
                continue
            if not _is_plain(item, room - 1):
                return False
        return True
    if kind is list:
        for item in cast(list[object], value):
            kind = type(item)
            if kind is str or kind is int or kind is bool or item is None or kind is float:
                continue
            if not _is_plain(item, room - 1):
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


def _is_plain_key(key: object) -> bool:
    kind = type(key)
    return kind is int or kind is float or kind is bool or key is None or kind is bytes


def _lower(value: object, room: int) -> object:
    """The value built of what msgpack knows; raises `_Refusal` at what no form can say."""
    kind = type(value)
    if kind is str:
        return _text(cast(str, value))
    if kind is bool or value is None or kind is float or kind is bytes:
        return value
    if kind is int:
        number = cast(int, value)
        if -(2**63) <= number < 2**64:
            return number
        return Ext(_INT, _int_text(number).encode())
    if kind in _by_type:
        name, to_plain = _by_type[kind]
        return Ext(_CUSTOM, _pack([name, _lower_into(value, to_plain(value), room)]))
    scalar = _scalar(value)
    if scalar is not None:
        return scalar
    if room == 0:
        raise _Refusal(f"the value is nested deeper than {MAX_DEPTH} levels", too_deep=True)
    if isinstance(value, dict):
        return _lower_dict(value, room)
    if isinstance(value, list):
        return _lower_items(value, list.copy(value), room)
    if isinstance(value, tuple):
        return Ext(_TUPLE, _pack(_lower_items(value, list(value), room)))
    if isinstance(value, (set, frozenset)):
        items = _lower_items(value, list(value), room)
        items.sort(key=_pack)
        return Ext(_SET if isinstance(value, set) else _FROZENSET, _pack(items))
    # Subclasses of the scalars: enums of str and int, numpy's floats, and the like.
    if isinstance(value, str):
        return _text(str.__str__(value))
    if isinstance(value, int):
        return _lower(int.__int__(value), room)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, bytes):
        return bytes(memoryview(value))
    raise _Refusal(
        f"cannot keep a value of type {_type_name(kind)}; convert it to plain data "
        "or register its type with holdfast.register_type"
    )


def _lower_into(holder: object, value: object, room: int) -> object:
    if room == 0:
        raise _Refusal(f"the value is nested deeper than {MAX_DEPTH} levels", too_deep=True)
    try:
        return _lower(value, room - 1)
    except _Refusal as refusal:
        refusal.passed(holder, "")
        raise


def _lower_items(holder: object, items: list[Any], room: int) -> list[Any]:
    lowered: list[Any] = []
    try:
        for item in items:
            lowered.append(_lower(item, room - 1))
    except _Refusal as refusal:
        ordered = isinstance(holder, (list, tuple))
        refusal.passed(holder, f"[{len(lowered)}]" if ordered else "{…}")
        raise
    return lowered


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
                _text(cast(str, key))
            elif not _is_plain_key(key):
                if not isinstance(key, (tuple, str, int, float, bytes)):
                    raise _Refusal(
                        f"cannot keep a dict key of type {_type_name(kind)}; keys may be str, int, "
                        "float, bool, None, bytes or tuple"
                    )
                converted = True
                key = _lower(key, room - 1)
            elif kind is int:
                key = _lower(key, room)
            if type(key) is Ext:
                simple = False
            pairs.append(key)
            pairs.append(_lower(item, room - 1))
    except _Refusal as refusal:
        refusal.passed(value, _step(at))
        raise
    if converted and len({_pack(key) for key in pairs[::2]}) * 2 != len(pairs):
        # An enum member and its own value are two keys of one dict, and the same plain str.
        raise _Refusal("two keys of a dict become the same when stored as plain types")
    if not simple:
        return Ext(_MAP, _pack(pairs))
    return dict(zip(pairs[::2], pairs[1::2], strict=True))


def _step(key: object) -> str:
    if isinstance(key, str):
        text = str.__str__(key)
        return "." + text if text.isidentifier() else f"[{_short(repr(text))}]"
    return f"[{_short(repr(key))}]"


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:60] + "…"


def _text(value: str) -> str:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise _Refusal(
                f"cannot keep a str with a lone surrogate ({value[error.start]!r} at index "
                f"{error.start}); it is not text that any encoding can say"
            ) from None
    return value


def _type_name(kind: type) -> str:
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


# --------------------------------------------------------------------------- scalars as text


def _scalar(value: object) -> Ext | None:
    """The extension type of a scalar that has one; its payload is the text that JSON shows too."""
    if isinstance(value, datetime.datetime):
        return Ext(_DATETIME, _datetime_text(value).encode())
    if isinstance(value, datetime.date):
        return Ext(_DATE, datetime.date(value.year, value.month, value.day).isoformat().encode())
    if isinstance(value, datetime.time):
        plain = datetime.time(
            value.hour, value.minute, value.second, value.microsecond, value.tzinfo
        )
        return Ext(_TIME, (plain.isoformat() + _suffix(value.tzinfo, value.fold)).encode())
    if isinstance(value, datetime.timedelta):
        return Ext(_TIMEDELTA, f"{value.days},{value.seconds},{value.microseconds}".encode())
    if isinstance(value, uuid.UUID):
        return Ext(_UUID, str(uuid.UUID(int=value.int)).encode())
    if isinstance(value, Decimal):
        return Ext(_DECIMAL, str(Decimal(value)).encode())
    return None


def _read_scalar(code: int, text: str) -> object:
    if code == _INT:
        return int(text, 0)
    if code == _DECIMAL:
        return Decimal(text)
    if code == _UUID:
        return uuid.UUID(text)
    if code == _DATETIME:
        return _read_datetime(text)
    if code == _DATE:
        return datetime.date.fromisoformat(text)
    if code == _TIME:
        clock, zone, fold = _without_suffix(text)
        time = datetime.time.fromisoformat(clock).replace(fold=fold)
        return time if zone is None else time.replace(tzinfo=zone)
    days, seconds, microseconds = text.split(",")
    return datetime.timedelta(int(days), int(seconds), int(microseconds))


def _int_text(value: int) -> str:
    # Python refuses to turn very long ints into decimal (it takes quadratic time), not into hex.
    return str(value) if value.bit_length() <= 2048 else hex(value)


def _datetime_text(value: datetime.datetime) -> str:
    plain = datetime.datetime(
        value.year,
        value.month,
        value.day,
        value.hour,
        value.minute,
        value.second,
        value.microsecond,
        value.tzinfo,
        fold=value.fold,
    )
    return plain.isoformat() + _suffix(value.tzinfo, value.fold)


def _suffix(zone: datetime.tzinfo | None, fold: int) -> str:
    """What ISO 8601 cannot say, as RFC 9557 writes it: ``[Europe/Berlin]``, ``[_fold=1]``."""
    name = f"[{zone.key}]" if isinstance(zone, zoneinfo.ZoneInfo) and zone.key else ""
    return name + ("[_fold=1]" if fold else "")


def _without_suffix(text: str) -> tuple[str, zoneinfo.ZoneInfo | None, int]:
    fold = 1 if text.endswith("[_fold=1]") else 0
    text = text.removesuffix("[_fold=1]")
    if not text.endswith("]"):
        return text, None, fold
    clock, _, name = text[:-1].partition("[")
    # Looked up among the zones that this machine has: a name from data never becomes a path.
    return clock, zoneinfo.ZoneInfo(name) if name in _zones() else None, fold


_zones_found: set[str] = set()


def _zones() -> set[str]:
    if not _zones_found:
        _zones_found.update(zoneinfo.available_timezones())
    return _zones_found


def _read_datetime(text: str) -> datetime.datetime:
    clock, zone, fold = _without_suffix(text)
    moment = datetime.datetime.fromisoformat(clock).replace(fold=fold)
    if zone is None:
        return moment
    there = moment.replace(tzinfo=zone)
    if there.utcoffset() == moment.utcoffset():
        return there
    # The zone's rules differ on this machine: the moment itself is what must not change.
    return moment


# ------------------------------------------------------------------------ reading containers


def _extension(code: int, data: memoryview) -> object:
    if code < _TUPLE and code in _TAGS:
        return _read_scalar(code, bytes(data).decode())
    if code in _TAGS:
        return _build(code, _unpack(data))
    raise InvalidDocumentError(
        f"the data holds an extension type {code} that this version of Holdfast does not know; "
        "it was written by a newer version or is damaged"
    )


_unpack: Final = msgspec.msgpack.Decoder(ext_hook=_extension).decode


def _build(code: int, items: object) -> object:
    """A container from its decoded items."""
    if not isinstance(items, list):
        raise InvalidDocumentError(f"a {_TAGS[code]} must hold a list, not {type(items).__name__}")
    if code == _TUPLE:
        return tuple(items)
    if code == _SET:
        return set(items)
    if code == _FROZENSET:
        return frozenset(items)
    if code == _MAP:
        return dict(zip(items[::2], items[1::2], strict=True))
    if len(items) != 2 or not isinstance(items[0], str):
        raise InvalidDocumentError("a $type must hold a name and a value")
    known = _by_name.get(items[0])
    if known is None:
        raise UnsupportedValueError(
            f"the data holds a value of the registered type {items[0]!r}, which is not registered "
            "here; call holdfast.register_type with that name before reading it"
        )
    return known[1](items[1])


# ----------------------------------------------------------------------------- JSON


def to_json(value: object) -> Any:
    """The JSON form: a tree of dict, list, str, int, float, bool and None for any JSON writer.

    The tree may share parts with ``value``: write it out before either changes.
    """
    try:
        if _is_json(value, MAX_DEPTH):
            return value
        return _tagged(_lower(value, MAX_DEPTH))
    except _Refusal as refusal:
        raise refusal.error() from None


def from_json(tree: object) -> Any:
    """The value whose JSON form this is. Raises `InvalidDocumentError` at a tag that is not one."""
    try:
        return _untagged(tree, MAX_DEPTH)
    except HoldfastError:
        raise
    except (ValueError, TypeError, ArithmeticError) as error:
        raise InvalidDocumentError(f"the JSON is not a Holdfast value: {error}") from error


def _is_json(value: object, room: int) -> bool:
    """Whether JSON says this value as it is."""
    if room == 0:
        return False
    kind = type(value)
    if kind is str:
        _text(cast(str, value))
        return True
    if kind is bool or value is None:
        return True
    if kind is int:
        return -_JSON_INT < cast(int, value) < _JSON_INT
    if kind is float:
        return math.isfinite(cast(float, value))
    if kind is list:
        for item in cast(list[object], value):
            if not _is_json(item, room - 1):
                return False
        return True
    if kind is dict:
        entries = cast(dict[object, object], value)
        for key, item in entries.items():
            if type(key) is not str or not _is_json(item, room - 1):
                return False
            if len(entries) == 1 and key.startswith("$"):
                return False
            _text(key)
        return True
    return False


def _tagged(tree: object) -> object:
    """The JSON form of a lowered tree."""
    if isinstance(tree, dict):
        if not all(type(key) is str for key in tree):
            return {"$map": [[_tagged(key), _tagged(item)] for key, item in tree.items()]}
        entries = {key: _tagged(item) for key, item in tree.items()}
        if len(entries) == 1:
            for key in entries:
                if key.startswith("$"):
                    return {"$" + key: entries[key]}
        return entries
    if isinstance(tree, list):
        return [_tagged(item) for item in tree]
    if isinstance(tree, bytes):
        return {"$bytes": base64.b64encode(tree).decode()}
    if isinstance(tree, float):
        return tree if math.isfinite(tree) else {"$float": repr(tree)}
    if isinstance(tree, Ext):
        if tree.code < _TUPLE:
            return {_TAGS[tree.code]: bytes(tree.data).decode()}
        items = _unpack_raw(tree.data)
        if tree.code == _MAP:
            items = [[items[at], items[at + 1]] for at in range(0, len(items), 2)]
        return {_TAGS[tree.code]: _tagged(items)}
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
        raise InvalidDocumentError(f"the JSON is nested deeper than {MAX_DEPTH} levels")


def _read_tag(tag: str, content: object, room: int) -> object:
    if tag.startswith("$$"):
        _check_room(room)
        return {tag[1:]: _untagged(content, room - 1)}
    code = _CODES.get(tag, 0)
    if code >= _TUPLE:
        _check_room(room)
        if not isinstance(content, list):
            raise InvalidDocumentError(f"a {tag} must hold a list, not {type(content).__name__}")
        if code == _MAP:
            content = [half for item in content for half in _pair(item)]
        return _build(code, [_untagged(item, room - 1) for item in content])
    if not isinstance(content, str):
        raise InvalidDocumentError(f"a {tag} must hold a str, not {type(content).__name__}")
    if code > 0:
        return _read_scalar(code, content)
    if tag == "$bytes":
        return base64.b64decode(content, validate=True)
    if tag == "$float" and content in ("nan", "inf", "-inf"):
        return float(content)
    raise InvalidDocumentError(
        f"the JSON holds an object with the one key {tag!r}, which is not a tag that this version "
        f"of Holdfast knows; a dict with that key is written with the key {'$' + tag!r}"
    )


def _pair(item: object) -> tuple[Any, Any]:
    if not isinstance(item, list) or len(item) != 2:
        raise InvalidDocumentError("a $map must hold pairs of a key and a value")
    return item[0], item[1]


_NATIVE: Final[frozenset[type]] = frozenset(
    {type(None), bool, int, float, str, bytes, list, tuple, dict, set, frozenset}
    | {datetime.datetime, datetime.date, datetime.time, datetime.timedelta, uuid.UUID, Decimal}
)
