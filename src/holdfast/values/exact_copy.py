"""Copy plain data, and detect whether data still equals its copy exactly.

Exactly means that 1, 1.0 and True differ, 0.0 and -0.0 differ, and the order of dict keys matters.
The ``==`` of other types is never called.
"""

from __future__ import annotations

from math import copysign
from typing import Final

IMMUTABLE: Final = frozenset((str, bytes, int, float, bool, type(None)))


class Uncopyable:
    """The type of `UNCOPYABLE`."""


UNCOPYABLE: Final = Uncopyable()
"""Takes the place of a copy that could not be made; no value equals it."""


def copy_plain(value: object) -> object:
    """Copy plain data; raise TypeError if it contains another type."""
    kind = type(value)
    if kind in IMMUTABLE:
        return value
    if isinstance(value, dict) and kind is dict:
        return {copy_plain(key): copy_plain(each) for key, each in value.items()}
    if isinstance(value, list) and kind is list:
        return [copy_plain(each) for each in value]
    if isinstance(value, tuple) and kind is tuple:
        return tuple([copy_plain(each) for each in value])
    raise TypeError(kind)


def find_unequal(copies: list[object], values: list[object]) -> list[int]:
    """Return the indexes of the values that differ from their copies."""
    return [
        at for at in range(min(len(copies), len(values))) if not is_equal(copies[at], values[at])
    ]


def is_equal(copy: object, value: object) -> bool:
    """Return whether a value equals its copy exactly."""
    if copy is value:
        return True  # mutable objects are never shared with a copy
    kind = type(copy)
    if kind is not type(value):
        return False
    if isinstance(copy, str):
        return copy == value
    if isinstance(copy, dict) and isinstance(value, dict):
        return is_equal_dict(copy, value)
    if isinstance(copy, list) and isinstance(value, list):
        return len(copy) == len(value) and not find_unequal(copy, value)
    if isinstance(copy, tuple) and isinstance(value, tuple):
        return is_equal(list(copy), list(value))
    if isinstance(copy, float) and isinstance(value, float):
        return copy == value and (copy != 0 or copysign(1, copy) == copysign(1, value))
    return kind in IMMUTABLE and copy == value


def is_equal_dict(copy: dict[object, object], value: dict[object, object]) -> bool:
    """Return whether two dicts are equal exactly, including the order of their keys."""
    if len(copy) != len(value):
        return False
    keys = iter(value)
    for key, each in copy.items():
        there = next(keys)
        if key is not there and not is_equal(key, there):
            return False
        other = value[there]
        if each is not other and not is_equal(each, other):
            return False
    return True
