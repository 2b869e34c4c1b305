"""Replace items of a conversation by a summary, for the SDK's compaction.

``OpenAIResponsesCompactionSession`` looks for these operations on the session that it wraps.
Without them it clears the session and adds the summary: a crash in between loses everything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from holdfast.sessions.session import Session
from holdfast.snapshots.session_state import MESSAGES
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store

COMPACTED = "conversation.compacted"

Row: TypeAlias = tuple[str, Any]
"""The key of an item in the conversation, and the item."""
Test: TypeAlias = Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class CompactionSnapshot:
    """The last items of a conversation, and the function that replaces them."""

    items: list[Any]
    complete: bool
    """Whether these are all items."""
    replace_suffix: Callable[[int, list[Any]], Awaitable[bool]]


def last_rows(state: Snapshot, limit: int) -> list[Row]:
    """Return the last items of a conversation, oldest first. Earlier items are not decoded."""
    store = Store(max_history=0)
    store.restore(state)
    keys = store.keys(MESSAGES)[-limit:] if limit > 0 else []
    items = store.get_many([(MESSAGES, key) for key in keys])
    return list(zip(keys, items, strict=True))


def replace_all(session: Session, items: list[Any]) -> None:
    """Replace the whole conversation."""
    session.clear_messages()
    for item in items:
        session.append_message(item)


def replace_rows(
    session: Session, expected: list[Row], items: list[Any], is_expired: Test | None
) -> bool:
    """Replace the last items, if they are still the expected ones.

    Expired items at the very beginning are removed with them.

    Returns:
        False if another writer changed these items; nothing is recorded then.

    """
    rows = last_rows(session.snapshot(), session.message_count)
    kept, suffix = rows[: -len(expected)], rows[-len(expected) :]
    if suffix != expected:
        return False
    expired = []
    for key, item in kept:
        if is_expired is None or not is_expired(item):
            break
        expired.append(key)
    removed = [*expired, *(key for key, _ in expected)]
    session.record(
        COMPACTED,
        {"removed": len(removed), "added": len(items)},
        changes={"set": [], "delete": [(MESSAGES, key) for key in removed]},
    )
    for item in items:
        session.append_message(item)
    return True
