"""Replacing items of a conversation by a summary, as the SDK's compaction does.

``OpenAIResponsesCompactionSession`` looks for these operations on the session that it wraps. Where
they are missing it clears the session and adds the summary: a crash in between loses everything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from holdfast.sessions.session import Session
from holdfast.snapshots.session_state import MESSAGES
from holdfast.state.snapshot import Snapshot

COMPACTED = "conversation.compacted"

Row: TypeAlias = tuple[str, Any]
"""The key of an item in the conversation, and the item."""
Test: TypeAlias = Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class CompactionSnapshot:
    """The last items of a conversation, with what replaces them from one of them on."""

    items: list[Any]
    complete: bool
    """Whether these are all items."""
    replace_suffix: Callable[[int, list[Any]], Awaitable[bool]]


def last_rows(state: Snapshot, limit: int) -> list[Row]:
    """Return the last items of a conversation, oldest first."""
    rows = [(key, item) for _, key, item in state.items(MESSAGES)]
    return rows[-limit:] if limit > 0 else []


async def replace_all(session: Session, items: list[Any]) -> None:
    """Commit other items in place of the whole conversation."""
    session.clear_messages()
    for item in items:
        session.append_message(item)
    await session.commit()


async def replace_rows(
    session: Session, expected: list[Row], items: list[Any], is_expired: Test | None
) -> bool:
    """Commit other items in place of the last ones, if these are still the last ones.

    Items at the very beginning that have expired are removed with them.

    Returns:
        False where others changed these items in between; nothing is committed then.

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
    await session.commit()
    return True
