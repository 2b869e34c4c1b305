"""What redaction finds in a text, and the libraries that it needs for that."""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from typing import Any

from holdfast.extras import require_extra

SECRET = "secret"  # noqa: S105 - the name of a kind


@dataclass(frozen=True, slots=True)
class Finding:
    """Something to take out of a text."""

    start: int
    end: int
    kind: str
    distinct: bool = True
    """Whether the same characters mean the same wherever they stand; a password may be a word."""


def is_separate_word(text: str, start: int, end: int) -> bool:
    """Whether no letter, digit, dash or underscore stands beside it."""
    beside = text[max(0, start - 1) : start] + text[end : end + 1]
    return not any(char.isalnum() or char in "-_" for char in beside)


def match_end(regex: re.Pattern[str], text: str, at: int) -> int:
    """Return where something ends that goes on like this."""
    match = regex.match(text, at)
    return at if match is None else match.end()


def import_library(module: str) -> Any:
    """Import a module of a library that redaction needs.

    Raises:
        MissingExtraError: It is not installed, or cannot be imported.

    """
    with require_extra("redaction"):
        return importlib.import_module(module)
