"""What a merge asks about. Not compiled: plain data that can be copied and pickled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, final


@final
class MissingType:
    """The type of `MISSING`."""

    def __repr__(self) -> str:
        return "MISSING"

    def __bool__(self) -> bool:
        return False

    def __reduce__(self) -> str:
        # Copies and pickles of it are the thing itself, so that `is` always works.
        return "MISSING"


MISSING: Final = MissingType()
"""Stands for no entry: on a side of a `Conflict` that has none, or as a decision to delete it."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """One entry that both sides changed since the base, each in its own way."""

    namespace: str
    key: str
    base: Any
    ours: Any
    theirs: Any


Resolution = Literal["raise", "ours", "theirs"] | Callable[[Conflict], object]
"""What to do at a conflict. A function gets it and returns the value to keep, or `MISSING`."""
