"""Three-way merging: which of their changes apply, and what to do where both sides changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, final

from holdfast.errors import ConflictError
from holdfast.state.diff import Difference, differences
from holdfast.state.snapshot import find
from holdfast.state.trie import Trie
from holdfast.values.binary import decode, encode, same


@final
class Missing:
    """The type of `MISSING`."""

    def __repr__(self) -> str:
        return "MISSING"

    def __bool__(self) -> bool:
        return False


MISSING: Final = Missing()
"""Stands for no entry: on a side of a `Conflict` that has none, or as a decision to delete it."""


@dataclass(frozen=True)
class Conflict:
    """One entry that both sides changed since the base, each in its own way."""

    namespace: str
    key: str
    base: Any
    ours: Any
    theirs: Any


Resolution = Literal["raise", "ours", "theirs"] | Callable[[Conflict], object]
"""What to do at a conflict. A function gets it and returns the value to keep, or `MISSING`."""


def resolved(ours: Trie, theirs: Trie, base: Trie, on_conflict: Resolution) -> list[Difference]:
    """What to write to ours, as differences of the merged state from it."""
    if not callable(on_conflict) and on_conflict not in ("raise", "ours", "theirs"):
        raise ValueError(
            f'on_conflict must be "raise", "ours", "theirs" or a function, not {on_conflict!r}'
        )
    result: list[Difference] = []
    conflicts: list[tuple[str, str]] = []
    for namespace, key, their_data, base_data in differences(theirs, base):
        our_data = find(ours, namespace, key)
        if _same(our_data, their_data):
            continue
        data = their_data
        if not _same(our_data, base_data):
            if on_conflict == "raise":
                conflicts.append((namespace, key))
                continue
            if on_conflict == "ours":
                continue
            if callable(on_conflict):
                conflict = Conflict(
                    namespace, key, _value(base_data), _value(our_data), _value(their_data)
                )
                decision = on_conflict(conflict)
                data = None if decision is MISSING else encode(decision)
                if _same(our_data, data):
                    continue
        result.append((namespace, key, data, our_data))
    if conflicts:
        names = ", ".join(f"{namespace}/{key}" for namespace, key in conflicts[:5])
        more = f" and {len(conflicts) - 5} more" if len(conflicts) > 5 else ""
        raise ConflictError(
            f"both sides changed {names}{more} since the base, in different ways; nothing was "
            'merged. Pass on_conflict="ours", "theirs" or a function that decides',
            conflicts,
        )
    return result


def _same(a: bytes | None, b: bytes | None) -> bool:
    if a is None or b is None:
        return a is b
    return same(a, b)


def _value(data: bytes | None) -> object:
    return MISSING if data is None else decode(data)
