"""The conversation that a Codex model sees, rebuilt from the lines of a rollout.

Codex appends to a rollout and never rewrites it. Two lines change what came before:

- ``compacted`` replaces the conversation by a shorter one. Old versions wrote only a summary: then
  the user's messages stay, and the summary follows them.
- ``thread_rolled_back`` removes the last turns. A turn starts with a message of the user; messages
  that Codex adds in the user's name (its environment, AGENTS.md) start none. A rollback beyond a
  compaction undoes it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from holdfast.snapshots.session_state import MESSAGES, message_key

Sets: TypeAlias = list[tuple[str, str, Any]]
Deletes: TypeAlias = list[tuple[str, str]]

CONTEXT = re.compile(
    r"\s*(?:<(?:environment_context|user_instructions|instructions|skill|user_shell_command"
    r"|turn_aborted|subagent_notification|hook_prompt)\b|# AGENTS\.md instructions for )",
    re.IGNORECASE,
)
"""How messages start that Codex adds in the user's name."""


@dataclass(frozen=True, slots=True)
class Item:
    """A message of the conversation."""

    key: str
    message: Any
    is_context: bool
    """Whether Codex added it, for the turn that follows."""


@dataclass(slots=True)
class Window:
    """The messages since a compaction."""

    items: list[Item] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    """The positions of the messages that start a turn."""
    base: int = 0
    """The number of turns that the compaction itself left."""

    def add(self, item: Item) -> None:
        """Add a message at the end."""
        if starts_turn(item):
            self.turns.append(len(self.items))
        self.items.append(item)

    def count_turns(self) -> int:
        """Return the number of turns that started after the compaction."""
        return len(self.turns) - self.base

    def drop_turns(self, count: int) -> list[Item]:
        """Remove the last turns and return their messages."""
        if not count:
            return []
        first, cut = self.turns[0], self.turns[-count]
        while cut > first and self.items[cut - 1].is_context:
            cut -= 1
        dropped = self.items[cut:]
        del self.items[cut:], self.turns[-count:]
        return dropped


class Conversation:
    """Tracks the conversation; each method returns what it sets and deletes."""

    def __init__(self) -> None:
        self._window = Window()
        self._compacted: list[Window] = []
        """What the conversation was before each compaction."""
        self._next = 0
        self._turns = 0
        """The number of turns that a rollback can remove, also those before compactions."""
        self.carried = 0
        """The number of messages that compactions kept and rollbacks beyond one brought back."""

    def append(self, message: Any) -> Sets:
        """Append a message."""
        item = self._create_item(message)
        self._window.add(item)
        self._turns += starts_turn(item)
        return [(MESSAGES, item.key, message)]

    def compact(self, replacement: list[Any] | None, summary: str) -> tuple[Sets, Deletes]:
        """Replace the conversation by a shorter one."""
        before = self._window
        window = Window()
        if replacement is None:
            kept = [before.items[position] for position in before.turns]
            text = {"type": "input_text", "text": summary}
            message = {"type": "message", "role": "user", "content": [text]}
            new = [self._create_item(message)]
            # The summary starts no turn, so it is not added like a message of the user.
            window.items, window.turns = [*kept, *new], list(range(len(kept)))
        else:
            kept, new = [], [self._create_item(each) for each in replacement]
            for item in new:
                window.add(item)
        window.base = len(window.turns)
        self.carried += len(kept)
        self._compacted.append(before)
        self._window = window
        kept_keys = {item.key for item in kept}
        deleted = [item.key for item in before.items if item.key not in kept_keys]
        return to_sets(new), to_deletes(deleted)

    def roll_back(self, turns: int) -> tuple[Sets, Deletes]:
        """Remove the last turns."""
        before = self._window
        turns = min(turns, self._turns)
        self._turns -= turns
        while turns > self._window.count_turns():
            turns -= self._window.count_turns()
            self._window = self._compacted.pop()
        dropped = self._window.drop_turns(turns)
        if self._window is before:
            return [], to_deletes([item.key for item in dropped])
        self.carried += len(self._window.items)
        keys = {item.key for item in self._window.items}
        deleted = [item.key for item in before.items if item.key not in keys]
        return to_sets(self._window.items), to_deletes(deleted)

    def _create_item(self, message: Any) -> Item:
        key = message_key(self._next)
        self._next += 1
        return Item(key, message, is_context(message))


def starts_turn(item: Item) -> bool:
    """Return whether a message starts a turn: one of the user, or of another agent."""
    message = item.message
    if message.get("type") == "agent_message":
        return True
    return message.get("role") == "user" and not item.is_context


def is_context(message: dict[str, Any]) -> bool:
    """Return whether Codex added a message itself, as context for a turn."""
    role = message.get("role")
    if role == "developer":
        return True
    content = message.get("content")
    if role != "user" or not isinstance(content, list):
        return False
    texts = [part.get("text") for part in content if isinstance(part, dict)]
    return any(isinstance(text, str) and CONTEXT.match(text) for text in texts)


def to_sets(items: list[Item]) -> Sets:
    """Return the changes that set messages."""
    return [(MESSAGES, item.key, item.message) for item in items]


def to_deletes(keys: list[str]) -> Deletes:
    """Return the changes that delete messages."""
    return [(MESSAGES, key) for key in keys]
