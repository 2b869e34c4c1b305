"""Bounded texts: what a model reads must fit its context."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from holdfast.snapshots.session_state import MESSAGES, STATE
from holdfast.state.snapshot import Snapshot
from holdfast.values import to_json

MAX_TEXT = 2_000
"""Characters of one value in the result of a tool."""
MAX_PATH = 200
"""Characters of a path in a value."""
MAX_RESULT = 20_000
"""Characters of all values in the result of a tool."""


def to_plain_json(value: Any) -> Any:
    """Return a stored value as JSON data. What was given as JSON comes back as it was.

    Other types become the tagged objects of documents. A dict that looks like one is not escaped:
    this is for reading.
    """
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: to_plain_json(each) for key, each in value.items()}
    if isinstance(value, list):
        return [to_plain_json(each) for each in value]
    return value if isinstance(value, int) else to_json(value)


def to_json_text(value: Any) -> str:
    """Return a stored value as JSON text."""
    return msgspec.json.encode(to_plain_json(value)).decode()


def clip_text(text: str, limit: int = MAX_TEXT) -> str:
    """Return a text of at most ``limit`` characters, with a note of how much is left out."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… ({len(text) - limit} more characters)"


class Leaf(NamedTuple):
    """A scalar inside a value, as text."""

    path: str
    text: str


def iterate_leaves(value: Any, path: str = "") -> Iterator[Leaf]:
    """Yield the scalars inside JSON data, each with its path, of which the end is kept."""
    # A stack of iterators instead of recursion: values may be nested deeply.
    stack: list[Iterator[tuple[str, Any]]] = [iter([(path, value)])]
    while stack:
        found = next(stack[-1], None)
        if found is None:
            stack.pop()
            continue
        where, inner = found
        if isinstance(inner, dict):
            stack.append(iter([(join_path(where, name), inner[name]) for name in inner]))
        elif isinstance(inner, list):
            stack.append(iter([(f"{where}[{n}]", each) for n, each in enumerate(inner)]))
        elif isinstance(inner, str):
            yield Leaf(where, inner)
        elif inner is not None:
            yield Leaf(where, msgspec.json.encode(inner).decode())


def join_path(path: str, name: str) -> str:
    """Return the path of a member. Names may be long, and there may be many below one."""
    joined = f"{path}.{name}" if path else name
    return joined if len(joined) <= MAX_PATH else f"…{joined[-MAX_PATH:]}"


class Fitted(NamedTuple):
    """The entries that fit, and how many are left out."""

    kept: list[tuple[str, Any]]
    omitted: int


def fit_entries(keys: Sequence[str], get: Callable[[str], Any], budget: int, limit: int) -> Fitted:
    """Return the first entries, as JSON data, that fit a number of characters.

    An entry longer than ``limit`` becomes a clipped text. The first entry is always kept. Those
    that do not fit are not read.
    """
    kept: list[tuple[str, Any]] = []
    for key in keys:
        value = get(key)
        text = to_json_text(value)
        size = min(len(text), limit) + len(key)
        if kept and size > budget:
            break
        budget -= size
        kept.append((key, to_plain_json(value) if len(text) <= limit else clip_text(text, limit)))
    return Fitted(kept, len(keys) - len(kept))


def fit_values(state: Snapshot, budget: int, limit: int) -> Fitted:
    """Return the first values of a state that fit."""
    keys = [key for space, key in state.keys if space == STATE]
    return fit_entries(keys, lambda key: state.get(STATE, key), budget, limit)


def fit_last_messages(state: Snapshot, keys: Sequence[str], budget: int, limit: int) -> Fitted:
    """Return the last of some messages that fit, in the order of the conversation."""
    found = fit_entries(keys[::-1], lambda key: state.get(MESSAGES, key), budget, limit)
    return Fitted(found.kept[::-1], found.omitted)


def list_message_keys(state: Snapshot) -> list[str]:
    """Return the keys of all messages in the order of the conversation."""
    return [key for space, key in state.keys if space == MESSAGES]
