"""Bounded texts: what a model reads must fit its context."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from holdfast.values import to_json

MAX_TEXT = 2_000
"""Characters of one value in the result of a tool."""
MAX_RESULT = 20_000
"""Characters of all values in the result of a tool."""


def to_json_text(value: Any) -> str:
    """Return a stored value as JSON text."""
    return msgspec.json.encode(to_json(value)).decode()


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
    """Yield the scalars inside JSON data, each with its path."""
    # A stack of iterators instead of recursion: values may be nested deeply.
    stack: list[Iterator[tuple[str, Any]]] = [iter([(path, value)])]
    while stack:
        found = next(stack[-1], None)
        if found is None:
            stack.pop()
            continue
        where, inner = found
        if isinstance(inner, dict):
            stack.append(
                iter([(f"{where}.{name}" if where else str(name), inner[name]) for name in inner])
            )
        elif isinstance(inner, list):
            stack.append(iter([(f"{where}[{n}]", each) for n, each in enumerate(inner)]))
        elif isinstance(inner, str):
            yield Leaf(where, inner)
        elif inner is not None:
            yield Leaf(where, msgspec.json.encode(inner).decode())


class Fitted(NamedTuple):
    """The entries that fit, and how many are left out."""

    kept: list[tuple[str, Any]]
    omitted: int


def fit_entries(entries: Iterable[tuple[str, Any]], budget: int, limit: int) -> Fitted:
    """Return as many entries, as JSON data, as fit a number of characters.

    An entry longer than ``limit`` becomes a clipped text. The first entry is always kept.
    """
    kept: list[tuple[str, Any]] = []
    omitted = 0
    for key, value in entries:
        text = to_json_text(value)
        if omitted or (kept and min(len(text), limit) > budget):
            omitted += 1
            continue
        budget -= min(len(text), limit)
        kept.append((key, to_json(value) if len(text) <= limit else clip_text(text, limit)))
    return Fitted(kept, omitted)
