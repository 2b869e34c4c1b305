"""Render values and messages as lines of a given width.

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

from holdfast.cli.console import escape_control_codes
from holdfast.cli.tables import fold_text
from holdfast.snapshots.message_formats import find_tool_calls, message_texts
from holdfast.values import to_json
from holdfast.values.reference_text import describe_reference, read_json_reference
from holdfast.values.references import BlobReference

MAX_LINES = 10
"""Lines of one value that are shown by default."""
INDENT = "  "
MIN_WIDTH = 16
MAX_UNITS = 5000
"""Lines of two texts that are compared; the time grows with their product."""
SENTENCE = re.compile(r"(?<=[.!?;])\s+")


def to_compact_json(value: Any) -> str:
    """Return JSON data on one line, with references to large values as short texts."""
    return escape_control_codes(dump_json(value))


def dump_json(value: Any) -> str:
    """Return the text of JSON data; a reference is a text in angle brackets, without quotes."""
    if not has_references(value):
        return json.dumps(value, ensure_ascii=False)
    reference = read_json_reference(value)
    if reference is not None:
        return describe_reference(reference)
    if isinstance(value, list):
        return f"[{', '.join(map(dump_json, value))}]"
    fields = (f"{json.dumps(name, ensure_ascii=False)}: {dump_json(value[name])}" for name in value)
    return f"{{{', '.join(fields)}}}"


def has_references(value: Any) -> bool:
    """Return whether there is a reference inside JSON data."""
    if isinstance(value, list):
        return any(map(has_references, value))
    if isinstance(value, dict):
        return read_json_reference(value) is not None or any(map(has_references, value.values()))
    return False


def render_value(value: Any, width: int, most: int | None = MAX_LINES) -> list[str]:
    """Return JSON data on one line if it fits, else texts as text and the rest by field."""
    return truncate_lines(list(render_lines(value, max(width, MIN_WIDTH))), most)


def render_lines(value: Any, width: int) -> Iterator[str]:
    """Return all lines of JSON data."""
    one = to_compact_json(value)
    if cell_len(one) <= width and not (isinstance(value, str) and "\n" in value):
        yield one
    elif isinstance(value, str):
        yield from wrap_text(value, width)
    elif read_json_reference(value) is not None:
        yield from fold_text(one, width)
    elif isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from render_field(escape_control_codes(name), inner, width)
    elif isinstance(value, list) and value and any(isinstance(each, str | dict) for each in value):
        for number, inner in enumerate(value):
            yield from render_field(f"[{number}]", inner, width)
    else:
        yield from fold_text(one, width)


def render_field(name: str, value: Any, width: int) -> Iterator[str]:
    """Return a field on one line if it fits, else its value below its name."""
    one = f"{name}: {to_compact_json(value)}"
    if cell_len(one) <= width and not (isinstance(value, str) and "\n" in value):
        yield one
        return
    yield from fold_text(f"{name}:", width)
    for line in render_lines(value, max(width - len(INDENT), MIN_WIDTH)):
        yield f"{INDENT}{line}"


def wrap_text(text: str, width: int) -> Iterator[str]:
    """Return a text with its long lines wrapped."""
    for line in text.split("\n"):
        yield from fold_text(escape_control_codes(line), width)


def truncate_lines(lines: list[str], most: int | None) -> list[str]:
    """Return the first lines and the number of omitted ones."""
    if most is None or len(lines) <= most:
        return lines
    return [*lines[: most - 1], f"… {len(lines) - most + 1:,} more lines"]


# ------------------------------------------------------------------------------------- two texts


def diff_texts(before: str, after: str, width: int) -> list[tuple[str, str]] | None:
    """Return how a text changed, as signs (``-``, ``+``, ``…`` or none) and lines.

    Long lines are compared by sentence. Return None if the texts are too long.
    """
    old, new = list(split_units(before, width)), list(split_units(after, width))
    if len(old) + len(new) > MAX_UNITS:
        return None
    found: list[tuple[str, str]] = []
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    end = 0
    for group in matcher.get_grouped_opcodes(1):
        if group[0][1] > end:
            found.append(("…", ""))
        for kind, a, b, c, d in group:
            if kind == "equal":
                found += prefix_lines(" ", old[a:b], width)
            else:
                found += prefix_lines("-", old[a:b], width)
                found += prefix_lines("+", new[c:d], width)
        end = group[-1][2]
    if end < len(old):
        found.append(("…", ""))
    return found


def split_units(text: str, width: int) -> Iterator[str]:
    """Split a text into lines, and long lines into sentences."""
    for line in text.split("\n"):
        yield from SENTENCE.split(line) if cell_len(line) > width else [line]


def prefix_lines(sign: str, lines: Iterable[str], width: int) -> list[tuple[str, str]]:
    """Return lines with a sign in front of each."""
    return [(sign, part) for line in lines for part in fold_text(escape_control_codes(line), width)]


def is_long_text(value: Any, width: int) -> bool:
    """Return whether a value is a long text."""
    return isinstance(value, str) and ("\n" in value or cell_len(value) > width)


# -------------------------------------------------------------------------------------- messages


def message_text(message: Any) -> str:
    """Return the text, tool calls and results of a message."""
    if not isinstance(message, dict):
        return to_compact_json(to_json(message))
    said = [
        *(
            each if isinstance(each, str) else to_compact_json(to_json(each))
            for each in message_texts(message)
        ),
        *(format_call(name, given) for _, name, given in find_tool_calls(message)),
    ]
    return "\n".join(said) if said else to_compact_json(to_json(message))


def format_call(tool: str, arguments: Any) -> str:
    """Return a tool call as code."""
    given = "" if arguments is None else arguments
    if isinstance(given, BlobReference):
        given = describe_reference(given)
    return f"→ {tool}({given if isinstance(given, str) else to_compact_json(to_json(given))})"
