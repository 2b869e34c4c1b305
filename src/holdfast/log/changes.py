"""Folding: applying changes in order, with no rule for any one type of event."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.state.diff import Changes
from holdfast.state.store import Store


def fold(store: Store, changes: Iterable[Changes]) -> None:
    """Bring a store to where the changes lead, from where they begin."""
    for each in changes:
        if each["set"] or each["delete"]:
            store.apply(each)
