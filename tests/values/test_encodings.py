"""Both encodings round-trip supported values and reject all others."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import math
import struct
import zoneinfo
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidDocumentError, UnsupportedValueError
from holdfast.values import MAX_DEPTH, decode, encode, from_json, to_json
from holdfast.values.binary_encoding import canonicalize, is_same_value
from holdfast.values.json_encoding import encode_value, is_untagged
from support.sample_values import (
    SAMPLES,
    SUBCLASSES,
    is_identical,
    nest_lists,
    round_trip_json,
    run_with_hash_seeds,
    values,
)

Ext = msgspec.msgpack.Ext


@pytest.mark.parametrize("value", SAMPLES.values(), ids=SAMPLES)
def test_every_type_round_trips_through_both_encodings(value):
    assert is_identical(decode(encode(value)), value)
    assert is_identical(round_trip_json(value), value)
    nested = {"deep": [{"x": (value,)}], "plain": 1}
    assert is_identical(decode(encode(nested)), nested)
    assert is_identical(round_trip_json(nested), nested)


@given(values)
def test_any_value_round_trips_through_bytes(value):
    assert is_identical(decode(encode(value)), value)


@given(values)
def test_a_value_in_all_encodings_equals_each_of_them(value):
    made = encode_value(value)
    assert made.data == encode(value)
    assert made.canonical == canonicalize(encode(value))
    assert made.json == msgspec.json.encode(to_json(value))


@given(values)
def test_untagged_json_is_the_value_itself(value):
    tree = msgspec.json.decode(msgspec.json.encode(to_json(value)))
    if is_untagged(tree):
        assert is_identical(tree, from_json(tree))


def test_tags_and_deep_nesting_are_found():
    assert not is_untagged([{"a": {"$bytes": ""}}])
    assert is_untagged({"a": 1, "$b": [{"c": 2}]})
    nested: list[object] = []
    for _ in range(MAX_DEPTH - 1):
        nested = [nested]
    assert is_untagged(nested)
    assert not is_untagged([nested])


@given(values)
def test_any_value_round_trips_through_json(value):
    assert is_identical(round_trip_json(value), value)


@pytest.mark.parametrize(("value", "plain"), SUBCLASSES.values(), ids=SUBCLASSES)
def test_a_subclass_is_stored_as_its_base_type(value, plain):
    for back in (decode(encode(value)), round_trip_json(value)):
        assert is_identical(back, plain)
        assert back == value


def test_a_zoneinfo_round_trips():
    moment = dt.datetime(2026, 7, 1, tzinfo=dt.UTC).astimezone(SAMPLES["datetime in a zone"].tzinfo)
    assert decode(encode(moment)).tzinfo is moment.tzinfo


@pytest.mark.parametrize("name", ["Atlantis/Capital", "../../etc/passwd", "a.b/c", "/etc", ""])
def test_a_datetime_in_an_unknown_zone_keeps_its_instant(name):
    moment = from_json({"$datetime": f"2026-07-01T12:00:00+02:00[{name}]"})
    assert moment == dt.datetime(2026, 7, 1, 10, tzinfo=dt.UTC)


def test_a_time_in_an_unknown_zone_is_rejected():
    with pytest.raises(InvalidDocumentError, match=r"Atlantis/Capital.*tzdata"):
        from_json({"$time": "12:00:00[Atlantis/Capital]"})


def test_zones_with_unusual_names_round_trip():
    for name in ("posix/Europe/Berlin", "Etc/GMT+5"):
        try:
            zone = zoneinfo.ZoneInfo(name)
        except zoneinfo.ZoneInfoNotFoundError:
            continue
        value = dt.datetime(2024, 10, 27, 2, 30, tzinfo=zone)
        assert is_identical(decode(encode(value)), value)
        assert decode(encode(value)).tzinfo is zone


def test_a_zone_without_a_name_becomes_an_offset():
    for folder in zoneinfo.TZPATH:
        path = Path(folder, "Europe/Berlin")
        if path.exists():
            with path.open("rb") as file:
                value = dt.datetime(2026, 7, 1, tzinfo=zoneinfo.ZoneInfo.from_file(file))
            assert decode(encode(value)) == value


def test_all_nans_have_one_encoding():
    made = [
        math.nan,
        -math.nan,
        math.inf - math.inf,
        struct.unpack("<d", b"\1" * 6 + b"\xf8\x7f")[0],
    ]
    assert len({encode(nan) for nan in made}) == 1
    assert len({encode([{"x": nan}]) for nan in made}) == 1
    assert len({encode({nan: 1}) for nan in made}) == 1
    assert encode(round_trip_json(made[1])) == encode(made[1])
    with pytest.raises(UnsupportedValueError, match="two keys"):
        encode({made[0]: 1, made[2]: 2})


def test_the_decimal_context_does_not_affect_the_encoding():
    value = Decimal("1E+5")
    plain = encode(value)
    with decimal.localcontext() as context:
        context.capitals = 0
        context.prec = 1
        assert encode(value) == plain
        assert decode(encode(Decimal("1.2345678901234567890123456789012345"))) == Decimal(
            "1.2345678901234567890123456789012345"
        )


def test_a_proxy_that_claims_another_class_is_rejected():
    for kind in (dt.timedelta, dict, tuple, set, dt.date, str, Decimal):
        with pytest.raises(UnsupportedValueError, match=r"MagicMock, at|MagicMock;"):
            encode([mock.MagicMock(spec=kind)])


def test_an_error_message_tolerates_a_failing_repr():
    class Bad(int):
        def __repr__(self) -> str:
            raise OSError

    with pytest.raises(UnsupportedValueError, match="<Bad"):
        encode({Bad(1): object()})
    nested: Any = 1
    for _ in range(2000):
        nested = (nested,)
    with pytest.raises(UnsupportedValueError, match="nested more than"):
        encode({nested: 1})


def test_set_items_that_are_equal_as_base_types_are_rejected():
    class Odd(str):
        __slots__ = ()
        __hash__ = object.__hash__

        def __eq__(self, other: object) -> bool:
            return self is other

    with pytest.raises(UnsupportedValueError, match="two items of a set"):
        encode({Odd("a"), "a"})


def test_a_datetime_in_a_zone_with_changed_rules_keeps_its_instant():
    moment = from_json({"$datetime": "2026-07-01T12:00:00+05:00[Europe/Berlin]"})
    assert moment == dt.datetime(2026, 7, 1, 7, tzinfo=dt.UTC)


class Plain(enum.Enum):
    A = 1


@dataclasses.dataclass
class Image:
    data: bytes


@pytest.mark.parametrize(
    "value",
    [
        object(),
        Image(b""),
        Plain.A,
        bytearray(b"x"),
        memoryview(b"x"),
        Ext(1, b"x"),
        msgspec.Raw(b"1"),
        range(3),
        1j,
        int,
        len,
        collections.deque(),
        collections.ChainMap(),
        {1: 2}.items(),
        Exception(),
        type("Point", (msgspec.Struct,), {})(),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("form", [encode, to_json])
def test_other_types_are_rejected_with_their_path(form, value):
    with pytest.raises(UnsupportedValueError, match=type(value).__name__) as caught:
        form({"messages": [1, 2, 3, {"image": value}]})
    assert caught.value.path == "$.messages[3].image"
    assert "$.messages[3].image" in str(caught.value)
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a b": object()}, "$['a b']"),
        ({7: [object()]}, "$[7][0]"),
        ((1, object()), "$[1]"),
        ([{object}], "$[0]{…}"),
        ({"k" * 100 + " ": object()}, f"$['{'k' * 27}...{'k' * 27} ']"),
        ({10**5000: object()}, "$[<int>]"),
        (object(), "$"),
    ],
)
def test_the_path_contains_every_step(value, path):
    with pytest.raises(UnsupportedValueError) as caught:
        encode(value)
    assert caught.value.path == path


@pytest.mark.parametrize("key", [frozenset(), dt.date(2026, 1, 1), 1j, Plain.A, Decimal(1)])
def test_other_dict_key_types_are_rejected(key):
    with pytest.raises(UnsupportedValueError, match="dict key of type"):
        encode({"a": {key: 1}})


class Loud(str):
    __slots__ = ()
    __hash__ = object.__hash__


def test_dict_keys_that_are_equal_as_base_types_are_rejected():
    with pytest.raises(UnsupportedValueError, match="two keys"):
        encode({"a": {Loud("red"): 1, "red": 2}})
    with pytest.raises(UnsupportedValueError, match="two keys"):
        encode({"a": {Loud("red"): 1, "red": 2, (1,): 3}})
    assert decode(encode({Loud("red"): 1, "blue": 2})) == {"red": 1, "blue": 2}


@pytest.mark.parametrize("value", ["\ud800", ["a\udfff"], {"\ud812": 1}, {"a": {1: "\ud800"}}])
@pytest.mark.parametrize("form", [encode, to_json])
def test_a_lone_surrogate_is_rejected(form, value):
    with pytest.raises(UnsupportedValueError, match="lone surrogate"):
        form(value)


@pytest.mark.parametrize("form", [encode, to_json])
@pytest.mark.parametrize("wrap", [lambda x: [x], lambda x: {"a": x}, lambda x: (x,)])
def test_a_value_nested_too_deep_is_rejected(form, wrap):
    value: Any = 0
    for _ in range(100_000):
        value = wrap(value)
    with pytest.raises(UnsupportedValueError, match="nested more than 128"):
        form(value)
    while isinstance(value, (list, dict, tuple)) and value:
        value = value["a"] if isinstance(value, dict) else value[0]


@pytest.mark.parametrize("leaf", [0, b"x", (), dt.date(2026, 1, 1), 2**80])
def test_a_value_nested_to_the_limit_round_trips(leaf):
    flat = isinstance(leaf, tuple)
    value = nest_lists(MAX_DEPTH - flat, leaf)
    assert is_identical(decode(encode(value)), value)
    assert is_identical(round_trip_json(value), value)
    with pytest.raises(UnsupportedValueError, match="nested more than"):
        encode([value])


def test_maps_and_tuples_nested_to_the_limit_round_trip():
    value: Any = 0
    for _ in range(MAX_DEPTH // 2 - 1):
        value = ({(1,): value},)
    assert is_identical(decode(encode(value)), value)
    assert is_identical(round_trip_json(value), value)


@pytest.mark.parametrize("form", [encode, to_json])
def test_a_value_that_contains_itself_is_rejected(form):
    loop: dict[str, Any] = {"a": [1]}
    loop["a"].append({"b": loop})
    with pytest.raises(UnsupportedValueError, match="contains itself") as caught:
        form(loop)
    assert caught.value.path == "$.a[1].b"


def test_decode_returns_a_new_object_every_time():
    data = encode({"a": [1]})
    decode(data)["a"].append(2)
    assert decode(data) == {"a": [1]}


# ------------------------------------------------------------------------ equality and digests


def test_the_order_of_dict_keys_is_ignored_in_comparisons():
    one, other = {"a": 1, "b": [{"c": 1, "d": 2}]}, {"b": [{"d": 2, "c": 1}], "a": 1}
    assert encode(one) != encode(other)
    assert is_same_value(encode(one), encode(other))
    assert canonicalize(encode(one)) == canonicalize(encode(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (1, 1.0),
        ([1], (1,)),
        (b"a", "a"),
        (set(), frozenset()),
        ({1: 2}, {"1": 2}),
        (0.0, -0.0),
        ("ab", "ba"),
        ([1, 2], [2, 1]),
        ({"a": 1, "b": 2}, {"a": 2, "b": 1}),
        ({"a": "b"}, {"b": "a"}),
        (None, False),
        (((1, 2),), ((2, 1),)),
    ],
)
def test_values_with_other_types_or_content_differ(one, other):
    assert not is_same_value(encode(one), encode(other))
    assert canonicalize(encode(one)) != canonicalize(encode(other))


@given(values)
def test_canonical_bytes_decode_to_the_same_value(value):
    data = canonicalize(encode(value))
    assert is_same_value(data, encode(value))
    assert canonicalize(data) == data


def shuffle_keys(value: Any, rng: Any) -> Any:
    if isinstance(value, dict):
        items = [(k, shuffle_keys(v, rng)) for k, v in value.items()]
        rng.shuffle(items)
        return dict(items)
    if isinstance(value, (list, tuple)):
        return type(value)(shuffle_keys(item, rng) for item in value)
    return value


@given(values, st.randoms(use_true_random=False))
def test_canonical_bytes_do_not_depend_on_key_order(value, rng):
    other = shuffle_keys(value, rng)
    assert canonicalize(encode(other)) == canonicalize(encode(value))
    assert is_same_value(encode(other), encode(value))


def test_the_encoding_does_not_depend_on_the_process():
    program = (
        "from holdfast.values import encode; import sys;"
        "sys.stdout.write(encode({'s': {'a', 'b', 'c', ('d', 1)}, 'f': frozenset('xyz')}).hex())"
    )
    assert len(run_with_hash_seeds(program)) == 1
