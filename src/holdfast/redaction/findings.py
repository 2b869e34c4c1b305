"""A finding of redaction in a text, and the libraries that find it."""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from typing import Any

from holdfast.extras import require_extra

SECRET = "secret"  # noqa: S105 - the name of a kind


@dataclass(frozen=True, slots=True)
class Finding:
    """A part of a text to remove."""

    start: int
    end: int
    kind: str
    distinct: bool = True
    """Whether the same text is a secret everywhere; a password may be a common word."""


def is_separate_word(text: str, start: int, end: int) -> bool:
    """Return whether no letter, digit, dash or underscore is next to a part of a text."""
    beside = text[max(0, start - 1) : start] + text[end : end + 1]
    return not any(char.isalnum() or char in "-_" for char in beside)


def match_end(regex: re.Pattern[str], text: str, at: int) -> int:
    """Return the end of a match at a position, or the position if there is none."""
    match = regex.match(text, at)
    return at if match is None else match.end()


def import_library(module: str) -> Any:
    """Import a module of a library that the extra ``redaction`` installs.

    Raises:
        MissingExtraError: The library is not installed.

    """
    with require_extra("redaction"):
        return importlib.import_module(module)
