"""Codes and tags of the types that msgpack and JSON lack."""

from __future__ import annotations

from typing import Final

MAX_DEPTH: Final = 128
"""The maximum nesting of a value."""

# Codes of msgpack extension types. They are stored and must never change.
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
BLOB: Final = 21
ATTACHMENT: Final = 22

# The same as JSON tags.
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
    BLOB: "$blob",
    ATTACHMENT: "$attachment",
}
CODES: Final[dict[str, int]] = {tag: code for code, tag in TAGS.items()}

FIRST_CONTAINER: Final = TUPLE
"""Smaller codes are scalars with a text payload; from here on, the payload is a packed list."""
