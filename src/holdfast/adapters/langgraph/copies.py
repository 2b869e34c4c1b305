"""What the items of a list held when they were kept, to see at little cost which differ by now.

A node may change a message in place, and LangGraph may tell of the next checkpoint before it tells
what the node wrote. So neither that an item is the same object nor that nobody is known to have
written it means that it holds the same.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import islice
from typing import Any

from holdfast.adapters.langgraph.codec import ROLES

IMMUTABLE = frozenset((str, bytes, int, float, bool, type(None)))


class Unlike:
    """Equal to nothing: stands for what cannot be copied, which is looked at every time."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


UNLIKE = Unlike()


class Copies:
    """Copies of the items of one list, as they were kept."""

    def __init__(self, copies: list[Any] | None = None) -> None:
        self._copies: list[Any] = [] if copies is None else copies

    def differing(self, items: Sequence[Any], written: Collection[int] = ()) -> list[int]:
        """Which items may hold something else than they did, or are new.

        Those whose ids are ``written`` are among them, as equal is not the same: 1 and True are.
        """
        contents = [
            (each.__dict__, each.__pydantic_extra__) if type(each) in ROLES else each
            for each in items
        ]
        copies = self._copies
        shared = min(len(copies), len(contents))
        new = list(range(shared, len(contents)))
        if contents[:shared] == copies[:shared]:
            found = []
        else:
            pairs = zip(contents, copies, strict=False)
            found = [number for number, (one, other) in enumerate(pairs) if one != other]
        if written:
            ids = map(id, islice(items, shared))
            found += [number for number, each in enumerate(ids) if each in written]
        return [*found, *new]

    def following(self, items: Sequence[Any], differing: Collection[int]) -> Copies:
        """Copies of what the list holds now, with new ones of those that are ``differing``.

        To be made before anything is written: what is changed in between differs from its copy.
        """
        known = self._copies[: len(items)]
        copies = known + [UNLIKE] * (len(items) - len(known))
        for number in differing:
            copies[number] = copied(items[number])
        return Copies(copies)


def copied(item: Any) -> Any:
    """A copy of what an item holds, or `UNLIKE`.

    Numbers by themselves are cheaper to write than to tell from others that are equal.
    """
    try:
        if type(item) in ROLES:
            return copied_deep(item.__dict__), copied_deep(item.__pydantic_extra__)
        return UNLIKE if isinstance(item, int | float) else copied_deep(item)
    except (TypeError, RuntimeError):  # something else in it, too deep, or being changed
        return UNLIKE


def copied_deep(value: Any) -> Any:
    """A copy of plain data; TypeError where there is something else in it."""
    kind = type(value)
    if kind in IMMUTABLE:
        return value
    if kind is dict:
        return {key: copied_deep(each) for key, each in value.items()}
    if kind is list:
        return [copied_deep(each) for each in value]
    raise TypeError(kind)
