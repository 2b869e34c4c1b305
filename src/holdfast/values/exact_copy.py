"""Copies of plain data, and whether something is still exactly like its copy.

Exactly: 1 is not True and not 1.0, 0.0 is not -0.0, and the order of a dict's keys counts. Nothing
is asked of foreign types, whose ``==`` may say anything.
"""

from __future__ import annotations

from math import copysign
from typing import Final

IMMUTABLE: Final = frozenset((str, bytes, int, float, bool, type(None)))


class Uncopyable:
    """Stands for what cannot be copied: nothing is like it."""


UNCOPYABLE: Final = Uncopyable()


def copy_plain(value: object) -> object:
    """A copy of plain data; TypeError where there is something else in it."""
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
    """The numbers of those values that are not like the copies at the same places."""
    return [
        at for at in range(min(len(copies), len(values))) if not is_equal(copies[at], values[at])
    ]


def is_equal(copy: object, value: object) -> bool:
    """Whether a value is what its copy says, in all of it."""
    if copy is value:
        return True  # What can be changed is never shared with a copy.
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
    """The same of dicts, whose keys are in the same order."""
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
