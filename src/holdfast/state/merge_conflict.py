"""Conflicts of a merge. Not compiled, so that they can be copied and pickled."""

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
        # Copying and unpickling return the same object, so that `is` always works.
        return "MISSING"


MISSING: Final = MissingType()
"""An absent entry: on one side of a `Conflict`, or as the decision to delete it."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """An entry that both sides changed differently since the base."""

    namespace: str
    key: str
    base: Any
    ours: Any
    theirs: Any


Resolution = Literal["raise", "ours", "theirs"] | Callable[[Conflict], object]
"""How to resolve conflicts. A function takes one and returns the value to keep, or `MISSING`."""
