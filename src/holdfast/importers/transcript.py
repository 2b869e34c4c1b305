"""Read the lines of a transcript that a program may still be writing.

A program that is running, or that was killed, leaves an incomplete last line. It is reported apart
from the others, so that the transcript before it can be imported. Every other line must be JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from holdfast.documents.json_file import parse_json
from holdfast.errors import InvalidDocumentError
from holdfast.importers.expect import expect_object
from holdfast.importers.source import Source, has_lone_surrogate

EVENT_NAME = re.compile(r"[a-z0-9_]{1,64}")
INCOMPLETE = "transcript.incomplete"
"""The type of the event that holds an incomplete last line."""


@dataclass(frozen=True, slots=True)
class IncompleteLine:
    """A last line without a line feed that is not JSON."""

    text: str


@dataclass(frozen=True, slots=True)
class Transcript:
    """The lines of a transcript, parsed, with their numbers."""

    lines: list[tuple[int, dict[str, Any]]]
    incomplete: dict[str, Any] | None = None
    """The number and text of a last line that is not complete."""


def iterate_lines(source: Source) -> Iterator[tuple[int, Any]]:
    """Yield the parsed lines of a JSON Lines file that are not empty, with their numbers.

    The last may be an `IncompleteLine`. Texts may have lone surrogates, which some programs write.

    Raises:
        InvalidDocumentError: This is not a text file, or another line is not JSON.

    """
    raw_lines = source.text.split(b"\n")
    for number, raw in enumerate(raw_lines, 1):
        if not raw or raw.isspace():
            continue
        try:
            line = parse_json(raw, f"line {number} of {source.name}")
        except InvalidDocumentError:
            if has_lone_surrogate(raw):
                line = json.loads(raw)
            elif number < len(raw_lines):
                raise
            else:
                line = IncompleteLine(raw.decode(errors="replace"))
        yield number, line


def read_transcript(source: Source) -> Transcript:
    """Return the lines of a JSON Lines file.

    Raises:
        InvalidDocumentError: This is not a text file, has no complete line, or a line is not a JSON
            object.

    """
    lines: list[tuple[int, dict[str, Any]]] = []
    incomplete: dict[str, Any] | None = None
    for number, line in iterate_lines(source):
        if isinstance(line, IncompleteLine):
            incomplete = {"line": number, "text": line.text}
        else:
            lines.append((number, expect_object(line, f"line {number} of {source.name}")))
    if not lines:
        problem = "is empty" if incomplete is None else "has no complete line of JSON"
        raise InvalidDocumentError(f"{source.name} {problem}")
    return Transcript(lines, incomplete)


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
