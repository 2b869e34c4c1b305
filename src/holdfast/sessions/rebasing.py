"""Putting one's own events on top of those that another writer committed first.

It can be done where both touched different keys, or made them equal. Messages are an exception of
the good kind: whoever appends one does not mean a certain number, so one's own move behind the
other's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from holdfast.errors import ConflictError
from holdfast.log.events import Draft
from holdfast.sessions.recording import Recording
from holdfast.snapshots.session_state import MESSAGES, message_key, message_number
from holdfast.state.diff import Changes, Pair

MISSING = object()
STARTED = "session.started"


def rebased(ours: Recording, theirs: Recording, their_changes: Iterable[Changes]) -> Recording:
    """``theirs`` with our events on top. ``ConflictError`` lists the keys that both touched.

    ``theirs`` begins where ``ours`` did, with nothing pending; ``their_changes`` led there.
    """
    first = ours.base_next_message
    shift = theirs.next_message - first
    drafts = [moved(each, first, shift) for each in ours.pending]
    if ours.end.seq == 0 and drafts and drafts[0].type == STARTED:
        # Both found no session and began one. It began once.
        del drafts[0]
    both = pairs(each.changes for each in drafts) & pairs(their_changes)
    result = Recording(theirs.store.fork(), theirs.end)
    for each in drafts:
        result.add(each)
    different = [
        pair
        for pair in both
        if result.store.get(*pair, MISSING) != theirs.store.get(*pair, MISSING)
    ]
    if different:
        raise ConflictError(
            "another writer changed the same entries: "
            + ", ".join(f"{space}/{key}" for space, key in sorted(different)[:5])
            + (" and more" if len(different) > 5 else ""),
            different,
        )
    return result


def moved(event: Draft, first: int, shift: int) -> Draft:
    """An event whose own messages have other numbers."""
    if shift == 0:
        return event
    sets = [
        (space, moved_key(space, key, first, shift), value)
        for space, key, value in event.changes["set"]
    ]
    deletes = [
        (space, moved_key(space, key, first, shift)) for space, key in event.changes["delete"]
    ]
    return replace(event, changes={"set": sets, "delete": deletes})


def moved_key(space: str, key: str, first: int, shift: int) -> str:
    """The key of an entry after our messages have moved."""
    number = message_number(key) if space == MESSAGES else None
    return key if number is None or number < first else message_key(number + shift)


def pairs(changes: Iterable[Changes]) -> set[Pair]:
    """The entries that changes touch."""
    found: set[Pair] = set()
    for each in changes:
        found.update((space, key) for space, key, _ in each["set"])
        found.update(each["delete"])
    return found
