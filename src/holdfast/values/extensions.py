"""What the two forms call what they cannot say natively: numbers in bytes, tags in JSON."""

from __future__ import annotations

from typing import Final

MAX_DEPTH: Final = 128
"""How deep a value may be nested. Beyond it there is a clear error instead of a full stack."""

# Extension types of the bytes form. They are stored: a number is never given a second meaning.
INT: Final = 1
DECIMAL: Final = 2
UUID: Final = 3
DATETIME: Final = 4
DATE: Final = 5
TIME: Final = 6
TIMEDELTA: Final = 7
TUPLE: Final = 16
SET: Final = 17
FROZENSET: Final = 18
MAP: Final = 19
CUSTOM: Final = 20

# The same in JSON, plus what msgpack says natively and JSON does not.
TAGS: Final[dict[int, str]] = {
    INT: "$int",
    DECIMAL: "$decimal",
    UUID: "$uuid",
    DATETIME: "$datetime",
    DATE: "$date",
    TIME: "$time",
    TIMEDELTA: "$timedelta",
    TUPLE: "$tuple",
    SET: "$set",
    FROZENSET: "$frozenset",
    MAP: "$map",
    CUSTOM: "$type",
}
CODES: Final[dict[str, int]] = {tag: code for code, tag in TAGS.items()}

FIRST_CONTAINER: Final = TUPLE
"""Smaller numbers are scalars with a text as payload, from here on a payload is a packed list."""
