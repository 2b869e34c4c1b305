"""Copies of list items as they were stored, to find cheaply which have changed.

A node may change a message in place, and LangGraph may put the next checkpoint before the writes of
the node. So an item can have changed even if it is the same object and was not written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from holdfast.adapters.langgraph.codec import ROLES
from holdfast.snapshots.session_state import message_number
from holdfast.state.diff import Changes
from holdfast.values.exact_copy import UNCOPYABLE, copy_plain, find_unequal


class ItemCopies:
    """Copies of the items of one list."""

    def __init__(self, copies: list[object] | None = None) -> None:
        self._copies: list[object] = [] if copies is None else copies

    def find_changed(self, items: Sequence[Any]) -> list[int]:
        """Return the indices of items that have changed or are new."""
        contents = [
            (each.__dict__, each.__pydantic_extra__) if type(each) in ROLES else each
            for each in items
        ]
        return [*find_unequal(self._copies, contents), *range(len(self._copies), len(contents))]

    def update(self, items: Sequence[Any], changed: Collection[int]) -> ItemCopies:
        """Return the copies of the items as they are now; only the changed ones are copied.

        Called before the items are written, so that a change in between is found later.
        """
        known = self._copies[: len(items)]
        copies = known + [UNCOPYABLE] * (len(items) - len(known))
        for number in changed:
            copies[number] = copy_item(items[number])
        return ItemCopies(copies)

    def without(self, numbers: Collection[int]) -> ItemCopies:
        """Return the copies without those of some items, which then count as changed."""
        return ItemCopies(
            [UNCOPYABLE if at in numbers else each for at, each in enumerate(self._copies)]
        )


def invalidate_copies(copies: dict[str, ItemCopies], changes: Iterable[Changes]) -> None:
    """Drop the copies of items that another writer changed."""
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
    """Return a copy of an item's content, or a value that is unlike everything."""
    try:
        if type(item) in ROLES:
            return copy_plain((item.__dict__, item.__pydantic_extra__))
        return copy_plain(item)
    except (TypeError, RuntimeError):  # an unsupported type, too deep, or changed by a thread
        return UNCOPYABLE
