"""Read the lines of a transcript that a program may still be writing.

A program that is running, or that was killed, leaves an incomplete last line. It is reported apart
from the others, so that the transcript before it can be imported. Every other line must be JSON.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from holdfast.documents.json_file import parse_json
from holdfast.errors import InvalidDocumentError, short_repr
from holdfast.importers.source import Source

EVENT_NAME = re.compile(r"[a-z0-9_]{1,64}")
INCOMPLETE = "transcript.incomplete"
"""The type of the event that holds an incomplete last line."""


@dataclass(frozen=True, slots=True)
class Transcript:
    """The lines of a transcript, parsed, with their numbers."""

    lines: list[tuple[int, dict[str, Any]]]
    incomplete: dict[str, Any] | None = None
    """The number and text of a last line that is not complete."""


def read_transcript(source: Source) -> Transcript:
    """Return the lines of a JSON Lines file.

    A last line without a line feed that is not JSON is incomplete.

    Raises:
        InvalidDocumentError: This is not a text file, or a line is not a JSON object.

    """
    raw_lines = source.text.split(b"\n")
    lines: list[tuple[int, dict[str, Any]]] = []
    for number, raw in enumerate(raw_lines, 1):
        if not raw or raw.isspace():
            continue
        where = f"line {number} of {source.name}"
        try:
            line = parse_json(raw, where)
        except InvalidDocumentError:
            if number < len(raw_lines) or not lines:
                raise
            text = raw.decode(errors="replace")
            return Transcript(lines, {"line": number, "text": text})
        if not isinstance(line, dict):
            raise InvalidDocumentError(f"{where} must be an object, got {short_repr(line)}")
        lines.append((number, line))
    if not lines:
        raise InvalidDocumentError(f"{source.name} is empty")
    return Transcript(lines)


def read_first_line(source: Source) -> Any:
    """Return the first line that is not empty, parsed; None if it is not JSON."""
    if not source.is_text:
        return None
    text = source.text
    start = len(text) - len(text.lstrip())
    end = text.find(b"\n", start)
    try:
        return parse_json(text[start : end if end >= 0 else len(text)], source.name)
    except InvalidDocumentError:
        return None


def name_event(prefix: str, name: object, fallback: str) -> str:
    """Return the type of an event: a prefix and a name that the transcript gives."""
    is_name = isinstance(name, str) and EVENT_NAME.fullmatch(name)
    return f"{prefix}.{name if is_name else fallback}"
