"""What the items of a list held when they were kept, to see at little cost which differ by now.

A node may change a message in place, and LangGraph may tell of the next checkpoint before it tells
what the node wrote. So neither that an item is the same object nor that nobody is known to have
written it means that it holds the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from holdfast.adapters.langgraph.codec import ROLES
from holdfast.snapshots.session_state import message_number
from holdfast.state.diff import Changes
from holdfast.values.exact_copy import UNCOPYABLE, copy_plain, find_unequal


class ItemCopies:
    """Copies of the items of one list, as they were kept."""

    def __init__(self, copies: list[object] | None = None) -> None:
        self._copies: list[object] = [] if copies is None else copies

    def differing(self, items: Sequence[Any]) -> list[int]:
        """Which items hold something else than they did, or are new."""
        contents = [
            (each.__dict__, each.__pydantic_extra__) if type(each) in ROLES else each
            for each in items
        ]
        return [*find_unequal(self._copies, contents), *range(len(self._copies), len(contents))]

    def following(self, items: Sequence[Any], differing: Collection[int]) -> ItemCopies:
        """Copies of what the list holds now, with new ones of those that are ``differing``.

        To be made before anything is written: what is changed in between differs from its copy.
        """
        known = self._copies[: len(items)]
        copies = known + [UNCOPYABLE] * (len(items) - len(known))
        for number in differing:
            copies[number] = copy_item(items[number])
        return ItemCopies(copies)

    def without(self, numbers: Collection[int]) -> ItemCopies:
        """Return the same copies, except of items that somebody else has changed."""
        return ItemCopies(
            [UNCOPYABLE if at in numbers else each for at, each in enumerate(self._copies)]
        )


def invalidate_copies(copies: dict[str, ItemCopies], changes: Iterable[Changes]) -> None:
    """Drop the copies of those items that changes of another writer touch, by their namespace."""
    touched: dict[str, set[int]] = {}
    for each in changes:
        entries = [*((space, key) for space, key, _ in each["set"]), *each["delete"]]
        for space, key in entries:
            number = message_number(key) if space in copies else None
            if number is not None:
                touched.setdefault(space, set()).add(number)
    for space, numbers in touched.items():
        copies[space] = copies[space].without(numbers)


def copy_item(item: Any) -> object:
    """A copy of what an item holds; one that nothing is like, where that cannot be copied."""
    try:
        if type(item) in ROLES:
            return copy_plain((item.__dict__, item.__pydantic_extra__))
        return copy_plain(item)
    except (TypeError, RuntimeError):  # something else in it, too deep, or being changed
        return UNCOPYABLE
