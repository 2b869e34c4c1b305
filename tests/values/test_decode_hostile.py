"""Invalid and hostile data is rejected and never executed."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast
from holdfast import InvalidDocumentError
from holdfast.values import decode, encode, from_json, to_json
from support.sample_values import nest_lists, round_trip_json

Ext = msgspec.msgpack.Ext


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\x91",
        b"\x90\x90",
        b"\xa1\xff",
        b"\x91" * 100_000 + b"\x90",
        b"\xdd\xff\xff\xff\xff",
        b"\x81\x80\x01",
        msgspec.msgpack.encode(Ext(99, b"x")),
        msgspec.msgpack.encode(Ext(1, b"not a number")),
        msgspec.msgpack.encode(Ext(2, b"x")),
        msgspec.msgpack.encode(Ext(3, b"x")),
        msgspec.msgpack.encode(Ext(4, b"yesterday")),
        msgspec.msgpack.encode(Ext(5, b"\xff")),
        msgspec.msgpack.encode(Ext(7, b"1,2")),
        msgspec.msgpack.encode(Ext(16, msgspec.msgpack.encode("abc"))),
        msgspec.msgpack.encode(Ext(17, msgspec.msgpack.encode([[1]]))),
        msgspec.msgpack.encode(Ext(19, msgspec.msgpack.encode([1]))),
        msgspec.msgpack.encode(Ext(20, msgspec.msgpack.encode(["os.system"]))),
    ],
    ids=range(19),
)
def test_invalid_bytes_are_rejected(data):
    with pytest.raises(InvalidDocumentError):
        decode(data)


def test_deeply_nested_extension_types_are_rejected():
    data = msgspec.msgpack.encode([])
    for _ in range(3000):
        data = msgspec.msgpack.encode([Ext(16, data)])
    with pytest.raises(InvalidDocumentError, match="nested"):
        decode(data)


@given(st.binary(max_size=40))
def test_random_bytes_decode_or_are_rejected(data):
    try:
        value = decode(data)
    except holdfast.HoldfastError:
        return
    encode(value)


@pytest.mark.parametrize(
    "tree",
    [
        {"$unknown": 1},
        {"$": 1},
        {"$tuple": "abc"},
        {"$set": [[1]]},
        {"$set": 7},
        {"$map": [[1]]},
        {"$map": [{"a": 1}]},
        {"$map": [[[1], 2]]},
        {"$bytes": "not base64!"},
        {"$bytes": 1},
        {"$float": "1.5"},
        {"$int": "ten"},
        {"$int": "9" * 5000},
        {"$decimal": "x"},
        {"$datetime": ["2026"]},
        {"$uuid": "x"},
        {"$type": ["only a name"]},
        {"$type": [1, 2]},
        nest_lists(10_000),
        {"$$tuple": nest_lists(300)},
    ],
    ids=lambda tree: repr(tree)[:30] if str(type(tree)) and not isinstance(tree, list) else "deep",
)
def test_invalid_json_is_rejected(tree):
    with pytest.raises(InvalidDocumentError):
        from_json({"a": [tree]})


@pytest.mark.parametrize("tag", ["$set", "$frozenset", "$map"])
def test_colliding_hashes_are_rejected(tag):
    numbers = [{"$int": str(number * (2**61 - 1))} for number in range(2000)]
    items = [[number, None] for number in numbers] if tag == "$map" else numbers
    with pytest.raises(InvalidDocumentError, match="equal hashes; refusing to build it"):
        from_json({tag: items})
    assert len(from_json({tag: items[:1000]})) == 1000


def test_large_sets_and_dicts_of_numbers_round_trip():
    for value in (set(range(5000)), {number: number for number in range(5000)}):
        assert round_trip_json(value) == value == decode(encode(value))


def test_a_dict_that_looks_like_a_tag_stays_a_dict():
    hostile = {"$type": ["os.system", "echo pwned"]}
    assert to_json(hostile) == {"$$type": ["os.system", "echo pwned"]}
    assert round_trip_json(hostile) == hostile


def test_plain_values_are_unchanged_in_json():
    value = {"step": 3, "name": "Grüße", "done": False, "items": [1, 2.5, None], "$a": 1}
    assert to_json(value) == value
    assert to_json((1, b"x", {2: 3})) == {"$tuple": [1, {"$bytes": "eA=="}, {"$map": [[2, 3]]}]}
