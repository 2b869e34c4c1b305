"""Registered types."""

from __future__ import annotations

import dataclasses
import enum
from decimal import Decimal

import msgspec
import pytest

import holdfast
from holdfast import UnsupportedValueError
from holdfast.values import MAX_DEPTH, decode, encode, from_json, register_type
from holdfast.values.binary_encoding import canonicalize, is_same_value
from support.sample_values import nest_lists, round_trip_json

Ext = msgspec.msgpack.Ext


class Plain(enum.Enum):
    A = 1


@dataclasses.dataclass
class Image:
    data: bytes


@dataclasses.dataclass(frozen=True)
class Money:
    amount: Decimal
    currency: str


def register_money() -> None:
    register_type(
        Money,
        name="example.money",
        encode=lambda money: [money.amount, money.currency],
        decode=lambda parts: Money(parts[0], parts[1]),
    )


def test_a_registered_type_round_trips_through_both_encodings():
    register_money()
    value = {"price": Money(Decimal("9.90"), "EUR"), "all": [Money(Decimal(1), "USD")]}
    assert decode(encode(value)) == value
    assert round_trip_json(value) == value
    assert is_same_value(canonicalize(encode(value)), encode(value))
    store = holdfast.Store()
    store.set("shop", "price", value)
    assert store.get("shop", "price") == value


def test_an_encoder_that_returns_an_unsupported_value_is_rejected():
    register_type(Image, name="example.image", encode=lambda image: image.data, decode=Image)
    assert decode(encode(Image(b"x"))) == Image(b"x")
    with pytest.raises(UnsupportedValueError, match="object"):
        encode([Image(object())])
    with pytest.raises(UnsupportedValueError, match="nested more than"):
        encode(nest_lists(MAX_DEPTH, Image(b"x")))


def test_reading_an_unregistered_name_is_rejected():
    data = msgspec.msgpack.encode(Ext(20, msgspec.msgpack.encode(["example.unknown", 1])))
    with pytest.raises(UnsupportedValueError, match=r"example\.unknown.*register_type"):
        decode(data)
    with pytest.raises(UnsupportedValueError, match="register_type"):
        from_json({"$type": ["example.unknown", 1]})


def test_conflicting_registrations_are_rejected():
    register_money()
    register_money()
    keep = {"encode": str, "decode": str}
    with pytest.raises(ValueError, match="supported natively"):
        register_type(dict, name="d", encode=dict, decode=dict)
    with pytest.raises(ValueError, match="already registered for .*Money"):
        register_type(Plain, name="example.money", **keep)
    with pytest.raises(ValueError, match="already registered as"):
        register_type(Money, name="example.cash", **keep)
    for name in ("", "\ud800"):
        with pytest.raises(ValueError, match="non-empty text"):
            register_type(Plain, name=name, **keep)
    with pytest.raises(TypeError, match="expected a class"):
        register_type(5, name="five", **keep)
    with pytest.raises(TypeError, match="must be functions"):
        register_type(Plain, name="plain", encode=5, decode=str)
