"""The two forms of a value. What is read is written again, and then says the same in both forms."""

from __future__ import annotations

import datetime as dt
import json
import uuid
import zoneinfo
from collections.abc import Sequence
from decimal import Decimal
from random import Random
from typing import Any

import msgspec
from hypothesis.strategies import SearchStrategy

from holdfast import InvalidDocumentError
from holdfast.values import decode, encode, from_json, to_json
from holdfast.values.binary_encoding import canonicalize
from trials.fuzz import junk
from trials.fuzz.mutation import changed_bytes, changed_json, written
from trials.fuzz.trying import Target, Wrong

REAL: tuple[Any, ...] = (
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


def check(value: Any) -> None:
    """Refuse a value that does not come back from either form as it was."""
    first = canonicalize(encode(value))
    tree = json.loads(json.dumps(to_json(value)))
    for form, again in (("bytes", decode(encode(value))), ("JSON", from_json(tree))):
        if canonicalize(encode(again)) != first:
            raise Wrong(f"it is another value after a turn through {form}: {value!r:.200}")


class ValueBytes(Target):
    """The bytes form."""

    name = "value-bytes"

    @property
    def corpus(self) -> Sequence[bytes]:
        """Every kind of value."""
        return [encode(value) for value in REAL]

    def mutated(self, rng: Random) -> bytes:
        """Damaged bytes."""
        return changed_bytes(rng, rng.choice(self.corpus), self.corpus)

    def made_up(self) -> SearchStrategy[bytes]:
        """Msgpack of any kind."""
        return junk.packed()

    def attempt(self, data: bytes) -> None:
        """Read and write it."""
        value = decode(data)
        try:
            check(value)
        except TypeError as error:
            raise Wrong(f"it was read and cannot be written: {error}") from error


class ValueJSON(Target):
    """The JSON form, as it is in a text of JSON."""

    name = "value-json"

    @property
    def corpus(self) -> Sequence[bytes]:
        """Every kind of value."""
        return [json.dumps(to_json(value)).encode() for value in REAL]

    def mutated(self, rng: Random) -> bytes:
        """Damaged JSON."""
        data = rng.choice(self.corpus)
        return changed_json(rng, data) if rng.randrange(3) else changed_bytes(rng, data)

    def made_up(self) -> SearchStrategy[bytes]:
        """JSON with tags."""
        return junk.trees().map(written)

    def attempt(self, data: bytes) -> None:
        """Read and write it; JSON itself is read by others, which have tests of their own."""
        value = from_json(parsed(data))
        try:
            check(value)
        except TypeError as error:
            if "surrogate" not in str(error):
                raise Wrong(f"it was read and cannot be written: {error}") from error
            raise InvalidDocumentError(str(error)) from error


def parsed(data: bytes) -> Any:
    """What a text of JSON says: as Python reads it, which takes more than others do."""
    try:
        return json.loads(data)
    except (RecursionError, ValueError):
        try:
            return msgspec.json.decode(data)
        except (RecursionError, ValueError) as error:
            raise InvalidDocumentError(f"no JSON: {error!s:.400}") from None
