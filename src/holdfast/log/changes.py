"""What an event sets and deletes, and folding: applying the changes of events in order."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.log.events import Event
from holdfast.state.store import Store


def fold(store: Store, events: Iterable[Event]) -> None:
    """Bring a store to where the events lead, from where they begin."""
    for event in events:
        if event.changes["set"] or event.changes["delete"]:
            store.apply(event.changes)
