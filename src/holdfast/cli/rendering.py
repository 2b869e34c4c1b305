"""Values and messages as lines of text that fit a width.

A short value is JSON on one line. A long text is shown as text, and what holds long texts is shown
field by field. What takes too many lines is folded: the rest of it is counted.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from rich.cells import cell_len

from holdfast.cli.console import visible
from holdfast.cli.tables import fold
from holdfast.snapshots.tool_calls import find_tool_calls
from holdfast.values import to_json

MOST_LINES = 10
"""How many lines of one value are shown unless all of them are asked for."""
INDENT = "  "
NARROWEST = 16
MOST_UNITS = 5000
"""How many lines of two texts are compared; the time that it takes grows with their product."""
SENTENCE = re.compile(r"(?<=[.!?;])\s+")


def compact(value: Any) -> str:
    """Return JSON data on one line."""
    return visible(json.dumps(value, ensure_ascii=False))


def value_lines(value: Any, width: int, most: int | None = MOST_LINES) -> list[str]:
    """Return JSON data as lines: on one if it fits, else texts as text and the rest by fields."""
    return shorten(list(lines_of(value, max(width, NARROWEST))), most)


def lines_of(value: Any, width: int) -> Iterator[str]:
    """Return all lines of JSON data."""
    one = compact(value)
    if cell_len(one) <= width and not (isinstance(value, str) and "\n" in value):
        yield one
    elif isinstance(value, str):
        yield from text_lines(value, width)
    elif isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from field_lines(visible(name), inner, width)
    elif isinstance(value, list) and value and any(isinstance(each, str | dict) for each in value):
        for number, inner in enumerate(value):
            yield from field_lines(f"[{number}]", inner, width)
    else:
        yield from fold(one, width)


def field_lines(name: str, value: Any, width: int) -> Iterator[str]:
    """Return a field: on one line if it fits, else its value below its name."""
    one = f"{name}: {compact(value)}"
    if cell_len(one) <= width and not (isinstance(value, str) and "\n" in value):
        yield one
        return
    yield from fold(f"{name}:", width)
    for line in lines_of(value, max(width - len(INDENT), NARROWEST)):
        yield f"{INDENT}{line}"


def text_lines(text: str, width: int) -> Iterator[str]:
    """Return a text as text, its long lines broken."""
    for line in text.split("\n"):
        yield from fold(visible(line), width)


def shorten(lines: list[str], most: int | None) -> list[str]:
    """Return the first lines, and how many there are beyond them."""
    if most is None or len(lines) <= most:
        return lines
    return [*lines[: most - 1], f"… {len(lines) - most + 1:,} more lines"]


# ------------------------------------------------------------------------------------- two texts


def text_difference(before: str, after: str, width: int) -> list[tuple[str, str]] | None:
    """Return how a text changed, as signs (``-``, ``+``, ``…`` or none) and lines.

    Long lines are compared by their sentences. None where the texts are too long for that.
    """
    old, new = list(units(before, width)), list(units(after, width))
    if len(old) + len(new) > MOST_UNITS:
        return None
    found: list[tuple[str, str]] = []
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    end = 0
    for group in matcher.get_grouped_opcodes(1):
        if group[0][1] > end:
            found.append(("…", ""))
        for kind, a, b, c, d in group:
            if kind == "equal":
                found += signed(" ", old[a:b], width)
            else:
                found += signed("-", old[a:b], width)
                found += signed("+", new[c:d], width)
        end = group[-1][2]
    if end < len(old):
        found.append(("…", ""))
    return found


def units(text: str, width: int) -> Iterator[str]:
    """Return what texts are compared by: lines, and the sentences of long lines."""
    for line in text.split("\n"):
        yield from SENTENCE.split(line) if cell_len(line) > width else [line]


def signed(sign: str, lines: Iterable[str], width: int) -> list[tuple[str, str]]:
    """Return lines with a sign before each."""
    return [(sign, part) for line in lines for part in fold(visible(line), width)]


def is_long_text(value: Any, width: int) -> bool:
    """Return whether JSON data is a text that is better shown as text."""
    return isinstance(value, str) and ("\n" in value or cell_len(value) > width)


# -------------------------------------------------------------------------------------- messages


def message_role(message: Any) -> str:
    """Return who speaks in a message, or what kind of item it is."""
    found = None
    if isinstance(message, dict):
        found = message.get("role") or message.get("type")
    return found if isinstance(found, str) else "-"


def message_text(message: Any) -> str:
    """Return what a message says: its text, its tool calls and the results in it."""
    if not isinstance(message, dict):
        return compact(to_json(message))
    said = [
        *texts_of(message),
        *(call_text(name, given) for _, name, given in find_tool_calls(message)),
    ]
    return "\n".join(said) if said else compact(to_json(message))


def texts_of(message: dict[str, Any]) -> Iterator[str]:
    """Return the texts of a message; its other parts by their kind."""
    for name in ("content", "parts", "output"):
        content = message.get(name)
        if isinstance(content, str):
            if content:
                yield content
            continue
        for part in content if isinstance(content, list | tuple) else ():
            if isinstance(part, str):
                yield part
            elif isinstance(part, dict) and isinstance(part.get("text"), str):
                yield part["text"]
            elif isinstance(part, dict) and not list(find_tool_calls({"content": [part]})):
                yield compact(to_json(part))


def call_text(tool: str, arguments: Any) -> str:
    """Return a tool call as code would write it."""
    given = "" if arguments is None else arguments
    return f"→ {tool}({given if isinstance(given, str) else compact(to_json(given))})"
