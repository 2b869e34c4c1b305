"""Values for tests: one of each kind, strategies for all of them, and exact comparison."""

from __future__ import annotations

import collections
import datetime as dt
import enum
import json
import math
import uuid
import zoneinfo
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from holdfast.values import from_json, to_json
from support.subprocesses import read_python

BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
ODD_ZONE = dt.timezone(dt.timedelta(hours=-3, minutes=-7, seconds=-12, microseconds=5))

SAMPLES: dict[str, Any] = {
    "none": None,
    "true": True,
    "false": False,
    "zero": 0,
    "small int": -129,
    "int past 2**53": 2**53 + 1,
    "largest 64 bits": 2**64 - 1,
    "smallest 64 bits": -(2**63),
    "int past 64 bits": 2**64,
    "negative int past 64 bits": -(2**63) - 1,
    "huge int": 3**20_000,
    "float": 0.1,
    "whole float": 3.0,
    "minus zero": -0.0,
    "nan": math.nan,
    "inf": math.inf,
    "minus inf": -math.inf,
    "smallest float": 5e-324,
    "str": "onboarding",
    "empty str": "",
    "text of the world": "Grüße, 世界 🦀 \u2028 \x00 \x7f",
    "bytes": bytes(range(256)),
    "empty bytes": b"",
    "list": [1, [2, [3, []]], {}],
    "tuple": (1, (2, ()), [3, (4,)]),
    "empty tuple": (),
    "dict": {"b": 1, "a": {"c": [None]}},
    "dict with a tag's look": {"$tuple": [1]},
    "dict with an escaped tag's look": {"$$tuple": [1]},
    "dict with an unknown tag's look": {"$ref": "#/definitions/x"},
    "dict with two tag-like keys": {"$tuple": [1], "$set": [2]},
    "dict with int and str keys": {1: "int", "1": "str"},
    "dict with every kind of key": {
        "s": 1,
        7: 2,
        2.5: 3,
        False: 4,
        None: 5,
        b"b": 6,
        (1, ("x", b"y"), None): 7,
        2**70: 8,
        -0.5: 9,
    },
    "empty dict": {},
    "set": {1, "a", (2, 3), frozenset({4})},
    "empty set": set(),
    "frozenset": frozenset({b"x", None, 1.5}),
    "naive datetime": dt.datetime(2026, 11, 15, 2, 3, 4, 567),
    "utc datetime": dt.datetime(2026, 11, 15, tzinfo=dt.UTC),
    "datetime with an odd offset": dt.datetime(1, 2, 3, 4, 5, tzinfo=ODD_ZONE),
    "datetime in a zone": dt.datetime(2026, 7, 1, 12, tzinfo=BERLIN),
    "datetime in the repeated hour": dt.datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1),
    "datetime in the skipped hour": dt.datetime(2026, 3, 29, 2, 30, tzinfo=BERLIN),
    "latest datetime": dt.datetime.max,
    "date": dt.date(2026, 11, 15),
    "first date": dt.date.min,
    "time": dt.time(23, 59, 59, 999_999),
    "time with offset": dt.time(1, 2, tzinfo=dt.UTC),
    "time in a zone": dt.time(1, 2, tzinfo=BERLIN),
    "timedelta": dt.timedelta(days=-3, seconds=5, microseconds=7),
    "longest timedelta": dt.timedelta.max,
    "uuid": uuid.UUID("019a8888-7777-7abc-8def-0123456789ab"),
    "decimal": Decimal("-1.2300E-50"),
    "decimal nan": Decimal("sNaN123"),
    "decimal infinity": Decimal("-Infinity"),
}


class Colour(str, enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Name(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "something else"


class Ratio(float):
    pass


class Blob(bytes):
    pass


class Moment(dt.datetime):
    def isoformat(self, *args: Any, **kwargs: Any) -> str:
        return "not iso"


Point = collections.namedtuple("Point", "x y")

SUBCLASSES: dict[str, tuple[Any, Any]] = {
    "str enum": (Colour.RED, "red"),
    "int enum": (Level.HIGH, 3),
    "str with its own __str__": (Name("plain"), "plain"),
    "float": (Ratio(0.5), 0.5),
    "bytes": (Blob(b"x"), b"x"),
    "defaultdict": (collections.defaultdict(list, a=[1]), {"a": [1]}),
    "OrderedDict": (collections.OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
    "Counter": (collections.Counter("aab"), {"a": 2, "b": 1}),
    "namedtuple": (Point(1, 2), (1, 2)),
    "datetime": (Moment(2026, 1, 2, tzinfo=dt.UTC), dt.datetime(2026, 1, 2, tzinfo=dt.UTC)),
    "enum as a key": ({Colour.RED: 1, Level.HIGH: 2}, {"red": 1, 3: 2}),
    "subclasses inside": ([Colour.RED, {"p": Point(1, Level.HIGH)}], ["red", {"p": (1, 3)}]),
}


def is_identical(a: Any, b: Any) -> bool:
    """Return whether two values are equal with equal types at every level; NaN equals NaN."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return (a == b and math.copysign(1, a) == math.copysign(1, b)) or (a != a and b != b)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(is_identical, a, b))
    if isinstance(a, dict):
        return len(a) == len(b) and all(
            is_identical(k, other) and is_identical(v, b[other])
            for (k, v), other in zip(a.items(), b, strict=True)
        )
    if isinstance(a, (set, frozenset)):
        return a == b and {type(x) for x in a} == {type(x) for x in b}
    if isinstance(a, Decimal):
        return str(a) == str(b)
    if isinstance(a, (dt.datetime, dt.time)):
        return a == b and a.utcoffset() == b.utcoffset() and getattr(a, "fold", 0) == b.fold
    return bool(a == b)


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_zones = st.one_of(st.none(), st.timezones(), st.just(dt.UTC), st.just(ODD_ZONE))
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    text,
    st.binary(max_size=8),
    st.datetimes(timezones=_zones),
    st.dates(),
    st.times(),
    st.timedeltas(),
    st.uuids(),
    st.decimals(),
)
# NaN is not equal to itself, so a set or a dict can hold it many times: left out of both.
_keys_flat = st.one_of(
    text, st.integers(), st.floats(allow_nan=False), st.booleans(), st.none(), st.binary(max_size=4)
)
hashables = st.recursive(
    st.one_of(_keys_flat, st.dates(), st.uuids()),
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3),
    max_leaves=5,
)
keys = _keys_flat | st.lists(hashables, max_size=3).map(tuple)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(keys, inner, max_size=4),
        st.dictionaries(st.sampled_from(["$set", "$$map", "$x", "a"]), inner, max_size=2),
        st.sets(hashables, max_size=4),
        st.frozensets(hashables, max_size=4),
    ),
    max_leaves=12,
)


def nest_lists(depth: int, leaf: Any = 0) -> Any:
    """Return a list of a list of a list …"""
    value = leaf
    for _ in range(depth):
        value = [value]
    return value


def round_trip_json(value: Any) -> Any:
    """Return a value as decoded from its JSON text."""
    return from_json(json.loads(json.dumps(to_json(value), allow_nan=False)))


def run_with_hash_seeds(program: str) -> set[str]:
    """Return what a program prints in processes with different hash seeds."""
    return {read_python(program, PYTHONHASHSEED=seed).strip() for seed in "012"}
