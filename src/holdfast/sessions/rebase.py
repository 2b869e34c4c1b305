"""Putting one's own events on top of those that another writer committed first.

It can be done where both touched different keys, or made them equal. Messages are an exception of
the good kind: whoever appends one does not mean a certain number, so one's own move behind the
other's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from holdfast.errors import ConflictError
from holdfast.log.event import EventDraft
from holdfast.sessions.once import ONCE_DONE
from holdfast.sessions.working_state import WorkingState
from holdfast.snapshots.session_state import MESSAGES, message_key, message_number
from holdfast.state.diff import Changes, Pair

STARTED = "session.started"
APPENDED = "message.appended"
NO_MESSAGE = 10**12


def rebase_pending(
    ours: WorkingState, theirs: WorkingState, their_changes: Iterable[Changes]
) -> WorkingState:
    """``theirs`` with our events on top. ``ConflictError`` lists the keys that both touched.

    ``theirs`` begins where ``ours`` did, with nothing pending; ``their_changes`` led there.
    """
    first = ours.base_next_message
    shift = theirs.next_message - first
    if restores_messages(ours, first):
        # Messages that were there before have numbers of their own, and nothing moves.
        first, shift = NO_MESSAGE, 0
    drafts = [renumber_messages(each, first, shift) for each in ours.pending]
    if ours.end.seq == 0 and drafts and drafts[0].type == STARTED:
        # Both found no session and began one. It began once.
        del drafts[0]
    # What we appended has no number of its own yet, so nobody can have touched it.
    ours_touched = {
        (space, key)
        for space, key in touched_entries(each.changes for each in ours.pending)
        if not is_new_message(space, key, first)
    }
    both = ours_touched & touched_entries(their_changes)
    # A restored state brings back what was done before; that is no second time.
    done = touched_entries(each.changes for each in ours.pending if each.type == ONCE_DONE)
    done_twice = sorted(both & done)
    if done_twice:
        raise ConflictError(
            "another writer has done the same side effect in this moment, so it was done twice: "
            + ", ".join(key for _, key in done_twice[:5]),
            done_twice,
        )
    result = WorkingState(theirs.store.fork(), theirs.end)
    for each in drafts:
        result.add(each)
    diff = result.store.snapshot().diff(theirs.store.snapshot())
    changed = {*diff["added"], *diff["removed"], *diff["changed"]}
    different = sorted(both & changed)
    if different:
        raise ConflictError(
            "another writer changed the same entries: "
            + ", ".join(f"{space}/{key}" for space, key in different[:5])
            + (" and more" if len(different) > 5 else ""),
            different,
        )
    return result


def restores_messages(ours: WorkingState, first: int) -> bool:
    """Whether an event sets messages behind the committed ones that it did not append."""
    # A number is given anew when its message was taken back, and a rollback brings any of them.
    appended: dict[str, list[object]] = {}
    for event in ours.pending:
        messages = {key: value for space, key, value in event.changes["set"] if space == MESSAGES}
        if event.type == APPENDED:
            for key, value in messages.items():
                appended.setdefault(key, []).append(value)
        elif any(
            is_new_message(MESSAGES, key, first) and value not in appended.get(key, ())
            for key, value in messages.items()
        ):
            return True
    return False


def renumber_messages(event: EventDraft, first: int, shift: int) -> EventDraft:
    """An event whose own messages have other numbers."""
    if shift == 0:
        return event
    sets = [
        (space, renumber_key(space, key, first, shift), value)
        for space, key, value in event.changes["set"]
    ]
    deletes = [
        (space, renumber_key(space, key, first, shift)) for space, key in event.changes["delete"]
    ]
    return replace(event, changes={"set": sets, "delete": deletes})


def renumber_key(space: str, key: str, first: int, shift: int) -> str:
    """The key of an entry after our messages have moved."""
    return message_key(int(key) + shift) if is_new_message(space, key, first) else key


def is_new_message(space: str, key: str, first: int) -> bool:
    """Whether an entry is a message with a certain number or a later one."""
    number = message_number(key) if space == MESSAGES else None
    return number is not None and number >= first


def touched_entries(changes: Iterable[Changes]) -> set[Pair]:
    """The entries that changes touch."""
    found: set[Pair] = set()
    for each in changes:
        found.update((space, key) for space, key, _ in each["set"])
        found.update(each["delete"])
    return found
