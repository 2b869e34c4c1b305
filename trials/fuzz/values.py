"""The two encodings of values: what is decoded encodes again, and to the same value in both."""

from __future__ import annotations

import datetime as dt
import json
import uuid
import zoneinfo
from decimal import Decimal
from typing import Any

import msgspec

from holdfast import InvalidDocumentError
from holdfast.values import decode, encode, from_json, to_json
from holdfast.values.binary_encoding import canonicalize
from trials.fuzz.strategies import dump_json, msgpacks, mutated_bytes, mutated_json, trees
from trials.fuzz.target import Target

VALUES: tuple[Any, ...] = (
    {"role": "user", "content": "Grüße", "n": [1, -5, 2.5, None, True], "empty": {}},
    (1, b"\x00\xff", {2: 3, (1, 2): "tuple", None: 0}, [[], ()]),
    {"big": 2**70, "bigger": 2**3000, "decimal": Decimal("1.50"), "nan": float("nan")},
    [dt.datetime(2026, 11, 15, 9, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")), dt.date(2026, 1, 2)],
    [
        dt.time(3, 4, 5, tzinfo=dt.UTC),
        dt.timedelta(days=-1, microseconds=5),
        dt.datetime.fromisoformat("0001-01-01"),
    ],
    {"ids": {uuid.UUID(int=7), 1, "a"}, "frozen": frozenset([(1, (2,)), b"x"]), "$ref": 1},
    {"$type": ["os.system", "id"]},
)


def check_round_trip(value: Any) -> None:
    """Assert that a value survives both encodings."""
    expected = canonicalize(encode(value))
    tree = json.loads(json.dumps(to_json(value)))
    assert canonicalize(encode(decode(encode(value)))) == expected, "changed by the binary encoding"
    assert canonicalize(encode(from_json(tree))) == expected, "changed by the JSON encoding"


class BinaryValues(Target):
    """The binary encoding."""

    valid = tuple(encode(value) for value in VALUES)
    inputs = mutated_bytes(valid, valid) | msgpacks()

    def check(self, data: bytes) -> None:
        """Decode, and encode again."""
        value = decode(data)
        try:
            check_round_trip(value)
        except TypeError as error:
            raise AssertionError("a decoded value cannot be encoded") from error


class JSONValues(Target):
    """The JSON encoding."""

    valid = tuple(json.dumps(to_json(value)).encode() for value in VALUES)
    inputs = (
        mutated_json([json.loads(text) for text in valid])
        | trees().map(dump_json)
        | mutated_bytes(valid)
    )

    def check(self, data: bytes) -> None:
        """Decode, and encode again."""
        value = from_json(load_json(data))
        try:
            check_round_trip(value)
        except TypeError as error:
            # Python's parser accepts lone surrogates; readers of documents use another one.
            assert "surrogate" in str(error), f"a decoded value cannot be encoded: {error}"
            raise InvalidDocumentError(str(error)) from error


def load_json(data: bytes) -> Any:
    """Parse JSON with Python's parser, which accepts more, or with msgspec's, which goes deeper."""
    for parse in (json.loads, msgspec.json.decode):
        try:
            return parse(data)
        except (RecursionError, ValueError) as error:
            reason = str(error)[:400]
    raise InvalidDocumentError(f"invalid JSON: {reason}")
